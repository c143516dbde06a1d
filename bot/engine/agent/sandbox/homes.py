"""Homes of commands: one for each workspace or server, lent out, and removed when long unused."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

log = logging.getLogger(__name__)

UNUSED_DAYS = 30
"""They hold caches and settings of tools: worth a month's pause, made anew after a longer one."""

_DAY = 24 * 60 * 60.0
_GONE = ".gone-"
_TEMPORARY = ".tmp"
"""What a sandbox may put beside a home; see `base.temporary_for`."""


class Homes:
    """Folders in `root`. Satisfies `lifecycle.Service`: it looks at the start and every day."""

    name = "homes"

    def __init__(
        self,
        root: Path,
        *,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._root = root
        self._now = now
        self._sleep = sleep
        # Lent by the event loop's threads, removed by another.
        self._lock = threading.Lock()
        self._lent: Counter[str] = Counter()

    @asynccontextmanager
    async def lent(self, name: str) -> AsyncGenerator[Path, None]:
        """A home that nobody removes meanwhile. Raises OSError."""
        home = await asyncio.to_thread(self._lend, name)
        try:
            yield home
        finally:
            with self._lock:
                self._lent[name] -= 1

    async def start(self, stack: AsyncExitStack) -> None:
        """Nothing to prepare."""

    async def run(self) -> None:
        while True:
            try:
                await asyncio.to_thread(self.prune)
            except OSError as error:
                log.warning("unused homes of commands cannot be removed now: %s", error)
            await self._sleep(_DAY)

    def prune(self) -> int:
        """Remove those that nobody has used for long; how many. Blocking."""
        if not self._root.is_dir():
            return 0
        before = self._now() - UNUSED_DAYS * _DAY
        homes = [each for each in self._root.iterdir() if not each.name.endswith(_TEMPORARY)]
        gone = sum(self._put_aside(each, before) for each in homes)
        for each in self._root.glob(f"{_GONE}*"):
            _removed(each)
        if gone:
            log.info("%d homes of commands, unused for %d days, are removed", gone, UNUSED_DAYS)
        return gone

    def _lend(self, name: str) -> Path:
        home = self._root / name
        with self._lock:
            home.mkdir(parents=True, exist_ok=True, mode=0o700)
            now = self._now()
            os.utime(home, (now, now))
            self._lent[name] += 1
        return home

    def _put_aside(self, home: Path, before: float) -> bool:
        """Out of the way at once, so that its name is free for a new one."""
        if home.name.startswith(_GONE) or home.is_symlink() or not home.is_dir():
            return False
        with self._lock:
            if self._lent[home.name] or home.stat().st_mtime >= before:
                return False
            for each in (home, home.with_name(f"{home.name}{_TEMPORARY}")):
                with suppress(FileNotFoundError):
                    each.rename(each.with_name(f"{_GONE}{os.urandom(4).hex()}"))
        return True


def _removed(folder: Path) -> None:
    """Also where a command has closed folders to itself. No link is followed."""
    with suppress(OSError):
        folder.chmod(0o700)
        for at, names, _ in os.walk(folder):
            for name in names:
                if not (Path(at) / name).is_symlink():
                    (Path(at) / name).chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
