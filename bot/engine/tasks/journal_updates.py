"""Manual updates of tasks: phase, completion, blocking and corrections. Each locks the task and
records its command once. Long texts and attachments of logs become files."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import BinaryIO

from bot.engine.llm.workspace_files import PathRefused, open_to_copy
from bot.engine.tasks import service
from bot.engine.tasks.access import TaskAccess
from bot.engine.tasks.queue import TaskDispatcher, release_running
from bot.engine.tasks.service import CommandEffect, resolve_changes
from bot.engine.workflow.definition import Workflow, load_workflow
from bot.engine.workflow.plan import linear_workflow
from bot.engine.workflow.presentation.task_view import TaskViewLoader
from bot.engine.workflow.task_store import TaskStore
from bot.engine.workspaces.task_workspaces import MAX_RESULT_BYTES
from handlers.ports_workers import (
    EditableTaskField,
    InvalidFieldValue,
    JournalDraft,
    JournalFileMissing,
)
from storage.db import Transaction
from storage.errors import StoreUnavailable, WrongState
from storage.home_files import drop_late_files
from storage.records.people import Language, Person
from storage.records.task_logs import MAX_LOG_TEXT, LogKind, NewLog, StageChange, TaskCompletion
from storage.records.tasks import EventKind, Task, TaskControl, TaskPhase, TaskPriority, TaskStatus
from storage.records.usage import UsageRecord
from storage.usage import UsageRepo


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedTask:
    """A task locked by this transaction. Without `is_new`, the command was executed before and must
    change nothing."""

    tx: Transaction
    task: Task
    is_new: bool
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalOperations:
    """`remove_worktree` deletes the worktree of a deleted task."""

    store: TaskStore
    usage: UsageRepo
    views: TaskViewLoader
    access: TaskAccess
    dispatcher: TaskDispatcher
    attachments: JournalAttachments
    language_of: Callable[[Task], Awaitable[Language]]
    remove_worktree: Callable[[Task], Awaitable[None]]
    now: Callable[[], datetime]

    @asynccontextmanager
    async def _locked(
        self, task: Task, kind: str, by: Person, source: str, *, message: str = ""
    ) -> AsyncGenerator[LockedTask, None]:
        await self.access.require_control(task, by)
        async with self.store.db.write() as tx:
            held = await self.store.tasks.lock(tx, task.id)
            now = self.now()
            payload = {"said": message} if message else None
            fresh = await self.store.events.record_command(
                tx, task.id, kind, source=source, by=by.id, now=now, payload=payload
            )
            yield LockedTask(tx=tx, task=held, is_new=fresh, now=now)
        self.dispatcher.wake()

    async def _get_plan(self, held: LockedTask) -> Workflow:
        graph = await self.store.graphs.find_latest(held.task.id, tx=held.tx)
        return load_workflow(graph.body) if graph else linear_workflow("", ())

    async def _store_plan(
        self, held: LockedTask, workflow: Workflow, reason: str, by: Person
    ) -> Task:
        return await service.store_plan(
            self.store, held.tx, held.task, workflow, reason=reason, author=by.id, now=held.now
        )

    async def _apply(self, held: LockedTask, effect: CommandEffect | None) -> Task:
        if effect is None:
            return held.task
        task = held.task
        if changes := resolve_changes(task, effect, held.now):
            task = await self.store.tasks.update(held.tx, task, **changes)
        await self._append_event(held, effect.event, effect.text)
        return task

    async def _release_running(self, held: LockedTask, reason: str) -> None:
        """Mark running steps as interrupted."""
        await release_running(self.store, held.tx, held.task.id, reason=reason, now=held.now)

    async def _append_event(self, held: LockedTask, kind: EventKind, text: str = "") -> None:
        await self.store.events.append_event(held.tx, held.task.id, kind, now=held.now, text=text)


def is_run_by_worker(task: Task) -> bool:
    """True while a Shiftboss worker runs the task."""
    return task.status is TaskStatus.RUNNING and not task.outside


def wrong_state(task: Task) -> WrongState:
    return WrongState("task", task.id, task.status)


_MAX_LINE = 200
_MAX_TITLE = 80
_EXTERNAL = "outside"
_COMPETING = (TaskStatus.RUNNING, TaskStatus.PAUSED, TaskStatus.PENDING)


class TaskUpdates(JournalOperations):
    async def set_phase(self, task: Task, text: str, *, by: Person, source: str) -> StageChange:
        async with self._locked(task, "stage", by, source) as held:
            moved = held.task
            if held.is_new:
                moved = await self._set_stage(held, text)
        return StageChange(task=moved, more_urgent=await self._more_urgent(moved, by))

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
        """`force` also ends unstarted steps and takes the task from its worker."""
        async with self._locked(task, "done", by, source) as held:
            before = held.task
            tokens = _tokens_used(before, tokens_now)
            logs = self.store.logs
            has_plan = bool(before.graph_version) or bool(
                await logs.count(before.id, LogKind.PLAN, tx=held.tx)
            )
            has_milestone = bool(await logs.count(before.id, LogKind.MILESTONE, tx=held.tx))
            already = held.is_new and before.status is TaskStatus.COMPLETED
            after = before
            if held.is_new and not already:
                after = await self._finish(held, summary, tokens, force=force)
        if is_run_by_worker(before) and held.is_new:
            self.dispatcher.abort(after)
        return TaskCompletion(
            task=after,
            was_already_done=already,
            has_plan=has_plan,
            has_milestone=has_milestone,
            tokens=None if already else tokens,
        )

    async def block_task(self, task: Task, reason: str, *, by: Person, source: str) -> Task:
        async with self._locked(task, "block", by, source) as held:
            if not held.is_new or held.task.status is TaskStatus.BLOCKED:
                return held.task
            if held.task.status.is_final or is_run_by_worker(held.task):
                raise wrong_state(held.task)
            await self._log(held, LogKind.BLOCKED, reason, by, source)
            await self._append_event(held, EventKind.BLOCKED, reason)
            return await self.store.tasks.update(
                held.tx,
                held.task,
                status=TaskStatus.BLOCKED,
                status_reason=reason,
                resumed_first=0,
                wake_at=None,
            )

    async def interrupt(self, task: Task, note: str, *, by: Person, source: str) -> Task:
        async with self._locked(task, "interrupt", by, source) as held:
            if not held.is_new:
                return held.task
            order = service.pause(held.task, note)
            await self._log(held, LogKind.CHECKPOINT, note, by, source)
            return await self._apply(held, order)

    async def record_token_count(self, task: Task, tokens: int, *, by: Person, source: str) -> Task:
        async with self._locked(task, "tokens", by, source) as held:
            if not held.is_new:
                return held.task
            return await self.store.tasks.update(held.tx, held.task, tokens_before=tokens)

    async def update_field(
        self, task: Task, field: EditableTaskField, value: str, *, by: Person, source: str
    ) -> Task:
        async with self._locked(task, "amend", by, source) as held:
            return await self._amend(held, field, value.strip()) if held.is_new else held.task

    async def delete(self, task: Task, *, by: Person, source: str) -> Task:
        """Removes the worktree after the commit; after a crash the command is repeated."""
        async with self._locked(task, "delete", by, source) as held:
            gone = held.task
            if held.is_new:
                gone = await self._delete(held)
        await self.remove_worktree(gone)
        return gone

    async def find_changed_by(self, source: str) -> Task | None:
        return await self.store.tasks.find_by_command_source(source)

    async def _delete(self, held: LockedTask) -> Task:
        gone = held.task
        if gone.status is TaskStatus.RUNNING:
            raise wrong_state(gone)
        if not gone.status.is_final:
            gone = await self._apply(held, service.stop(gone, held.now))
        await drop_late_files(held.tx, gone.id)
        return await self.store.tasks.update(held.tx, gone, status=gone.status, deleted_at=held.now)

    async def _set_stage(self, held: LockedTask, text: str) -> Task:
        await self._append_event(held, EventKind.NOTE, text[:_MAX_LINE])
        return await self.store.tasks.update(held.tx, held.task, stage=text[:_MAX_LINE])

    async def _finish(
        self, held: LockedTask, summary: str, tokens: int | None, *, force: bool
    ) -> Task:
        task = held.task
        begun = task.status is not TaskStatus.PENDING and not is_run_by_worker(task)
        if task.status.is_final or not (begun or force):
            raise wrong_state(task)
        await self._release_running(held, "done")
        if tokens:
            await self.usage.add(held.tx, _usage_record(held, tokens))
        return await self._complete(held, summary)

    async def _complete(self, held: LockedTask, summary: str) -> Task:
        await self._append_event(held, EventKind.COMPLETED, summary[:_MAX_LINE])
        return await self.store.tasks.update(
            held.tx,
            held.task,
            status=TaskStatus.COMPLETED,
            status_reason="",
            phase=TaskPhase.ENDED,
            control=TaskControl.RUN,
            summary=summary or held.task.summary,
            started_at=held.task.started_at or held.now,
            ended_at=held.now,
        )

    async def _amend(self, held: LockedTask, field: EditableTaskField, value: str) -> Task:
        tasks, task = self.store.tasks, held.task
        if not value:
            raise InvalidFieldValue(field)
        match field:
            case EditableTaskField.TITLE:
                await self._append_event(held, EventKind.NOTE, value[:_MAX_TITLE])
                return await tasks.update(held.tx, task, title=" ".join(value.split())[:_MAX_TITLE])
            case EditableTaskField.STAGE:
                return await self._set_stage(held, value)
            case EditableTaskField.PRIORITY:
                wanted = TaskPriority.parse(value)
                if wanted is None:
                    raise InvalidFieldValue(field)
                return await self._apply(held, service.set_priority(task, wanted))
            case EditableTaskField.INSTRUCTION:
                if task.status.is_final or is_run_by_worker(task):
                    raise wrong_state(task)
                return await tasks.update(held.tx, task, instruction=value)

    async def _more_urgent(self, task: Task, by: Person) -> Task | None:
        sight = await self.access.visibility_for(by, task.chat_id)
        first = await self.store.logs.list_tasks_to_do(sight, _COMPETING, 1)
        more = [each for each in first if each.priority.rank < task.priority.rank]
        return more[0] if more else None

    async def _log(
        self, held: LockedTask, kind: LogKind, text: str, by: Person, source: str
    ) -> None:
        new = NewLog(task_id=held.task.id, source=source, kind=kind, text=text, person_id=by.id)
        await self.store.logs.add(held.tx, new, now=held.now)


def _tokens_used(task: Task, tokens_now: int | None) -> int | None:
    """None if unknown: without an earlier count, or after a change of session."""
    if tokens_now is None or task.tokens_before is None or tokens_now < task.tokens_before:
        return None
    return tokens_now - task.tokens_before


def _usage_record(held: LockedTask, tokens: int) -> UsageRecord:
    task = held.task
    return UsageRecord(
        at=held.now,
        purpose=_EXTERNAL,
        backend=_EXTERNAL,
        model=_EXTERNAL,
        person_id=task.created_by,
        chat_id=task.chat_id,
        task_id=task.id,
        requests=1,
        input_tokens=tokens,
        output_tokens=0,
        cache_read_tokens=0,
        cache_write_tokens=0,
        cost_micros=None,
    )


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
            kept.append(self._copy(task, name, source, entry.file))
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

    def _copy(self, task: Task, name: str, source: Path, named: str) -> str:
        try:
            # From the root, because a program of the task may have put a link anywhere since.
            with open_to_copy(Path("/"), source) as read:
                return self._write_atomically(task, name, partial(_write_copy, read))
        except PathRefused as refused:
            raise JournalFileMissing(named) from refused

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


def _write_copy(read: BinaryIO, part: Path) -> None:
    with part.open("wb") as copied:
        shutil.copyfileobj(read, copied)


def _is_attachable(source: Path) -> bool:
    return (
        source.is_file()
        and os.access(source, os.R_OK)
        and source.stat().st_size <= MAX_RESULT_BYTES
    )


def _shortened_name(name: str) -> str:
    """Leaves room for a number and a suffix."""
    stem, dot, ending = name.rpartition(".")
    if len(name.encode()) <= _MAX_NAME_BYTES:
        return name
    ending = f".{ending}" if dot and len(ending) <= _MAX_SUFFIX else ""
    room = _MAX_NAME_BYTES - len(ending.encode())
    return (stem or name).encode()[:room].decode(errors="ignore") + ending
