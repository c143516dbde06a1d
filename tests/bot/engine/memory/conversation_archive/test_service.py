"""Tests that forgotten turns are not carried into the next conversation or task session."""

from __future__ import annotations

from pathlib import Path
from zoneinfo import ZoneInfo

from bot.engine.memory.conversation_archive.service import SessionCarryover
from storage.ids import IdGenerator
from storage.memory.entries import MemoryEntryRepo
from storage.records.memory import (
    MemoryEntry,
    MemoryKind,
    MemoryScope,
    MemoryScopeKind,
    NewMemoryEntry,
)
from storage.search.inverted_index import InvertedIndex
from tests.bot.engine.memory.conversation_archive.archive_builders import (
    ArchiveSetup,
    assistant_message,
    build_archive,
    user_message,
)

UTC = ZoneInfo("UTC")


async def test_a_new_conversation_begins_without_what_was_forgotten_of_the_last_one(
    tmp_path: Path,
) -> None:
    async with build_archive(tmp_path) as w:
        carrying = SessionCarryover(w.archive, w.summaries, w.indexer, UTC)
        first = await w.session(id="s1")
        await w.say(first, [user_message("The code of my safe is 4711")])
        w.clock.advance(minutes=5)
        await w.say(first, [assistant_message("I shall keep 4711 in mind.")])
        cell = await _cell(w, "The code of my safe is 4711\n\nI shall keep it in mind.", "chat:c1")
        w.clock.advance(minutes=5)
        await w.say(
            first, [user_message("Our boat is called Albatros"), assistant_message("A fine name.")]
        )
        w.clock.advance(hours=2)
        second = await w.session(id="s2")
        assert (await carrying.build(second.id)).count("4711") == 2

        await _forget(w, cell)
        lines = await carrying.build(second.id)

        assert "4711" not in lines, "neither by its words, nor by when it was answered"

        assert "Albatros" in lines


async def test_what_is_said_again_after_it_was_forgotten_is_carried(tmp_path: Path) -> None:
    async with build_archive(tmp_path) as w:
        carrying = SessionCarryover(w.archive, w.summaries, w.indexer, UTC)
        first = await w.session(id="s1")
        cell = await _cell(w, "The code of my safe is 4711", "chat:c1")
        w.clock.advance(minutes=5)
        await _forget(w, cell)
        w.clock.advance(minutes=5)
        await w.say(
            first, [user_message("The code of my safe is 4711"), assistant_message("Noted.")]
        )
        second = await w.session(id="s2")

        assert "4711" in await carrying.build(second.id)


async def test_a_tasks_next_session_begins_with_nothing_where_the_task_was_forgotten(
    tmp_path: Path,
) -> None:
    async with build_archive(tmp_path) as w:
        carrying = SessionCarryover(w.archive, w.summaries, w.indexer, UTC)
        first = await w.session("task:tttttt:paint", id="s1")
        await w.say(
            first,
            [user_message("paint the gate"), assistant_message("The code of the gate is 4711")],
        )
        w.clock.advance(hours=2)
        second = await w.session("task:tttttt:paint", id="s2")
        other = await _cell(w, "another gate", "task:other")
        this = await _cell(w, "the gate", "task:tttttt")

        await _forget(w, other)
        assert "4711" in await carrying.build(second.id, is_task=True)
        await _forget(w, this)
        assert await carrying.build(second.id, is_task=True) == ""


def _entries(w: ArchiveSetup) -> MemoryEntryRepo:
    return MemoryEntryRepo(w.db, IdGenerator(), InvertedIndex(w.db))


async def _cell(w: ArchiveSetup, text: str, thread: str) -> MemoryEntry:
    scope = MemoryScope(MemoryScopeKind.PERSON, "p")
    extra = {"said": len(text.partition("\n\n")[0])}
    new = NewMemoryEntry(kind=MemoryKind.CELL, scope=scope, text=text, thread=thread, extra=extra)
    async with w.db.write() as tx:
        cell = await _entries(w).add(tx, new, now=w.clock())
    assert cell is not None
    return cell


async def _forget(w: ArchiveSetup, cell: MemoryEntry) -> None:
    async with w.db.write() as tx:
        await _entries(w).forget(tx, cell, now=w.clock())
