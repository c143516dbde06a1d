"""The program dies between any two steps of bringing a file and the store together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from bot.engine.memory.handbook import defaults
from bot.engine.memory.writing.rights import HOME
from cards.words import words_for
from storage.memory.files.bases import DAYS
from storage.records.memory.entries import GLOBAL, MemoryKind
from storage.records.people import Language
from tests.bot.engine.memory.mirror.desk import Desk


class Died(BaseException):
    """No program goes on after this."""


STEPS = (
    ("folder", "read", "write", "beside", "drop_beside", "remove"),
    ("bases", "put"),
    ("db", "write"),
    ("shelf", "oppose", "shown"),
)


def dying(desk: Desk, monkeypatch: pytest.MonkeyPatch, at: int) -> Callable[[], bool]:
    """Make the program die at its `at`-th step. The result says whether it came so far."""
    count = 0

    def wrapped(real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count == at:
                raise Died
            return real(*args, **kwargs)

        return step

    for owner, *names in STEPS:
        for name in names:
            real = getattr(getattr(desk, owner), name)
            monkeypatch.setattr(getattr(desk, owner), name, wrapped(real))
    return lambda: count >= at


async def settled(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Started again, and looked at until nothing more is to do."""
    monkeypatch.undo()
    desk.start()
    await desk.mirror.begin()
    for _ in range(3):
        await desk.wait()


@pytest.mark.parametrize("at", range(1, 30))
async def test_at_whatever_step_it_dies_nothing_is_lost_or_done_twice(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    await desk.hand("stays")
    await desk.hand("was removed")
    await desk.hand("was changed")
    both = await desk.hand("both changed")
    await desk.mirror.begin()
    body = desk.read().replace("- was changed", "- is changed")
    body = body.replace(f"{desk.line('was removed')}\n", "").replace("- both", "- the person")
    desk.save(body.replace("<!-- shiftboss: end", "- is new\n<!-- shiftboss: end"))
    await desk.writer.edit(both, "the bot changed", HOME)
    came_so_far = dying(desk, monkeypatch, at)

    try:
        await desk.mirror.render([GLOBAL])
        await desk.wait()
    except Died:
        assert came_so_far()

    await settled(desk, monkeypatch)
    wanted = ["is changed", "is new", "stays", "the bot changed", "the person changed"]
    assert await desk.texts() == wanted
    assert sorted(desk.shown()) == wanted
    assert [each.name for each in desk.home.glob(".*")] == []
    assert desk.told.kinds.count("held") == 0


@pytest.mark.parametrize("at", range(1, 40, 3))
async def test_dying_at_the_first_start_leaves_a_whole_handbook(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    dying(desk, monkeypatch, at)
    with contextlib.suppress(Died):
        await desk.mirror.begin()

    await settled(desk, monkeypatch)

    found = await desk.entries.list([GLOBAL], kinds=(MemoryKind.HANDBOOK,))
    assert (
        len(found)
        == len({each.key for each in found})
        == len(defaults(words_for(Language.ENGLISH)))
    )


async def test_what_the_program_was_writing_when_it_died_is_no_persons_word(desk: Desk) -> None:
    await desk.hand("likes tea")
    await desk.mirror.begin()
    (desk.home / ".MEMORY.md.new").write_text(desk.read()[:70])

    desk.start()
    await desk.mirror.begin()
    await desk.wait()

    assert await desk.texts() == ["likes tea"]
    assert [each.name for each in desk.home.glob(".*")] == []


async def test_what_a_person_saved_while_it_died_is_taken_from_beside_the_file(
    desk: Desk,
) -> None:
    await desk.hand("likes tea")
    await desk.mirror.begin()
    saved = desk.read().replace("tea", "coffee")
    (desk.home / ".MEMORY.md.new").write_text(saved)

    desk.start()
    await desk.mirror.begin()
    await desk.wait()

    assert await desk.texts() == ["likes coffee"]
    assert desk.shown() == ["likes coffee"]


async def test_a_file_of_long_ago_that_was_just_replaced_when_it_died_brings_nothing_back(
    desk: Desk,
) -> None:
    tea = await desk.hand("likes tea")
    faded = await desk.hand("fades away")
    await desk.mirror.begin()
    desk.at += timedelta(days=DAYS + 1)
    await desk.writer.edit(tea, "likes coffee", HOME)
    async with desk.db.write() as tx:
        await desk.entries.drop(tx, faded)
    await desk.mirror.render([GLOBAL])
    assert [each.name for each in desk.home.glob(".*")] == [".MEMORY.md.old"]

    desk.start()
    await desk.mirror.begin()
    await desk.wait()

    assert await desk.texts() == ["likes coffee"]
    assert desk.shown() == ["likes coffee"]
    assert [each.name for each in desk.home.glob(".*")] == []
