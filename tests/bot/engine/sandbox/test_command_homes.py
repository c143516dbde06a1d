"""Homes of commands are kept while they are used, and for a month after."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bot.engine.sandbox.process_runner import MAX_UNUSED_DAYS, CommandHomes
from bot.engine.sandbox.spec import temporary_folder

DAY = 24 * 60 * 60.0


class Days:
    """A clock that is set by the day."""

    def __init__(self) -> None:
        self.now = 1_000 * DAY

    def __call__(self) -> float:
        return self.now


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


def test_it_takes_up_what_a_death_left_half_done(homes: CommandHomes, tmp_path: Path) -> None:
    half = tmp_path / "shell" / ".gone-1234"
    half.mkdir(parents=True)
    (half / "file").write_text("x")

    homes.prune()

    assert not half.exists()
