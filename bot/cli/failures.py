"""Ends a command with what failed, for people and as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from cards.formats import escape_invisible


@contextmanager
def report_start_failures(*, as_json: bool = False) -> Iterator[None]:
    """Print start failures and exit with status 2."""
    from bot.app.lifecycle import StartFailure
    from bot.config.settings import BadSettings

    try:
        yield
    except BadSettings as error:
        faults = error.errors
    except StartFailure as error:
        faults = (str(error),)
    else:
        return
    if as_json:
        print(json.dumps({"error": "; ".join(faults)}, ensure_ascii=False, indent=2), flush=True)
    for fault in faults:
        print(f"shiftboss: {fault}", file=sys.stderr)
    raise SystemExit(2)


def fail(reason: str, *, as_json: bool = False, status: int = 1) -> NoReturn:
    if as_json:
        print(json.dumps({"error": reason}, ensure_ascii=False, indent=2), flush=True)
    print(f"shiftboss: {escape_invisible(reason)}", file=sys.stderr)
    raise SystemExit(status)
