"""The files of `deploy/` fit the program."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from bot.cli.service import unit_text
from bot.config.settings import Settings

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


def test_the_unit_of_the_machine_runs_the_program_as_that_of_a_user_does(tmp_path: Path) -> None:
    settings = Settings.model_construct(home=tmp_path, stop_grace_seconds=10)
    users, machines = (
        {line for line in text.splitlines() if "=" in line and not line.startswith(_OWN_WORDS)}
        for text in (unit_text(settings), (DEPLOY / "shiftboss.service").read_text())
    )

    assert users <= machines
