"""Files of task logs: long texts and attachments."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from bot.engine.workspaces.artifacts import MAX_BYTES
from handlers.ports_workers import JournalDraft, JournalFileMissing
from storage.errors import StoreUnavailable
from storage.records.task_logs import MAX_LOG_TEXT
from storage.records.tasks import Task

_MAX_NAME_BYTES = 200
_MAX_SUFFIX = 10


class JournalAttachments:
    """Files below `files/logs/<task>/` of the data directory, named by log number and separate from
    worker output."""

    def __init__(self, home: Path) -> None:
        self._home = home.resolve()
        # Files of Shiftboss itself and of other people cannot be attached.
        self._excluded = (self._home, Path("/proc"))

    async def store(self, task: Task, number: int, entry: JournalDraft, *, trusted: bool) -> str:
        """Store the file of a log entry; returns its path relative to the data directory, or
        nothing. Only `trusted` callers may attach files from outside the task's folders."""
        try:
            return await asyncio.to_thread(self._store, task, number, entry, trusted)
        except OSError as error:
            raise StoreUnavailable(f"a log's file cannot be kept: {error}") from error

    async def get_sizes(self, paths: Sequence[str]) -> dict[str, int]:
        """Sizes of the files that still exist."""
        return await asyncio.to_thread(self._get_sizes, paths)

    def _store(self, task: Task, number: int, entry: JournalDraft, trusted: bool) -> str:
        kept = list(entry.attachments)
        if entry.file:
            source = self._resolve_source(task, entry.file, trusted=trusted)
            name = f"{number}-{_shortened_name(source.name)}"
            kept.append(
                self._write_atomically(task, name, lambda part: shutil.copyfile(source, part))
            )
        if len(entry.text) <= MAX_LOG_TEXT and len(kept) <= 1:
            return kept[0] if kept else ""
        whole = "\n".join([entry.text, "", *(f"- {path}" for path in kept)]).rstrip() + "\n"
        return self._write_atomically(
            task, f"{number}.md", lambda part: part.write_text(whole, encoding="utf-8")
        )

    def _resolve_source(self, task: Task, named: str, *, trusted: bool) -> Path:
        files = self._home / "files"
        own = [files / "tasks" / task.id, self._home / "work" / task.id, files / "logs" / task.id]
        if task.project_dir:
            own.append(Path(task.project_dir).resolve())
        try:
            path = Path(named).expanduser() if trusted else Path(named)
            tries = [path] if path.is_absolute() else [top / path for top in own]
            for source in [each.resolve() for each in tries]:
                inside = any(source.is_relative_to(top) for top in own)
                foreign = trusted and not any(source.is_relative_to(top) for top in self._excluded)
                if (inside or foreign) and _is_attachable(source):
                    return source
        except (OSError, RuntimeError, ValueError) as error:
            # Invalid paths: too long, NUL, unknown home directory or circular links.
            raise JournalFileMissing(named) from error
        raise JournalFileMissing(named)

    def _write_atomically(self, task: Task, name: str, write: Callable[[Path], object]) -> str:
        """Write all or nothing, even on a crash or full disk."""
        target = self._home / "files" / "logs" / task.id / name
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{name}.part")
        try:
            write(part)
            with part.open("rb") as written:
                os.fsync(written.fileno())
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
        return target.relative_to(self._home).as_posix()

    def _get_sizes(self, paths: Sequence[str]) -> dict[str, int]:
        found = ((path, self._home / path) for path in paths if path)
        return {path: file.stat().st_size for path, file in found if file.is_file()}


def _is_attachable(source: Path) -> bool:
    return source.is_file() and os.access(source, os.R_OK) and source.stat().st_size <= MAX_BYTES


def _shortened_name(name: str) -> str:
    """Leaves room for a number and a suffix."""
    stem, dot, ending = name.rpartition(".")
    if len(name.encode()) <= _MAX_NAME_BYTES:
        return name
    ending = f".{ending}" if dot and len(ending) <= _MAX_SUFFIX else ""
    room = _MAX_NAME_BYTES - len(ending.encode())
    return (stem or name).encode()[:room].decode(errors="ignore") + ending
