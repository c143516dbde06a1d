"""Scopes as they are written in a shell, and texts that look like options."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from bot.cli import memory
from bot.cli.parameters import resolve_scope


def test_a_project_is_its_repository_or_its_folder(tmp_path: Path) -> None:
    (tmp_path / "site" / ".git").mkdir(parents=True)
    (tmp_path / "site" / "docs").mkdir()

    assert resolve_scope("project", tmp_path / "site" / "docs") == f"project:{tmp_path}/site"
    assert resolve_scope("project:.", tmp_path / "site" / "docs") == f"project:{tmp_path}/site/docs"
    assert resolve_scope("project:/a//b/../c/", tmp_path) == "project:/a/c"


@pytest.mark.parametrize("name", ["", "me", "chat", "project:web", "custom:a/../b", "./"])
def test_every_other_name_stays_as_it_is(name: str) -> None:
    assert resolve_scope(f" {name} ") == name


def test_what_is_to_be_remembered_may_look_like_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(memory, "execute", lambda line, **_: said.append(line))

    CliRunner().invoke(memory.cli, ["add", "--scope is a word", "--scope", "skill:x", "too"])
    CliRunner().invoke(memory.cli, ["edit", "abc", "-5 degrees"])

    assert said == [
        "/memory add --scope skill:x -- --scope is a word too",
        "/memory edit abc -5 degrees",
    ]
