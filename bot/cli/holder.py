"""Finds the process that works in a data directory."""

from __future__ import annotations

from pathlib import Path

from bot.cli.failures import report_start_failures


def find_holder(home: Path) -> int | None:
    """The process that works in the data directory, apart from single commands. Exits where the
    directory cannot be used."""
    from bot.app.lifecycle import home_unusable
    from storage.data_directory import DataDirectoryLock
    from storage.errors import DataDirectoryInUse, DataDirectoryUnusable

    if not home.is_dir():
        return None
    try:
        DataDirectoryLock(home, is_temporary=True).close()
    except DataDirectoryInUse as error:
        return int(error.pid) if error.pid.isdecimal() and not error.is_temporary else None
    except DataDirectoryUnusable as error:
        with report_start_failures():
            raise home_unusable(error) from error
    return None
