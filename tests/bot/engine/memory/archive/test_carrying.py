"""What was forgotten is not carried into the next conversation, nor into a task's next session."""

from __future__ import annotations

from pathlib import Path
from zoneinfo import ZoneInfo

from bot.engine.memory.archive.carrying import Carrying
from storage.ids import Ids
from storage.memory.entries import EntryRepo
from storage.memory.index import Index
from storage.records.memory.entries import Entry, MemoryKind, NewEntry, Scope, ScopeKind
from tests.bot.engine.memory.archive.world import World, answered, asked, world

UTC = ZoneInfo("UTC")


async def test_a_new_conversation_begins_without_what_was_forgotten_of_the_last_one(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as w:
        carrying = Carrying(w.said, w.summaries, w.reading, UTC)
        first = await w.session(id="s1")
        await w.say(first, [asked("The code of my safe is 4711")])
        w.clock.pass_by(minutes=5)
        await w.say(first, [answered("I shall keep 4711 in mind.")])
        cell = await _cell(w, "The code of my safe is 4711\n\nI shall keep it in mind.", "chat:c1")
        w.clock.pass_by(minutes=5)
        await w.say(first, [asked("Our boat is called Albatros"), answered("A fine name.")])
        w.clock.pass_by(hours=2)
        second = await w.session(id="s2")
        assert (await carrying.lines(second.id)).count("4711") == 2

        await _forget(w, cell)
        lines = await carrying.lines(second.id)

        assert "4711" not in lines, "neither by its words, nor by when it was answered"

        assert "Albatros" in lines


async def test_what_is_said_again_after_it_was_forgotten_is_carried(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        carrying = Carrying(w.said, w.summaries, w.reading, UTC)
        first = await w.session(id="s1")
        cell = await _cell(w, "The code of my safe is 4711", "chat:c1")
        w.clock.pass_by(minutes=5)
        await _forget(w, cell)
        w.clock.pass_by(minutes=5)
        await w.say(first, [asked("The code of my safe is 4711"), answered("Noted.")])
        second = await w.session(id="s2")

        assert "4711" in await carrying.lines(second.id)


async def test_a_tasks_next_session_begins_with_nothing_where_the_task_was_forgotten(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as w:
        carrying = Carrying(w.said, w.summaries, w.reading, UTC)
        first = await w.session("task:tttttt:paint", id="s1")
        await w.say(first, [asked("paint the gate"), answered("The code of the gate is 4711")])
        w.clock.pass_by(hours=2)
        second = await w.session("task:tttttt:paint", id="s2")
        other = await _cell(w, "another gate", "task:other")
        this = await _cell(w, "the gate", "task:tttttt")

        await _forget(w, other)
        assert "4711" in await carrying.lines(second.id, work=True)
        await _forget(w, this)
        assert await carrying.lines(second.id, work=True) == ""


def _entries(w: World) -> EntryRepo:
    return EntryRepo(w.db, Ids(), Index(w.db))


async def _cell(w: World, text: str, thread: str) -> Entry:
    scope = Scope(ScopeKind.PERSON, "p")
    extra = {"said": len(text.partition("\n\n")[0])}
    new = NewEntry(kind=MemoryKind.CELL, scope=scope, text=text, thread=thread, extra=extra)
    async with w.db.write() as tx:
        cell = await _entries(w).add(tx, new, now=w.clock())
    assert cell is not None
    return cell


async def _forget(w: World, cell: Entry) -> None:
    async with w.db.write() as tx:
        await _entries(w).forget(tx, cell, now=w.clock())
