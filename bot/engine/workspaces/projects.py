"""Validates the project folders that people choose, and decides whose repositories are used."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from handlers.ports import FolderRejected, FolderRejection
from storage.key_value import KeyValueStore
from storage.records.tasks import FolderKind
from storage.tasks import TaskRepo

_ADOPTED = "adopted repository "


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryAdoption:
    """Refuses repositories that tasks may have made or changed: those in a folder where tasks have
    worked themselves, until an owner adopts them.

    Not every sandbox can keep a command from making a repository, and what one configures is a way
    to run programs as the Boss."""

    tasks: TaskRepo
    key_values: KeyValueStore
    now: Callable[[], datetime]

    async def is_adopted(self, folder: Path, repository: Sequence[Path]) -> bool:
        """`repository` are the paths of what `TaskWorktrees.find_repository` has found there."""
        around = {str(each) for path in repository for each in (path, *path.parents)}
        worked, branched = await self.tasks.newest_uses({*around, str(folder)})
        latest = max((when for at, when in worked.items() if at in around), default=None)
        if latest is None:
            return True
        adopted = await self.key_values.get(_adoption_key(folder))
        used = branched.get(str(folder))
        known = [datetime.fromisoformat(adopted)] if adopted else []
        return max((*known, *([used] if used else ())), default=latest) > latest

    async def adopt(self, folder: Path) -> None:
        await self.key_values.put(_adoption_key(folder), self.now().isoformat())


def _adoption_key(folder: Path) -> str:
    return _ADOPTED + hashlib.sha256(os.fsencode(folder)).hexdigest()


@dataclass(frozen=True, slots=True)
class ProjectFolderService:
    """Satisfies `handlers.ports.ProjectPort`; `home` is the data directory."""

    home: Path
    find_repository: Callable[[Path], Awaitable[Sequence[Path]]]
    adoption: RepositoryAdoption

    async def resolve_folder(self, path: str) -> str:
        return await asyncio.to_thread(self._choose, path)

    async def folder_kind(self, folder: str) -> FolderKind:
        found = await self.find_repository(Path(folder))
        if not found:
            return FolderKind.PLAIN
        adopted = await self.adoption.is_adopted(Path(folder), found)
        return FolderKind.REPOSITORY if adopted else FolderKind.NOT_ADOPTED

    async def adopt(self, folder: str) -> None:
        await self.adoption.adopt(Path(folder))

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
