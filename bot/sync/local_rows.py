"""Reads what the store says now: the rows of tasks, of their steps and logs, and of memories."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field

from bot.sync.projection import (
    Cells,
    log_cells,
    memory_cells,
    milliseconds,
    step_cells,
    step_id,
    task_cells,
)
from handlers.ports import PeoplePort, TaskPort
from storage.bitable import BitableRepo
from storage.errors import NotFound
from storage.records.bitable import SyncedKind, TaskField
from storage.records.memory import MemoryEntry
from storage.records.people import Chat, PersonId
from storage.records.tasks import EventKind, Task, TaskEvent, TaskId

MAX_LOGS = 500
"""Rows of logs of one task; older logs stay in the store only."""

_RECENT_EVENTS = 30
_CHANGED_BY = {
    TaskField.TITLE.value: {EventKind.NOTE},
    TaskField.INSTRUCTION.value: {EventKind.NOTE},
    TaskField.PRIORITY.value: {EventKind.REORDERED},
    TaskField.STATUS.value: set(EventKind) - {EventKind.NOTE, EventKind.REORDERED},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRow:
    """`is_live`: a row that people delete is made again."""

    kind: SyncedKind
    local_id: str
    cells: Cells
    is_live: bool = False
    task: Task | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRowReader:
    repo: BitableRepo
    tasks: TaskPort
    people: PeoplePort
    list_memories: Callable[[Chat], Awaitable[Sequence[MemoryEntry]]]
    _names: dict[PersonId, str] = field(default_factory=dict)

    async def read_tasks(self, ids: Sequence[TaskId]) -> Sequence[LocalRow]:
        """The tasks with their steps and logs; those that do not exist are left out."""
        rows: list[LocalRow] = []
        for task_id in ids:
            try:
                view = await self.tasks.view(task_id)
            except NotFound:
                continue
            rows.append(self._task_row(view.task, task_cells(view, await self._name(view.task))))
            rows += (
                LocalRow(
                    kind=SyncedKind.STEP,
                    local_id=step_id(task_id, step),
                    cells=step_cells(view.task, step),
                )
                for step in view.steps
            )
            rows += (
                LocalRow(kind=SyncedKind.LOG, local_id=str(each.id), cells=log_cells(each))
                for each in await self.repo.list_logs(task_id, MAX_LOGS)
            )
        return rows

    async def read_task(self, task_id: str) -> LocalRow | None:
        """The task alone; None if it does not exist."""
        try:
            view = await self.tasks.view(TaskId(task_id))
        except NotFound:
            return None
        return self._task_row(view.task, task_cells(view, await self._name(view.task)))

    async def read_memories(self, chat: Chat) -> Sequence[LocalRow]:
        return tuple(
            LocalRow(
                kind=SyncedKind.MEMORY,
                local_id=each.id,
                cells=memory_cells(each),
                is_live=True,
            )
            for each in await self.list_memories(chat)
        )

    async def list_later(self, task: Task, keys: Collection[str], at: int) -> frozenset[str]:
        """The columns among `keys` that the store changed before `at`, as its history says."""
        events = await self.tasks.events(task.id, _RECENT_EVENTS)
        return frozenset(key for key in keys if _changed_at(key, events) <= at)

    def _task_row(self, task: Task, cells: Cells) -> LocalRow:
        return LocalRow(
            kind=SyncedKind.TASK,
            local_id=task.id,
            cells=cells,
            is_live=not task.status.is_final,
            task=task,
        )

    async def _name(self, task: Task) -> str:
        if task.created_by not in self._names:
            self._names[task.created_by] = (await self.people.get(task.created_by)).name
        return self._names[task.created_by]


def _changed_at(key: str, events: Sequence[TaskEvent]) -> int:
    kinds = _CHANGED_BY.get(key, set())
    return max((milliseconds(each.at) or 0 for each in events if each.kind in kinds), default=0)
