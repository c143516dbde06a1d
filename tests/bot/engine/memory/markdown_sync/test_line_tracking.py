"""A line goes from one file to another, with all that belongs to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from bot.engine.memory.markdown_sync.edit_import import MOVE_GRACE
from storage.memory.cells import CellRepo
from storage.records.memory import (
    GLOBAL_SCOPE,
    MAX_ENTRY_TEXT,
    MemoryCategory,
    MemoryEntry,
    MemoryKind,
    MemoryScope,
    NewMemoryEntry,
)
from tests.bot.engine.memory.markdown_sync.sync_builders import ANN, TEAM, SyncSetup
from tests.bot.engine.memory.markdown_sync.test_reconciler_crashes import Died

HERE = "memory/people/ann/MEMORY.md"
PROFILE = "memory/people/ann/PROFILE.md"
END = "<!-- shiftboss: end"
TURN = "our office closes at six, by the way, and the dentist is on Monday"
CLOSES = "The office closes at six"


async def drawn(desk: SyncSetup) -> MemoryEntry:
    """Something that Ann has pinned, and the turn that it came from."""
    cells = CellRepo(desk.db, desk.entries)
    said_at = desk.clock - timedelta(days=3)
    turn = NewMemoryEntry(
        kind=MemoryKind.CELL, scope=ANN, text=TURN, source="t1", thread="chat:c", said_at=said_at
    )
    fact = await desk.add(CLOSES, ANN, category=MemoryCategory.LESSONS, at=said_at)
    async with desk.db.write() as tx:
        cell = await cells.add(tx, turn, now=said_at)
        assert cell is not None
        await cells.link_sources(tx, fact, [cell])
        return await desk.entries.update(tx, replace(fact, pinned=True), now=desk.clock)


async def turns(desk: SyncSetup) -> list[str]:
    return [each.text for each in await desk.entries.list([ANN], kinds=[MemoryKind.CELL])]


def take_out(desk: SyncSetup, name: str = HERE, text: str = CLOSES) -> str:
    line = desk.line(text, name)
    desk.change(f"{line}\n", "", name)
    return line


def put(desk: SyncSetup, line: str, name: str = "MEMORY.md") -> None:
    desk.change(END, f"{line}\n{END}", name)


async def looked(desk: SyncSetup) -> None:
    for _ in range(3):
        await desk.sync_service.read_back()
        await desk.pause(0.5)


def has_all(now: MemoryEntry, before: MemoryEntry, scope: MemoryScope) -> bool:
    return (now.id, now.said_at, now.category, now.pinned, now.scope) == (
        before.id,
        before.said_at,
        before.category,
        True,
        scope,
    )


async def saved_where_it_was_first(desk: SyncSetup) -> None:
    line = take_out(desk)
    await looked(desk)
    put(desk, line)


async def saved_where_it_goes_first(desk: SyncSetup) -> None:
    put(desk, desk.line(CLOSES, HERE))
    await looked(desk)
    await desk.pause(60)
    take_out(desk)


async def saved_both_at_once(desk: SyncSetup) -> None:
    put(desk, take_out(desk))


async def saved_while_nothing_runs(desk: SyncSetup) -> None:
    await saved_both_at_once(desk)
    desk.start()
    await desk.sync_service.sync_all()


async def saved_before_and_after_a_death(desk: SyncSetup) -> None:
    line = take_out(desk)
    await looked(desk)
    desk.start()
    put(desk, line)
    await desk.sync_service.sync_all()


async def copied_before_a_death_and_taken_out_after(desk: SyncSetup) -> None:
    put(desk, desk.line(CLOSES, HERE))
    await looked(desk)
    desk.start()
    await desk.sync_service.sync_all()
    take_out(desk)


@pytest.mark.parametrize(
    "saved",
    [
        saved_where_it_was_first,
        saved_where_it_goes_first,
        saved_both_at_once,
        saved_while_nothing_runs,
        saved_before_and_after_a_death,
        copied_before_a_death_and_taken_out_after,
    ],
)
async def test_a_line_that_is_moved_takes_all_along_and_leaves_the_turn(
    desk: SyncSetup, saved: Callable[[SyncSetup], Awaitable[None]]
) -> None:
    before = await drawn(desk)
    await desk.sync_service.sync_all()

    await saved(desk)
    await looked(desk)
    await desk.wait()

    assert await desk.texts(ANN) == []
    (now,) = await desk.entries.list([GLOBAL_SCOPE], kinds=[MemoryKind.LONGTERM])
    assert has_all(now, before, GLOBAL_SCOPE)
    assert await turns(desk) == [TURN]
    assert desk.shown() == [CLOSES]
    assert desk.shown(HERE) == []
    assert desk.notifier.notices == []


async def test_what_comes_back_nowhere_is_forgotten_with_its_turn_also_after_a_death(
    desk: SyncSetup,
) -> None:
    await drawn(desk)
    await desk.sync_service.sync_all()
    take_out(desk)
    await looked(desk)
    assert await turns(desk) == [TURN], "it may be moved"
    assert desk.shown(HERE) == [], "and is not put back meanwhile"

    desk.start()
    await desk.sync_service.sync_all()
    assert desk.shown(HERE) == []
    await desk.wait()

    assert await desk.texts(ANN) == await turns(desk) == []


async def test_a_line_of_a_day_is_forgotten_after_a_death_too(desk: SyncSetup) -> None:
    for text in ("met Bo", "met Cy"):
        await desk.add(text, TEAM, MemoryKind.FACT)
    await desk.pause(60)
    await desk.sync_service.sync_all()
    day = "memory/chats/the-team/2026-11-23.md"
    take_out(desk, day, "met Bo")
    await desk.sync_service.read_back()
    await desk.pause(60)

    desk.start()
    await desk.sync_service.sync_all()
    await desk.wait()

    assert await desk.texts(TEAM) == ["met Cy"]


async def test_a_step_back_before_it_is_forgotten_leaves_everything(desk: SyncSetup) -> None:
    before = await drawn(desk)
    await desk.sync_service.sync_all()
    buffer = desk.read(HERE)
    take_out(desk)
    await looked(desk)

    desk.save(buffer, HERE)
    await looked(desk)
    await desk.wait()

    (now,) = await desk.entries.list([ANN], kinds=[MemoryKind.LONGTERM])
    assert has_all(now, before, ANN)
    assert await turns(desk) == [TURN]


async def test_a_move_that_is_taken_back_in_both_editors_loses_nothing(desk: SyncSetup) -> None:
    before = await drawn(desk)
    await desk.sync_service.sync_all()
    here, there = desk.read(HERE), desk.read()
    put(desk, take_out(desk))
    await looked(desk)
    await desk.wait()
    assert await desk.texts(ANN) == []

    desk.save(here, HERE)
    take_out(desk, "MEMORY.md")
    await looked(desk)
    await desk.wait()

    assert await desk.texts() == []
    (now,) = await desk.entries.list([ANN], kinds=[MemoryKind.LONGTERM])
    assert has_all(now, before, ANN)
    assert await turns(desk) == [TURN]
    assert "office" not in there


async def test_a_line_that_is_moved_and_changed_at_once_is_the_same_memory(desk: SyncSetup) -> None:
    before = await drawn(desk)
    await desk.sync_service.sync_all()

    put(desk, take_out(desk).replace("six", "seven"))
    await looked(desk)
    await desk.wait()

    (now,) = await desk.entries.list([GLOBAL_SCOPE], kinds=[MemoryKind.LONGTERM])
    assert has_all(now, before, GLOBAL_SCOPE)
    assert now.text == "The office closes at seven"
    assert await turns(desk) == [TURN]


async def test_a_line_that_is_copied_stays_and_forgetting_it_later_is_meant(
    desk: SyncSetup,
) -> None:
    await drawn(desk)
    await desk.sync_service.sync_all()
    put(desk, desk.line(CLOSES, HERE))
    await looked(desk)
    await desk.wait()
    assert await desk.texts(ANN) == await desk.texts() == [CLOSES]

    await desk.pause(3600)
    take_out(desk)
    await desk.wait()

    assert await desk.texts() == [CLOSES]
    assert await desk.texts(ANN) == await turns(desk) == []


async def test_of_a_line_that_goes_to_two_files_one_is_it_and_both_stay(desk: SyncSetup) -> None:
    await drawn(desk)
    await desk.add("meets on Monday", TEAM)
    await desk.sync_service.sync_all()
    line = take_out(desk)
    put(desk, line)
    put(desk, line, "memory/chats/the-team/MEMORY.md")

    await looked(desk)
    await desk.wait()

    assert await desk.texts(ANN) == []
    assert await desk.texts() == [CLOSES]
    assert await desk.texts(TEAM) == [CLOSES, "meets on Monday"]
    assert await turns(desk) == [TURN]


async def test_many_lines_that_are_moved_at_once_are_not_asked_about(desk: SyncSetup) -> None:
    for number in range(12):
        await desk.add(f"fact {number:02}", ANN)
    await desk.sync_service.sync_all()
    lines = [desk.line(f"fact {number:02}", HERE) for number in range(11)]

    desk.save("\n".join(x for x in desk.read(HERE).split("\n") if x not in lines), HERE)
    await looked(desk)
    put(desk, "\n".join(lines))
    await looked(desk)
    await desk.wait()

    assert await desk.texts(ANN) == ["fact 11"]
    assert len(await desk.texts()) == 11
    assert desk.notifier.notices == []


async def test_within_a_scope_a_line_goes_to_another_file_under_its_heading(
    desk: SyncSetup,
) -> None:
    before = await drawn(desk)
    await desk.sync_service.sync_all()
    line = take_out(desk)
    desk.change("## Tech stack\n", f"## Tech stack\n\n{line}\n", PROFILE)

    await looked(desk)
    await desk.wait()

    (now,) = await desk.entries.list([ANN], kinds=[MemoryKind.PROFILE])
    assert (now.id, now.pinned, now.category) == (before.id, True, MemoryCategory.TOOLS)
    assert await turns(desk) == [TURN]


async def test_a_fact_that_is_moved_to_another_day_is_of_that_day(desk: SyncSetup) -> None:
    older = await desk.add("met Bo", TEAM, MemoryKind.FACT, at=desk.clock - timedelta(days=1))
    newer = await desk.add("met Cy", TEAM, MemoryKind.FACT)
    await desk.sync_service.sync_all()
    line = take_out(desk, "memory/chats/the-team/2026-11-23.md", "met Cy")

    put(desk, line, "memory/chats/the-team/2026-11-22.md")
    await looked(desk)
    await desk.wait()

    assert await desk.texts(TEAM) == ["met Bo", "met Cy"]
    now = await desk.entries.get(newer.id, [TEAM])
    assert now.said_at.date() == older.said_at.date()


async def test_a_turn_that_is_moved_to_what_is_kept_leaves_what_was_drawn_from_it(
    desk: SyncSetup,
) -> None:
    await drawn(desk)
    await desk.sync_service.sync_all()
    put(desk, take_out(desk, "memory/people/ann/2026-11-20.md", "dentist"))

    await looked(desk)
    await desk.wait()

    assert await desk.texts() == [TURN]
    assert await desk.texts(ANN) == [CLOSES]
    assert await turns(desk) == []


async def test_what_stands_in_a_file_that_cannot_be_read_to_its_end_is_not_forgotten(
    desk: SyncSetup,
) -> None:
    await drawn(desk)
    await desk.sync_service.sync_all()
    line = take_out(desk, HERE).replace("six", "six " * MAX_ENTRY_TEXT)
    put(desk, line)

    await looked(desk)
    await desk.wait()
    assert await desk.texts(ANN) == [CLOSES]

    desk.change("six " * MAX_ENTRY_TEXT, "six")
    await looked(desk)
    await desk.wait()
    assert await desk.texts(ANN) == []
    assert await desk.texts() == [CLOSES]
    assert await turns(desk) == [TURN]


@pytest.mark.parametrize("at", range(1, 12))
async def test_at_whatever_change_it_dies_a_moved_line_is_in_one_place(
    desk: SyncSetup, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    await drawn(desk)
    await desk.sync_service.sync_all()
    put(desk, take_out(desk))
    real, count = desk.db.write, 0

    def write() -> object:
        nonlocal count
        count += 1
        if count == at:
            raise Died
        return real()

    with monkeypatch.context() as dying:
        dying.setattr(desk.db, "write", write)
        try:
            await looked(desk)
        except Died:
            assert count == at
    desk.start()
    await desk.sync_service.sync_all()
    await looked(desk)
    await desk.pause(MOVE_GRACE.total_seconds())
    await desk.wait()

    assert await desk.texts(ANN) == []
    assert await desk.texts() == [CLOSES]
    assert await turns(desk) == [TURN]
