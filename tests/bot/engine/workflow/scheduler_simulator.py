"""An in-memory store and immediate workers that run a scheduler to its end."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from bot.engine.workflow.definition import Workflow, WorkflowNode
from bot.engine.workflow.nodes.registry import NodeType
from bot.engine.workflow.scheduler import WorkflowScheduler
from storage.records.tasks import NodeRun, NodeStatus, TaskId

START = datetime(2026, 11, 22, 8, tzinfo=UTC)
TASK = TaskId("t1")

Work = Callable[[WorkflowNode, Mapping[str, Any], str], Mapping[str, Any] | str]
"""The result of a step, from its node, names and path; a text is its summary, and one that starts
with `!` is an error."""


def echo(node: WorkflowNode, _names: Mapping[str, Any], _path: str) -> str:
    return f"did {node.id}"


@dataclass
class SchedulerSimulator:
    """Runs a workflow as checkpoints do. With `crashes` it loses all but the store at random
    moments and restarts from there."""

    workflow: Workflow
    work: Work = echo
    seed: int = 0
    crashes: float = 0.0
    now: datetime = START
    runs: dict[str, NodeRun] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    max_parallel: int = 0
    approves: bool = True
    moves_per_turn: int = 200

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self.scheduler = self._new()

    def _new(self) -> WorkflowScheduler:
        return WorkflowScheduler(
            TASK,
            self.workflow,
            self.runs,
            zone=ZoneInfo("Asia/Shanghai"),
            text=lambda key, **facts: f"{key} {facts}",
            warn=self.warnings.append,
        )

    def run(self, turns: int = 10_000) -> str:
        """Run to the end; return how it ended."""
        for _ in range(turns):
            if (end := self.turn()) is not None:
                return end
        raise AssertionError("it does not end")

    def turn(self) -> str | None:
        if self._random.random() < self.crashes:
            self._crash()
        self._store(*self.scheduler.advance(self.now, self.moves_per_turn))
        if self.scheduler.failed_run is not None:
            return self._failed()
        if self.scheduler.is_complete:
            return "done"
        if self.scheduler.has_pending_moves:
            return None
        decided = self._start()
        if self.scheduler.running_paths:
            self._finish(self._random.choice(sorted(self.scheduler.running_paths)))
            return None
        return None if decided else self._wait()

    def done(self) -> set[str]:
        return {path for path, run in self.runs.items() if run.status is NodeStatus.DONE}

    def _failed(self) -> str | None:
        if self.scheduler.running_paths:
            self._finish(min(self.scheduler.running_paths))
            return None
        assert self.scheduler.failed_run is not None
        return f"failed: {self.scheduler.failed_run.path}: {self.scheduler.failed_run.error}"

    def _start(self) -> bool:
        """Whether a person has decided something."""
        for place, node in self.scheduler.ready_steps():
            if len(self.scheduler.running_paths) >= self.workflow.parallel:
                break
            if node.type == NodeType.HUMAN:
                if self._decide(place.path, node):
                    return True
                continue
            self.started.append(place.path)
            self._note(self._run(place.path, NodeStatus.RUNNING))
        self.max_parallel = max(self.max_parallel, len(self.scheduler.running_paths))
        return False

    def _decide(self, path: str, node: WorkflowNode) -> bool:
        config = node.config
        timeout = getattr(config, "timeout", None)
        before = self.runs.get(path)
        if timeout is not None and (before is None or before.status is NodeStatus.PENDING):
            wake = self.now + timedelta(seconds=timeout)
            self._note(replace(self._run(path, NodeStatus.WAITING), wake_at=wake))
        if timeout is None:
            self.started.append(path)
            done = replace(self._run(path, NodeStatus.DONE), output={"approved": self.approves})
            self._note(self.scheduler.complete_run(replace(done, ended_at=self.now), self.now))
        return timeout is None

    def _finish(self, path: str) -> None:
        node = self.scheduler.node_at(path)
        scope = path.rpartition("/")[0]
        names = self.scheduler.context(f"{scope}/" if scope else "", self.now).names
        brought = self.work(node, names, path)
        self.now += timedelta(seconds=1)
        run = replace(self.runs[path], ended_at=self.now)
        if isinstance(brought, str) and brought.startswith("!"):
            run = replace(run, status=NodeStatus.FAILED, error=brought[1:])
        else:
            output = {"summary": brought} if isinstance(brought, str) else brought
            run = replace(run, status=NodeStatus.DONE, output=output)
        self._note(self.scheduler.complete_run(run, self.now))

    def _wait(self) -> str | None:
        if self.scheduler.next_wake_at is None:
            return f"stuck: {self.scheduler.stuck_reason()}"
        self.now = max(self.now, self.scheduler.next_wake_at)
        return None

    def _crash(self) -> None:
        """Running steps are free again, as after a restart."""
        for path, run in tuple(self.runs.items()):
            if run.status is NodeStatus.RUNNING:
                self.runs[path] = replace(run, status=NodeStatus.PENDING)
        self.scheduler = self._new()

    def _run(self, path: str, status: NodeStatus) -> NodeRun:
        before = self.runs.get(path)
        return NodeRun(
            task_id=TASK,
            path=path,
            status=status,
            attempt=1 + (before.attempt if before else 0),
            output={},
            error="",
            started_at=self.now,
            ended_at=None,
        )

    def _note(self, run: NodeRun) -> None:
        self.scheduler.record_run(run)
        self._store(run)

    def _store(self, *runs: NodeRun) -> None:
        self.runs.update({run.path: run for run in runs})
