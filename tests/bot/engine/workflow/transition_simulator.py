"""A store in memory, people and workers around the real transition, to run a workflow to its end
without a database."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from bot.engine.workflow.checkpoint_events import (
    CheckpointEvent,
    CountSubagents,
    HasSuspendedCalls,
    NextAction,
    RequestToolCall,
    Started,
    StartedStep,
    StepEnded,
    StepsStarted,
    StoreCall,
    Woken,
)
from bot.engine.workflow.definition import Workflow
from bot.engine.workflow.dry_run import RequestsInMemory
from bot.engine.workflow.nodes.human import HumanConfig
from bot.engine.workflow.run_state import ChangeSet, LeaseMemory, TaskRunState
from bot.engine.workflow.step_approvals import (
    AddFacts,
    CreateRequest,
    FindNewest,
    StepApprovalRules,
    WithdrawRequests,
)
from bot.engine.workflow.transitions import Outcome, transition
from storage.records.approvals import Approval, ApprovalState
from storage.records.tasks import (
    EventKind,
    NodeRun,
    NodeStatus,
    Task,
    TaskControl,
    TaskPhase,
    TaskPriority,
    TaskStatus,
)
from tests.bot.engine.workflow.scheduler_simulator import START, TASK, Work, echo
from tests.engine_harness import BOSS, CHAT

RULES = StepApprovalRules(("deploy",))
KNOWN_CALLS = (
    FindNewest,
    AddFacts,
    WithdrawRequests,
    CreateRequest,
    CountSubagents,
    RequestToolCall,
    HasSuspendedCalls,
)


def describe(key: str, **facts: Any) -> str:
    """A catalogue that says which text it was asked for."""
    return f"{key} {facts}"


def make_task(**changed: Any) -> Task:
    task = Task(
        id=TASK,
        title="Do it",
        instruction="Do it",
        priority=TaskPriority.IMPORTANT,
        status=TaskStatus.RUNNING,
        status_reason="",
        phase=TaskPhase.QUEUED,
        control=TaskControl.RUN,
        chat_id=CHAT.id,
        reply_to="",
        created_by=BOSS.id,
        project_dir="",
        model="",
        backend="",
        files=(),
        graph_version=1,
        epoch=1,
        failures_in_row=0,
        replans=0,
        summary="",
        created_at=START,
        started_at=START,
        ended_at=None,
    )
    return replace(task, **changed)


@dataclass
class TransitionSimulator:
    """Commits the outcome of each transition to memory. At random, `crashes` forget all but what
    is committed, and `rollbacks` throw an outcome away and decide it once more."""

    workflow: Workflow
    work: Work = echo
    seed: int = 0
    crashes: float = 0.0
    rollbacks: float = 0.0
    now: datetime = START
    task: Task = field(default_factory=make_task)
    runs: dict[str, NodeRun] = field(default_factory=dict)
    events: list[tuple[EventKind, str]] = field(default_factory=list)
    calls: list[StoreCall] = field(default_factory=list)
    memory: LeaseMemory = field(default_factory=LeaseMemory)
    running: dict[str, StartedStep] = field(default_factory=dict)
    max_parallel: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self.state: TaskRunState | None = None
        self.requests = RequestsInMemory(task=self.task, lifetime=timedelta(days=7))

    @property
    def approvals(self) -> dict[str, Approval]:
        return self.requests.by_id

    # --- one transition

    def commit(self, event: CheckpointEvent) -> NextAction:
        approvals = dict(self.approvals)
        if self._random.random() < self.rollbacks:
            self.decide(event)
            self.state, self.requests.by_id = None, approvals
        outcome = self.decide(event)
        self.store(outcome.changes)
        self.memory = outcome.memory
        if isinstance(outcome.next, StepsStarted):
            self.running |= {step.node.id: step for step in outcome.next.steps}
            self.max_parallel = max(self.max_parallel, len(self.running))
        return outcome.next

    def decide(self, event: CheckpointEvent) -> Outcome:
        if self.state is None:
            self.state = TaskRunState(
                task=self.task,
                runs=dict(self.runs),
                zone=ZoneInfo("Asia/Shanghai"),
                text=describe,
                workflow=self.workflow,
                plan_version=1,
            )
        deciding = transition(
            self.state, self.memory, event, rules=RULES, session_id="s1", now=self.now
        )
        return self.requests.decide(deciding, self.answer)

    def store(self, changes: ChangeSet) -> None:
        assert not changes.plans
        assert self.state is not None
        self.runs |= changes.runs
        self.events += changes.events
        self.task = self.state.task

    def answer(self, call: StoreCall) -> object:
        assert isinstance(call, KNOWN_CALLS), call
        self.calls.append(call)
        return self.requests.answer(call, self.now)

    def waiting(self) -> list[Approval]:
        return self.requests.list_waiting()

    def approve(self, approval: Approval) -> None:
        self.requests.settle(approval, ApprovalState.APPROVED, by=BOSS.id)

    # --- whole lives

    def claim(self) -> NextAction:
        """Take the task up under a new lease, as after a death or a wait."""
        for path, run in self.runs.items():
            if run.status is NodeStatus.RUNNING:
                self.runs[path] = replace(run, status=NodeStatus.PENDING)
        self.task = replace(
            self.task, status=TaskStatus.RUNNING, epoch=self.task.epoch + 1, wake_at=None
        )
        self.state, self.memory = None, LeaseMemory()
        self.running.clear()
        return self.commit(Started())

    def run(self, turns: int = 10_000) -> str:
        """To the end: how it ended."""
        action = self.claim()
        for _ in range(turns):
            if action is None:
                if self.task.status is not TaskStatus.WAITING:
                    reason = self.task.status_reason
                    return f"{self.task.status}: {reason}" if reason else str(self.task.status)
                self._decide_or_wait()
                action = self.claim()
            elif self._random.random() < self.crashes:
                action = self.claim()
            else:
                assert isinstance(action, StepsStarted)
                action = self._go_on(action)
        raise AssertionError("it does not end")

    def end_step(self, path: str, brought: Mapping[str, Any] | str) -> NextAction:
        """A text is the summary, and one that begins with `!` is why the step failed."""
        step = self.running.pop(path)
        self.now += timedelta(seconds=1)
        run = replace(step.run, ended_at=self.now)
        if isinstance(brought, str) and brought.startswith("!"):
            run = replace(run, status=NodeStatus.FAILED, error=brought[1:])
        else:
            output = {"summary": brought} if isinstance(brought, str) else brought
            run = replace(run, status=NodeStatus.DONE, output=output)
        return self.commit(StepEnded(run=run, title=step.node.title, reply=None))

    def _go_on(self, action: StepsStarted) -> NextAction:
        if not self.running:
            assert action.wake_at is not None, "nothing runs and nobody would wake it"
            self.now = max(self.now, action.wake_at)
            return self.commit(Woken())
        if (asked := self._decidable()) and self._random.random() < 1 / 2:
            self.approve(asked[0])
            return self.commit(Woken())
        path = self._random.choice(sorted(self.running))
        return self.end_step(path, self.work(self.running[path].node, {}, path))

    def _decide_or_wait(self) -> None:
        if asked := self._decidable():
            self.approve(asked[0])
        else:
            assert self.task.wake_at is not None, "it waits for nothing"
            self.now = max(self.now, self.task.wake_at)

    def _decidable(self) -> list[Approval]:
        """Requests without a time limit: the others run out, as with `SchedulerSimulator`."""
        nodes = self.workflow.nodes_by_id
        return [
            each
            for each in self.waiting()
            if (node := nodes.get(each.path.rpartition("/")[2].partition("#")[0])) is None
            or not isinstance(node.config, HumanConfig)
            or node.config.timeout is None
        ]
