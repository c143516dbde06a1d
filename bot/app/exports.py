"""Files that are written out for people, below the data directory: whole, or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path

FOLDER = "exports"


class ExportFile:
    """Grows beside its place until it is put there. All of it is blocking; nobody else may read
    it."""

    def __init__(self, home: Path, name: str) -> None:
        self.path = home / FOLDER / name
        self.told = str(self.path.relative_to(home))
        # Somebody else may be writing out the same just now.
        self._part = self.path.with_suffix(f".{secrets.token_hex(4)}.part")
        self._begun = False

    def add(self, lines: Iterable[str]) -> None:
        self.path.parent.mkdir(mode=0o700, exist_ok=True)
        mode, self._begun = "a" if self._begun else "w", True
        with open(self._part, mode, encoding="utf-8", opener=_private) as file:
            file.writelines(f"{line}\n" for line in lines)

    def put(self) -> int:
        """How large it is, in bytes."""
        if not self._begun:
            self.add(())
        # What follows may rest on it: it has to outlive a loss of power.
        _kept(self._part)
        self._part.replace(self.path)
        _kept(self.path.parent)
        return self.path.stat().st_size

    def drop(self) -> None:
        """What never became whole; nothing where it has."""
        self._part.unlink(missing_ok=True)


def _kept(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)
