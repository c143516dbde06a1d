"""An in-memory `TaskPort` that records what it was asked for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from storage.errors import AmbiguousId, NotFound, WrongState
from storage.records.people import ChatId, Person, PersonRole
from storage.records.tasks import (
    NewTask,
    NodeRun,
    RerunChanges,
    Task,
    TaskControl,
    TaskEvent,
    TaskGraph,
    TaskId,
    TaskPage,
    TaskPriority,
    TaskStatus,
    TaskStep,
    TaskView,
    UsageTotals,
)
from tests.builders import make_task


class FakeTasks:
    """Moves what states allow; `moves` lists each move as (name, task id, source), `workflows` the
    plans that tasks were made with."""

    def __init__(self, *tasks: Task) -> None:
        # Whether tasks have something to undo when they are stopped.
        self.undoes = False
        self.tasks = {task.id: task for task in tasks}
        self.views: dict[TaskId, TaskView] = {}
        self.event_log: dict[TaskId, list[TaskEvent]] = {}
        self.created: list[NewTask] = []
        self.moves: list[tuple[str, str, str]] = []
        self.reasons: list[str] = []
        self.messages: list[str] = []
        self.workflows: dict[TaskId, Mapping[str, Any]] = {}
        self._by_source: dict[str, TaskId] = {}

    async def list_newest(
        self,
        *,
        by: Person,
        chat: ChatId,
        limit: int,
        statuses: Collection[TaskStatus] = (),
        text: str = "",
        before: tuple[datetime, TaskId] | None = None,
    ) -> Sequence[Task]:
        return tuple(self.tasks.values())[:limit]

    async def list_workflow_runs(
        self, *, by: Person, chat: ChatId, names: Collection[str], limit: int
    ) -> Mapping[str, Sequence[Task]]:
        return {}

    async def list_events(
        self, *, by: Person, chat: ChatId, after: int, limit: int, task_id: TaskId | None = None
    ) -> Sequence[TaskEvent]:
        events = [each for log in self.event_log.values() for each in log]
        return [each for each in events if each.id > after][:limit]

    async def newest_event_id(self) -> int:
        return max((each.id for log in self.event_log.values() for each in log), default=0)

    async def get_graph(self, task: Task, *, version: int | None = None) -> TaskGraph | None:
        return None

    async def list_nodes(self, task: Task) -> Sequence[TaskStep]:
        return self.views[task.id].steps if task.id in self.views else ()

    async def list_discarded(self, task: Task, version: int) -> Sequence[NodeRun]:
        return ()

    async def run_workflow(self, new: NewTask, workflow: Mapping[str, Any]) -> Task:
        task = await self.create(new)
        self.workflows.setdefault(task.id, workflow)
        return task

    async def create(self, new: NewTask) -> Task:
        if new.source not in self._by_source:
            self.created.append(new)
            made = make_task(f"new{len(self.created)}xyz", title=new.title, chat=new.chat_id)
            made = replace(
                made,
                instruction=new.instruction,
                priority=new.priority,
                created_by=new.created_by,
                model=new.model,
                backend=new.backend,
                persona=new.persona,
                files=new.files,
                reply_to=new.reply_to,
                outside=new.outside,
            )
            self.tasks[made.id] = made
            self._by_source[new.source] = made.id
        return self.tasks[self._by_source[new.source]]

    async def find(self, prefix: str, *, by: Person, chat: ChatId) -> Task:
        wanted = prefix.casefold().removeprefix("task-")
        seen = [task for task in self.tasks.values() if self._may_see(task, by, chat)]
        found = [task for task in seen if wanted and task.id.startswith(wanted)]
        if not found:
            raise NotFound("task", prefix)
        if len(found) > 1 and wanted not in self.tasks:
            raise AmbiguousId(prefix, tuple(task.id for task in found[:5]))
        return next((task for task in found if task.id == wanted), found[0])

    async def find_by_source(self, source: str) -> Task | None:
        return self.tasks.get(self._by_source.get(source, TaskId("")))

    async def page(
        self, *, by: Person, chat: ChatId, status: TaskStatus | None, page: int, size: int
    ) -> TaskPage:
        seen = [
            task
            for task in self.tasks.values()
            if self._may_see(task, by, chat) and status in {None, task.status}
        ]
        seen.sort(key=lambda task: task.status.is_final)
        pages = max(1, -(-len(seen) // size))
        page = min(max(1, page), pages)
        part = tuple(seen[(page - 1) * size : page * size])
        return TaskPage(tasks=part, page=page, pages=pages, total=len(seen))

    async def view(self, task_id: TaskId) -> TaskView:
        if task_id in self.views:
            return replace(self.views[task_id], task=self.tasks[task_id])
        return TaskView(task=self.tasks[task_id], plan="", steps=(), spent=UsageTotals())

    async def events(self, task_id: TaskId, limit: int) -> Sequence[TaskEvent]:
        return self.event_log.get(task_id, [])[-limit:]

    async def pause(self, task: Task, *, by: Person, source: str, reason: str = "") -> Task:
        self.reasons.append(reason)
        if task.status is TaskStatus.RUNNING:
            return self._move("pause", task, source, replace(task, control=TaskControl.PAUSE))
        self._require_status(task, TaskStatus.PENDING, TaskStatus.WAITING)
        return self._move("pause", task, source, replace(task, status=TaskStatus.PAUSED))

    async def resume(self, task: Task, *, by: Person, source: str, answer: str = "") -> Task:
        self.messages.append(answer)
        self._require_status(task, TaskStatus.PAUSED, TaskStatus.BLOCKED)
        return self._move("resume", task, source, replace(task, status=TaskStatus.PENDING))

    async def stop(self, task: Task, *, by: Person, source: str) -> Task:
        if task.status.is_final:
            raise WrongState("task", task.id, task.status)
        status = TaskStatus.PENDING if self.undoes else TaskStatus.CANCELLED
        return self._move("stop", task, source, replace(task, status=status))

    async def retry(self, task: Task, *, by: Person, source: str) -> Task:
        self._require_status(task, TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.BLOCKED)
        return self._move("retry", task, source, replace(task, status=TaskStatus.PENDING))

    async def rerun(
        self, task: Task, wanted: str, changes: RerunChanges, *, by: Person, source: str
    ) -> Task:
        said = f"{wanted} {dict(changes.inputs)} {dict(changes.outputs)}"
        return self._move("rerun", task, source, replace(task, status=TaskStatus.PENDING), said)

    async def set_priority(
        self, task: Task, priority: TaskPriority, *, by: Person, source: str
    ) -> Task:
        return self._move("priority", task, source, replace(task, priority=priority))

    async def send_message(self, task: Task, text: str, *, by: Person, source: str) -> Task:
        return self._move("tell", task, source, task, text)

    async def inject(self, task: Task, titles: Sequence[str], *, by: Person, source: str) -> Task:
        return self._move("inject", task, source, task, " → ".join(titles))

    async def repeats_in_loop(self, task: Task, titles: Sequence[str]) -> bool:
        return False

    async def replan(self, task: Task, reason: str, *, by: Person, source: str) -> Task:
        return self._move("replan", task, source, task, reason)

    async def start_anyway(self, task: Task, *, by: Person, source: str) -> Task:
        return self._move("let_in", task, source, replace(task, let_in=True))

    def _may_see(self, task: Task, by: Person, chat: ChatId) -> bool:
        return by.role is PersonRole.OWNER or task.created_by == by.id or task.chat_id == chat

    def _require_status(self, task: Task, *allowed: TaskStatus) -> None:
        if task.status not in allowed:
            raise WrongState("task", task.id, task.status)

    def _move(self, name: str, task: Task, source: str, moved: Task, said: str = "") -> Task:
        self.moves.append((name, task.id, source))
        if said:
            self.messages.append(said)
        self.tasks[task.id] = moved
        return moved
