"""A fake of the working method's port: it records what it was told and answers plainly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from handlers.ports_workers import (
    EditableTaskField,
    InvalidFieldValue,
    JournalDraft,
    JournalFileMissing,
)
from storage.errors import NotFound, WrongState
from storage.records.people import ChatId, Person
from storage.records.task_logs import (
    MAX_ERRORS,
    MAX_LOG_TEXT,
    LogEntry,
    LogKind,
    LogMatch,
    LogPage,
    LogResult,
    StageChange,
    SubtaskProgress,
    TaskAgenda,
    TaskCompletion,
    TaskRecap,
)
from storage.records.tasks import Task, TaskPriority, TaskStatus, TaskView, UsageTotals
from tests.builders import NOW


class FakeTaskJournal:
    """Keeps logs in memory; `told` lists each order as (name, task id, what was said). `subtasks`
    are the names that there are, `hits` what is recalled."""

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []
        self.calls: list[tuple[str, str, str]] = []
        self.jottings: list[JournalDraft] = []
        self.subtasks: list[str] = ["build", "test"]
        self.tasks: list[Task] = []
        self.stuck: list[Task] = []
        self.recalled: list[LogMatch] = []
        self.forced: list[bool] = []

    async def add_log(
        self, task: Task, draft: JournalDraft, *, by: Person, source: str
    ) -> LogResult:
        if draft.kind is LogKind.ERROR and task.status.is_final:
            raise WrongState("task", task.id, task.status)
        if draft.file == "missing.txt":
            raise JournalFileMissing(draft.file)
        self.jottings.append(draft)
        errors = task.errors + (draft.kind is LogKind.ERROR)
        entry = LogEntry(
            id=len(self.entries) + 1,
            task_id=task.id,
            kind=draft.kind,
            text=draft.text[:MAX_LOG_TEXT],
            stage=draft.stage,
            attempt=draft.attempt,
            file=draft.file or next(iter(draft.attachments), ""),
            person_id=by.id,
            at=NOW,
        )
        self.entries.append(entry)
        planned = task.graph_version or any(e.kind is LogKind.PLAN for e in self.entries)
        return LogResult(
            task=replace(task, errors=errors),
            entry=entry,
            log_count=len(self.entries),
            is_truncated=len(draft.text) > MAX_LOG_TEXT,
            has_no_plan=not planned,
            blocked=errors >= MAX_ERRORS,
        )

    async def logs(self, task: Task, kind: LogKind | None, limit: int) -> LogPage:
        found = [e for e in self.entries if e.task_id == task.id and kind in {None, e.kind}]
        return LogPage(task=task, entries=tuple(found[-limit:]), total=len(found))

    async def search_logs(
        self, words: Sequence[str], *, by: Person, chat: ChatId, limit: int
    ) -> Sequence[LogMatch]:
        return [hit for hit in self.recalled if all(word in hit.entry.text for word in words)][
            :limit
        ]

    async def search_tasks(
        self, words: Sequence[str], *, by: Person, chat: ChatId, limit: int
    ) -> Sequence[Task]:
        return [task for task in self.tasks if all(word in task.title for word in words)][:limit]

    async def agenda(self, *, by: Person, chat: ChatId, outside: bool | None = None) -> TaskAgenda:
        first = self.tasks[0] if self.tasks else None
        running = [task for task in self.tasks if task.status is TaskStatus.RUNNING]
        return TaskAgenda(
            first=first,
            current=running[0] if running and running[0] is not first else None,
            queue=tuple(self.tasks[1:]),
            needs_person=tuple(self.stuck),
        )

    async def recap(self, *, by: Person, chat: ChatId) -> TaskRecap | None:
        if not self.tasks:
            return None
        view = TaskView(task=self.tasks[0], plan="", steps=(), spent=UsageTotals())
        return TaskRecap(view=view, plan="", learned=(), done=(), recalled=tuple(self.recalled))

    async def recall(self, task: Task) -> Sequence[LogMatch]:
        return self.recalled

    async def write_plan(self, task: Task, text: str, *, by: Person, source: str) -> LogResult:
        return await self.add_log(
            task, JournalDraft(kind=LogKind.PLAN, text=text), by=by, source=source
        )

    async def add_subtasks(
        self, task: Task, titles: Sequence[str], *, by: Person, source: str
    ) -> Task:
        self.calls.append(("add", task.id, " → ".join(titles)))
        return task

    async def finish_subtask(
        self, task: Task, name: str, summary: str, *, by: Person, source: str
    ) -> SubtaskProgress:
        if name not in self.subtasks:
            raise NotFound("subtask", name)
        self.calls.append(("subtask done", task.id, f"{name} {summary}".strip()))
        left = len(self.subtasks) - self.subtasks.index(name) - 1
        ended = replace(task, status=task.status if left else TaskStatus.COMPLETED)
        return SubtaskProgress(task=ended, title=name, remaining=left)

    async def set_subtask_phase(
        self, task: Task, phase: str, *, by: Person, source: str, name: str = ""
    ) -> SubtaskProgress:
        name = name or phase.split(maxsplit=1)[0]
        if name not in self.subtasks:
            raise NotFound("subtask", name)
        self.calls.append(("subtask phase", task.id, phase))
        return SubtaskProgress(task=replace(task, stage=phase), title=name, remaining=1)

    async def set_phase(self, task: Task, text: str, *, by: Person, source: str) -> StageChange:
        self.calls.append(("stage", task.id, text))
        urgent = [each for each in self.tasks if each.priority.rank < task.priority.rank]
        return StageChange(
            task=replace(task, stage=text), more_urgent=urgent[0] if urgent else None
        )

    async def finish(
        self,
        task: Task,
        *,
        by: Person,
        source: str,
        summary: str = "",
        tokens_now: int | None = None,
        force: bool = False,
    ) -> TaskCompletion:
        if task.status is TaskStatus.PENDING and not force:
            raise WrongState("task", task.id, task.status)
        self.calls.append(("done", task.id, summary))
        self.forced.append(force)
        return TaskCompletion(
            task=replace(task, status=TaskStatus.COMPLETED, summary=summary),
            was_already_done=task.status is TaskStatus.COMPLETED,
            has_plan=bool(task.graph_version),
            has_milestone=False,
            tokens=tokens_now,
        )

    async def block_task(self, task: Task, reason: str, *, by: Person, source: str) -> Task:
        if task.status is TaskStatus.RUNNING and not task.outside:
            raise WrongState("task", task.id, task.status)
        self.calls.append(("block", task.id, reason))
        return replace(task, status=TaskStatus.BLOCKED)

    async def interrupt(self, task: Task, note: str, *, by: Person, source: str) -> Task:
        self.calls.append(("interrupt", task.id, note))
        return replace(task, status=TaskStatus.PAUSED)

    async def record_token_count(self, task: Task, tokens: int, *, by: Person, source: str) -> Task:
        self.calls.append(("tokens", task.id, str(tokens)))
        return replace(task, tokens_before=tokens)

    async def update_field(
        self, task: Task, field: EditableTaskField, value: str, *, by: Person, source: str
    ) -> Task:
        if field is EditableTaskField.PRIORITY and TaskPriority.parse(value) is None:
            raise InvalidFieldValue(field)
        self.calls.append(("amend", task.id, f"{field} {value}"))
        return task

    async def delete(self, task: Task, *, by: Person, source: str) -> Task:
        self.calls.append(("delete", task.id, ""))
        return task

    async def find_changed_by(self, source: str) -> Task | None:
        return None
