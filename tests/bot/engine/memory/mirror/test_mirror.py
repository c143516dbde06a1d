from __future__ import annotations

from datetime import timedelta

from bot.engine.memory.handbook import defaults
from bot.engine.memory.writing.rights import HOME
from cards.words import words_for
from storage.memory.backups import Backups
from storage.records.memory.entries import GLOBAL, Category, MemoryKind
from storage.records.people import Language
from tests.bot.engine.memory.mirror.desk import ANN, NOW, TEAM, Desk


async def test_what_is_remembered_stands_in_a_file(desk: Desk) -> None:
    await desk.add("likes tea", category=Category.PREFERENCES)

    await desk.mirror.begin()

    body = desk.read()
    assert body.startswith("# Long-term memory\n")
    assert "## Preferences" in body
    assert desk.shown() == ["likes tea"]


async def test_a_changed_line_changes_the_memory(desk: Desk) -> None:
    made = await desk.add("likes tea")
    await desk.mirror.begin()

    desk.change("likes tea", "likes coffee")
    await desk.mirror.look()

    again = await desk.entries.get(made.id, [GLOBAL])
    assert again.text == "likes coffee"
    assert desk.shown() == ["likes coffee"]


async def test_a_new_line_is_remembered_and_a_removed_one_is_forgotten(desk: Desk) -> None:
    await desk.add("likes tea")
    await desk.mirror.begin()

    desk.change(desk.line("likes tea"), "- has two cats")
    await desk.wait()

    assert await desk.texts() == ["has two cats"]
    assert "m:" in desk.line("has two cats")
    assert desk.told.notices == []


async def test_what_is_remembered_later_appears(desk: Desk) -> None:
    await desk.mirror.begin()

    await desk.add("likes tea")
    await desk.mirror.render([GLOBAL])

    assert desk.shown() == ["likes tea"]


async def test_a_persons_files_begin_with_what_can_be_written_into_them(desk: Desk) -> None:
    await desk.mirror.begin()

    desk.change("## Tech stack\n", "## Tech stack\n\n- Python\n", "memory/people/ann/PROFILE.md")
    await desk.mirror.look()

    (entry,) = await desk.entries.list([ANN])
    assert (entry.kind, entry.category) == (MemoryKind.PROFILE, Category.TOOLS)
    assert await desk.texts(GLOBAL) == []


async def test_a_chats_memory_stays_with_the_chat(desk: Desk) -> None:
    await desk.add("meets on Monday", TEAM)
    await desk.mirror.begin()

    desk.change("Monday", "Tuesday", "memory/chats/the-team/MEMORY.md")
    await desk.mirror.look()

    assert await desk.texts(TEAM) == ["meets on Tuesday"]


async def test_a_day_is_the_one_on_the_boss_clock_for_name_and_time_alike(desk: Desk) -> None:
    await desk.add("asked for the report", TEAM, MemoryKind.CELL, at=NOW)
    await desk.mirror.begin()

    body = desk.read("memory/chats/the-team/2026-11-23.md")

    assert "## 01:30" in body
    assert "2026-11-23" in body.split("\n")[0]


async def test_a_day_of_which_everything_is_forgotten_has_no_file(desk: Desk) -> None:
    made = await desk.hand("x", TEAM)
    fact = await desk.add("fact", TEAM, MemoryKind.FACT)
    await desk.mirror.begin()
    path = desk.path("memory/chats/the-team/2026-11-23.md")
    assert path.exists()

    await desk.writer.forget(fact, HOME)
    await desk.mirror.render([TEAM])

    assert not path.exists()
    assert made.scope == TEAM


async def test_the_handbook_has_its_chapters_from_the_start(desk: Desk) -> None:
    await desk.mirror.begin()
    body = desk.read("BOSS.md")
    titles = [line.split(" <!--")[0] for line in body.split("\n") if line.startswith("## ")]

    assert titles == [
        "## Principles",
        "## Communication",
        "## Process",
        "## Quality",
        "## Learning",
        "## Forbidden",
        "## Notes",
        "## Updates",
    ]


async def test_a_chapter_that_is_written_over_takes_the_place_of_what_it_said(desk: Desk) -> None:
    await desk.mirror.begin()
    body = desk.read("BOSS.md")
    start, end = body.index("## Quality"), body.index("## Learning")

    desk.save(f"{body[:start]}## Quality\n\nTests first.\n\n- always\n\n{body[end:]}", "BOSS.md")
    await desk.mirror.look()

    found = await desk.entries.list([GLOBAL], kinds=(MemoryKind.HANDBOOK,))
    (quality,) = [each for each in found if each.key == "handbook:quality"]
    assert quality.text == "Tests first.\n\n- always"
    assert len(found) == len(defaults(words_for(Language.ENGLISH)))


async def test_what_a_backup_gives_back_is_shown_however_old_it_is(desk: Desk) -> None:
    fact = await desk.add("The lamp was changed", kind=MemoryKind.FACT)
    (day,) = await written(desk)
    async with desk.db.write() as tx:
        await desk.entries.drop_all(tx, [fact])
    desk.at += timedelta(seconds=10)
    gone = await written(desk)
    async with desk.db.write() as tx:
        await Backups(desk.db, desk.entries).put_back(tx, [fact], {})

    assert gone == []
    assert await written(desk) == [day]


async def test_what_comes_back_as_another_is_forgotten_is_shown_though_it_has_its_number(
    desk: Desk,
) -> None:
    back = await desk.add("The lamp was changed", kind=MemoryKind.FACT)
    async with desk.db.write() as tx:
        await desk.entries.drop_all(tx, [back])
    other = await desk.add("The rope is new", kind=MemoryKind.FACT)
    await written(desk)
    desk.at += timedelta(seconds=10)
    async with desk.db.write() as tx:
        await desk.entries.drop_all(tx, [other])
        await Backups(desk.db, desk.entries).put_back(tx, [back], {})
    (line,) = await written(desk)

    assert line.startswith("- The lamp was changed")


async def written(desk: Desk) -> list[str]:
    """Of days of everybody, what stands in them now."""
    await desk.mirror.render([GLOBAL])
    return [
        line
        for each in (desk.home / "memory").rglob("20*.md")
        for line in each.read_text().splitlines()
        if line.startswith("- ")
    ]
