"""Editors and other programs that do what nobody has thought of."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest

from bot.engine.memory.access import LOCAL_EDITOR, ManualMemory
from bot.engine.memory.change_feed import MemoryChangeFeed
from storage.ids import IdGenerator
from storage.memory.entries import MemoryEntryRepo
from storage.records.memory import GLOBAL_SCOPE, MemoryCategory, MemoryKind
from storage.search.inverted_index import InvertedIndex
from tests.bot.engine.memory.markdown_sync.sync_builders import ANN, TEAM, SyncSetup, build_writer
from tests.migrated_database import open_database

END = "<!-- shiftboss: end"
LAST_DAY = "memory/chats/the-team/2026-11-22.md"


async def test_a_line_that_is_moved_below_another_heading_stays_there(desk: SyncSetup) -> None:
    made = await desk.add("ask first", category=MemoryCategory.PREFERENCES)
    await desk.add("likes tea", category=MemoryCategory.PREFERENCES)
    await desk.sync_service.sync_all()
    line = desk.line("ask first")

    desk.change(f"{line}\n", "")
    desk.change(END, f"## Lessons\n\n{line}\n\n{END}")
    await desk.sync_service.read_back()

    again = await desk.entries.get(made.id, [GLOBAL_SCOPE])
    assert again.category is MemoryCategory.LESSONS
    assert desk.read().index("## Lessons") < desk.read().index("ask first")


async def test_a_line_below_a_heading_of_ones_own_stays_there_also_if_it_is_changed(
    desk: SyncSetup,
) -> None:
    made = await desk.add("likes tea", category=MemoryCategory.PREFERENCES)
    await desk.sync_service.sync_all()

    desk.change("## Preferences", "## Drinks")
    desk.change("likes tea", "likes coffee")
    await desk.sync_service.read_back()
    await desk.sync_service.write_changed([GLOBAL_SCOPE])

    again = await desk.entries.get(made.id, [GLOBAL_SCOPE])
    assert (again.text, again.label) == ("likes coffee", "Drinks")
    assert "## Drinks" in desk.read()


async def test_what_the_program_has_put_elsewhere_meanwhile_is_not_moved_back(
    desk: SyncSetup,
) -> None:
    made = await desk.add("ask first", category=MemoryCategory.PREFERENCES)
    await desk.add("likes tea", category=MemoryCategory.PREFERENCES)
    await desk.sync_service.sync_all()
    await desk.writer.categorise(made, MemoryCategory.LESSONS, "", LOCAL_EDITOR)

    desk.change("likes tea", "likes coffee")
    await desk.sync_service.read_back()

    assert (await desk.entries.get(made.id, [GLOBAL_SCOPE])).category is MemoryCategory.LESSONS


async def test_a_line_that_is_added_to_a_day_of_before_belongs_to_that_day(desk: SyncSetup) -> None:
    await desk.add("met at noon", TEAM, MemoryKind.FACT, at=desk.clock - timedelta(hours=14))
    await desk.sync_service.sync_all()

    desk.change(END, f"## 09:15\n\n- was late\n\n## Later\n\n- was tired\n\n{END}", LAST_DAY)
    await desk.sync_service.read_back()

    body = desk.read(LAST_DAY)
    assert body.index("## 09:15") < body.index("was late") < body.index("was tired")
    assert "## 12:00" in body
    assert await desk.texts(TEAM) == ["met at noon", "was late", "was tired"]


async def test_what_another_process_writes_is_seen_at_the_next_look(desk: SyncSetup) -> None:
    await desk.sync_service.sync_all()
    listener = desk.feed.subscribe()
    async with open_database(desk.home.parent) as db:
        entries = MemoryEntryRepo(db, IdGenerator(), InvertedIndex(db))
        theirs = build_writer(db, entries, MemoryChangeFeed(), desk.now)
        await theirs.add(ManualMemory(text="from a shell", scope=ANN), LOCAL_EDITOR)
        await desk.foreign_writes.publish_changes()

        heard = await listener.wait()
        await desk.sync_service.write_changed(heard)
        assert desk.shown("memory/people/ann/MEMORY.md") == ["from a shell"]

        await theirs.add(ManualMemory(text="once more", scope=ANN), LOCAL_EDITOR)
        await desk.foreign_writes.publish_changes()
        assert await listener.wait() == {ANN}, "only where something has changed"


async def test_what_this_process_writes_is_nobody_elses(desk: SyncSetup) -> None:
    await desk.sync_service.sync_all()
    before = await desk.db.data_version()

    await desk.add_manual("likes tea")

    assert await desk.db.data_version() == before


async def test_a_shorter_line_of_a_second_editor_takes_nothing_from_the_first(
    desk: SyncSetup,
) -> None:
    await desk.sync_service.sync_all()
    buffer = desk.read()

    desk.save(buffer.replace(END, f"- likes tea and coffee\n{END}"))
    await desk.sync_service.read_back()
    await desk.pause(120)
    desk.save(buffer.replace(END, f"- likes tea\n{END}"))
    await desk.sync_service.read_back()

    assert await desk.texts() == ["likes tea", "likes tea and coffee"]


async def test_a_second_editor_is_known_by_what_it_does_not_have(desk: SyncSetup) -> None:
    await desk.sync_service.sync_all()
    buffer = desk.read()

    desk.save(buffer.replace(END, f"- likes tea and coffee\n- has cats\n{END}"))
    await desk.sync_service.read_back()
    desk.save(buffer.replace(END, f"- likes tea\n{END}"))
    await desk.sync_service.read_back()

    assert await desk.texts() == ["has cats", "likes tea", "likes tea and coffee"]


async def test_anothers_mark_in_ones_own_file_shows_and_moves_nothing(desk: SyncSetup) -> None:
    secret = await desk.add_manual("Ann's salary", ANN)
    team = await desk.add_manual("team's plan", TEAM)
    await desk.sync_service.sync_all()
    pasted = "\n".join(f"- mine <!-- m:{each.id} r1 or {team.id} -->" for each in (secret, team))

    desk.change(END, f"- <!-- m:{secret.id} r1 -->\n{pasted}\n{END}")
    await desk.sync_service.read_back()
    await desk.wait()

    assert await desk.texts() == ["mine"]
    assert await desk.texts(ANN) == ["Ann's salary"]
    assert await desk.texts(TEAM) == ["team's plan"]
    assert "salary" not in desk.read()
    assert secret.id not in desk.read()


async def test_a_change_of_the_same_length_and_time_is_seen(desk: SyncSetup) -> None:
    await desk.add_manual("likes tea")
    await desk.sync_service.sync_all()
    await desk.sync_service.read_back()
    path = desk.path("MEMORY.md")
    was = path.stat()

    desk.change("likes tea", "likes oat")
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    await desk.sync_service.read_back()

    assert await desk.texts() == ["likes oat"]


@pytest.mark.parametrize("letter", ["x", "标"])
async def test_a_heading_as_long_as_a_book_is_no_heading_of_each_line(
    desk: SyncSetup, letter: str
) -> None:
    await desk.sync_service.sync_all()

    desk.change(END, f"## {letter * 100_000}\n\n- one\n- two\n\n{END}")
    await desk.sync_service.read_back()

    found = await desk.entries.list([GLOBAL_SCOPE], kinds=(MemoryKind.LONGTERM,))
    assert sorted(each.text for each in found) == ["one", "two"]
    assert max(len(each.label) for each in found) <= 200
