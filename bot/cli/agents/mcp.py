"""`shiftboss mcp`: what is remembered, for agents of your own."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from bot.cli.failures import told
from bot.cli.memory.scopes import named

USUAL = ("project", "global")


def mcp(
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            help="What is served, and where new things are kept: project:/FOLDER, project (the"
            " folder it is started in), skill:NAME, global, me. May be given several times; as a"
            " rule project and global.",
        ),
    ] = None,
) -> None:
    """Serve memory and old conversations to an agent, as an MCP server over stdio."""
    with told():
        # Loaded here and not above, so that `--help` stays quick.
        from bot.app.terminal.serving import answered
        from bot.app.terminal.stdio import serve
        from bot.config.settings import load_settings

        settings = load_settings()
        scopes = [named(each) for each in scope or USUAL]
        try:
            serve(
                lambda message: answered(settings, message, scopes),
                sys.stdin.buffer,
                sys.stdout.buffer,
            )
        except KeyboardInterrupt:
            pass
        finally:
            _let_go()


def _let_go() -> None:
    """Nothing is left to say at the end: whoever listened may be gone."""
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, sys.stdout.fileno())
    os.close(silence)
