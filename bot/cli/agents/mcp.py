"""`shiftboss mcp`: what is remembered, for agents of your own."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from bot.cli.failures import told


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
        scopes = scopes_of(scope or ["project", "global"], Path.cwd())
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


def scopes_of(named: list[str], folder: Path) -> list[str]:
    """With the folder's own name, which is that of its repository where it lies in one."""
    return [f"project:{project_of(folder)}" if each == "project" else each for each in named]


def project_of(folder: Path) -> Path:
    here = folder.resolve()
    around = (here, *here.parents)
    return next((each for each in around if (each / ".git").exists()), here)


def _let_go() -> None:
    """Nothing is left to say at the end: whoever listened may be gone."""
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, sys.stdout.fileno())
    os.close(silence)
