"""The Bitable in the store: one base, rows that neither side has twice, and what changed since."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from storage.bitable import BitableRepo, HistoryPosition
from storage.db import Transaction
from storage.records.bitable import (
    BitableBase,
    BitableState,
    SyncedKind,
    SyncedRowState,
    SyncedTable,
    SyncProgress,
    TableRole,
    TaskField,
)
from storage.records.people import Language
from storage.records.task_logs import LogKind, NewLog
from tests.engine_harness import BOSS, CHAT, GROUP, EngineHarness, run_engine

BASE = BitableBase(
    base="bascn1",
    name="Work",
    url="https://feishu.example/base/bascn1",
    language=Language.CHINESE,
    chat_id=GROUP.id,
    owner=BOSS.id,
    tables={
        TableRole.TASKS: SyncedTable(
            table="tbl1",
            fields={TaskField.TITLE: "fld1"},
            options={TaskField.STATUS: {"paused": "opt1"}},
        )
    },
)


async def _with_row(repo: BitableRepo, world: EngineHarness) -> None:
    await repo.save_base(BASE)
    async with world.db.write() as tx:
        await repo.add_row(
            tx,
            SyncedKind.TASK,
            local_id="abc",
            record_id="rec1",
            state=SyncedRowState.LIVE,
            cells={TaskField.TITLE: "a", TaskField.COST: 0.5, TaskField.STARTED: None},
        )


async def _add(repo: BitableRepo, tx: Transaction, local_id: str, record_id: str) -> None:
    await repo.add_row(
        tx,
        SyncedKind.TASK,
        local_id=local_id,
        record_id=record_id,
        state=SyncedRowState.CREATING,
        cells={},
    )


async def test_a_base_and_its_rows_are_read_back_as_they_were_stored(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        repo = BitableRepo(world.db)
        none = await repo.get_base()
        await _with_row(repo, world)
        (row,) = await repo.list_rows(record_ids=["rec1", "rec2"])
        changed = replace(row, orders={"title": 7}, wanted={"title": "b"}, revision=3)
        async with world.db.write() as tx:
            await repo.save_row(tx, changed)

        assert none is None
        assert await repo.get_base() == BASE
        assert await repo.list_rows(local_ids=["abc"]) == (changed,)
        assert await repo.list_rows(states=[SyncedRowState.GONE]) == ()


async def test_the_same_base_keeps_its_rows_and_another_one_forgets_them(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        repo = BitableRepo(world.db)
        await _with_row(repo, world)
        async with world.db.write() as tx:
            await repo.set_progress(tx, SyncProgress(events=9, since=7, tables={"tasks": 5}))
        renamed = replace(BASE, name="Plan")
        await repo.save_base(renamed)
        kept, read = await repo.list_rows(), await repo.get_progress()
        await repo.save_base(replace(BASE, base="bascn2"))

        assert [each.record_id for each in kept] == ["rec1"]
        assert read == SyncProgress(since=7)
        assert await repo.list_rows() == ()
        assert await repo.get_progress() == SyncProgress()


@pytest.mark.parametrize(("local_id", "record_id"), [("abc", ""), ("", "rec1")])
async def test_no_object_and_no_record_has_two_rows(
    tmp_path: Path, local_id: str, record_id: str
) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        repo = BitableRepo(world.db)
        await _with_row(repo, world)

        with pytest.raises(Exception, match=r"(?i)unique"):
            async with world.db.write() as tx:
                await _add(repo, tx, local_id, record_id)


async def test_rows_without_an_object_or_a_record_may_be_many(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        repo = BitableRepo(world.db)
        async with world.db.write() as tx:
            for n in range(2):
                await _add(repo, tx, f"task{n}", "")
                await _add(repo, tx, "", f"rec{n}")

        assert len(await repo.list_rows()) == 4


async def test_only_changed_tasks_of_the_chat_are_read(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        repo = BitableRepo(world.db)
        await world.create_task("elsewhere", chat_id=CHAT.id)
        ours = await world.create_task("ours", chat_id=GROUP.id)
        first, seen = await repo.list_changed_tasks(GROUP.id, HistoryPosition(), limit=100)
        quiet, still = await repo.list_changed_tasks(GROUP.id, seen, limit=100)
        new = NewLog(task_id=ours.id, source="s", kind=LogKind.FINDING, text="x")
        async with world.db.write() as tx:
            await world.store.logs.add(tx, new, now=world.clock())
        logged, later = await repo.list_changed_tasks(GROUP.id, seen, limit=100)

    assert (first, quiet, logged) == ((ours.id,), (), (ours.id,))
    assert still == seen
    assert later == replace(seen, logs=seen.logs + 1)


async def test_a_stop_is_told_once(tmp_path: Path) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        repo = BitableRepo(world.db)
        await repo.save_base(BASE)
        told = [await repo.set_state(BitableState.STOPPED, "gone") for _ in range(2)]
        base = await repo.get_base()

    assert told == [True, False]
    assert base is not None
    assert (base.state, base.reason) == (BitableState.STOPPED, "gone")
