"""`shiftboss skill` says what the chat says, and checks a folder without any program running."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bot.cli import local_execution
from bot.cli.command_line import create_cli
from bot.cli.local_execution import CommandAnswer
from tests.bot.engine.skills.builders import write_skill


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["list"], "/skill list"),
        (["show", "one"], "/skill show one"),
        (["enable", "one"], "/skill enable one"),
        (["enable", "one", "abcdef012345"], "/skill enable one abcdef012345"),
        (["disable", "one"], "/skill disable one"),
    ],
)
def test_a_command_is_the_line_of_the_chat(
    typed: list[str], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    heard: list[str] = []

    def carry_out(_: Any, text: str, **_options: bool) -> CommandAnswer:
        heard.append(text)
        return CommandAnswer(text="Fine.", good=True, data={"skills": []})

    monkeypatch.setattr(local_execution, "execute_command", carry_out)
    monkeypatch.setenv("SHIFTBOSS_HOME", str(tmp_path))

    done = CliRunner().invoke(create_cli(), ["skill", *typed, "--json"])

    assert done.exit_code == 0, done.output
    assert heard == [said]
    assert json.loads(done.stdout) == {"skills": []}


def test_a_good_folder_is_good_and_says_what_has_no_effect(tmp_path: Path) -> None:
    folder = write_skill(tmp_path / "one", front="allowed-tools: exec\n")

    done = CliRunner().invoke(create_cli(), ["skill", "validate", str(folder)])

    assert done.exit_code == 0
    assert "one: good" in done.stdout
    assert "allowed-tools" in done.stdout


def test_a_bad_folder_tells_all_its_faults_and_fails(tmp_path: Path) -> None:
    folder = write_skill(tmp_path / "one", " ", front="user-invocable: maybe\n")

    done = CliRunner().invoke(create_cli(), ["skill", "validate", str(folder), "--json"])

    told = json.loads(done.stdout)
    assert done.exit_code == 1
    assert told["good"] is False
    assert len(told["faults"]) == 2
