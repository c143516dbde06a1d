"""The state of a task's run under a lease, from one checkpoint to the next, and the rows that a
checkpoint changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Unpack
from zoneinfo import ZoneInfo

from bot.engine.workflow.checkpoint_events import StepEnded
from bot.engine.workflow.compensation import COMPENSATION_SECONDS
from bot.engine.workflow.definition import Workflow, WorkflowNode, dump_workflow, load_workflow
from bot.engine.workflow.expressions.evaluator import replace_placeholders
from bot.engine.workflow.node_runs import (
    FRESH_START_PATH,
    SOUND_FILES_KEY,
    VALUE_FILES_KEY,
    VALUES_KEY,
    attempts_before,
    is_claimed,
)
from bot.engine.workflow.plan import linear_workflow
from bot.engine.workflow.scheduler import WorkflowScheduler
from bot.engine.workflow.scheduler_state import TextLookup
from cards import formats
from cards.views.backends import strip_offline_note
from storage.records.approvals import Approval
from storage.records.people import PersonId
from storage.records.task_logs import LogKind, NewLog
from storage.records.tasks import (
    EventKind,
    NodeRun,
    NodeStatus,
    Task,
    TaskControl,
    TaskGraph,
    TaskPhase,
    TaskStatus,
)
from storage.tasks import TaskChanges, WorkerInput

log = logging.getLogger(__name__)

_TASK_FIELDS = frozenset(each.name for each in fields(Task))
_MAX_LINE = 300
_MAX_NOTE = 100
_MAX_NAMES = 10
MAX_NOTES: Mapping[LogKind, int] = {
    LogKind.FINDING: 5,
    LogKind.DECISION: 3,
    LogKind.RESOURCE: 5,
}
"""Notes of each kind that a task's worker may leave behind."""

NO_ORDERS = WorkerInput(messages=(), replan_command_id=0, replan_reason="")


@dataclass(frozen=True, slots=True)
class BudgetHold:
    """A cap that was reached: the request to extend it, the time until which the task waits for it,
    and the reason that people see."""

    approval: Approval
    until: datetime | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseMemory:
    """Facts about one lease that no table holds. A transaction that rolls back leaves them
    unchanged.

    `replan_reason` is set while the work itself asks for a new plan. `planning_step` is the path of
    the step before which a new plan is being made. `declined_order` is the number of the last
    command for a new plan that brought none. `announced` are the ids of the requests whose WAITING
    event this lease has written while other steps ran. `delivered_reports` maps each running step's
    path to the numbers of the subagent reports that it received. `files_checked` is set once the
    task's files were looked up after its last step.
    """

    replan_reason: str = ""
    planning_step: str = ""
    declined_order: int = 0
    budget_hold: BudgetHold | None = None
    announced: frozenset[str] = frozenset()
    delivered_reports: Mapping[str, frozenset[int]] = field(default_factory=dict)
    files_checked: bool = False


@dataclass(slots=True, kw_only=True)
class TaskRunState:
    """A task, its commands, its plan and its runs, as last read from the store.

    Under the lease nobody else writes the runs, and a new plan has a new version, so the state
    stays true from one checkpoint to the next. A transition changes it in place; it must be dropped
    if the transaction fails. `last_command_id` is None if the database cannot return it together
    with the lease check. `warn` receives unknown names in expressions instead of the log.
    """

    task: Task
    runs: dict[str, NodeRun]
    zone: ZoneInfo
    text: TextLookup
    orders: WorkerInput = NO_ORDERS
    last_command_id: int | None = 0
    workflow: Workflow = field(default_factory=lambda: linear_workflow("", ()))
    plan_version: int = 0
    warn: Callable[[str], None] | None = None
    _scheduler: WorkflowScheduler | None = None

    def adopt_plan(self, workflow: Workflow, version: int) -> None:
        self.workflow, self.plan_version, self._scheduler = workflow, version, None

    @property
    def scheduler(self) -> WorkflowScheduler:
        """Built from the plan and the runs on first use, then kept current."""
        if self._scheduler is None:
            self._scheduler = WorkflowScheduler(
                self.task.id,
                self.workflow,
                self.runs,
                zone=self.zone,
                text=self.text,
                warn=self.warn or partial(log.warning, "task %s: %s", self.task.id),
            )
        return self._scheduler

    def record_run(self, run: NodeRun) -> None:
        self.runs[run.path] = run
        if self._scheduler is not None:
            self._scheduler.record_run(run)

    @property
    def deadline(self) -> datetime | None:
        """When the workflow runs out of time; None if it has no limit, or has not started."""
        if (ending := self.scheduler.ending) is not None and ending.ended_at is not None:
            most = self.workflow.compensation_timeout
            allowed = COMPENSATION_SECONDS if most is None else most
            return ending.ended_at + timedelta(seconds=allowed)
        return min((at for at, _ in self._time_limits()), default=None)

    @property
    def timeout_reason(self) -> str:
        """Why the workflow is out of time; empty while it is not."""
        return min(self._time_limits())[1]

    def _time_limits(self) -> Iterator[tuple[datetime, str]]:
        """The deadlines, with their reasons, of the workflow and of the nodes inside it whose
        failure it does not tolerate.
        """
        seconds, flow = self.workflow.timeout, self.scheduler
        begun = None if seconds is None else flow.started_at(self.task.started_at)
        if seconds is not None and begun is not None:
            yield begun + timedelta(seconds=seconds), self.text("workflow.timed_out")
        for at, place in flow.deadlines_inside():
            if not flow.tolerates_failure(place.path):
                yield at, flow.late_reason(place)

    @property
    def next_wake_at(self) -> datetime | None:
        """The time of the next move that needs no event from outside; None if there is none."""
        return min(filter(None, (self.scheduler.next_wake_at, self.deadline)), default=None)

    def with_chosen_edges(self, run: NodeRun) -> NodeRun:
        """The run with the edges taken after it, if it has ended."""
        return run if run.ended_at is None else self.scheduler.complete_run(run, run.ended_at)


class ChangeSet:
    """The rows to write. Each change applies to the state at once and is kept here for the store.

    Only the last run of each node is stored, and the task is updated once. `started` holds runs
    whose attempt begins, with the model session that it pays for; `ended` holds runs whose attempt
    is over, with its error and the time; `cancelled` are those of them whose worker has to be
    stopped. Every time is `now`.
    """

    def __init__(self, state: TaskRunState, now: datetime) -> None:
        self.plans: list[TaskGraph] = []
        self.runs: dict[str, NodeRun] = {}
        self.started: list[tuple[NodeRun, str]] = []
        self.ended: list[NodeRun] = []
        self.cancelled: list[NodeRun] = []
        self.events: list[tuple[EventKind, str]] = []
        self.logs: list[NewLog] = []
        self.task = TaskChanges()
        self._state = state
        self._now = now

    def put_run(self, run: NodeRun) -> None:
        """Store the state of a node without an attempt."""
        self._state.record_run(run)
        self.runs[run.path] = run

    def put_advanced(self, runs: Sequence[NodeRun]) -> None:
        """Store runs that the scheduler has made; it already has them."""
        for run in runs:
            self._state.runs[run.path] = run
            self.runs[run.path] = run

    def cancel_attempts(self, runs: Sequence[NodeRun], running: AbstractSet[str]) -> None:
        """Close the attempts of cancelled runs that were running until now, and record which steps
        were cancelled before they had a result.
        """
        attempts = [run for run in runs if run.path in running]
        self.ended += attempts
        self.cancelled += attempts
        nodes = [self._state.scheduler.node_at(run.path) for run in runs if run.started_at]
        if titles := [
            replace_placeholders(node.title, lambda _hole, _expression: "…")
            for node in nodes
            if node.role.is_counted
        ]:
            names = ", ".join(titles[:_MAX_NAMES]) + ", …" * (len(titles) > _MAX_NAMES)
            text = self._state.text("workflow.cancelled_steps", names=names, why=runs[0].error)
            self.add_event(EventKind.NOTE, text)

    def start_attempt(self, path: str, session_id: str) -> NodeRun:
        """Mark a node running under its next attempt."""
        before = self._state.runs.get(path)
        noted = before.output if before else {}
        run = NodeRun(
            task_id=self._state.task.id,
            path=path,
            status=NodeStatus.RUNNING,
            attempt=1 + (before.attempt if before else attempts_before(self._state.runs)),
            output={key: noted[key] for key in (SOUND_FILES_KEY, VALUE_FILES_KEY) if key in noted},
            error="",
            started_at=self._now,
            ended_at=None,
        )
        self.put_run(run)
        self.started.append((run, session_id))
        return run

    def end_attempt(self, run: NodeRun, *, may_retry: bool = False) -> None:
        """Store how an attempt ended; `may_retry` lets the step run once more, while the attempt
        keeps its error."""
        left = (
            replace(run, status=NodeStatus.PENDING)
            if may_retry
            else self._state.with_chosen_edges(run)
        )
        self.put_run(left)
        self.ended.append(left)

    def release_run(self, run: NodeRun, reason: str) -> None:
        """Close the attempt with its reason and let the step run again."""
        self.end_attempt(replace(run, error=reason, ended_at=self._now), may_retry=True)

    def complete_by_person(
        self,
        node: WorkflowNode,
        who: PersonId | None,
        said: str,
        *,
        approved: bool,
        values: Mapping[str, Any] | None = None,
    ) -> None:
        """Finish a step that a person has done or decided. Its result is the answer, with the
        values of a form.
        """
        run = self.start_attempt(node.id, "")
        said = said or ("✅" if approved else "❌")
        output: dict[str, Any] = {"summary": said, "decided_by": who or "", "approved": approved}
        if values is not None:
            empty = {each.name: each.default for each in node.spec.form(node.settings)}
            output[VALUES_KEY] = {**empty, **values}
        done = replace(run, status=NodeStatus.DONE, output=output, ended_at=self._now)
        self.end_attempt(done)
        self.add_event(EventKind.STEP_DONE, node.title)

    def note_claim(self) -> None:
        """Start the time limits of a task that is tried again at its next claim."""
        again = self._state.runs.get(FRESH_START_PATH)
        if again is not None and not is_claimed(again):
            self.put_run(replace(again, ended_at=self._now))

    def discard_attempt(self, run: NodeRun, before: NodeRun | None, reason: str) -> None:
        """Close an attempt that was never made; its step keeps its earlier state."""
        self.ended.append(replace(run, error=reason, ended_at=self._now))
        not_begun = replace(run, started_at=None, ended_at=None)
        self.put_run(replace(before or not_begun, attempt=run.attempt, status=NodeStatus.PENDING))

    def add_plan(self, plan: Workflow, reason: str, author: str) -> None:
        """Store the task's next plan, and continue with it in the form in which it would be read
        back."""
        task = self._state.task
        body, version = dump_workflow(plan), task.graph_version + 1
        graph = TaskGraph(task_id=task.id, version=version, body=body, reason=reason, author=author)
        self.plans.append(graph)
        self.update_task(graph_version=version)
        self._state.adopt_plan(load_workflow(body), version)

    def update_task(self, **changed: Unpack[TaskChanges]) -> None:
        self.task.update(changed)
        known = {name: value for name, value in changed.items() if name in _TASK_FIELDS}
        self._state.task = replace(self._state.task, **known)  # type: ignore[arg-type]  # by name

    def count_failure(self, attempt: StepEnded) -> None:
        """Count a failure of the worker. An unreachable model is not one."""
        task = self._state.task
        if attempt.run.status is not NodeStatus.DONE:
            self.update_task(
                failures_in_row=task.failures_in_row + 1,
                errors=task.errors + (attempt.reply is not None),
            )
        elif task.failures_in_row:
            self.update_task(failures_in_row=0)

    def add_event(self, kind: EventKind, text: str = "") -> None:
        self.events.append((kind, text))

    def add_logs(self, *logs: NewLog) -> None:
        self.logs += logs

    def wait(
        self,
        approvals: Sequence[Approval],
        *,
        wake_at: datetime | None = None,
        reason: str = "",
    ) -> None:
        """Release the slot until a person has decided, the last subagent has reported, or the wait
        is over. A requested pause comes first."""
        if self._state.task.control is not TaskControl.RUN and not approvals:
            self.give_back_slot()
            return
        self.update_task(
            status=TaskStatus.WAITING,
            status_reason=reason,
            control=TaskControl.RUN,
            wake_at=wake_at,
        )
        for request in [approval.id for approval in approvals] or [""]:
            self.add_event(EventKind.WAITING, request)

    def give_back_slot(self) -> None:
        task = self._state.task
        self.add_event(EventKind.PAUSED, task.status_reason)
        text = task.status_reason or task.title
        self.add_logs(task_log(task, f"park:{task.epoch}", LogKind.CHECKPOINT, text))
        if task.control is TaskControl.YIELD:
            self.update_task(status=TaskStatus.PENDING, resumed_first=0)
        else:
            self.update_task(status=TaskStatus.PAUSED, control=TaskControl.RUN, resumed_first=0)

    def end_task(self, status: TaskStatus, reason: str, summary: str = "") -> None:
        task, final = self._state.task, status.is_final
        kind = LogKind.MILESTONE if status is TaskStatus.COMPLETED else LogKind.BLOCKED
        self.add_event(EventKind(status.value), reason)
        self.add_logs(task_log(task, f"end:{task.epoch}", kind, reason or summary))
        self.update_task(
            status=status,
            status_reason=reason,
            control=TaskControl.RUN,
            phase=TaskPhase.ENDED if final else task.phase,
            summary=summary or task.summary,
            ended_at=self._now if final else None,
        )


def task_log(task: Task, source: str, kind: LogKind, text: str) -> NewLog:
    """A line of the task's log. `source` names the attempt or version it comes from, so that
    nothing is written twice."""
    line = formats.truncate(strip_offline_note(text) or task.title, _MAX_LINE)
    return NewLog(task_id=task.id, source=f"task:{task.id}:{source}", kind=kind, text=line)


def plan_log(task: Task, plan: Workflow, version: int) -> NewLog:
    steps = " → ".join(node.title for node in plan.nodes)
    text = "\n".join(filter(None, (strip_offline_note(plan.plan), steps)))
    return task_log(task, f"plan:{version}", LogKind.PLAN, text)


def attempt_logs(task: Task, attempt: StepEnded) -> Iterator[NewLog]:
    """The result of an attempt at a step, and what its worker wants to be logged."""
    run = attempt.run
    source = f"{run.path}:{run.attempt}"
    if run.status is NodeStatus.DONE:
        said = f"{attempt.title}: {run.output.get('summary', '')}"
        yield task_log(task, source, LogKind.PROGRESS, said)
    elif run.error:
        yield task_log(task, source, LogKind.ERROR, run.error)
    notes = attempt.notes
    if notes is None:
        return
    for kind, texts in (
        (LogKind.FINDING, notes.findings),
        (LogKind.DECISION, notes.decisions),
        (LogKind.RESOURCE, notes.resources),
    ):
        for n, text in enumerate(texts):
            if text:
                yield task_log(task, f"{source}:{kind}:{n}", kind, text[:_MAX_NOTE])
