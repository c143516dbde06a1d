"""Disks fill up, files are held, moved and cut short: one clear word, and on it goes afterwards."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest

from tests.emulators.telegram.chats import Chat
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.people import User
from tests.journeys.program import Program, program
from tests.thorough import long

_PATIENCE = 60.0
_TASK = '/run wait 1 second, then write "x" to a.txt'


@asynccontextmanager
async def at_work(home: Path) -> AsyncGenerator[tuple[Program, User, Chat], None]:
    """A task is under way."""
    async with TelegramEmulator() as telegram:
        boss = telegram.user(7, "Boss")
        chat = telegram.private_chat(boss)
        async with program(
            home,
            TELEGRAM_BOT_TOKEN=telegram.token,
            TELEGRAM_BASE_URL=telegram.base_url,
            SHIFTBOSS_OWNERS="telegram:7",
        ) as shiftboss:
            await boss.says(chat, _TASK)
            await chat.wait_for(lambda m: "/2" in m.text, timeout=_PATIENCE)
            yield shiftboss, boss, chat


async def all_went_well(shiftboss: Program, chat: Chat) -> None:
    await chat.wait_for_text("Tasks (", timeout=_PATIENCE)
    await chat.wait_for_text("Task finished", timeout=_PATIENCE)
    texts = [message.text for message in chat.from_bot]
    assert sum("Tasks (" in text for text in texts) == 1
    assert sum("Task finished" in text for text in texts) == 1
    assert (next((shiftboss.home / "work").glob("*/a.txt"))).read_text().strip() == "x"
    assert await shiftboss.stop() == 0
    assert "Traceback" not in shiftboss.text
    assert "Logging error" not in shiftboss.text


async def test_a_disk_that_fills_up_in_the_middle_is_waited_for(tmp_path: Path) -> None:
    async with at_work(tmp_path) as (shiftboss, boss, chat):
        _, hard = resource.prlimit(shiftboss.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(shiftboss.pid, resource.RLIMIT_FSIZE, (0, hard))
        await boss.says(chat, "/list")
        await shiftboss.says("A message waits with Telegram")
        assert not [m for m in chat.from_bot if "Tasks (" in m.text]

        resource.prlimit(shiftboss.pid, resource.RLIMIT_FSIZE, (hard, hard))
        await all_went_well(shiftboss, chat)


async def test_a_database_somebody_else_holds_is_waited_for(tmp_path: Path) -> None:
    async with at_work(tmp_path) as (shiftboss, boss, chat):
        with closing(sqlite3.connect(tmp_path / "shiftboss.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            await boss.says(chat, "/list")
            await shiftboss.says("database is locked")
        await all_went_well(shiftboss, chat)


@long
async def test_a_home_that_was_moved_away_is_missed_and_taken_up_when_it_is_back(
    tmp_path: Path,
) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    async with at_work(home) as (shiftboss, boss, chat):
        home.rename(elsewhere)
        await boss.says(chat, "/list")
        await shiftboss.says("was moved, deleted or replaced")
        assert not (home / "shiftboss.db").exists()

        put_back(elsewhere, home)
        await chat.wait_for_text("Tasks (", timeout=_PATIENCE)
        await shiftboss.stop()

    assert "Traceback" not in shiftboss.text


def put_back(elsewhere: Path, home: Path) -> None:
    """What a step writes meanwhile is in the way, and it may write at any moment."""
    while elsewhere.exists():
        shutil.rmtree(home, ignore_errors=True)
        with suppress(OSError):
            elsewhere.rename(home)


async def test_of_two_started_at_the_same_instant_one_runs(tmp_path: Path) -> None:
    first, second = (Program(home=tmp_path / "home", settings={}) for _ in range(2))
    try:
        started = await asyncio.gather(first.start(), second.start(), return_exceptions=True)

        assert sorted(isinstance(each, AssertionError) for each in started) == [False, True]
        refused = first if started[0] is not None else second
        assert "another Shiftboss" in refused.text
        assert "Traceback" not in refused.text
        assert await refused.dies() == 2
    finally:
        await first.end()
        await second.end()


@pytest.mark.parametrize("size", [5000, 50_000])
async def test_a_database_cut_short_is_refused_in_one_line_and_left_alone(
    tmp_path: Path, size: int
) -> None:
    async with program(tmp_path) as shiftboss:
        await shiftboss.stop()
        database = tmp_path / "shiftboss.db"
        os.truncate(database, size)
        before = database.read_bytes()

        status, said = await shiftboss.run_to_end("run")

        assert status == 2
        assert "cannot be used" in said
        assert "Traceback" not in said
        assert database.read_bytes() == before


async def test_a_newer_version_that_was_killed_is_left_byte_for_byte(tmp_path: Path) -> None:
    async with program(tmp_path) as shiftboss:
        with closing(sqlite3.connect(tmp_path / "shiftboss.db")) as newer, newer:
            newer.execute("UPDATE alembic_version SET version_num = '9999'")
        os.kill(shiftboss.pid, signal.SIGKILL)
        await shiftboss.dies()
        before = {each.name: each.read_bytes() for each in tmp_path.glob("shiftboss.db*")}
        assert len(before) == 3

        status, said = await shiftboss.run_to_end("run")

        assert (status, "newer" in said) == (2, True)
        assert {each.name: each.read_bytes() for each in tmp_path.glob("shiftboss.db*")} == before


@pytest.mark.parametrize("name", ["logs", "web-address"])
async def test_something_in_the_way_in_the_home_is_named(tmp_path: Path, name: str) -> None:
    if name == "logs":
        (tmp_path / name).write_text("not a folder")
    else:
        (tmp_path / name).mkdir()

    status, said = await Program(home=tmp_path, settings={}).run_to_end("run")

    assert status == 2
    assert str(tmp_path / name) in said
    assert "Traceback" not in said
