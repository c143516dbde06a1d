"""A backup gives back what was there, as it was, and nothing that was forgotten since."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bot.engine.memory.access import ManualMemory
from bot.engine.memory.export_import import parse_backup_row
from bot.engine.memory.service import MemoryService
from storage.records.memory import MemoryEntry, MemoryKind, MemoryState, NewMemoryEntry
from tests.bot.engine.memory.test_service import build_service, list_all
from tests.bot.engine.memory.writing_builders import (
    BY_BOSS,
    MY_SCOPE,
    WritingSetup,
    extracted_fact,
    extraction_of,
)
from tests.engine_harness import BOSS, CHAT

TURNS = (
    "Well, my cat is called Findus and he is grey",
    "we went to the sea with all of us",
    "it rained the whole weekend there",
    "and then we drove home very late",
)
TOLD_BEFORE = (
    "id",
    "kind",
    "scope",
    "state",
    "category",
    "label",
    "text",
    "keywords",
    "importance",
    "confidence",
    "tier",
    "pinned",
    "origin",
    "key",
    "sender",
    "thread",
    "at",
    "valid_until",
    "superseded_by",
    "used",
    "revision",
)


async def _talk(memory: WritingSetup) -> None:
    """Four turns, a fact that was drawn from the first of them, and an episode of all."""
    memory.model.answers = [extraction_of(extracted_fact("Ann's cat is called Findus", turns=[1]))]
    for n, said in enumerate(TURNS):
        await memory.record_turn(said, "ok then", source=f"s{n}")
    await memory.run_jobs()
    cells = [each.id for each in await memory.list_entries(MemoryKind.CELL)]
    async with memory.world.db.write() as tx:
        new = NewMemoryEntry(
            kind=MemoryKind.EPISODE, scope=MY_SCOPE, text="Of the sea.", evidence=cells
        )
        await memory.entries.add(tx, new, now=memory.world.clock())


async def _lose_all(memory: WritingSetup) -> None:
    gone = await list_all(memory)
    async with memory.world.db.write() as tx:
        await memory.entries.delete_all(tx, gone)


async def _kept(
    book: MemoryService, home: Path, change: Callable[[dict[str, Any]], Any] = lambda row: row
) -> str:
    path = await book.cleanup.back_up()
    rows = [json.loads(line) for line in (home / path).read_text().splitlines()]
    (home / "kept.jsonl").write_text("".join(f"{json.dumps(change(row))}\n" for row in rows))
    return "kept.jsonl"


def _as_it_is(entry: MemoryEntry) -> dict[str, Any]:
    told = {name: getattr(entry, name) for name in entry.__dataclass_fields__}
    del told["number"]
    return {**told, "extra": dict(entry.extra), "evidence": list(entry.evidence)}


async def test_all_of_an_entry_comes_back_and_what_it_was_drawn_from(tmp_path: Path) -> None:
    async with build_service(tmp_path) as (book, memory):
        await _talk(memory)
        for code in ("1234", "1235"):
            wanted = ManualMemory(text=f"The gate's code is {code}", key="gate")
            await memory.writer.add(wanted, BY_BOSS)
        before = {each.id: _as_it_is(each) for each in await list_all(memory)}
        kept = await _kept(book, tmp_path)
        await _lose_all(memory)
        found = await memory.search("grey")

        brought = await book.restore(BOSS, CHAT, kept)
        after = {each.id: _as_it_is(each) for each in await list_all(memory)}

        assert (brought.line_errors, found) == ({}, [])
        assert after == before
        assert len(await memory.search("Findus")) > 1, "a turn is found by words said beside it"

        cell = next(
            each for each in await memory.list_entries(MemoryKind.CELL) if "Findus" in each.text
        )
        await memory.writer.forget(cell, BY_BOSS)
        assert not [text for text in await memory.texts() if "Findus" in text]
        assert not await memory.list_entries(MemoryKind.EPISODE), (
            "nothing tells of the turn any more"
        )


async def test_what_was_forgotten_stays_so_in_whatever_words_a_backup_has_it(
    tmp_path: Path,
) -> None:
    async with build_service(tmp_path) as (book, memory):
        edited = await book.add(BOSS, CHAT, "The safe's code is 1234")
        moved = await book.add(BOSS, CHAT, "The gate's code is 1234")
        kept = await _kept(book, tmp_path)
        await book.edit(BOSS, CHAT, edited.id, "The safe's code is 1235")
        await book.move(BOSS, CHAT, moved.id, "global")
        for each in (edited, moved):
            await book.forget(BOSS, CHAT, each.id)
        (tmp_path / "files").mkdir()
        (tmp_path / "files" / "in.jsonl").write_bytes((tmp_path / kept).read_bytes())

        assert (await book.restore(BOSS, CHAT, kept)).added == 0
        imported = await book.import_entries(BOSS, CHAT, "files/in.jsonl")
        assert (imported.added, imported.left_out) == (0, 2)
        assert await list_all(memory) == []


async def test_what_was_edited_since_does_not_come_back_beside_its_new_wording(
    tmp_path: Path,
) -> None:
    async with build_service(tmp_path) as (book, memory):
        entry = await book.add(BOSS, CHAT, "Lives in Lund")
        kept = await _kept(book, tmp_path)
        await book.edit(BOSS, CHAT, entry.id, "Lives in Malmö")

        assert (await book.restore(BOSS, CHAT, kept)).added == 0
        assert await memory.texts() == ["Lives in Malmö"]


async def test_an_episode_of_a_turn_that_was_forgotten_does_not_come_back(tmp_path: Path) -> None:
    async with build_service(tmp_path) as (book, memory):
        await _talk(memory)
        kept = await _kept(book, tmp_path)
        await memory.writer.forget((await memory.list_entries(MemoryKind.CELL))[0], BY_BOSS)
        await book.restore(BOSS, CHAT, kept)

        assert not await memory.list_entries(MemoryKind.EPISODE)
        assert not [text for text in await memory.texts() if "Findus" in text]


async def test_what_was_learnt_again_under_another_id_is_what_a_restored_one_refers_to(
    tmp_path: Path,
) -> None:
    async with build_service(tmp_path) as (book, memory):
        await _talk(memory)
        kept = await _kept(book, tmp_path)
        await _lose_all(memory)
        again = await memory.record_turn(TURNS[0], "ok then", source="s0")
        assert again is not None
        await book.restore(BOSS, CHAT, kept)
        (fact,) = await memory.list_entries(MemoryKind.FACT)

        async with memory.world.db.write() as tx:
            assert [each.id for each in await memory.cells.list_restatements(tx, fact)] == [
                again.id
            ]


async def test_exports_of_before_are_taken_too(tmp_path: Path) -> None:
    async with build_service(tmp_path) as (book, memory):
        entry = await book.add(BOSS, CHAT, "Lives in Lund")
        kept = await _kept(book, tmp_path, lambda row: {name: row[name] for name in TOLD_BEFORE})
        await _lose_all(memory)
        brought = await book.restore(BOSS, CHAT, kept)
        (back,) = await list_all(memory)

        assert (brought.added, brought.line_errors) == (1, {})
        assert (back.id, back.text, back.state) == (entry.id, entry.text, MemoryState.ACTIVE)
        assert back.strength.stability == entry.strength.stability


async def test_the_last_ten_backups_are_kept(tmp_path: Path) -> None:
    async with build_service(tmp_path) as (book, memory):
        await book.add(BOSS, CHAT, "Lives in Lund")
        exported = await book.export(BOSS, CHAT)
        made = []
        for _ in range(12):
            memory.world.clock.advance(hours=1)
            made.append(await book.transfer.back_up(memory.world.clock()))
        there = {str(each.relative_to(tmp_path)) for each in (tmp_path / "exports").iterdir()}

        assert there == {exported.path, *made[2:]}


ROW = {
    "id": "aa22bb33",
    "kind": "fact",
    "scope": "global",
    "state": "active",
    "category": "other",
    "label": "",
    "text": "Lives in Lund",
    "keywords": [],
    "importance": 0.5,
    "confidence": 0.5,
    "tier": "core",
    "pinned": False,
    "origin": "manual",
    "key": "",
    "sender": "",
    "thread": "",
    "at": "2026-05-04T10:00:00+00:00",
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": 7},
        {"id": "../../etc"},
        {"id": "a" * 17},
        {"revision": -1},
        {"revision": 10**30},
        {"evidence": "aa22"},
        {"evidence": ["a"] * 1_001},
        {"from": ["../etc"]},
        {"from": {"a": 1}},
        {"extra": []},
        {"extra": {"a": "x" * 30_000}},
        {"life": 7},
        {"life": {"value": float("nan")}},
        {"life": {"stability": float("inf")}},
        {"used": "often"},
        {"created_at": 7},
        {"valid_from": "9999-12-31T23:59:59+00:00"},
        {"overview": "x" * 11_000},
        {"source": "x" * 3_000},
    ],
)
def test_what_no_export_has_written_is_no_entry(wrong: dict[str, Any]) -> None:
    assert parse_backup_row(json.dumps(ROW)).entry.text == "Lives in Lund"
    with pytest.raises(ValueError, match=r"\w"):
        parse_backup_row(json.dumps({**ROW, **wrong}))
