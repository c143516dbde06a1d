"""Exports and backups, from wherever a shell stands."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from bot.cli import memory

LINES = b'{"text": "one"}\n{"text": "two"}\n'
MADE = Path("exports/memory-me.jsonl")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "home"
    (made / MADE).parent.mkdir(parents=True)
    (made / MADE).write_bytes(LINES)
    monkeypatch.setenv("SHIFTBOSS_HOME", str(made))
    monkeypatch.chdir(tmp_path)

    def speak(said: str, *, as_json: bool, present: Callable[[Any], tuple[str, Any]]) -> None:
        assert said == "/memory export"
        text, data = present({"path": str(MADE), "entries": 2})
        typer.echo(json.dumps(data) if as_json else text)

    monkeypatch.setattr(memory, "execute", speak)
    return made


def test_an_export_goes_where_it_is_wanted(home: Path, tmp_path: Path) -> None:
    told = CliRunner().invoke(memory.cli, ["export"])
    assert told.stdout == f"2 entries in {home / MADE}\n"

    moved = CliRunner().invoke(memory.cli, ["export", "all.jsonl", "--json"])
    assert json.loads(moved.stdout) == {"path": str(tmp_path / "all.jsonl"), "entries": 2}
    assert (tmp_path / "all.jsonl").read_bytes() == LINES
    assert not (home / MADE).exists()


def test_an_export_may_go_into_a_pipe_and_what_cannot_be_written_stays(home: Path) -> None:
    kept = CliRunner().invoke(memory.cli, ["export", "/no/such/folder/x"])
    assert kept.exit_code == 1
    assert str(home / MADE) in kept.stderr

    piped = CliRunner().invoke(memory.cli, ["export", "-"])
    assert (piped.exit_code, piped.stdout_bytes) == (0, LINES)
    assert not (home / MADE).exists()


def test_a_backup_from_anywhere_is_lent_to_the_program(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "old backup.jsonl").write_bytes(LINES)
    seen: list[bytes] = []

    def speak(said: str, *, as_json: bool) -> None:
        assert not as_json
        place = home / said.removeprefix("/memory restore ")
        seen.append(place.read_bytes())

    monkeypatch.setattr(memory, "execute", speak)
    for name in ("old backup.jsonl", str(MADE), str(home / MADE)):
        assert CliRunner().invoke(memory.cli, ["restore", name]).exit_code == 0

    assert seen == [LINES] * 3
    assert [each.name for each in (home / "exports").iterdir()] == [MADE.name]
    missing = CliRunner().invoke(memory.cli, ["restore", "none.jsonl"])
    assert (missing.exit_code, missing.stderr) == (
        2,
        "shiftboss: none.jsonl cannot be read (no such file)\n",
    )
