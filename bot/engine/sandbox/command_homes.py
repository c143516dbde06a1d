"""Manages the home folders of commands, one per workspace or server, and removes unused ones."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from storage.file_trees import delete_tree

MAX_UNUSED_DAYS = 30
"""Homes contain tools' caches and settings, which are recreated when needed."""

_DAY = 24 * 60 * 60.0
_DELETED_PREFIX = ".gone-"
_TEMPORARY_SUFFIX = ".tmp"
"""Suffix of a sandbox's temporary folder next to a home; see `spec.temporary_folder`."""


class CommandHomes:
    """Home folders in `root`."""

    def __init__(self, root: Path, *, now: Callable[[], float] = time.time) -> None:
        self._root = root
        self._now = now
        # Acquired and pruned in different threads.
        self._lock = threading.Lock()
        self._in_use: Counter[str] = Counter()

    @asynccontextmanager
    async def acquire(self, name: str) -> AsyncGenerator[Path, None]:
        """Yield a home that is not removed while in use. Raises OSError."""
        home = await asyncio.to_thread(self._acquire, name)
        try:
            yield home
        finally:
            with self._lock:
                self._in_use[name] -= 1

    def prune(self) -> int:
        """Remove homes unused for long; return their number. Blocking. Raises OSError."""
        if not self._root.is_dir():
            return 0
        before = self._now() - MAX_UNUSED_DAYS * _DAY
        homes = [each for each in self._root.iterdir() if not each.name.endswith(_TEMPORARY_SUFFIX)]
        gone = sum(self._set_aside(each, before) for each in homes)
        for each in self._root.glob(f"{_DELETED_PREFIX}*"):
            delete_tree(each)
        return gone

    def _acquire(self, name: str) -> Path:
        home = self._root / name
        with self._lock:
            home.mkdir(parents=True, exist_ok=True, mode=0o700)
            now = self._now()
            os.utime(home, (now, now))
            self._in_use[name] += 1
        return home

    def _set_aside(self, home: Path, before: float) -> bool:
        """Rename the home first, so that its name is free at once."""
        if home.name.startswith(_DELETED_PREFIX) or home.is_symlink() or not home.is_dir():
            return False
        with self._lock:
            if self._in_use[home.name] or home.stat().st_mtime >= before:
                return False
            for each in (home, home.with_name(f"{home.name}{_TEMPORARY_SUFFIX}")):
                with suppress(FileNotFoundError):
                    each.rename(each.with_name(f"{_DELETED_PREFIX}{os.urandom(4).hex()}"))
        return True
