"""Deletes old sessions and caches of coding CLIs from their homes."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from bot.engine.llm.acp.agent_config import AcpAgentConfig
from bot.engine.llm.acp.runtime import AGENTS_FOLDER
from storage.file_trees import walk_folders

_CACHES = (".cache", ".npm/_cacache", ".npm/_logs", ".npm/_npx")
_KEPT_FOLDERS = frozenset({"memory", "memories"})
"""The notes that a CLI keeps for itself lie among its sessions."""
_KEPT_ENDINGS = (".db", ".db-wal", ".db-shm", ".sqlite", ".sqlite-wal", ".sqlite-shm")
"""Files of many sessions."""
_TEMPORARY = ".tmp"
_LOG = ".log"


def delete_old_files(
    root: Path, agents: Mapping[str, AcpAgentConfig], before: Mapping[str, float], default: float
) -> int:
    """Delete files of the CLIs' sessions and caches, and their logs, that were last changed before
    the time given for the CLI; returns how many. Logins, settings and everything else stay.
    Blocking."""
    gone = 0
    for folder in _subfolders(root / AGENTS_FOLDER):
        agent = agents.get(folder.name)
        kept = {*agent.login_files, *agent.files} if agent else set[str]()
        names = (*_CACHES, *(agent.session_folders if agent else ()))
        limit = before.get(folder.name, default)
        for home in _subfolders(folder):
            places = [home] if home.name.endswith(_TEMPORARY) else [home / each for each in names]
            for place in places:
                if not _has_link(home, place):
                    gone += _delete_files(place, {home / each for each in kept}, limit)
        for log in folder.glob(f"*{_LOG}"):
            gone += _delete_file(log.name, None, log, limit)
    return gone


def _subfolders(folder: Path) -> Iterator[Path]:
    if folder.is_dir() and not folder.is_symlink():
        yield from (each for each in folder.iterdir() if each.is_dir() and not each.is_symlink())


def _has_link(home: Path, place: Path) -> bool:
    """A CLI may have put a link to another home in the place of its folder."""
    return any(each.is_symlink() for each in (place, *place.parents) if each.is_relative_to(home))


def _delete_files(place: Path, kept: set[Path], limit: float) -> int:
    gone, emptied = 0, list[Path]()
    for at, folders, files, here in walk_folders(place):
        folders[:] = [each for each in folders if each not in _KEPT_FOLDERS]
        for name in files:
            path = place / at / name
            if path not in kept and not name.endswith(_KEPT_ENDINGS):
                gone += _delete_file(name, here, path, limit)
        if at.parts:
            emptied.append(place / at)
    for folder in reversed(emptied):
        # Only empty ones can be removed; one in use may be missed otherwise.
        with suppress(OSError):
            if folder.lstat().st_mtime < limit:
                folder.rmdir()
    return gone


def _delete_file(name: str, folder: int | None, path: Path, limit: float) -> bool:
    try:
        at = path if folder is None else name
        found = os.stat(at, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode) or found.st_mtime >= limit:
            return False
        os.unlink(at, dir_fd=folder)
    except OSError:
        return False
    return True
