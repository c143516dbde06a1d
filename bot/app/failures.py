"""What keeps the program from starting, said so that whoever starts it can mend it."""

from __future__ import annotations

from storage.errors import HomeUnusable


class StartFailure(Exception):
    """Its text is the one line to show: what is wrong and what to do."""


def unusable(error: HomeUnusable) -> StartFailure:
    return StartFailure(
        f"{error.path} cannot be used ({error.reason}): make it writable, or set SHIFTBOSS_HOME"
    )
