"""Much to show, and much to look at."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

import pytest

from bot.engine.memory.markdown_sync import sync_service as looking
from bot.engine.memory.markdown_sync.layout import MemoryFile
from bot.engine.memory.markdown_sync.reconciler import ReconcileResult
from storage.db import Transaction
from storage.memory.markdown import folder as files
from storage.memory.markdown import sync_store as shelves
from storage.memory.markdown.folder import MAX_FILE_BYTES
from storage.memory.markdown.folder import exchange_files as really_exchange
from storage.records.memory import GLOBAL_SCOPE, MAX_ENTRY_TEXT, MemoryKind, MemoryScope
from tests.bot.engine.memory.markdown_sync.sync_builders import ANN, NOW, TEAM, SyncSetup


async def test_what_a_file_has_no_room_for_is_neither_missed_nor_forgotten(desk: SyncSetup) -> None:
    for number in range(40):
        await desk.add(f"{number} {'很长' * (MAX_ENTRY_TEXT // 2 - 50)}")
    await desk.sync_service.sync_all()
    assert (desk.home / "MEMORY.md").stat().st_size < MAX_FILE_BYTES
    assert "more are not shown here" in desk.read()

    desk.change("- 39 ", "- thirty-nine ")
    await desk.sync_service.read_back()

    kept = await desk.entries.list([GLOBAL_SCOPE], kinds=(MemoryKind.LONGTERM,), limit=200)
    assert len(kept) == 40
    assert kept[0].text.startswith("thirty-nine")
    assert desk.notifier.notices == []


async def test_of_many_files_the_older_ones_are_looked_at_in_turn(
    desk: SyncSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "MAX_HOT_FILES", 4)
    monkeypatch.setattr(looking, "_SLICE", 3)
    for number in range(10):
        await desk.add(f"day {number}", TEAM, MemoryKind.FACT, at=NOW - timedelta(days=number))
    await desk.sync_service.sync_all()
    changed = [f"memory/chats/the-team/2026-11-{day}.md" for day in (14, 17, 20, 23)]
    for name in changed:
        desk.change("- day", "- changed", name)

    for _ in range(4):
        await desk.sync_service.read_back()

    assert sum(text.startswith("changed") for text in await desk.texts(TEAM)) == 4


@pytest.mark.parametrize("day", [False, True])
async def test_a_file_says_how_many_older_ones_it_does_not_show(
    desk: SyncSetup, monkeypatch: pytest.MonkeyPatch, *, day: bool
) -> None:
    monkeypatch.setattr(shelves, "MAX_FILE_ENTRIES", 3)
    kind = MemoryKind.FACT if day else MemoryKind.LONGTERM
    for number in range(3):
        await desk.add(f"fact {number}", kind=kind)
    await desk.sync_service.sync_all()
    name = "memory/global/2026-11-23.md" if day else "MEMORY.md"
    assert "not shown here" not in desk.read(name)

    for number in range(3, 7):
        await desk.add(f"fact {number}", kind=kind)
    await desk.sync_service.write_changed([GLOBAL_SCOPE])

    assert desk.shown(name) == ["fact 4", "fact 5", "fact 6"]
    assert "4 more are not shown here: /memory list" in desk.read(name)
    assert len(await desk.texts()) == 7


@pytest.mark.parametrize("exchanges", [True, False])
async def test_what_is_saved_in_the_moment_of_writing_is_taken_from_beside_the_file(
    desk: SyncSetup, monkeypatch: pytest.MonkeyPatch, *, exchanges: bool
) -> None:
    await desk.add_manual("likes tea")
    await desk.sync_service.sync_all()
    saved = desk.read().replace("tea", "coffee")

    def exchange(folder: int, one: str, other: str) -> bool:
        if saved not in desk.read():
            desk.save(saved)
        return exchanges and really_exchange(folder, one, other)

    with monkeypatch.context() as moment:
        moment.setattr(files, "exchange_files", exchange)
        await desk.add_manual("has cats")
        await desk.sync_service.write_changed([GLOBAL_SCOPE])
    await desk.sync_service.read_back()

    assert await desk.texts() == ["has cats", "likes coffee"]
    await desk.wait()
    assert desk.shown() == ["likes coffee", "has cats"]
    assert [each.name for each in desk.home.glob(".*")] == []


async def test_a_scope_of_an_import_has_no_files(desk: SyncSetup) -> None:
    await desk.add("a row", MemoryScope.parse("custom:diary"), MemoryKind.CELL)
    await desk.sync_service.sync_all()

    assert not any("diary" in each.name for each in desk.home.rglob("*"))


async def test_thousands_of_lines_are_taken_by_the_dozen_and_others_write_in_between(
    desk: SyncSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.sync_service.sync_all()
    lines = [f"- the {number}th thing" for number in range(300)]
    desk.change("<!-- shiftboss: end", "\n".join((*lines, "<!-- shiftboss: end")))
    real, writes = desk.db.write, 0

    def write() -> AbstractAsyncContextManager[Transaction]:
        nonlocal writes
        writes += 1
        return real()

    with monkeypatch.context() as counted:
        counted.setattr(desk.db, "write", write)
        looking = asyncio.create_task(desk.sync_service.read_back())
        while writes == 0:
            await asyncio.sleep(0)
        await desk.add_manual("in between", ANN)
        before = len(await desk.texts())
        await looking

    assert 0 < before < 300
    assert len(await desk.repo.list_shown(GLOBAL_SCOPE, (MemoryKind.LONGTERM,))) == 300
    assert writes < 300 / 10
    assert desk.shown() == [each[2:] for each in lines]


async def test_no_file_waits_for_one_that_takes_long(
    desk: SyncSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.sync_service.sync_all()
    real, going_on = desk.reconciler.reconcile, asyncio.Event()
    under_way = asyncio.Event()

    async def settle(file: MemoryFile, *, keep_empty: bool) -> ReconcileResult:
        if file.path == "BOSS.md" and not going_on.is_set():
            under_way.set()
            await going_on.wait()
        return await real(file, keep_empty=keep_empty)

    monkeypatch.setattr(desk.reconciler, "reconcile", settle)
    desk.change("## Notes", "## Notes\n\nA new one", "BOSS.md")
    long = asyncio.create_task(desk.sync_service.read_back())
    await under_way.wait()

    desk.change("<!-- shiftboss: end", "- likes tea\n<!-- shiftboss: end")
    await desk.sync_service.read_back()
    await desk.add_manual("likes cats")
    await desk.sync_service.write_changed([GLOBAL_SCOPE])
    assert desk.shown() == ["likes tea", "likes cats"]

    going_on.set()
    await long
    await desk.sync_service.read_back()
    assert "A new one" in await desk.texts(GLOBAL_SCOPE, MemoryKind.HANDBOOK)
