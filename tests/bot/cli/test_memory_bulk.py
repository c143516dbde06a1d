"""Conversations from elsewhere go in and are found again, with a program on the home or without."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bot.cli import memory, memory_bulk
from storage.data_directory import DataDirectoryLock
from tests.journeys.program import run_command
from tests.migrated_database import migrated_url

_ROOT = Path(__file__).parents[3]
ROWS = [
    {"id": "a1", "text": "I went to the lake with Tom", "sender": "Ann", "at": "2024-05-05"},
    {"id": "a2", "text": "我喜欢喝茉莉花茶", "sender": "Bob", "at": "2024-05-08"},
    {"id": "a3", "text": "The printer is broken again", "sender": "Ann", "at": "2024-06-01"},
]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    lines = [json.dumps(row, ensure_ascii=False) for row in ROWS]
    path.write_text("\n".join([*lines[:2], "nonsense", lines[2]]), "utf-8")
    return path


class Shell:
    """The real command, in a process of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environment = {"SHIFTBOSS_HOME": str(home), "PATH": "/usr/bin:/bin", "TZ": "UTC"}

    def __call__(self, *args: str, said: str = "") -> subprocess.CompletedProcess[str]:
        return run_command(
            *("memory", *args), environment=self.environment, folder=_ROOT, said=said.encode()
        )

    def begun(self, *args: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "bot", "memory", *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
            env=self.environment,
        )


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "home")


def test_rows_go_in_once_and_are_found_by_a_batch(shell: Shell, rows: Path) -> None:
    first = shell("import", str(rows), "--scope", "talk", "--json")
    again = shell("import", str(rows), "--scope", "talk")
    asked = ['{"query": "When was Ann at the lake?", "id": 9}', "{", '{"query": "花茶"}']
    batch = shell(
        "search", "--batch", "-", "--scope", "talk", "--limit", "2", said="\n".join(asked)
    )

    told = json.loads(first.stdout)
    assert (told["imported"], told["known"]) == (3, 0)
    assert [bad["line"] for bad in told["bad"]] == [3]
    assert (again.returncode, again.stdout) == (0, "0 imported, 3 already there, 1 bad\n")
    assert "rows.jsonl:3: " in again.stderr
    answers = [json.loads(line) for line in batch.stdout.splitlines()]
    assert answers[0]["id"] == 9
    assert answers[0]["results"][0]["id"] == "a1"
    assert "line 2" in answers[1]["error"]
    assert answers[2]["results"][0]["id"] == "a2"


def test_nothing_is_found_in_another_scope(shell: Shell, rows: Path) -> None:
    shell("import", str(rows), "--scope", "talk")

    found = shell("search", "lake", "--scope", "other", "--json")

    assert json.loads(found.stdout) == {"query": "lake", "results": []}
    assert found.stderr == "shiftboss: no memories in custom:other\n"


def test_without_a_scope_it_looks_where_the_owner_does(shell: Shell, rows: Path) -> None:
    shell("import", str(rows), "--scope", "me")

    found = shell("search", "lake", "printer", "--limit", "1", "--json")

    (one,) = json.loads(found.stdout)["results"]
    assert one["id"] in {"a1", "a3"}
    assert one["scope"].startswith("person:")


def test_whoever_stops_listening_is_not_complained_to(shell: Shell) -> None:
    with shell.begun("search", "--batch", "-", "--scope", "talk") as searching:
        assert searching.stdout is not None
        searching.stdout.close()
        searching.stdout = None
        _, errors = searching.communicate('{"query": "lake"}\n' * 3)

    assert searching.returncode == 1
    assert errors == "shiftboss: no memories in custom:talk\n"


def test_it_can_be_broken_off_while_it_waits_for_more(shell: Shell) -> None:
    with shell.begun("search", "--batch", "-", "--scope", "talk") as searching:
        assert searching.stdin is not None
        assert searching.stdout is not None
        searching.stdin.write('{"query": "lake"}\n')
        searching.stdin.flush()
        assert searching.stdout.readline() == '{"query":"lake","results":[]}\n'
        searching.send_signal(signal.SIGINT)
        assert searching.wait() == 130


def test_it_works_beside_a_program_that_holds_the_home(shell: Shell, rows: Path) -> None:
    with DataDirectoryLock(shell.home):
        migrated_url(shell.home)

        done = shell("import", str(rows), "--scope", "talk")
        found = shell("search", "printer", "--scope", "talk")

    assert done.returncode == 0, done.stderr
    assert "a3" in found.stdout


def test_an_import_that_was_killed_is_taken_up_by_the_next(shell: Shell) -> None:
    lines = [f'{{"id": {n}, "text": "turn {n} of many"}}\n' for n in range(1_000)]
    store = shell.home / "shiftboss.db"
    with shell.begun("import", "-", "--scope", "talk") as importing:
        assert importing.stdin is not None
        # It waits for more, so that it cannot be through before it is killed.
        importing.stdin.writelines(lines[:900])
        importing.stdin.flush()
        while not kept(store):
            assert importing.poll() is None
            time.sleep(0.05)
        importing.kill()

    done = shell("import", "-", "--scope", "talk", "--json", said="".join(lines))

    told = json.loads(done.stdout)
    assert told["known"] >= 400
    assert told["imported"] + told["known"] == 1_000 == kept(store)


def kept(store: Path) -> int:
    try:
        with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as view:
            return int(view.execute("SELECT count(*) FROM memories").fetchone()[0])
    except sqlite3.OperationalError:
        return 0  # not there yet


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("import", "/no/such/file", "--scope", "x"), "/no/such/file cannot be read"),
        (("import", ".", "--scope", "x"), "cannot be read"),
        (("search", "--scope", "x"), "give a QUERY"),
        (("search", "a", "--batch", "-", "--scope", "x"), "give a QUERY"),
        (("search", "--batch", "/no/such/file", "--scope", "x"), "/no/such/file cannot be read"),
    ],
)
def test_what_cannot_be_done_is_told(args: tuple[str, ...], why: str) -> None:
    done = CliRunner().invoke(memory.cli, args)

    assert done.exit_code == 2
    assert why in done.stderr


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("import", "-", "--scope", " "), "--scope must not be empty"),
        (("search", "a", "--scope", "person:"), "'person:' names nobody"),
    ],
)
def test_a_scope_that_cannot_be_is_told(shell: Shell, args: tuple[str, ...], why: str) -> None:
    done = shell(*args)

    assert done.returncode == 2
    assert why in done.stderr
    assert "Traceback" not in done.stderr


async def test_imports_take_turns(tmp_path: Path) -> None:
    order: list[int] = []

    async def write(number: int) -> None:
        async with memory_bulk._import_lock(tmp_path):
            order.append(number)
            for _ in range(5):
                await asyncio.sleep(0)
            order.append(number)

    await asyncio.gather(*map(write, range(3)))

    assert sorted(order) == [0, 0, 1, 1, 2, 2]
    assert order[::2] == order[1::2]
