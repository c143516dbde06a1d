"""What can keep the program from starting, in one line each, and what to do about it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import typer


@contextmanager
def told(*, as_json: bool = False) -> Iterator[None]:
    """Turn the failures a person can mend into a line and exit status 2."""
    from bot.app.failures import StartFailure
    from bot.config.settings import BadSettings

    try:
        yield
    except BadSettings as error:
        faults = error.faults
    except StartFailure as error:
        faults = (str(error),)
    else:
        return
    if as_json:
        typer.echo(json.dumps({"error": "; ".join(faults)}, ensure_ascii=False, indent=2))
    for fault in faults:
        typer.echo(f"shiftboss: {fault}", err=True)
    raise typer.Exit(2)
