"""What a chat or a task needs to work in a folder of the Boss's."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol


class WhyNot(StrEnum):
    """Why a folder cannot be worked in; each has its texts under `error.project_<reason>`."""

    RELATIVE = "relative"
    MISSING = "missing"
    UNUSABLE = "unusable"
    TOO_WIDE = "too_wide"


class FolderRefused(Exception):
    """The folder cannot be a project. `path` is as it was given."""

    def __init__(self, reason: WhyNot, path: str) -> None:
        self.reason = reason
        self.path = path
        super().__init__(f"{path!r}: {reason}")


class Projects(Protocol):
    async def choose(self, path: str) -> str:
        """The folder's one true path, always the same for the same folder. FolderRefused unless
        it was given in full (`~` counts), is there, may be read and written, and neither holds
        the data directory nor lies in it."""
        ...

    async def in_git(self, folder: str) -> bool:
        """True if tasks can work there each on a branch of its own."""
        ...
