"""Tests what is done with the files of a machine that does not lead."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bot.config.settings import RetentionSettings
from bot.engine.autonomy.doctor import describe_waiting_homes
from bot.engine.upkeep import HomeKeeper
from storage.db import Database, Transaction
from storage.errors import NotFound, WrongState
from storage.home_files import (
    OBJECT_STORE,
    HomeFileRepo,
    LateFile,
    drop_late_files,
    list_waiting_homes,
    remove_home,
)
from storage.records.tasks import Task, TaskId
from storage.shared_files import FileShareError, OneFolder
from tests.bot.engine.upkeep.test_retention import NOW, column, fill, names, retention
from tests.migrated_database import open_database

LATE = "files/tasks/new001/f"


@dataclass(kw_only=True)
class ObjectStore(OneFolder):
    """Away while it `fails`."""

    fails: bool = False
    published: list[str] = field(default_factory=list)
    on_publish: Callable[[], Awaitable[None]] | None = None

    async def publish(self, path: str) -> None:
        if self.fails:
            raise FileShareError("away")
        self.published.append(path)
        if self.on_publish is not None:
            await self.on_publish()


@dataclass(kw_only=True)
class Machine:
    home: Path
    db: Database
    store: ObjectStore = field(default_factory=ObjectStore)
    now: Any = NOW
    erased: list[Mapping[str, Any]] = field(default_factory=list)
    followed: list[str] = field(default_factory=list)

    @property
    def rows(self) -> HomeFileRepo:
        return HomeFileRepo(self.db, "here")

    def keeper(self) -> HomeKeeper:
        async def no_worktree(_: Task) -> None:
            raise AssertionError

        async def erase(what: Mapping[str, Any]) -> None:
            if self.store.fails:
                raise OSError
            self.erased.append(what)

        async def follow(late: LateFile) -> Callable[[Transaction], Awaitable[None]]:
            async def post(_: Transaction) -> None:
                self.followed.append(late.path)

            return post

        async def sleep(_: float) -> None:
            raise AssertionError

        return HomeKeeper(
            home=self.home,
            place="here",
            rows=self.rows,
            files=self.store,
            retention=retention(
                self.db,
                self.home,
                RetentionSettings(workspaces_days=0),
                remove_worktree=no_worktree,
                sleep=sleep,
            ),
            erase=erase,
            erase_shared=erase,
            follow=follow,
            on_posted=lambda: None,
            db=self.db,
            now=lambda: self.now,
            sleep=sleep,
        )


async def test_old_files_go_and_the_store_is_left_to_the_leader(tmp_path: Path) -> None:
    async with open_database(tmp_path) as db:
        fill(tmp_path)
        before = column(tmp_path, "SELECT key FROM outbox")
        await Machine(home=tmp_path, db=db).keeper().look()

    assert names(tmp_path / "files/inbox") == {"2", "3", "4"}
    assert names(tmp_path / "files/tasks") == {"new001", "open01"}
    assert names(tmp_path / "exports") == {"new.md"}
    assert len(names(tmp_path / "work")) == 4
    assert column(tmp_path, "SELECT key FROM outbox") == before


async def test_what_is_to_be_erased_is_tried_until_it_is(tmp_path: Path) -> None:
    async with open_database(tmp_path) as db:
        machine = Machine(home=tmp_path, db=db)
        await machine.rows.register("here", now=NOW)
        what = {"chat": "c1"}
        await HomeFileRepo(db, "other").forget(["work/t1"], what, in_store=True, now=NOW)
        keeper = machine.keeper()

        machine.store.fails = True
        await keeper.look()
        assert machine.erased == []
        assert {each.tries for each in await machine.rows.list_due_erasures(NOW)} == set()
        machine.store.fails = False
        machine.now = NOW + timedelta(minutes=10)
        due = await machine.rows.list_due_erasures(machine.now)
        assert sorted((each.home, each.tries) for each in due) == [(OBJECT_STORE, 1), ("here", 1)]
        await keeper.look()

        assert machine.erased == [what, what]
        assert await machine.rows.list_due_erasures(NOW + timedelta(days=9)) == ()


async def test_a_late_file_is_shared_once_and_follows_the_card_that_had_to_go(
    tmp_path: Path,
) -> None:
    async with open_database(tmp_path) as db:
        fill(tmp_path)
        machine = Machine(home=tmp_path, db=db)
        task, other = TaskId("new001"), HomeFileRepo(db, "other")
        gone = "files/tasks/new001/gone"
        for path in (LATE, gone):
            await machine.rows.add_late(path, task, now=NOW)
        assert await other.list_late([LATE, "x"]) == [LATE]
        async with db.write() as tx:
            await other.mark_told(tx, [LATE, gone])
        machine.store.fails = True
        machine.now = NOW + timedelta(minutes=1)
        keeper = machine.keeper()

        await keeper.look()
        assert await other.list_late([LATE, gone]) == [LATE], "what is deleted cannot come"
        machine.store.fails = False
        machine.now = NOW + timedelta(minutes=5)
        await keeper.look()
        await keeper.look()

    assert machine.store.published == [LATE]
    assert machine.followed == [LATE]


async def test_a_machine_that_has_left_is_named_and_can_be_given_up(tmp_path: Path) -> None:
    async with open_database(tmp_path) as db:
        here, gone = Machine(home=tmp_path, db=db), HomeFileRepo(db, "gone")
        await gone.register("old:/home", now=NOW)
        await gone.add_late(LATE, TaskId("new001"), now=NOW)
        await here.keeper().look()
        await here.rows.forget(["work/t1"], {"chat": "c1"}, in_store=False, now=NOW)

        async def tell() -> list[tuple[str, object]]:
            found = await describe_waiting_homes(
                lambda: list_waiting_homes(db, here.now), lambda: here.now
            )
            return [(each.text, each.facts["place"]) for each in found]

        assert await tell() == []
        here.now = NOW + timedelta(hours=3)
        await here.keeper().look()
        assert await tell() == [("forget_when_back", "old:/home")]

        async with db.write() as tx:
            with pytest.raises(NotFound):
                await remove_home(tx, "other", now=here.now)
            with pytest.raises(WrongState):
                await remove_home(tx, "here", now=here.now)
            assert await remove_home(tx, "old:/home", now=here.now) == 1
        assert await tell() == []
        assert await here.rows.list_late([LATE]) == []


async def test_a_machine_that_is_there_and_cannot_erase_is_named(tmp_path: Path) -> None:
    async with open_database(tmp_path) as db:
        machine = Machine(home=tmp_path, db=db)
        machine.store.fails = True
        keeper = machine.keeper()
        await keeper.look()
        await HomeFileRepo(db, "other").forget([], {"chat": "c1"}, in_store=True, now=NOW)
        machine.now = NOW + timedelta(hours=1)
        await keeper.look()
        waiting = await list_waiting_homes(db, machine.now)

    assert {each.fault(machine.now) for each in waiting} == {"fails", "store"}


async def test_a_late_file_of_a_task_that_was_deleted_is_not_sent(tmp_path: Path) -> None:
    async with open_database(tmp_path) as db:
        fill(tmp_path)
        machine, task = Machine(home=tmp_path, db=db), TaskId("new001")
        await machine.rows.add_late(LATE, task, now=NOW)
        async with db.write() as tx:
            await machine.rows.mark_told(tx, [LATE])
        machine.now = NOW + timedelta(minutes=1)
        machine.store.on_publish = partial(delete, db, task)
        await machine.keeper().look()

    assert machine.store.published == [LATE]
    assert machine.followed == []


async def delete(db: Database, task: TaskId) -> None:
    async with db.write() as tx:
        await drop_late_files(tx, task)
