"""`shiftboss run`: everything that is configured, in one process."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import typer

from bot.cli.failures import told


def run() -> None:
    """Start Shiftboss: the web chat, and every channel that is configured."""
    with told():
        # The program is loaded here and not above, so that `--help` stays quick.
        with _loading():
            from bot.app.program import serve
            from bot.config.settings import load_settings

        asyncio.run(serve(load_settings(), announce=_announce))


@contextmanager
def _loading() -> Iterator[None]:
    """Modules are no garbage: to look for some while they load takes a tenth of the start, and
    to look through them later a part of each search for it."""
    gc.disable()
    # httpx's own command line: with it come rich and pygments, 3 MB that nobody uses here.
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # None is "not there"
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _announce(line: str) -> None:
    """Where the terminal was closed there is nobody to tell."""
    with suppress(OSError):
        typer.echo(line)
