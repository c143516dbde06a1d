"""Which folders of this machine may be worked in."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from handlers.services.projects import FolderRefused, WhyNot


class ProjectService:
    """Satisfies `handlers.services.projects.Projects`. `home` is the data directory."""

    def __init__(self, home: Path, is_repository: Callable[[Path], Awaitable[bool]]) -> None:
        self._home = home
        self._is_repository = is_repository

    async def choose(self, path: str) -> str:
        return await asyncio.to_thread(self._choose, path)

    async def in_git(self, folder: str) -> bool:
        return await self._is_repository(Path(folder))

    def _choose(self, path: str) -> str:
        try:
            full = Path(path).expanduser()
        except RuntimeError as error:
            # `~somebody` whom this machine does not know.
            raise FolderRefused(WhyNot.MISSING, path) from error
        if not full.is_absolute():
            raise FolderRefused(WhyNot.RELATIVE, path)
        try:
            folder = full.resolve(strict=True)
            there = folder.is_dir()
        except (OSError, RuntimeError, ValueError) as error:
            raise FolderRefused(WhyNot.MISSING, path) from error
        if not there:
            raise FolderRefused(WhyNot.MISSING, path)
        home = self._home.resolve()
        apart = not (home.is_relative_to(folder) or folder.is_relative_to(home))
        if not apart or folder == Path(folder.anchor):
            raise FolderRefused(WhyNot.TOO_WIDE, path)
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            raise FolderRefused(WhyNot.UNUSABLE, path)
        return str(folder)
