"""Whose memories a command is about, as it is written in a shell."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

WHOSE = (
    "Whose: me, chat, project (the folder you are in), global, person:ID, chat:ID,"
    " project:FOLDER, skill:NAME, agent:NAME, or any name."
)
Scope = Annotated[str, typer.Option("--scope", help=WHOSE)]

_PROJECT = "project"
_PLACES = (".", "~", "/")


def named(scope: str, folder: Path | None = None) -> str:
    """As it is known from anywhere: `project` is the repository around `folder`, where somebody
    stands, or that folder itself."""
    scope, folder = scope.strip(), folder or Path.cwd()
    if scope == _PROJECT:
        return f"{_PROJECT}:{project_of(folder)}"
    kind, _, name = scope.partition(":")
    if kind == _PROJECT and name.startswith(_PLACES):
        return f"{_PROJECT}:{os.path.abspath(folder / Path(name).expanduser())}"  # noqa: PTH100 - links stay as they are written
    return scope


def project_of(folder: Path) -> Path:
    here = folder.resolve()
    around = (here, *here.parents)
    return next((each for each in around if (each / ".git").exists()), here)
