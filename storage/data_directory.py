"""Creates and locks the data directory, so that only one process uses it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from storage.errors import DataDirectoryInUse, DataDirectoryUnusable

_LOCK_FILE = "lock"
_TEMPORARY_MARK = "briefly"


class DataDirectoryLock:
    """Locks a data directory until `close`; also a context manager. Blocks, but briefly.

    The lock belongs to the operating system, so a killed process leaves none behind. Raises
    DataDirectoryInUse if another process holds it and DataDirectoryUnusable if it cannot be
    written. If `is_temporary`, others learn that it will be released soon.
    """

    def __init__(self, path: Path, *, is_temporary: bool = False) -> None:
        self.path = path
        self._holder_suffix = f" {_TEMPORARY_MARK}" if is_temporary else ""
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(path / _LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise DataDirectoryUnusable(str(path), error.strerror or str(error)) from error
        try:
            self._acquire()
        except BaseException:
            os.close(self._lock)
            raise

    def close(self) -> None:
        """Release the lock. The lock file stays: removing it would race with the next holder."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _acquire(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder, _, how = os.pread(self._lock, 32, 0).decode("ascii", "replace").partition(" ")
            raise DataDirectoryInUse(
                str(self.path), holder.strip() or "?", is_temporary=how.strip() == _TEMPORARY_MARK
            ) from error
        except OSError as error:
            raise DataDirectoryUnusable(str(self.path), error.strerror or str(error)) from error
        try:
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()}{self._holder_suffix}\n".encode(), 0)
        except OSError as error:
            raise DataDirectoryUnusable(str(self.path), error.strerror or str(error)) from error
