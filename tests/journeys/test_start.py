"""Starting and stopping, and what can keep the program from it."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.journeys.program import program_at_first_start, run_command, running_program
from tests.postgresql_server import sqlite_only
from tests.thoroughness import sampled

_SHIFTBOSS = Path(sys.executable).parent / "shiftboss"


async def test_a_fresh_home_starts_without_any_setting_and_stops_cleanly(tmp_path: Path) -> None:
    async with program_at_first_start(tmp_path / "new" / "home") as shiftboss:
        assert "/?token=" in shiftboss.address
        assert await shiftboss.stop() == 0
        assert "resume at the next start" in shiftboss.printed
        assert "Traceback" not in shiftboss.printed


async def test_a_start_says_what_works_and_the_command_line_uses_the_running_program(
    tmp_path: Path,
) -> None:
    settings = {
        "SHIFTBOSS_MODEL": "anthropic:claude-opus-5-5",
        "SHIFTBOSS_FALLBACK": "offline",
        "SHIFTBOSS_SLOT": "3",
    }
    async with running_program(tmp_path, **settings) as shiftboss:
        assert "did you mean SHIFTBOSS_SLOTS?" in shiftboss.printed
        assert "⚠️ Model anthropic:claude-opus-5-5: No Anthropic key is set" in shiftboss.printed
        assert "⚠️ Model offline: " in shiftboss.printed
        assert "Web chat: ready" in shiftboss.printed
        status, said = await shiftboss.run_to_end("say", "/help")
        assert (status, "/run" in said) == (0, True)
        status, said = await shiftboss.run_to_end("pair", "NOSUCHCD")
        assert (status, bool(said.strip())) == (1, True)


async def test_a_second_program_on_the_same_home_says_so_and_exits(tmp_path: Path) -> None:
    async with running_program(tmp_path) as shiftboss:
        status, said = await shiftboss.run_to_end("run")

        assert status == 2
        assert f"process {shiftboss.pid}" in said
        assert (await shiftboss.run_to_end("say", "/list"))[0] == 0


async def test_a_port_in_use_gives_a_one_line_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused(tmp_path, SHIFTBOSS_WEB_PORT=str(port))

    assert str(port) in said


def test_a_data_directory_that_cannot_be_written_gives_a_one_line_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")

    assert "SHIFTBOSS_HOME" in refused(tmp_path / "file" / "home")


def test_corrupt_yaml_gives_a_one_line_error(tmp_path: Path) -> None:
    (tmp_path / "shiftboss.yaml").write_text("slots: [")

    assert "shiftboss.yaml" in refused(tmp_path)


def test_an_unsupported_database_url_is_refused(tmp_path: Path) -> None:
    said = refused(tmp_path, DATABASE_URL="mysql://u:hidden@127.0.0.1/db")

    assert "sqlite:///" in said
    assert "hidden" not in said


def test_a_database_from_a_newer_version_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "shiftboss.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE alembic_version (version_num TEXT)")
        db.execute("INSERT INTO alembic_version VALUES ('9999')")
    before = path.read_bytes()

    assert "newer" in refused(tmp_path)
    assert path.read_bytes() == before


def test_a_file_that_is_not_a_database_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "shiftboss.db"
    path.write_bytes(b"this is not a database, whatever it is called" * 100)
    before = path.read_bytes()

    assert refused(tmp_path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("command", [("say", "hi"), ("pair", "CODE")][: sampled(2, 1)])
def test_without_a_running_program_the_command_line_says_what_to_start(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    assert "shiftboss run" in refused(tmp_path, *command)


def environment(home: Path) -> dict[str, str]:
    code = {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
    return {"SHIFTBOSS_HOME": str(home), "SHIFTBOSS_WEB_PORT": "0", **code}


def refused(home: Path, *command: str, **settings: str) -> str:
    """The output of a failed start: short besides the log, without a traceback, with exit status
    2."""
    done = run_command(
        *(command or ("run",)), environment=environment(home) | settings, folder=Path("/")
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    told = [line for line in done.stderr.splitlines() if " INFO " not in line]
    assert 1 <= len(told) <= 3
    return done.stderr


@sqlite_only("the file is deleted or emptied")
async def test_a_home_without_its_database_is_refused_by_every_command(tmp_path: Path) -> None:
    async with running_program(tmp_path) as shiftboss:
        await shiftboss.stop()
    (tmp_path / "shiftboss.db").unlink()
    for command in (
        ("run",),
        ("list",),
        ("dispatch", "--once"),
        ("dispatch", "--dry-run"),
        ("memory", "search", "x"),
    ):
        args = ("task", "ls") if command == ("list",) else command
        said = refused(tmp_path, *args)
        assert "expected the database with store id" in said
        assert "shiftboss restore FILE" in said
        assert "--new-store" in said
        assert not (tmp_path / "shiftboss.db").exists()


@sqlite_only("the file is deleted or emptied")
async def test_a_new_store_has_to_be_asked_for(tmp_path: Path) -> None:
    async with running_program(tmp_path) as shiftboss:
        await shiftboss.stop()
        (tmp_path / "shiftboss.db").write_bytes(b"")
    assert "empty" in refused(tmp_path)
    process = subprocess.Popen(
        [_SHIFTBOSS, "run", "--new-store"],
        env=environment(tmp_path) | {"PYTHONUNBUFFERED": "1"},
        cwd="/",
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process:
        lines = iter(process.stdout.readline, "")
        said = [line for line in lines if line.startswith("Set aside") or _end(process, line)]

    assert any("shiftboss.db.old-" in line for line in said)
    assert process.returncode == 0


def _end(process: subprocess.Popen[str], line: str) -> bool:
    if "is ready" in line:
        process.terminate()
    return False
