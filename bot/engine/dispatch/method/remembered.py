"""What there is to remember by words alone: tasks done before, and the logs they have left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bot.engine.dispatch.method.keywords import keywords
from bot.engine.dispatch.rights import Rights
from bot.engine.memory.port import Memories, Memory
from storage.errors import AmbiguousId, NotFound
from storage.records.logs import LogEntry
from storage.records.notebook import Found
from storage.records.people import ChatId, Person, PersonId
from storage.records.tasks import Task, TaskId
from storage.work.logs import LogRepo
from storage.work.tasks import Sight, TaskRepo

_LOG = "log:"
_TASK = "task-"
_TITLE = 80
_LOGS_SHOWN = 20
_LARGEST_FILE = 200_000
_LONGEST_QUERY = 1000
_NO_TASK = TaskId("")


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """`home` is where the logs' files lie."""

    logs: LogRepo
    tasks: TaskRepo
    rights: Rights
    person_of: Callable[[PersonId], Awaitable[Person]]
    home: Path

    def of(self, person: PersonId | None, chat: ChatId | None, task: TaskId | None) -> Memories:
        return _OfReader(self, person, chat, task)


class _OfReader:
    """See `memory.port.Memories`."""

    def __init__(
        self,
        all_of_it: Remembered,
        person: PersonId | None,
        chat: ChatId | None,
        task: TaskId | None,
    ) -> None:
        self._all = all_of_it
        self._person = person
        self._chat = chat
        self._task = task

    async def search(self, query: str, limit: int) -> Sequence[Memory]:
        sight = await self._sight()
        if sight is None:
            return ()
        query = query[:_LONGEST_QUERY]
        words = keywords(query) or tuple(query.split())
        besides = self._task or _NO_TASK
        logs = await self._all.logs.with_any(sight, words, limit, besides=besides)
        # One more: the reader's own task is no memory.
        tasks = await self._all.logs.tasks_with(sight, words, limit + 1) if words else ()
        found = [_of_log(each) for each in logs]
        found += [_of_task(task) for task in tasks if task.id != self._task]
        return found[:limit]

    async def get(self, memory_id: str) -> Memory | None:
        sight = await self._sight()
        if sight is None:
            return None
        name, _, number = memory_id.partition(":")
        if f"{name}:" == _LOG and number.isascii() and number.isdigit():
            found = await self._all.logs.one(sight, int(number[:18]))
            return None if found is None else await self._whole(found)
        try:
            task = await self._all.tasks.find(memory_id, sight)
        except (NotFound, AmbiguousId):
            return None
        entries = await self._all.logs.latest(task.id, _LOGS_SHOWN)
        return _of_task(task, entries)

    async def _sight(self) -> Sight | None:
        """A task's worker sees what all may see who see the task; in a chat, what is shown there.
        Nothing where nobody is worked for."""
        if self._task is not None:
            return await self._all.rights.sight_of(await self._all.tasks.get(self._task))
        if self._person is None or self._chat is None:
            return None
        return await self._all.rights.sight(await self._all.person_of(self._person), self._chat)

    async def _whole(self, found: Found) -> Memory:
        kept = await asyncio.to_thread(self._text_of, found.entry.file)
        return _of_log(found, kept)

    def _text_of(self, file: str) -> str:
        """The text that was too long for a line; nothing for files of other sorts."""
        logs = (self._all.home / "files" / "logs").resolve()
        path = (self._all.home / file).resolve()
        if not file.endswith(".md") or not path.is_relative_to(logs):
            return ""
        try:
            with path.open("rb") as kept:
                return kept.read(_LARGEST_FILE).decode("utf-8", "replace")
        except OSError:
            return ""


def _of_log(found: Found, whole: str = "") -> Memory:
    entry = found.entry
    file = f"\n[file: {Path(entry.file).name}]" if entry.file and not whole else ""
    return Memory(
        id=f"{_LOG}{entry.id}",
        title=f"{entry.kind} of {_TASK}{found.task.id} {found.task.title[:_TITLE]}",
        text=whole or entry.text + file,
        at=entry.at,
    )


def _of_task(task: Task, entries: Sequence[LogEntry] = ()) -> Memory:
    lines = [f"Asked: {task.instruction}"]
    if task.summary:
        lines.insert(0, f"Came of it: {task.summary}")
    lines += [f"- {_LOG}{each.id} {each.kind}: {each.text}" for each in entries]
    return Memory(
        id=f"{_TASK}{task.id}",
        title=f"{task.status} task {task.title[:_TITLE]}",
        text="\n".join(lines),
        at=task.created_at,
    )
