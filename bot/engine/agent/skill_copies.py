"""A skill's files in a worker's workspace, where its scripts are run under the rules for that."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from bot.engine.llm import workspace as folder
from bot.engine.skills.folder import MAX_FILE

OWN = ".shiftboss"
PLACE = f"{OWN}/skills"


def copy_files(workspace: Path, skill: str, files: Mapping[str, bytes]) -> str:
    """Put them there as they are; returns the folder, relative to the workspace. Blocking. Raises
    PathRefused and OSError."""
    workspace.mkdir(parents=True, exist_ok=True)
    # Whatever git is told to add there, these are nobody's work.
    _put(workspace, f"{OWN}/.gitignore", b"*\n")
    for name, content in files.items():
        _put(workspace, f"{PLACE}/{skill}/{name}", content)
    return f"{PLACE}/{skill}"


def _put(workspace: Path, path: str, content: bytes) -> None:
    with suppress(folder.PathRefused):
        data, size = folder.read_bytes(workspace, path, limit=len(content) + 1)
        if (data, size) == (content, len(content)):
            return
    folder.write_bytes(workspace, path, content, limit=MAX_FILE)
