"""Deletes the files that have words which must not be kept: uploads, what was made of them,
exports, sessions of coding CLIs, and backups."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from bot.engine.llm.acp.agent_config import AcpAgentConfig
from bot.engine.llm.acp.runtime import delete_sessions
from storage.backup_archive import BackupSource, create_backup, list_backups
from storage.errors import BackupFailed
from storage.file_trees import delete_tree, walk_folders
from storage.memory.withheld_turns import WithheldTraces

log = logging.getLogger(__name__)

_RETRY_BACKUP = timedelta(hours=1)


@dataclass(slots=True, kw_only=True)
class WithheldFileEraser:
    """`folder` has the backups of `source`; those elsewhere are out of reach."""

    home: Path
    agents: Callable[[], Mapping[str, AcpAgentConfig]]
    source: BackupSource
    folder: Path
    now: Callable[[], datetime]
    _backup_after: datetime | None = field(default=None, init=False)

    async def erase(self, traces: WithheldTraces) -> None:
        """Delete the files of an ended conversation in this data directory."""
        await asyncio.to_thread(self._erase, traces)

    async def replace_backups(self, since: datetime) -> bool:
        """Make a new backup in place of those made since then. False if that is to be tried again:
        no backup goes before there is another."""
        if self._backup_after is not None and self.now() < self._backup_after:
            return False
        try:
            gone = await asyncio.to_thread(self._replace_backups, since)
        except (BackupFailed, OSError) as error:
            log.warning("Backups keep what must not be kept until one can be made: %s", error)
            self._backup_after = self.now() + _RETRY_BACKUP
            return False
        if gone:
            log.info("Replaced %d backups that had what must not be kept", gone)
        return True

    def _replace_backups(self, since: datetime) -> int:
        old = [each for each in list_backups(self.folder) if _changed(each) >= since.timestamp()]
        if old:
            create_backup(self.source, self.folder, now=self.now())
        for each in old:
            each.unlink(missing_ok=True)
        return len(old)

    def _erase(self, traces: WithheldTraces) -> None:
        for folder in traces.folders:
            delete_tree(self.home / folder)
        workspace = self.home / "workspaces" / f"chat-{traces.turns.chat}"
        for path in _files_below(workspace):
            changed = _changed(path)
            if any(since <= changed <= until for since, until in _seconds(traces.windows)):
                path.unlink(missing_ok=True)
        for path in _files_below(self.home / "exports"):
            if _changed(path) >= traces.since.timestamp():
                path.unlink(missing_ok=True)
        delete_sessions(self.home, self.agents(), traces.cli_sessions)


def _seconds(
    windows: Sequence[tuple[datetime, datetime]],
) -> Iterator[tuple[float, float]]:
    for since, until in windows:
        yield since.timestamp(), until.timestamp() + 1


def _files_below(folder: Path) -> Iterator[Path]:
    if not folder.is_dir() or folder.is_symlink():
        return
    for at, _folders, names, _handle in walk_folders(folder):
        yield from (folder / at / name for name in names)


def _changed(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        # Gone meanwhile: nothing to delete.
        return 0.0
