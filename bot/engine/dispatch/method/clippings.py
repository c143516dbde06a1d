"""Files that are kept with a task's logs: whole texts too long for a line, and attachments."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from bot.engine.workflow.places.artifacts import MOST_BYTES
from handlers.services.notebook import Jotting, NoSuchFile
from storage.errors import StoreUnavailable
from storage.records.logs import MOST_TEXT
from storage.records.tasks import Task

_LONGEST_NAME = 200
_LONGEST_ENDING = 10


class Clippings:
    """Everything under `home/files/logs/<task>/`, named by the log's number: apart from what
    the task's worker makes, which may have any name."""

    def __init__(self, home: Path) -> None:
        self._home = home.resolve()
        # What Shiftboss keeps of itself and of other people is nobody's to attach.
        self._closed = (self._home, Path("/proc"))

    async def keep(self, task: Task, number: int, jotting: Jotting, *, trusted: bool) -> str:
        """What the log is to have as its file, relative to the data directory, or nothing. Only
        for who is `trusted` a file may come from outside the task's own folders."""
        try:
            return await asyncio.to_thread(self._keep, task, number, jotting, trusted)
        except OSError as error:
            raise StoreUnavailable(f"a log's file cannot be kept: {error}") from error

    async def sizes(self, paths: Sequence[str]) -> dict[str, int]:
        """Of those that are still there."""
        return await asyncio.to_thread(self._sizes, paths)

    def _keep(self, task: Task, number: int, jotting: Jotting, trusted: bool) -> str:
        kept = list(jotting.sent)
        if jotting.file:
            source = self._source(task, jotting.file, trusted=trusted)
            name = f"{number}-{_short(source.name)}"
            kept.append(self._put(task, name, lambda part: shutil.copyfile(source, part)))
        if len(jotting.text) <= MOST_TEXT and len(kept) <= 1:
            return kept[0] if kept else ""
        whole = "\n".join([jotting.text, "", *(f"- {path}" for path in kept)]).rstrip() + "\n"
        return self._put(
            task, f"{number}.md", lambda part: part.write_text(whole, encoding="utf-8")
        )

    def _source(self, task: Task, named: str, *, trusted: bool) -> Path:
        files = self._home / "files"
        own = [files / "tasks" / task.id, self._home / "work" / task.id, files / "logs" / task.id]
        if task.project_dir:
            own.append(Path(task.project_dir).resolve())
        try:
            path = Path(named).expanduser() if trusted else Path(named)
            tries = [path] if path.is_absolute() else [top / path for top in own]
            for source in [each.resolve() for each in tries]:
                inside = any(source.is_relative_to(top) for top in own)
                foreign = trusted and not any(source.is_relative_to(top) for top in self._closed)
                if (inside or foreign) and _can_be_kept(source):
                    return source
        except (OSError, RuntimeError, ValueError) as error:
            # No name of a file: too long, a NUL in it, a home of nobody, links in a circle.
            raise NoSuchFile(named) from error
        raise NoSuchFile(named)

    def _put(self, task: Task, name: str, write: Callable[[Path], object]) -> str:
        """All of it or nothing, whenever the process dies or the disk is full."""
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

    def _sizes(self, paths: Sequence[str]) -> dict[str, int]:
        found = ((path, self._home / path) for path in paths if path)
        return {path: file.stat().st_size for path, file in found if file.is_file()}


def _can_be_kept(source: Path) -> bool:
    return source.is_file() and os.access(source, os.R_OK) and source.stat().st_size <= MOST_BYTES


def _short(name: str) -> str:
    """With room for a number before it and an ending behind it."""
    stem, dot, ending = name.rpartition(".")
    if len(name.encode()) <= _LONGEST_NAME:
        return name
    ending = f".{ending}" if dot and len(ending) <= _LONGEST_ENDING else ""
    room = _LONGEST_NAME - len(ending.encode())
    return (stem or name).encode()[:room].decode(errors="ignore") + ending
