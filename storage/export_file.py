"""Writes export files below the data directory atomically."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path

FOLDER = "exports"


class ExportFile:
    """A file that appears at its path only on `commit`. Blocking; readable by its owner only."""

    def __init__(self, home: Path, name: str) -> None:
        self.path = home / FOLDER / name
        self.relative_path = str(self.path.relative_to(home))
        # Another process may be writing the same export.
        self._partial = self.path.with_suffix(f".{secrets.token_hex(4)}.part")
        self._started = False

    def append_lines(self, lines: Iterable[str]) -> None:
        self.path.parent.mkdir(mode=0o700, exist_ok=True)
        mode, self._started = "a" if self._started else "w", True
        with open(self._partial, mode, encoding="utf-8", opener=_open_private) as file:
            file.writelines(f"{line}\n" for line in lines)

    def commit(self) -> int:
        """Move the finished file into place and return its size in bytes."""
        if not self._started:
            self.append_lines(())
        # Callers may delete the originals afterwards, so the file must survive a power cut.
        _fsync(self._partial)
        self._partial.replace(self.path)
        _fsync(self.path.parent)
        return self.path.stat().st_size

    def discard(self) -> None:
        """Delete the partial file; does nothing after `commit`."""
        self._partial.unlink(missing_ok=True)


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)
