"""Editors and other programs that do what nobody has thought of."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest

from bot.engine.memory.changed import Changed
from bot.engine.memory.writing.rights import HOME
from bot.engine.memory.writing.service import ByHand, MemoryWriter
from storage.ids import Ids
from storage.memory.cells import Cells
from storage.memory.entries import EntryRepo
from storage.memory.index import Index
from storage.records.memory.entries import GLOBAL, Category, MemoryKind
from tests.bot.engine.memory.mirror.desk import ANN, TEAM, Desk
from tests.fresh_store import open_store

END = "<!-- shiftboss: end"
LAST_DAY = "memory/chats/the-team/2026-11-22.md"


async def test_a_line_that_is_moved_below_another_heading_stays_there(desk: Desk) -> None:
    made = await desk.add("ask first", category=Category.PREFERENCES)
    await desk.add("likes tea", category=Category.PREFERENCES)
    await desk.mirror.begin()
    line = desk.line("ask first")

    desk.change(f"{line}\n", "")
    desk.change(END, f"## Lessons\n\n{line}\n\n{END}")
    await desk.mirror.look()

    again = await desk.entries.get(made.id, [GLOBAL])
    assert again.category is Category.LESSONS
    assert desk.read().index("## Lessons") < desk.read().index("ask first")


async def test_a_line_below_a_heading_of_ones_own_stays_there_also_if_it_is_changed(
    desk: Desk,
) -> None:
    made = await desk.add("likes tea", category=Category.PREFERENCES)
    await desk.mirror.begin()

    desk.change("## Preferences", "## Drinks")
    desk.change("likes tea", "likes coffee")
    await desk.mirror.look()
    await desk.mirror.render([GLOBAL])

    again = await desk.entries.get(made.id, [GLOBAL])
    assert (again.text, again.label) == ("likes coffee", "Drinks")
    assert "## Drinks" in desk.read()


async def test_what_the_program_has_put_elsewhere_meanwhile_is_not_moved_back(desk: Desk) -> None:
    made = await desk.add("ask first", category=Category.PREFERENCES)
    await desk.add("likes tea", category=Category.PREFERENCES)
    await desk.mirror.begin()
    await desk.writer.file(made, Category.LESSONS, "", HOME)

    desk.change("likes tea", "likes coffee")
    await desk.mirror.look()

    assert (await desk.entries.get(made.id, [GLOBAL])).category is Category.LESSONS


async def test_a_line_that_is_added_to_a_day_of_before_belongs_to_that_day(desk: Desk) -> None:
    await desk.add("met at noon", TEAM, MemoryKind.FACT, at=desk.at - timedelta(hours=14))
    await desk.mirror.begin()

    desk.change(END, f"## 09:15\n\n- was late\n\n## Later\n\n- was tired\n\n{END}", LAST_DAY)
    await desk.mirror.look()

    body = desk.read(LAST_DAY)
    assert body.index("## 09:15") < body.index("was late") < body.index("was tired")
    assert "## 12:00" in body
    assert await desk.texts(TEAM) == ["met at noon", "was late", "was tired"]


async def test_what_another_process_writes_is_seen_at_the_next_look(desk: Desk) -> None:
    await desk.mirror.begin()
    listener = desk.changed.listen()
    async with open_store(desk.home.parent) as db:
        entries = EntryRepo(db, Ids(), Index(db))
        theirs = MemoryWriter(
            db=db,
            entries=entries,
            cells=Cells(db, entries),
            changed=Changed(),
            mask=str,
            now=desk.now,
        )
        await theirs.add(ByHand(text="from a shell", scope=ANN), HOME)
        await desk.others.look()

        heard = await listener.wait()
        await desk.mirror.render(heard)
        assert desk.shown("memory/people/ann/MEMORY.md") == ["from a shell"]

        await theirs.add(ByHand(text="once more", scope=ANN), HOME)
        await desk.others.look()
        assert await listener.wait() == {ANN}, "only where something has changed"


async def test_what_this_process_writes_is_nobody_elses(desk: Desk) -> None:
    await desk.mirror.begin()
    before = await desk.db.version()

    await desk.hand("likes tea")

    assert await desk.db.version() == before


async def test_a_shorter_line_of_a_second_editor_takes_nothing_from_the_first(desk: Desk) -> None:
    await desk.mirror.begin()
    buffer = desk.read()

    desk.save(buffer.replace(END, f"- likes tea and coffee\n{END}"))
    await desk.mirror.look()
    await desk.pause(120)
    desk.save(buffer.replace(END, f"- likes tea\n{END}"))
    await desk.mirror.look()

    assert await desk.texts() == ["likes tea", "likes tea and coffee"]


async def test_a_second_editor_is_known_by_what_it_does_not_have(desk: Desk) -> None:
    await desk.mirror.begin()
    buffer = desk.read()

    desk.save(buffer.replace(END, f"- likes tea and coffee\n- has cats\n{END}"))
    await desk.mirror.look()
    desk.save(buffer.replace(END, f"- likes tea\n{END}"))
    await desk.mirror.look()

    assert await desk.texts() == ["has cats", "likes tea", "likes tea and coffee"]


async def test_anothers_mark_in_ones_own_file_shows_and_moves_nothing(desk: Desk) -> None:
    secret = await desk.hand("Ann's salary", ANN)
    team = await desk.hand("team's plan", TEAM)
    await desk.mirror.begin()
    pasted = "\n".join(f"- mine <!-- m:{each.id} r1 or {team.id} -->" for each in (secret, team))

    desk.change(END, f"- <!-- m:{secret.id} r1 -->\n{pasted}\n{END}")
    await desk.mirror.look()
    await desk.wait()

    assert await desk.texts() == ["mine"]
    assert await desk.texts(ANN) == ["Ann's salary"]
    assert await desk.texts(TEAM) == ["team's plan"]
    assert "salary" not in desk.read()
    assert secret.id not in desk.read()


async def test_a_change_of_the_same_length_and_time_is_seen(desk: Desk) -> None:
    await desk.hand("likes tea")
    await desk.mirror.begin()
    await desk.mirror.look()
    path = desk.path("MEMORY.md")
    was = path.stat()

    desk.change("likes tea", "likes oat")
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    await desk.mirror.look()

    assert await desk.texts() == ["likes oat"]


@pytest.mark.parametrize("letter", ["x", "标"])
async def test_a_heading_as_long_as_a_book_is_no_heading_of_each_line(
    desk: Desk, letter: str
) -> None:
    await desk.mirror.begin()

    desk.change(END, f"## {letter * 100_000}\n\n- one\n- two\n\n{END}")
    await desk.mirror.look()

    found = await desk.entries.list([GLOBAL], kinds=(MemoryKind.LONGTERM,))
    assert sorted(each.text for each in found) == ["one", "two"]
    assert max(len(each.label) for each in found) <= 200
