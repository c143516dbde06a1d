"""A fake of the working method's port: it records what it was told and answers plainly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from handlers.services.notebook import BadValue, Field, Jotting, NoSuchFile
from storage.errors import NotFound, WrongState
from storage.records.logs import MOST_TEXT, LogEntry, LogKind
from storage.records.notebook import (
    MOST_ERRORS,
    Agenda,
    Closed,
    Found,
    LogPage,
    Marked,
    Noted,
    Recap,
    Staged,
)
from storage.records.people import ChatId, Person
from storage.records.tasks import Priority, Spent, Task, TaskStatus, TaskView
from tests.samples import NOW


class FakeNotebook:
    """Keeps logs in memory; `told` lists each order as (name, task id, what was said). `subtasks`
    are the names that there are, `hits` what is recalled."""

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []
        self.told: list[tuple[str, str, str]] = []
        self.jottings: list[Jotting] = []
        self.subtasks: list[str] = ["build", "test"]
        self.tasks: list[Task] = []
        self.held: list[Task] = []
        self.hits: list[Found] = []
        self.forced: list[bool] = []

    async def note(self, task: Task, jotting: Jotting, *, by: Person, source: str) -> Noted:
        if jotting.kind is LogKind.ERROR and task.status.is_final:
            raise WrongState("task", task.id, task.status)
        if jotting.file == "missing.txt":
            raise NoSuchFile(jotting.file)
        self.jottings.append(jotting)
        errors = task.errors + (jotting.kind is LogKind.ERROR)
        entry = LogEntry(
            id=len(self.entries) + 1,
            task_id=task.id,
            kind=jotting.kind,
            text=jotting.text[:MOST_TEXT],
            stage=jotting.stage,
            attempt=jotting.attempt,
            file=jotting.file or next(iter(jotting.sent), ""),
            person_id=by.id,
            at=NOW,
        )
        self.entries.append(entry)
        planned = task.graph_version or any(e.kind is LogKind.PLAN for e in self.entries)
        return Noted(
            task=replace(task, errors=errors),
            entry=entry,
            number=len(self.entries),
            cut=len(jotting.text) > MOST_TEXT,
            planless=not planned,
            blocked=errors >= MOST_ERRORS,
        )

    async def logs(self, task: Task, kind: LogKind | None, limit: int) -> LogPage:
        found = [e for e in self.entries if e.task_id == task.id and kind in {None, e.kind}]
        return LogPage(task=task, entries=tuple(found[-limit:]), total=len(found))

    async def search_logs(
        self, words: Sequence[str], *, by: Person, chat: ChatId, limit: int
    ) -> Sequence[Found]:
        return [hit for hit in self.hits if all(word in hit.entry.text for word in words)][:limit]

    async def search_tasks(
        self, words: Sequence[str], *, by: Person, chat: ChatId, limit: int
    ) -> Sequence[Task]:
        return [task for task in self.tasks if all(word in task.title for word in words)][:limit]

    async def agenda(self, *, by: Person, chat: ChatId, outside: bool | None = None) -> Agenda:
        first = self.tasks[0] if self.tasks else None
        running = [task for task in self.tasks if task.status is TaskStatus.RUNNING]
        return Agenda(
            first=first,
            current=running[0] if running and running[0] is not first else None,
            queue=tuple(self.tasks[1:]),
            held=tuple(self.held),
        )

    async def recap(self, *, by: Person, chat: ChatId) -> Recap | None:
        if not self.tasks:
            return None
        view = TaskView(task=self.tasks[0], plan="", steps=(), spent=Spent())
        return Recap(view=view, plan="", learned=(), done=(), recalled=tuple(self.hits))

    async def recall(self, task: Task) -> Sequence[Found]:
        return self.hits

    async def plan(self, task: Task, text: str, *, by: Person, source: str) -> Noted:
        return await self.note(task, Jotting(kind=LogKind.PLAN, text=text), by=by, source=source)

    async def add_subtasks(
        self, task: Task, titles: Sequence[str], *, by: Person, source: str
    ) -> Task:
        self.told.append(("add", task.id, " → ".join(titles)))
        return task

    async def finish_subtask(
        self, task: Task, name: str, summary: str, *, by: Person, source: str
    ) -> Marked:
        if name not in self.subtasks:
            raise NotFound("subtask", name)
        self.told.append(("subtask done", task.id, f"{name} {summary}".strip()))
        left = len(self.subtasks) - self.subtasks.index(name) - 1
        ended = replace(task, status=task.status if left else TaskStatus.COMPLETED)
        return Marked(task=ended, title=name, left=left)

    async def stage_subtask(
        self, task: Task, said: str, *, by: Person, source: str, name: str = ""
    ) -> Marked:
        name = name or said.split(maxsplit=1)[0]
        if name not in self.subtasks:
            raise NotFound("subtask", name)
        self.told.append(("subtask phase", task.id, said))
        return Marked(task=replace(task, stage=said), title=name, left=1)

    async def stage(self, task: Task, text: str, *, by: Person, source: str) -> Staged:
        self.told.append(("stage", task.id, text))
        urgent = [each for each in self.tasks if each.priority.rank < task.priority.rank]
        return Staged(task=replace(task, stage=text), urgent=urgent[0] if urgent else None)

    async def finish(
        self,
        task: Task,
        *,
        by: Person,
        source: str,
        summary: str = "",
        tokens_now: int | None = None,
        force: bool = False,
    ) -> Closed:
        if task.status is TaskStatus.PENDING and not force:
            raise WrongState("task", task.id, task.status)
        self.told.append(("done", task.id, summary))
        self.forced.append(force)
        return Closed(
            task=replace(task, status=TaskStatus.COMPLETED, summary=summary),
            already=task.status is TaskStatus.COMPLETED,
            has_plan=bool(task.graph_version),
            has_milestone=False,
            tokens=tokens_now,
        )

    async def block(self, task: Task, reason: str, *, by: Person, source: str) -> Task:
        if task.status is TaskStatus.RUNNING and not task.outside:
            raise WrongState("task", task.id, task.status)
        self.told.append(("block", task.id, reason))
        return replace(task, status=TaskStatus.BLOCKED)

    async def interrupt(self, task: Task, note: str, *, by: Person, source: str) -> Task:
        self.told.append(("interrupt", task.id, note))
        return replace(task, status=TaskStatus.PAUSED)

    async def snap_tokens(self, task: Task, tokens: int, *, by: Person, source: str) -> Task:
        self.told.append(("tokens", task.id, str(tokens)))
        return replace(task, tokens_before=tokens)

    async def amend(self, task: Task, field: Field, value: str, *, by: Person, source: str) -> Task:
        if field is Field.PRIORITY and Priority.named(value) is None:
            raise BadValue(field)
        self.told.append(("amend", task.id, f"{field} {value}"))
        return task

    async def delete(self, task: Task, *, by: Person, source: str) -> Task:
        self.told.append(("delete", task.id, ""))
        return task

    async def moved_by(self, source: str) -> Task | None:
        return None
