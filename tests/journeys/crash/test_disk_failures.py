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

from tests.emulators.telegram.chats import TelegramChat
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.users import TelegramUser
from tests.journeys.program import ShiftbossProcess, running_program
from tests.journeys.program_store import open_store
from tests.postgresql_server import sqlite_only
from tests.thoroughness import thorough_only

_TASK = '/run wait 1 second, then write "x" to a.txt'


@asynccontextmanager
async def working_program(
    home: Path,
) -> AsyncGenerator[tuple[ShiftbossProcess, TelegramUser, TelegramChat], None]:
    """A task is under way."""
    async with TelegramEmulator() as telegram:
        boss = telegram.user(7, "Boss")
        chat = telegram.private_chat(boss)
        async with running_program(
            home,
            **telegram.settings,
            SHIFTBOSS_OWNERS="telegram:7",
        ) as shiftboss:
            await boss.says(chat, _TASK)
            await chat.wait_for(lambda m: "/2" in m.text)
            yield shiftboss, boss, chat


async def check_finished(shiftboss: ShiftbossProcess, chat: TelegramChat) -> None:
    await chat.wait_for_text("Tasks (")
    await chat.wait_for_text("Task finished")
    texts = [message.text for message in chat.from_bot]
    assert sum("Tasks (" in text for text in texts) == 1
    assert sum("Task finished" in text for text in texts) == 1
    assert (next((shiftboss.home / "work").glob("*/a.txt"))).read_text().strip() == "x"
    assert await shiftboss.stop() == 0
    assert "Traceback" not in shiftboss.printed
    assert "Logging error" not in shiftboss.printed


@sqlite_only("the limit holds for the process that writes the file")
async def test_a_disk_that_fills_up_during_a_task_is_waited_for(tmp_path: Path) -> None:
    async with working_program(tmp_path) as (shiftboss, boss, chat):
        _, hard = resource.prlimit(shiftboss.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(shiftboss.pid, resource.RLIMIT_FSIZE, (0, hard))
        await boss.says(chat, "/list")
        await shiftboss.wait_for_output("Telegram keeps a message for now")
        assert not [m for m in chat.from_bot if "Tasks (" in m.text]

        resource.prlimit(shiftboss.pid, resource.RLIMIT_FSIZE, (hard, hard))
        await check_finished(shiftboss, chat)


@sqlite_only("another process locks the file")
async def test_a_database_locked_by_another_process_is_waited_for(tmp_path: Path) -> None:
    async with working_program(tmp_path) as (shiftboss, boss, chat):
        with closing(sqlite3.connect(tmp_path / "shiftboss.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            await boss.says(chat, "/list")
            await shiftboss.wait_for_output("database is locked")
        await check_finished(shiftboss, chat)


@thorough_only
@sqlite_only("the file is away with its folder")
async def test_a_data_directory_that_was_moved_away_is_reported_and_used_again_once_back(
    tmp_path: Path,
) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    async with working_program(home) as (shiftboss, boss, chat):
        home.rename(elsewhere)
        await boss.says(chat, "/list")
        await shiftboss.wait_for_output("was moved, deleted or replaced")
        assert not (home / "shiftboss.db").exists()

        put_back(elsewhere, home)
        await chat.wait_for_text("Tasks (")
        await shiftboss.stop()

    assert "Traceback" not in shiftboss.printed


def put_back(elsewhere: Path, home: Path) -> None:
    """What a step writes meanwhile is in the way, and it may write at any moment."""
    while elsewhere.exists():
        shutil.rmtree(home, ignore_errors=True)
        with suppress(OSError):
            elsewhere.rename(home)


async def test_of_two_programs_started_at_once_one_runs(tmp_path: Path) -> None:
    first, second = (ShiftbossProcess(home=tmp_path / "home", settings={}) for _ in range(2))
    try:
        started = await asyncio.gather(first.start(), second.start(), return_exceptions=True)

        assert sorted(isinstance(each, AssertionError) for each in started) == [False, True]
        refused = first if started[0] is not None else second
        assert "another Shiftboss" in refused.printed
        assert "Traceback" not in refused.printed
        assert await refused.wait_for_exit() == 2
    finally:
        await first.kill_if_running()
        await second.kill_if_running()


@sqlite_only("the file is cut short")
@pytest.mark.parametrize("size", [5000, 50_000])
async def test_a_truncated_database_is_refused_in_one_line_and_left_alone(
    tmp_path: Path, size: int
) -> None:
    async with running_program(tmp_path) as shiftboss:
        await shiftboss.stop()
        database = tmp_path / "shiftboss.db"
        os.truncate(database, size)
        before = database.read_bytes()

        status, said = await shiftboss.run_to_end("run")

        assert status == 2
        assert "cannot be used" in said
        assert "Traceback" not in said
        assert database.read_bytes() == before


@sqlite_only("it compares the file")
async def test_a_newer_version_that_was_killed_is_left_byte_for_byte(tmp_path: Path) -> None:
    async with running_program(tmp_path) as shiftboss:
        with open_store(tmp_path) as newer:
            newer.execute("UPDATE alembic_version SET version_num = '9999'")
        os.kill(shiftboss.pid, signal.SIGKILL)
        await shiftboss.wait_for_exit()
        before = {each.name: each.read_bytes() for each in tmp_path.glob("shiftboss.db*")}
        assert len(before) == 3

        status, said = await shiftboss.run_to_end("run")

        assert (status, "newer" in said) == (2, True)
        assert {each.name: each.read_bytes() for each in tmp_path.glob("shiftboss.db*")} == before


@pytest.mark.parametrize("name", ["logs", "web-address"])
async def test_a_file_and_a_folder_in_each_others_place_are_named_in_the_error(
    tmp_path: Path, name: str
) -> None:
    if name == "logs":
        (tmp_path / name).write_text("not a folder")
    else:
        (tmp_path / name).mkdir()

    status, said = await ShiftbossProcess(home=tmp_path, settings={}).run_to_end("run")

    assert status == 2
    assert str(tmp_path / name) in said
    assert "Traceback" not in said
