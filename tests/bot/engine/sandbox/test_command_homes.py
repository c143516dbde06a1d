"""Homes of commands are kept while they are used, and for a month after."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import pytest

from bot.engine.sandbox.command_homes import MAX_UNUSED_DAYS, CommandHomes
from bot.engine.sandbox.spec import temporary_folder
from tests.waiting import WAIT_SECONDS

DAY = 24 * 60 * 60.0


class Days:
    """A clock that is set by the day, and who sleeps by it."""

    def __init__(self) -> None:
        self.now = 1_000 * DAY
        self.slept = asyncio.Event()

    def __call__(self) -> float:
        return self.now

    async def sleep(self, _seconds: float) -> None:
        self.slept.set()
        await asyncio.Event().wait()


@pytest.fixture
def days() -> Days:
    return Days()


@pytest.fixture
def homes(tmp_path: Path, days: Days) -> CommandHomes:
    return CommandHomes(tmp_path / "shell", now=days)


async def used(homes: CommandHomes, name: str) -> Path:
    async with homes.acquire(name) as home:
        (home / ".cache").mkdir(exist_ok=True)
        (home / ".cache" / "kept").write_text("x")
        temporary_folder(home).joinpath("left").write_text("x")
    return home


async def test_what_was_not_used_for_long_is_removed_with_all_that_belongs_to_it(
    homes: CommandHomes, days: Days, tmp_path: Path
) -> None:
    old = await used(homes, "old")
    days.now += (MAX_UNUSED_DAYS - 1) * DAY
    os.utime(old, (days.now - (MAX_UNUSED_DAYS - 1) * DAY,) * 2)
    young = await used(homes, "young")
    os.utime(young, (days.now,) * 2)
    assert homes.prune() == 0
    days.now += 2 * DAY

    assert homes.prune() == 1
    left = sorted(each.name for each in (tmp_path / "shell").iterdir())
    assert left == ["young", "young.tmp"]
    assert (young / ".cache" / "kept").exists()


async def test_what_is_in_use_stays_however_old_it_looks(homes: CommandHomes, days: Days) -> None:
    async with homes.acquire("busy") as home:
        os.utime(home, (0, 0))
        days.now += 2 * MAX_UNUSED_DAYS * DAY
        assert homes.prune() == 0
        assert home.is_dir()
    assert homes.prune() == 1


async def test_links_are_neither_followed_nor_taken(
    homes: CommandHomes, days: Days, tmp_path: Path
) -> None:
    treasure = tmp_path / "treasure"
    treasure.mkdir()
    (treasure / "gold").write_text("x")
    home = await used(homes, "old")
    (home / "link").symlink_to(treasure)
    closed = home / "closed"
    closed.mkdir()
    (closed / "file").write_text("x")
    closed.chmod(0)
    (tmp_path / "shell" / "elsewhere").symlink_to(treasure)
    os.utime(home, (0, 0))
    os.utime(treasure, (0, 0))
    days.now += 2 * MAX_UNUSED_DAYS * DAY

    assert homes.prune() == 1
    assert not home.exists()
    assert (treasure / "gold").exists()
    assert (tmp_path / "shell" / "elsewhere").is_symlink()


async def test_it_looks_at_the_start_and_takes_up_what_a_death_left_half_done(
    tmp_path: Path, days: Days
) -> None:
    homes = CommandHomes(tmp_path / "shell", now=days, sleep=days.sleep)
    half = tmp_path / "shell" / ".gone-1234"
    half.mkdir(parents=True)
    (half / "file").write_text("x")
    running = asyncio.create_task(homes.run())
    async with asyncio.timeout(WAIT_SECONDS):
        await days.slept.wait()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running

    assert not half.exists()


async def test_a_disk_that_fails_ends_nothing(
    tmp_path: Path, days: Days, monkeypatch: pytest.MonkeyPatch
) -> None:
    homes = CommandHomes(tmp_path / "shell", now=days, sleep=days.sleep)

    def fails() -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(homes, "prune", fails)
    running = asyncio.create_task(homes.run())
    async with asyncio.timeout(WAIT_SECONDS):
        await days.slept.wait()

    assert not running.done()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
