"""`shiftboss backend`: who can do the work here, and what they lack."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.cli import lines
from bot.cli.parameters import Json
from bot.cli.speak import speak

cli = typer.Typer(no_args_is_help=True, help="See who can do the work, and what they lack.")


@cli.command("list")
def list_all(as_json: Json = False) -> None:
    """List all backends: ready, or what is missing and how to get it."""
    speak("/backend list", as_json=as_json)


@cli.command("check")
def check(
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="One to try out: a coding CLI is started.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Look at all backends, or start one to see whether it really works; status 1 if not."""
    speak(lines.line("backend", "check", name), as_json=as_json)
