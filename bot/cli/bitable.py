"""`shiftboss bitable`: the Feishu Bitable of tasks, logs and memories."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.cli.chat_commands import JsonOption, add_chat_command, command_line, execute
from bot.cli.failures import fail

cli = typer.Typer(no_args_is_help=True, help="Tasks, logs and memories as a Feishu Bitable.")

add_chat_command(cli, "status", "bitable", help="Show the Bitable in use and its link.")
add_chat_command(
    cli,
    "rebuild",
    "bitable rebuild",
    help="Make the tables what Shiftboss knows, whatever was changed in them.",
)
add_chat_command(cli, "off", "bitable off", help="Stop using the Bitable; it stays as it is.")


@cli.command("setup")
def set_up(
    *,
    app_token: Annotated[
        str, typer.Option("--app-token", help="Use this base: its token, or its link.")
    ] = "",
    check: Annotated[
        bool, typer.Option("--check", help="Say what is missing; change nothing.")
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Make what is missing in the base in use.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a base with three tables and share it with an owner, or use one that exists."""
    if check + repair + bool(app_token) > 1:
        fail("--app-token, --check and --repair exclude one another", as_json=as_json, status=2)
    command = "check" if check else "repair" if repair else "setup"
    data = execute(command_line(f"bitable {command}", app_token), as_json=as_json)
    if check and data and not data["good"]:
        raise typer.Exit(1)
