"""What can keep the program from starting, in one line each, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer


@contextmanager
def told() -> Iterator[None]:
    """Turn the failures a person can mend into a line and exit status 2."""
    from bot.app.failures import StartFailure
    from bot.config.settings import BadSettings

    try:
        yield
    except BadSettings as error:
        for fault in error.faults:
            typer.echo(f"shiftboss: {fault}", err=True)
        raise typer.Exit(2) from None
    except StartFailure as error:
        typer.echo(f"shiftboss: {error}", err=True)
        raise typer.Exit(2) from None
