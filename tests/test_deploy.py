"""The files of `deploy/` fit the program."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.core import TyperGroup
from typer.main import get_command

from bot.cli.command_line import create_cli
from bot.cli.service import unit_text
from bot.config.settings import Settings, setting_names

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
_OWN_WORDS = ("ExecStart", "WorkingDirectory", "Environment", "Description", "WantedBy")
"""Of one of the two units each."""


def test_the_image_has_every_file_that_the_package_is_built_from() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {
        "pyproject.toml",
        project["project"]["readme"],
        *project["project"]["license-files"],
        *wheel["packages"],
        *wheel["force-include"],
    }

    lines = re.findall(r"^COPY (.+) \S+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    copied = {name for line in lines for name in line.split()}

    assert copied == needed
    assert all((ROOT / name).exists() for name in copied)


@pytest.mark.parametrize("name", ["compose.yaml", "compose-scale.yaml"])
def test_each_service_runs_a_command_of_the_program_with_its_settings(name: str) -> None:
    """No container engine is needed: the commands are parsed as the shell would."""
    found = yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))
    ours = [each for each in found["services"].values() if "build" in each]
    assert ours

    for service in ours:
        names = {each for each in service.get("environment", {}) if each != "TZ"}
        assert names <= set(setting_names())
        assert {each.split(":")[0] for each in service["volumes"]} <= set(found["volumes"])
        if "command" in service:
            program, *arguments = service["command"]
            assert program == "shiftboss"
            role, *options = arguments
            group = get_command(create_cli())
            assert isinstance(group, TyperGroup)
            assert role in {"run", "front", "worker"}
            group.commands[role].make_context(role, options)


def test_the_unit_of_the_machine_runs_the_program_as_that_of_a_user_does(tmp_path: Path) -> None:
    settings = Settings.model_construct(home=tmp_path, stop_grace_seconds=10)
    users, machines = (
        {line for line in text.splitlines() if "=" in line and not line.startswith(_OWN_WORDS)}
        for text in (unit_text(settings), (DEPLOY / "shiftboss.service").read_text())
    )

    assert users <= machines
