from __future__ import annotations

from datetime import timedelta

from bot.engine.memory.access import LOCAL_EDITOR
from bot.engine.memory.markdown_sync.layout import default_chapters
from cards.catalog import catalog_for
from storage.memory.bulk_import import BackupRestorer
from storage.records.memory import GLOBAL_SCOPE, MemoryCategory, MemoryKind
from storage.records.people import Language
from tests.bot.engine.memory.markdown_sync.sync_builders import ANN, NOW, TEAM, SyncSetup


async def test_what_is_remembered_stands_in_a_file(desk: SyncSetup) -> None:
    await desk.add("likes tea", category=MemoryCategory.PREFERENCES)

    await desk.sync_service.sync_all()

    body = desk.read()
    assert body.startswith("# Long-term memory\n")
    assert "## Preferences" in body
    assert desk.shown() == ["likes tea"]


async def test_a_changed_line_changes_the_memory(desk: SyncSetup) -> None:
    made = await desk.add("likes tea")
    await desk.sync_service.sync_all()

    desk.change("likes tea", "likes coffee")
    await desk.sync_service.read_back()

    again = await desk.entries.get(made.id, [GLOBAL_SCOPE])
    assert again.text == "likes coffee"
    assert desk.shown() == ["likes coffee"]


async def test_since_and_until_when_it_is_so_stands_beside_it_and_survives_an_edit(
    desk: SyncSetup,
) -> None:
    since, until = NOW - timedelta(days=400), NOW + timedelta(days=30)
    made = await desk.add("lives in Porto", valid_from=since, valid_until=until)
    await desk.sync_service.sync_all()

    line = desk.line("lives in Porto")
    desk.change("lives in Porto", "lives in Braga")
    await desk.sync_service.read_back()

    again = await desk.entries.get(made.id, [GLOBAL_SCOPE])
    assert " since 2025-10-19 until 2026-12-23 -->" in line
    assert (again.text, again.valid_from) == ("lives in Braga", since)
    assert desk.shown() == ["lives in Braga"]


async def test_a_new_line_is_remembered_and_a_removed_one_is_forgotten(desk: SyncSetup) -> None:
    await desk.add("likes tea")
    await desk.sync_service.sync_all()

    desk.change(desk.line("likes tea"), "- has two cats")
    await desk.wait()

    assert await desk.texts() == ["has two cats"]
    assert "m:" in desk.line("has two cats")
    assert desk.notifier.notices == []


async def test_what_is_remembered_later_appears(desk: SyncSetup) -> None:
    await desk.sync_service.sync_all()

    await desk.add("likes tea")
    await desk.sync_service.write_changed([GLOBAL_SCOPE])

    assert desk.shown() == ["likes tea"]


async def test_a_persons_files_begin_with_what_can_be_written_into_them(desk: SyncSetup) -> None:
    await desk.sync_service.sync_all()

    desk.change("## Tech stack\n", "## Tech stack\n\n- Python\n", "memory/people/ann/PROFILE.md")
    await desk.sync_service.read_back()

    (entry,) = await desk.entries.list([ANN])
    assert (entry.kind, entry.category) == (MemoryKind.PROFILE, MemoryCategory.TOOLS)
    assert await desk.texts(GLOBAL_SCOPE) == []


async def test_a_chats_memory_stays_with_the_chat(desk: SyncSetup) -> None:
    await desk.add("meets on Monday", TEAM)
    await desk.sync_service.sync_all()

    desk.change("Monday", "Tuesday", "memory/chats/the-team/MEMORY.md")
    await desk.sync_service.read_back()

    assert await desk.texts(TEAM) == ["meets on Tuesday"]


async def test_a_day_is_the_one_on_the_boss_clock_for_name_and_time_alike(desk: SyncSetup) -> None:
    await desk.add("asked for the report", TEAM, MemoryKind.CELL, at=NOW)
    await desk.sync_service.sync_all()

    body = desk.read("memory/chats/the-team/2026-11-23.md")

    assert "## 01:30" in body
    assert "2026-11-23" in body.split("\n")[0]


async def test_a_day_of_which_everything_is_forgotten_has_no_file(desk: SyncSetup) -> None:
    made = await desk.add_manual("x", TEAM)
    fact = await desk.add("fact", TEAM, MemoryKind.FACT)
    await desk.sync_service.sync_all()
    path = desk.path("memory/chats/the-team/2026-11-23.md")
    assert path.exists()

    await desk.writer.forget(fact, LOCAL_EDITOR)
    await desk.sync_service.write_changed([TEAM])

    assert not path.exists()
    assert made.scope == TEAM


async def test_the_handbook_has_its_chapters_from_the_start(desk: SyncSetup) -> None:
    await desk.sync_service.sync_all()
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


async def test_a_chapter_that_is_written_over_takes_the_place_of_what_it_said(
    desk: SyncSetup,
) -> None:
    await desk.sync_service.sync_all()
    body = desk.read("BOSS.md")
    start, end = body.index("## Quality"), body.index("## Learning")

    desk.save(f"{body[:start]}## Quality\n\nTests first.\n\n- always\n\n{body[end:]}", "BOSS.md")
    await desk.sync_service.read_back()

    found = await desk.entries.list([GLOBAL_SCOPE], kinds=(MemoryKind.HANDBOOK,))
    (quality,) = [each for each in found if each.key == "handbook:quality"]
    assert quality.text == "Tests first.\n\n- always"
    assert len(found) == len(default_chapters(catalog_for(Language.ENGLISH)))


async def test_what_a_backup_gives_back_is_shown_however_old_it_is(desk: SyncSetup) -> None:
    fact = await desk.add("The lamp was changed", kind=MemoryKind.FACT)
    (day,) = await written(desk)
    async with desk.db.write() as tx:
        await desk.entries.delete_all(tx, [fact])
    desk.clock += timedelta(seconds=10)
    gone = await written(desk)
    async with desk.db.write() as tx:
        await BackupRestorer(desk.db, desk.entries).restore(tx, [fact], {})

    assert gone == []
    assert await written(desk) == [day]


async def test_what_comes_back_as_another_is_forgotten_is_shown_though_it_has_its_number(
    desk: SyncSetup,
) -> None:
    back = await desk.add("The lamp was changed", kind=MemoryKind.FACT)
    async with desk.db.write() as tx:
        await desk.entries.delete_all(tx, [back])
    other = await desk.add("The rope is new", kind=MemoryKind.FACT)
    await written(desk)
    desk.clock += timedelta(seconds=10)
    async with desk.db.write() as tx:
        await desk.entries.delete_all(tx, [other])
        await BackupRestorer(desk.db, desk.entries).restore(tx, [back], {})
    (line,) = await written(desk)

    assert line.startswith("- The lamp was changed")


async def written(desk: SyncSetup) -> list[str]:
    """Of days of everybody, what stands in them now."""
    await desk.sync_service.write_changed([GLOBAL_SCOPE])
    return [
        line
        for each in (desk.home / "memory").rglob("20*.md")
        for line in each.read_text().splitlines()
        if line.startswith("- ")
    ]
