"""Executes people's commands on tasks. Each command locks the task, is recorded once, and has the
effect that its state allows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, assert_never

from bot.engine.tasks.access import TaskAccess
from bot.engine.tasks.queue import TaskDispatcher
from bot.engine.tasks.reruns import TaskRerunner
from bot.engine.tasks.undoing import StopEffect, TaskUndoing
from bot.engine.workflow.definition import Workflow, dump_workflow, load_workflow
from bot.engine.workflow.error_policy import MAX_REPLANS
from bot.engine.workflow.plan import insert_steps
from bot.engine.workflow.presentation.task_view import TaskViewLoader
from bot.engine.workflow.run_state import plan_log
from bot.engine.workflow.task_store import TaskStore
from bot.engine.workflow.validation import validate_workflow
from storage.db import Transaction
from storage.errors import NotAllowed, WrongState
from storage.records.people import ChatId, Person, PersonId, PersonRole
from storage.records.tasks import (
    EventKind,
    NewTask,
    NodeRun,
    NodeStatus,
    RerunChanges,
    RerunRefused,
    Task,
    TaskControl,
    TaskEvent,
    TaskGraph,
    TaskId,
    TaskPage,
    TaskPhase,
    TaskPriority,
    TaskStatus,
    TaskStep,
    TaskView,
)
from storage.tasks import TaskChanges

# --- effects of commands, as pure functions
# Each returns the changes, or None if the task is already in the desired state, and raises
# WrongState if the state forbids it.

_PAUSABLE = {TaskStatus.PENDING, TaskStatus.WAITING, TaskStatus.BLOCKED}
_UNDOING: TaskChanges = {
    "status": TaskStatus.PENDING,
    "status_reason": "",
    "control": TaskControl.RUN,
    "wake_at": None,
}
"""The changes of a task that is stopped and has something to undo first."""
_RESTARTABLE = {TaskStatus.FAILED, TaskStatus.BLOCKED, TaskStatus.CANCELLED}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEffect:
    """The changes that a command makes in a task. `released_status` is the status of the steps that
    may run again; None if no step is released."""

    changes: TaskChanges
    event: EventKind
    text: str = ""
    released_status: NodeStatus | None = None


def resolve_changes(task: Task, effect: CommandEffect, now: datetime) -> TaskChanges:
    """All changes of the effect; a task that enters the queue or moves in it waits from now on, at
    its own priority."""
    changes = effect.changes
    if changes.get("status") is TaskStatus.PENDING or "priority" in changes:
        return {"priority": task.priority, **changes, "waiting_since": now}
    return changes


def pause(task: Task, reason: str) -> CommandEffect | None:
    """A running task pauses after its current step; waiting and tracked tasks pause at once."""
    if task.status is TaskStatus.PAUSED or task.control is TaskControl.PAUSE:
        return None
    if task.status is TaskStatus.RUNNING and not task.outside:
        return CommandEffect(
            changes={"control": TaskControl.PAUSE, "status_reason": reason}, event=EventKind.NOTE
        )
    if task.status not in _PAUSABLE and not (task.outside and task.status is TaskStatus.RUNNING):
        raise WrongState("task", task.id, task.status)
    return CommandEffect(
        changes={
            "status": TaskStatus.PAUSED,
            "status_reason": reason,
            "resumed_first": 0,
            "wake_at": None,
        },
        event=EventKind.PAUSED,
        text=reason,
    )


def resume(task: Task) -> CommandEffect | None:
    """Queue the task before new work of its priority, or cancel a pause not yet in effect."""
    if task.status in {TaskStatus.PAUSED, TaskStatus.BLOCKED}:
        changes: TaskChanges = {
            "status": _restart_status(task),
            "status_reason": "",
            "failures_in_row": 0,
            "errors": 0,
        }
        return CommandEffect(changes=changes, event=EventKind.RESUMED)
    if task.is_pausing:
        taken_back: TaskChanges = {"control": TaskControl.RUN, "status_reason": ""}
        return CommandEffect(changes=taken_back, event=EventKind.RESUMED)
    if task.status in {TaskStatus.PENDING, TaskStatus.RUNNING}:
        return None
    raise WrongState("task", task.id, task.status)


def stop(task: Task, now: datetime) -> CommandEffect | None:
    """End the task now and interrupt a running step."""
    if task.status is TaskStatus.CANCELLED:
        return None
    if task.status.is_final:
        raise WrongState("task", task.id, task.status)
    changes: TaskChanges = {
        "status": TaskStatus.CANCELLED,
        "status_reason": "",
        "phase": TaskPhase.ENDED,
        "control": TaskControl.RUN,
        "ended_at": now,
    }
    return CommandEffect(
        changes=changes, event=EventKind.CANCELLED, released_status=NodeStatus.RUNNING
    )


def retry(task: Task) -> CommandEffect | None:
    """Run unsuccessful steps again; finished steps stay finished."""
    if task.status in {TaskStatus.PENDING, TaskStatus.RUNNING}:
        return None
    if task.status not in _RESTARTABLE:
        raise WrongState("task", task.id, task.status)
    changes: TaskChanges = {
        "status": _restart_status(task),
        "status_reason": "",
        "phase": TaskPhase.DOING if task.graph_version or task.outside else TaskPhase.QUEUED,
        "control": TaskControl.RUN,
        "failures_in_row": 0,
        "errors": 0,
        "ended_at": None,
    }
    return CommandEffect(
        changes=changes, event=EventKind.RESUMED, released_status=NodeStatus.FAILED
    )


def set_priority(task: Task, priority: TaskPriority) -> CommandEffect | None:
    if task.priority is priority:
        return None
    if task.status.is_final:
        raise WrongState("task", task.id, task.status)
    return CommandEffect(changes={"priority": priority}, event=EventKind.REORDERED, text=priority)


def send_message(task: Task, text: str) -> CommandEffect | None:
    """Allowed unless the task is finished."""
    if task.status.is_final:
        raise WrongState("task", task.id, task.status)
    return CommandEffect(changes={}, event=EventKind.MESSAGE, text=text)


def replan(task: Task, reason: str) -> CommandEffect | None:
    if task.status.is_final or task.outside or not task.graph_version:
        raise WrongState("task", task.id, task.status)
    return CommandEffect(changes={}, event=EventKind.NOTE, text=reason)


def start_anyway(task: Task) -> CommandEffect | None:
    if task.let_in:
        return None
    if task.status.is_final:
        raise WrongState("task", task.id, task.status)
    return CommandEffect(changes={"let_in": True}, event=EventKind.NOTE)


async def store_plan(
    store: TaskStore,
    tx: Transaction,
    task: Task,
    workflow: Workflow,
    *,
    reason: str,
    author: PersonId,
    now: datetime,
) -> Task:
    """Store the workflow as the next version of the task's plan."""
    graph = TaskGraph(
        task_id=task.id,
        version=task.graph_version + 1,
        body=dump_workflow(workflow),
        reason=reason,
        author=author,
    )
    await store.graphs.add(tx, graph, now=now)
    return await store.tasks.update(tx, task, graph_version=graph.version)


def _restart_status(task: Task) -> TaskStatus:
    """Tracked tasks are not queued: they continue at once."""
    return TaskStatus.RUNNING if task.outside else TaskStatus.PENDING


# --- the service
# Each command locks the task, is recorded once under its message, and checks the person's rights
# and the task's state.


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskService:
    """Implements `handlers.ports.TaskPort`."""

    store: TaskStore
    dispatcher: TaskDispatcher
    views: TaskViewLoader
    access: TaskAccess
    reruns: TaskRerunner
    undoing: TaskUndoing
    now: Callable[[], datetime]
    new_id: Callable[[], str]

    async def create(self, new: NewTask) -> Task:
        return await self._create(new, None)

    async def run_workflow(self, new: NewTask, workflow: Mapping[str, Any]) -> Task:
        return await self._create(new, validate_workflow(load_workflow(workflow)))

    async def _create(self, new: NewTask, workflow: Workflow | None) -> Task:
        async with self.store.db.write() as tx:
            task = await self.create_within(tx, new, workflow)
        self.dispatcher.wake()
        return task

    async def create_within(
        self, tx: Transaction, new: NewTask, workflow: Workflow | None = None
    ) -> Task:
        """Create a task in the caller's transaction. Wake the dispatcher after its commit."""
        tried: set[TaskId] = set()
        task = None
        while task is None:
            tried.add(task_id := TaskId(self.new_id()))
            task = await self.store.tasks.create(tx, new, id=task_id, now=self.now())
        if task.id in tried:
            await self._append_event(tx, task, EventKind.CREATED)
            if new.outside:
                task = await self._start_external(tx, task)
            if workflow is not None:
                task = await self._adopt_workflow(tx, task, workflow)
        return task

    async def find(self, prefix: str, *, by: Person, chat: ChatId) -> Task:
        return await self.store.tasks.find(prefix, await self.access.visibility_for(by, chat))

    async def find_by_source(self, source: str) -> Task | None:
        return await self.store.tasks.find_by_source(source)

    async def page(
        self, *, by: Person, chat: ChatId, status: TaskStatus | None, page: int, size: int
    ) -> TaskPage:
        sight = await self.access.visibility_for(by, chat)
        return await self.store.tasks.list_page(sight, status, page, size)

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
        sight = await self.access.visibility_for(by, chat)
        return await self.store.tasks.list_newest(
            sight, limit=limit, statuses=statuses, text=text, before=before
        )

    async def list_workflow_runs(
        self, *, by: Person, chat: ChatId, names: Collection[str], limit: int
    ) -> Mapping[str, Sequence[Task]]:
        sight = await self.access.visibility_for(by, chat)
        return await self.store.tasks.list_workflow_runs(sight, names, limit=limit)

    async def list_events(
        self, *, by: Person, chat: ChatId, after: int, limit: int, task_id: TaskId | None = None
    ) -> Sequence[TaskEvent]:
        sight = await self.access.visibility_for(by, chat)
        return await self.store.events.list_after(
            after, sight.where_clause, limit=limit, task_id=task_id
        )

    async def newest_event_id(self) -> int:
        return await self.store.events.newest_id()

    async def get_graph(self, task: Task, *, version: int | None = None) -> TaskGraph | None:
        if version is not None:
            return await self.store.graphs.find_version(task.id, version)
        return await self.store.graphs.find_latest(task.id)

    async def list_discarded(self, task: Task, version: int) -> Sequence[NodeRun]:
        return await self.store.graphs.list_discarded(task.id, version)

    async def view(self, task_id: TaskId) -> TaskView:
        return await self.views.view(task_id)

    async def list_nodes(self, task: Task) -> Sequence[TaskStep]:
        return await self.views.nodes(task.id)

    async def events(self, task_id: TaskId, limit: int) -> Sequence[TaskEvent]:
        return await self.store.events.list_latest(task_id, limit)

    async def pause(self, task: Task, *, by: Person, source: str, reason: str = "") -> Task:
        return await self._execute(task, "pause", by, source, lambda held: pause(held, reason))

    async def resume(self, task: Task, *, by: Person, source: str, answer: str = "") -> Task:
        return await self._execute(task, "resume", by, source, resume, message=answer)

    async def stop(self, task: Task, *, by: Person, source: str) -> Task:
        is_new = False

        def decide(held: Task) -> CommandEffect | None:
            nonlocal is_new
            is_new = True
            return stop(held, self.now())

        stopped = await self._execute(task, "stop", by, source, decide)
        # One that is being undone goes on. A repeated command may meet a task that was retried.
        if stopped.status.is_final or (is_new and stopped.status is not TaskStatus.RUNNING):
            self.dispatcher.abort(stopped)
        return stopped

    async def retry(self, task: Task, *, by: Person, source: str) -> Task:
        return await self._execute(task, "retry", by, source, retry)

    async def rerun(
        self, task: Task, wanted: str, changes: RerunChanges, *, by: Person, source: str
    ) -> Task:
        await self.access.require_control(task, by)
        if by.role is not PersonRole.OWNER and task.created_by != by.id:
            raise NotAllowed("task", task.id)
        async with self.store.db.write() as tx:
            held = await self.store.tasks.lock(tx, task.id)
            noted = await self.store.events.record_command(
                tx,
                task.id,
                "rerun",
                source=source,
                by=by.id,
                now=self.now(),
                payload={"node": wanted, "inputs": dict(changes.inputs)},
            )
            if noted:
                held = await self.reruns.rerun(tx, held, wanted, changes, by.id)
        self.dispatcher.wake()
        self.dispatcher.notify_command(task.id)
        return held

    async def retry_unattended(self, task_id: TaskId, *, source: str) -> bool:
        """Retry a blocked or failed task in its creator's name; False if its state forbids that."""
        task = await self.store.tasks.get(task_id)
        try:
            await self._apply(task, "retry", task.created_by, source, retry)
        except (WrongState, RerunRefused):
            return False
        return True

    async def set_priority(
        self, task: Task, priority: TaskPriority, *, by: Person, source: str
    ) -> Task:
        return await self._execute(
            task, "priority", by, source, lambda held: set_priority(held, priority)
        )

    async def send_message(self, task: Task, text: str, *, by: Person, source: str) -> Task:
        return await self._execute(
            task,
            "message",
            by,
            source,
            lambda held: send_message(held, text),
            message=text,
        )

    async def start_anyway(self, task: Task, *, by: Person, source: str) -> Task:
        return await self._execute(task, "let_in", by, source, start_anyway)

    async def replan(self, task: Task, reason: str, *, by: Person, source: str) -> Task:
        return await self._execute(
            task, "replan", by, source, lambda held: replan(held, reason), message=reason
        )

    async def inject(self, task: Task, titles: Sequence[str], *, by: Person, source: str) -> Task:
        await self.access.require_control(task, by)
        async with self.store.db.write() as tx:
            held = await self.store.tasks.lock(tx, task.id)
            noted = await self.store.events.record_command(
                tx, task.id, "inject", source=source, by=by.id, now=self.now()
            )
            if noted:
                held = await self._insert_steps(tx, held, titles, by)
        self.dispatcher.wake()
        self.dispatcher.notify_command(task.id)
        return held

    async def repeats_in_loop(self, task: Task, titles: Sequence[str]) -> bool:
        graph = await self.store.graphs.find_latest(task.id)
        if graph is None:
            return False
        workflow = load_workflow(graph.body)
        inner = {name for node in workflow.nodes for name in node.body}
        return any(n.given and n.title in titles and n.id in inner for n in workflow.nodes)

    async def _insert_steps(
        self, tx: Transaction, task: Task, titles: Sequence[str], by: Person
    ) -> Task:
        """A new version of the plan with these steps next; the running step is unaffected."""
        graph = await self.store.graphs.find_latest(task.id, tx=tx)
        if task.status.is_final or graph is None:
            raise WrongState("task", task.id, task.status)
        workflow = load_workflow(graph.body)
        runs = await self.store.graphs.list_runs(task.id, tx=tx)
        changed = insert_steps(workflow, runs, titles)
        await self._append_event(tx, task, EventKind.INJECTED, " → ".join(titles))
        return await store_plan(
            self.store, tx, task, changed, reason="inject", author=by.id, now=self.now()
        )

    async def _execute(
        self,
        task: Task,
        kind: str,
        by: Person,
        source: str,
        decide: Callable[[Task], CommandEffect | None],
        *,
        message: str = "",
    ) -> Task:
        await self.access.require_control(task, by)
        answers = kind == "resume" and bool(message) and by.role is PersonRole.OWNER
        return await self._apply(
            task, kind, by.id, source, decide, message=message, answers=answers
        )

    async def _apply(
        self,
        task: Task,
        kind: str,
        by: PersonId,
        source: str,
        decide: Callable[[Task], CommandEffect | None],
        *,
        message: str = "",
        answers: bool = False,
    ) -> Task:
        """`answers`: the message may answer a blocked step."""
        async with self.store.db.write() as tx:
            held = await self.store.tasks.lock(tx, task.id)
            now = self.now()
            payload = {"said": message}
            if answers and held.status is TaskStatus.BLOCKED:
                payload["answers"] = await self._step_awaiting_answer(tx, held)
            noted = await self.store.events.record_command(
                tx, task.id, kind, source=source, by=by, now=now, payload=payload
            )
            if not noted:
                return held
            order = decide(held)
            if order is None:
                return held
            if kind == "stop" and held.graph_version:
                order = await self._stop_after_undoing(tx, held, order)
            if kind == "retry" and held.graph_version and not held.outside:
                held = await self.reruns.revive(tx, held, by)
            elif order.released_status is not None:
                await self._release_runs(tx, task.id, order, kind, now)
            if changes := resolve_changes(held, order, now):
                held = await self.store.tasks.update(tx, held, **changes)
            await self._append_event(tx, held, order.event, order.text)
        self.dispatcher.wake()
        self.dispatcher.notify_command(task.id)
        return held

    async def _stop_after_undoing(
        self, tx: Transaction, held: Task, order: CommandEffect
    ) -> CommandEffect:
        """The effect of a stop, if the run has something to undo first or is being undone."""
        effect, reason = await self.undoing.stop(tx, held)
        match effect:
            case StopEffect.ENDS:
                ends: TaskChanges = {**order.changes, "status_reason": reason}
                return replace(order, changes=ends, text=reason)
            case StopEffect.UNDOES:
                return replace(order, changes=_UNDOING, event=EventKind.NOTE)
            case StopEffect.GOES_ON:
                # What waits for people goes on waiting; a pause is over.
                is_paused = held.status is TaskStatus.PAUSED
                changes: TaskChanges = _UNDOING if is_paused else {"control": TaskControl.RUN}
                return CommandEffect(changes=changes, event=EventKind.NOTE)
            case never:
                assert_never(never)

    async def _step_awaiting_answer(self, tx: Transaction, task: Task) -> str:
        """ID of the step blocked on an answer; empty if none was tried."""
        runs = (await self.store.graphs.list_runs(task.id, tx=tx)).values()
        stuck = [run for run in runs if run.status is NodeStatus.PENDING and run.error]
        last = max(stuck, key=lambda run: run.ended_at or task.created_at, default=None)
        return last.path if last else ""

    async def _adopt_workflow(self, tx: Transaction, task: Task, workflow: Workflow) -> Task:
        """Start with this workflow, without planning."""
        now, author = self.now(), task.created_by
        task = await store_plan(
            self.store, tx, task, workflow, reason="workflow", author=author, now=now
        )
        line = plan_log(task, workflow, task.graph_version)
        await self.store.logs.add_deferred(tx, line, now=now)
        if workflow.source is not None:
            await self.store.versions.record_use(tx, task.id, [workflow.source])
        await self._append_event(tx, task, EventKind.PLANNED, workflow.plan)
        # The planner must not replace the workflow unless a person asks.
        return await self.store.tasks.update(tx, task, summary=workflow.answer, replans=MAX_REPLANS)

    async def _start_external(self, tx: Transaction, task: Task) -> Task:
        """A tracked task is in progress from the start."""
        now = self.now()
        await self._append_event(tx, task, EventKind.STARTED)
        return await self.store.tasks.update(
            tx, task, status=TaskStatus.RUNNING, phase=TaskPhase.DOING, started_at=now
        )

    async def _release_runs(
        self, tx: Transaction, task_id: TaskId, effect: CommandEffect, kind: str, now: datetime
    ) -> None:
        """Close running attempts with the command's name: an empty error would count as done."""
        for run in (await self.store.graphs.list_runs(task_id, tx=tx)).values():
            if run.status is effect.released_status:
                await self.store.graphs.release_attempt(tx, run, reason=run.error or kind, now=now)

    async def _append_event(
        self, tx: Transaction, task: Task, kind: EventKind, text: str = ""
    ) -> None:
        await self.store.events.append_event(tx, task.id, kind, now=self.now(), text=text)
