"""`shiftboss setup`: tell other agents in this folder how to work with Shiftboss."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bot.cli.speak import fail


def setup(
    *,
    inject_agents: Annotated[
        bool, typer.Option("--inject-agents", help="Add the working method to AGENTS.md.")
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="Instead of AGENTS.md here or in $OPENCLAW_WORKSPACE."),
    ] = None,
    language: Annotated[
        str, typer.Option("--language", help="en or zh; else the file's own language.")
    ] = "",
) -> None:
    """Add the rules of the working method to an AGENTS.md. Doing it again changes nothing."""
    if not inject_agents:
        fail("say what to set up: --inject-agents", status=2)
    if language not in {"", "en", "zh"}:
        raise typer.BadParameter("must be en or zh", param_hint="--language")
    # Loaded here and not above, so that `--help` stays quick.
    from bot.app.terminal.agents_file import AgentsFileFailure, agents_file, inject

    try:
        typer.echo(inject(file or agents_file(), language))
    except AgentsFileFailure as error:
        fail(str(error))
