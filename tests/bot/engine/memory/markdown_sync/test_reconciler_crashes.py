"""The program dies between any two steps of bringing a file and the store together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from bot.engine.memory.access import LOCAL_EDITOR
from bot.engine.memory.markdown_sync.layout import default_chapters
from cards.catalog import catalog_for
from storage.memory.markdown.sync_store import SNAPSHOT_RETENTION_DAYS
from storage.records.memory import GLOBAL_SCOPE, MemoryKind
from storage.records.people import Language
from tests.bot.engine.memory.markdown_sync.sync_builders import SyncSetup


class Died(BaseException):
    """No program goes on after this."""


STEPS = (
    ("folder", "read", "write", "read_leftovers", "delete_leftovers", "delete"),
    ("bases", "put"),
    ("db", "write"),
    ("repo", "add_conflict", "list_shown"),
)


def crash_at(desk: SyncSetup, monkeypatch: pytest.MonkeyPatch, at: int) -> Callable[[], bool]:
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


async def reconcile_all(desk: SyncSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Started again, and looked at until nothing more is to do."""
    monkeypatch.undo()
    desk.start()
    await desk.sync_service.sync_all()
    for _ in range(3):
        await desk.wait()


@pytest.mark.parametrize("at", range(1, 30))
async def test_at_whatever_step_it_dies_nothing_is_lost_or_done_twice(
    desk: SyncSetup, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    await desk.add_manual("stays")
    await desk.add_manual("was removed")
    await desk.add_manual("was changed")
    both = await desk.add_manual("both changed")
    await desk.sync_service.sync_all()
    body = desk.read().replace("- was changed", "- is changed")
    body = body.replace(f"{desk.line('was removed')}\n", "").replace("- both", "- the person")
    desk.save(body.replace("<!-- shiftboss: end", "- is new\n<!-- shiftboss: end"))
    await desk.writer.edit(both, "the bot changed", LOCAL_EDITOR)
    came_so_far = crash_at(desk, monkeypatch, at)

    try:
        await desk.sync_service.write_changed([GLOBAL_SCOPE])
        await desk.wait()
    except Died:
        assert came_so_far()

    await reconcile_all(desk, monkeypatch)
    wanted = ["is changed", "is new", "stays", "the bot changed", "the person changed"]
    assert await desk.texts() == wanted
    assert sorted(desk.shown()) == wanted
    assert [each.name for each in desk.home.glob(".*")] == []
    assert desk.notifier.kinds.count("held") == 0


@pytest.mark.parametrize("at", range(1, 40, 3))
async def test_dying_at_the_first_start_leaves_a_whole_handbook(
    desk: SyncSetup, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    crash_at(desk, monkeypatch, at)
    with contextlib.suppress(Died):
        await desk.sync_service.sync_all()

    await reconcile_all(desk, monkeypatch)

    found = await desk.entries.list([GLOBAL_SCOPE], kinds=(MemoryKind.HANDBOOK,))
    assert (
        len(found)
        == len({each.key for each in found})
        == len(default_chapters(catalog_for(Language.ENGLISH)))
    )


async def test_what_the_program_was_writing_when_it_died_is_no_persons_word(
    desk: SyncSetup,
) -> None:
    await desk.add_manual("likes tea")
    await desk.sync_service.sync_all()
    (desk.home / ".MEMORY.md.new").write_text(desk.read()[:70])

    desk.start()
    await desk.sync_service.sync_all()
    await desk.wait()

    assert await desk.texts() == ["likes tea"]
    assert [each.name for each in desk.home.glob(".*")] == []


async def test_what_a_person_saved_while_it_died_is_taken_from_beside_the_file(
    desk: SyncSetup,
) -> None:
    await desk.add_manual("likes tea")
    await desk.sync_service.sync_all()
    saved = desk.read().replace("tea", "coffee")
    (desk.home / ".MEMORY.md.new").write_text(saved)

    desk.start()
    await desk.sync_service.sync_all()
    await desk.wait()

    assert await desk.texts() == ["likes coffee"]
    assert desk.shown() == ["likes coffee"]


@pytest.mark.parametrize("lags", [False, True], ids=["", "behind a write that was cut off"])
async def test_a_file_of_long_ago_that_was_just_replaced_when_it_died_brings_nothing_back(
    desk: SyncSetup, monkeypatch: pytest.MonkeyPatch, lags: bool
) -> None:
    tea = await desk.add_manual("likes tea")
    faded = await desk.add_manual("fades away")
    await desk.sync_service.sync_all()
    if lags:
        await desk.add_manual("likes rain")
        monkeypatch.setattr(desk.folder, "write", _die)
        with pytest.raises(Died):
            await desk.sync_service.write_changed([GLOBAL_SCOPE])
        desk.start()
    desk.clock += timedelta(days=SNAPSHOT_RETENTION_DAYS + 1)
    await desk.writer.edit(tea, "likes coffee", LOCAL_EDITOR)
    async with desk.db.write() as tx:
        await desk.entries.delete(tx, faded)
    await desk.sync_service.write_changed([GLOBAL_SCOPE])
    assert [each.name for each in desk.home.glob(".*")] == [".MEMORY.md.old"]

    desk.start()
    await desk.sync_service.sync_all()
    await desk.wait()

    wanted = ["likes coffee", *(["likes rain"] if lags else [])]
    assert await desk.texts() == wanted
    assert desk.shown() == wanted
    assert [each.name for each in desk.home.glob(".*")] == []


def _die(*_args: object) -> None:
    raise Died
