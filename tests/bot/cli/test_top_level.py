"""Top-level commands: what cannot go together, or not without a running Shiftboss, is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from bot.cli.command_line import create_cli


@pytest.mark.parametrize(
    "flags", [("--slow", "--cost"), ("--errors", "--all"), ("--slow", "--otlp", "-")]
)
def test_two_ways_to_look_at_once_are_refused(flags: tuple[str, ...]) -> None:
    told = CliRunner().invoke(create_cli(), ["trace", "t1", *flags])

    assert told.exit_code == 2
    assert "choose one of" in told.output


@pytest.mark.parametrize(
    "words", ["heartbeat now", "heartbeat run", "schedule run abc", "reload", "dashboard"]
)
def test_what_cannot_happen_without_a_running_program_is_refused(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHIFTBOSS_HOME", str(tmp_path / "home"))

    told = CliRunner().invoke(create_cli(), words.split())

    assert told.exit_code == 1
    assert "not running" in told.output
    assert "shiftboss start" in told.output
    assert not (tmp_path / "home" / "shiftboss.db").exists()
