"""Finds the process that works in a data directory."""

from __future__ import annotations

from pathlib import Path


def find_holder(home: Path) -> int | None:
    """The process that works in the data directory, apart from single commands."""
    from storage.data_directory import DataDirectoryLock
    from storage.errors import DataDirectoryInUse

    if not home.is_dir():
        return None
    try:
        DataDirectoryLock(home, is_temporary=True).close()
    except DataDirectoryInUse as error:
        return int(error.pid) if error.pid.isdecimal() and not error.is_temporary else None
    return None
