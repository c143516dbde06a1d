"""Knows the coding CLIs and MCP servers that run in a folder, so that they can be halted while an
approved command runs there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path


class FolderProcesses:
    """A folder stands for those in it and those that it is in, too. While one is held, no process
    starts there."""

    def __init__(self) -> None:
        self._running: list[tuple[Path, asyncio.subprocess.Process]] = []
        self._starts: dict[asyncio.Event, Path] = {}
        self._holds: dict[asyncio.Event, Path] = {}

    async def start(
        self, folder: Path, create: Callable[[], Awaitable[asyncio.subprocess.Process]]
    ) -> asyncio.subprocess.Process:
        """Start a process that keeps running. Raises what `create` raises."""
        folder = _real(folder)
        await _all_over(self._holds, folder)
        over = asyncio.Event()
        self._starts[over] = folder
        try:
            process = await create()
            self._running = [*self._alive(), (folder, process)]
        finally:
            del self._starts[over]
            over.set()
        return process

    @asynccontextmanager
    async def hold(self, folder: Path) -> AsyncGenerator[None, None]:
        """Let no process start there."""
        folder = _real(folder)
        over = asyncio.Event()
        self._holds[over] = folder
        try:
            await _all_over(self._starts, folder)
            yield
        finally:
            del self._holds[over]
            over.set()

    def find(self, folder: Path) -> list[int]:
        """Return the process IDs."""
        folder = _real(folder)
        return [each.pid for at, each in self._alive() if _overlap(at, folder)]

    def is_held(self, pid: int) -> bool:
        folder = next((at for at, each in self._running if each.pid == pid), None)
        return folder is not None and any(_overlap(at, folder) for at in [*self._holds.values()])

    def _alive(self) -> list[tuple[Path, asyncio.subprocess.Process]]:
        return [each for each in self._running if each[1].returncode is None]


FOLDER_PROCESSES = FolderProcesses()
"""Those that this process has started."""


async def _all_over(pending: Mapping[asyncio.Event, Path], folder: Path) -> None:
    while there := [over for over, at in pending.items() if _overlap(at, folder)]:
        await there[0].wait()


def _real(folder: Path) -> Path:
    return Path(os.path.realpath(folder))


def _overlap(one: Path, other: Path) -> bool:
    return one.is_relative_to(other) or other.is_relative_to(one)
