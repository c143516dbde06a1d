"""A store in memory and workers that answer at once, to run a flow to its end without either."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from bot.engine.workflow.model.nodes import NodeType
from bot.engine.workflow.model.shape import Node, Workflow
from bot.engine.workflow.routing.flow import Flow
from storage.records.tasks import NodeRun, NodeStatus, TaskId

START = datetime(2026, 11, 22, 8, tzinfo=UTC)
TASK = TaskId("t1")

Work = Callable[[Node, Mapping[str, Any], str], Mapping[str, Any] | str]
"""What a step brings, from its node, the names it may speak of, and its path; a text is its
summary, and one that begins with `!` is why it failed."""


def echo(node: Node, _names: Mapping[str, Any], _path: str) -> str:
    return f"did {node.id}"


@dataclass
class Sim:
    """Runs a workflow as the boundary would. With `crashes` it forgets all but the store at random
    moments, and begins again from there."""

    workflow: Workflow
    work: Work = echo
    seed: int = 0
    crashes: float = 0.0
    now: datetime = START
    runs: dict[str, NodeRun] = field(default_factory=dict)
    begun: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    most_at_once: int = 0
    yes: bool = True
    at_once: int = 200

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self.flow = self._new()

    def _new(self) -> Flow:
        return Flow(
            TASK,
            self.workflow,
            self.runs,
            zone=ZoneInfo("Asia/Shanghai"),
            say=lambda key, **facts: f"{key} {facts}",
            warn=self.warnings.append,
        )

    def run(self, turns: int = 10_000) -> str:
        """To the end: how it ended."""
        for _ in range(turns):
            if (end := self.turn()) is not None:
                return end
        raise AssertionError("it does not end")

    def turn(self) -> str | None:
        if self._random.random() < self.crashes:
            self._die()
        self._store(*self.flow.settle(self.now, self.at_once))
        if self.flow.failed is not None:
            return self._failed()
        if self.flow.is_complete:
            return "done"
        if self.flow.is_busy:
            return None
        decided = self._start()
        if self.flow.running:
            self._finish(self._random.choice(sorted(self.flow.running)))
            return None
        return None if decided else self._wait()

    def done(self) -> set[str]:
        return {path for path, run in self.runs.items() if run.status is NodeStatus.DONE}

    def _failed(self) -> str | None:
        if self.flow.running:
            self._finish(min(self.flow.running))
            return None
        assert self.flow.failed is not None
        return f"failed: {self.flow.failed.path}: {self.flow.failed.error}"

    def _start(self) -> bool:
        """Whether somebody has decided something."""
        for place, node in self.flow.steps():
            if len(self.flow.running) >= self.workflow.parallel:
                break
            if node.type == NodeType.HUMAN:
                if self._decide(place.path, node):
                    return True
                continue
            self.begun.append(place.path)
            self._note(self._run(place.path, NodeStatus.RUNNING))
        self.most_at_once = max(self.most_at_once, len(self.flow.running))
        return False

    def _decide(self, path: str, node: Node) -> bool:
        config = node.config
        timeout = getattr(config, "timeout", None)
        if timeout is not None and path not in self.runs:
            wake = self.now + timedelta(seconds=timeout)
            self._note(replace(self._run(path, NodeStatus.WAITING), wake_at=wake))
        if timeout is None:
            self.begun.append(path)
            done = replace(self._run(path, NodeStatus.DONE), output={"approved": self.yes})
            self._note(self.flow.ended(replace(done, ended_at=self.now), self.now))
        return timeout is None

    def _finish(self, path: str) -> None:
        node = self.flow.node(path)
        scope = path.rpartition("/")[0]
        names = self.flow.sight(f"{scope}/" if scope else "", self.now).names
        brought = self.work(node, names, path)
        self.now += timedelta(seconds=1)
        run = replace(self.runs[path], ended_at=self.now)
        if isinstance(brought, str) and brought.startswith("!"):
            run = replace(run, status=NodeStatus.FAILED, error=brought[1:])
        else:
            output = {"summary": brought} if isinstance(brought, str) else brought
            run = replace(run, status=NodeStatus.DONE, output=output)
        self._note(self.flow.ended(run, self.now))

    def _wait(self) -> str | None:
        if self.flow.wakes_at is None:
            return f"stuck: {self.flow.why_stuck()}"
        self.now = max(self.now, self.flow.wakes_at)
        return None

    def _die(self) -> None:
        """What was under way is free again, as after a restart."""
        for path, run in tuple(self.runs.items()):
            if run.status is NodeStatus.RUNNING:
                self.runs[path] = replace(run, status=NodeStatus.PENDING)
        self.flow = self._new()

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
        self.flow.note(run)
        self._store(run)

    def _store(self, *runs: NodeRun) -> None:
        self.runs.update({run.path: run for run in runs})
