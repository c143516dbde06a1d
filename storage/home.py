"""The data directory: made, proved writable, and held by one program at a time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from storage.errors import HomeBusy, HomeUnusable

_LOCK = "lock"
_BRIEFLY = "briefly"


class Home:
    """Hold a data directory; use as a context manager, or call `close`. Blocking, but short.

    The lock is the operating system's, so a killed program leaves none behind. Raises HomeBusy
    where another program holds the directory, HomeUnusable where it cannot be written. Who holds
    it `briefly` tells others that it is worth while to wait.
    """

    def __init__(self, path: Path, *, briefly: bool = False) -> None:
        self.path = path
        self._how = f" {_BRIEFLY}" if briefly else ""
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise HomeUnusable(str(path), error.strerror or str(error)) from error
        try:
            self._take()
        except BaseException:
            os.close(self._lock)
            raise

    def close(self) -> None:
        """Let others in. The lock file stays: taking it away would race with the next holder."""
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

    def _take(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder, _, how = os.pread(self._lock, 32, 0).decode("ascii", "replace").partition(" ")
            raise HomeBusy(
                str(self.path), holder.strip() or "?", briefly=how.strip() == _BRIEFLY
            ) from error
        except OSError as error:
            raise HomeUnusable(str(self.path), error.strerror or str(error)) from error
        try:
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()}{self._how}\n".encode(), 0)
        except OSError as error:
            raise HomeUnusable(str(self.path), error.strerror or str(error)) from error
