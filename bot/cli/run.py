"""`shiftboss run`: everything that is configured, in one process."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import typer

from bot.cli.failures import told


def run() -> None:
    """Start Shiftboss: the web chat, and every channel that is configured."""
    with told():
        # The program is loaded here and not above, so that `--help` stays quick.
        from bot.app.program import serve
        from bot.config.settings import load_settings

        asyncio.run(serve(load_settings(), announce=_announce))


def _announce(line: str) -> None:
    """Where the terminal was closed there is nobody to tell."""
    with suppress(OSError):
        typer.echo(line)
