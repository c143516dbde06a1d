"""Much to show, and much to look at."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

import pytest

from bot.engine.memory.mirror import mirror as looking
from bot.engine.memory.mirror.places import Place
from bot.engine.memory.mirror.reconcile import Settled
from storage.db import Transaction
from storage.memory.files import folder as files
from storage.memory.files import shelf as shelves
from storage.memory.files.exchange import exchange as really_exchange
from storage.memory.files.folder import MOST_BYTES
from storage.records.memory.entries import GLOBAL, MOST_TEXT, MemoryKind, Scope
from tests.bot.engine.memory.mirror.desk import ANN, NOW, TEAM, Desk


async def test_what_a_file_has_no_room_for_is_neither_missed_nor_forgotten(desk: Desk) -> None:
    for number in range(40):
        await desk.add(f"{number} {'很长' * (MOST_TEXT // 2 - 50)}")
    await desk.mirror.begin()
    assert (desk.home / "MEMORY.md").stat().st_size < MOST_BYTES
    assert "more are not shown here" in desk.read()

    desk.change("- 39 ", "- thirty-nine ")
    await desk.mirror.look()

    kept = await desk.entries.list([GLOBAL], kinds=(MemoryKind.LONGTERM,), limit=200)
    assert len(kept) == 40
    assert kept[0].text.startswith("thirty-nine")
    assert desk.told.notices == []


async def test_of_many_files_the_older_ones_are_looked_at_in_turn(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "HOT", 4)
    monkeypatch.setattr(looking, "_SLICE", 3)
    for number in range(10):
        await desk.add(f"day {number}", TEAM, MemoryKind.FACT, at=NOW - timedelta(days=number))
    await desk.mirror.begin()
    changed = [f"memory/chats/the-team/2026-11-{day}.md" for day in (14, 17, 20, 23)]
    for name in changed:
        desk.change("- day", "- changed", name)

    for _ in range(4):
        await desk.mirror.look()

    assert sum(text.startswith("changed") for text in await desk.texts(TEAM)) == 4


@pytest.mark.parametrize("day", [False, True])
async def test_a_file_says_how_many_older_ones_it_does_not_show(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, *, day: bool
) -> None:
    monkeypatch.setattr(shelves, "MOST", 3)
    kind = MemoryKind.FACT if day else MemoryKind.LONGTERM
    for number in range(3):
        await desk.add(f"fact {number}", kind=kind)
    await desk.mirror.begin()
    name = "memory/global/2026-11-23.md" if day else "MEMORY.md"
    assert "not shown here" not in desk.read(name)

    for number in range(3, 7):
        await desk.add(f"fact {number}", kind=kind)
    await desk.mirror.render([GLOBAL])

    assert desk.shown(name) == ["fact 4", "fact 5", "fact 6"]
    assert "4 more are not shown here: /memory list" in desk.read(name)
    assert len(await desk.texts()) == 7


@pytest.mark.parametrize("exchanges", [True, False])
async def test_what_is_saved_in_the_moment_of_writing_is_taken_from_beside_the_file(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, *, exchanges: bool
) -> None:
    await desk.hand("likes tea")
    await desk.mirror.begin()
    saved = desk.read().replace("tea", "coffee")

    def exchange(folder: int, one: str, other: str) -> bool:
        if saved not in desk.read():
            desk.save(saved)
        return exchanges and really_exchange(folder, one, other)

    with monkeypatch.context() as moment:
        moment.setattr(files, "exchange", exchange)
        await desk.hand("has cats")
        await desk.mirror.render([GLOBAL])
    await desk.mirror.look()

    assert await desk.texts() == ["has cats", "likes coffee"]
    await desk.wait()
    assert desk.shown() == ["likes coffee", "has cats"]
    assert [each.name for each in desk.home.glob(".*")] == []


async def test_a_scope_of_an_import_has_no_files(desk: Desk) -> None:
    await desk.add("a row", Scope.of("custom:diary"), MemoryKind.CELL)
    await desk.mirror.begin()

    assert not any("diary" in each.name for each in desk.home.rglob("*"))


async def test_thousands_of_lines_are_taken_by_the_dozen_and_others_write_in_between(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.mirror.begin()
    lines = [f"- the {number}th thing" for number in range(300)]
    desk.change("<!-- shiftboss: end", "\n".join((*lines, "<!-- shiftboss: end")))
    real, writes = desk.db.write, 0

    def write() -> AbstractAsyncContextManager[Transaction]:
        nonlocal writes
        writes += 1
        return real()

    with monkeypatch.context() as counted:
        counted.setattr(desk.db, "write", write)
        looking = asyncio.create_task(desk.mirror.look())
        while writes == 0:
            await asyncio.sleep(0)
        await desk.hand("in between", ANN)
        before = len(await desk.texts())
        await looking

    assert 0 < before < 300
    assert len(await desk.shelf.shown(GLOBAL, (MemoryKind.LONGTERM,))) == 300
    assert writes < 300 / 10
    assert desk.shown() == [each[2:] for each in lines]


async def test_no_file_waits_for_one_that_takes_long(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.mirror.begin()
    real, going_on = desk.reconciler.settle, asyncio.Event()
    under_way = asyncio.Event()

    async def settle(place: Place, *, empty: bool) -> Settled:
        if place.path == "BOSS.md" and not going_on.is_set():
            under_way.set()
            await going_on.wait()
        return await real(place, empty=empty)

    monkeypatch.setattr(desk.reconciler, "settle", settle)
    desk.change("## Notes", "## Notes\n\nA new one", "BOSS.md")
    long = asyncio.create_task(desk.mirror.look())
    await under_way.wait()

    desk.change("<!-- shiftboss: end", "- likes tea\n<!-- shiftboss: end")
    await desk.mirror.look()
    await desk.hand("likes cats")
    await desk.mirror.render([GLOBAL])
    assert desk.shown() == ["likes tea", "likes cats"]

    going_on.set()
    await long
    await desk.mirror.look()
    assert "A new one" in await desk.texts(GLOBAL, MemoryKind.HANDBOOK)
