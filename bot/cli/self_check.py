"""`shiftboss self`: how Shiftboss is, its self-check and its drive."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.cli.chat_commands import add_chat_command, command_line, execute
from bot.cli.parameters import JsonOption, optional

cli = typer.Typer(no_args_is_help=True, help="See how Shiftboss itself is.")

_CHANGE = Annotated[
    str,
    typer.Argument(metavar="[CHANGE]", help="start, stop, enable or disable; without, the status."),
]
_GOAL = Annotated[str, typer.Argument(metavar="[GOAL]", help="health-check, evolve or cleanup.")]


def check(as_json: JsonOption = False) -> None:
    """Run the self-check; status 1 if it fails. Without a running Shiftboss it only reports."""
    report = execute(command_line("self", "check"), as_json=as_json)
    if report["grade"] == "fail":
        raise typer.Exit(1)


add_chat_command(cli, "status", "self", help="Show health, open problems and drive.")
cli.command("check")(check)
add_chat_command(cli, "history", "self history", help="List the problems so far.")
add_chat_command(
    cli,
    "drive",
    "self drive",
    optional("change", _CHANGE),
    optional("goal", _GOAL),
    help="Show or change the goals that Shiftboss pursues by itself.",
)
