"""Validates the project folders that people choose."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from handlers.ports import FolderRejected, FolderRejection


@dataclass(frozen=True, slots=True)
class ProjectFolderService:
    """Satisfies `handlers.ports.ProjectPort`; `home` is the data directory."""

    home: Path
    is_repository: Callable[[Path], Awaitable[bool]]

    async def resolve_folder(self, path: str) -> str:
        return await asyncio.to_thread(self._choose, path)

    async def is_git_repository(self, folder: str) -> bool:
        return await self.is_repository(Path(folder))

    def _choose(self, path: str) -> str:
        try:
            full = Path(path).expanduser()
        except RuntimeError as error:
            # Unknown user in `~user`.
            raise FolderRejected(FolderRejection.MISSING, path) from error
        if not full.is_absolute():
            raise FolderRejected(FolderRejection.RELATIVE, path)
        try:
            folder = full.resolve(strict=True)
            there = folder.is_dir()
        except (OSError, RuntimeError, ValueError) as error:
            raise FolderRejected(FolderRejection.MISSING, path) from error
        if not there:
            raise FolderRejected(FolderRejection.MISSING, path)
        home = self.home.resolve()
        apart = not (home.is_relative_to(folder) or folder.is_relative_to(home))
        if not apart or folder == Path(folder.anchor):
            raise FolderRejected(FolderRejection.TOO_WIDE, path)
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            raise FolderRejected(FolderRejection.UNUSABLE, path)
        return str(folder)
