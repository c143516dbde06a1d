"""`shiftboss subtask`: the steps of a task's plan."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.cli import lines
from bot.cli.parameters import Json, Name, Said, TaskId, TextCommand
from bot.cli.speak import speak

cli = typer.Typer(no_args_is_help=True, help="The steps of a task's plan.")


@cli.command("add", cls=TextCommand)
def add(
    parent: TaskId,
    names: Annotated[list[str], typer.Argument(metavar="NAME...")],
    as_json: Json = False,
) -> None:
    """Put subtasks at the end of a task's plan."""
    speak(lines.steps("subtask add", parent, names), as_json=as_json)


@cli.command("done", cls=TextCommand)
def done(
    parent: TaskId,
    name: Name,
    summary: Annotated[str, typer.Option("-s", "--summary", help="What came of it.")] = "",
    as_json: Json = False,
) -> None:
    """Say that a subtask is done; the last one done ends the task."""
    speak(lines.subtask_done(parent, name, summary), as_json=as_json)


@cli.command("phase", cls=TextCommand)
def phase(parent: TaskId, name: Name, text: Said, as_json: Json = False) -> None:
    """Say how a subtask goes."""
    speak(lines.subtask_phase(parent, name, text), as_json=as_json)
