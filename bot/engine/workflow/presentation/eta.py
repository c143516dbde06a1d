"""The estimate of a task's remaining time, from the durations of earlier steps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import fmean

from bot.engine.workflow.definition import (
    Workflow,
    WorkflowNode,
)
from bot.engine.workflow.issues import InvalidGraph
from bot.engine.workflow.node_runs import parse_activation
from bot.engine.workflow.nodes.contract import NodeRole
from bot.engine.workflow.plan import load_workflow
from bot.engine.workflow.presentation.outline import RemainingStep
from storage.db import Database
from storage.records.tasks import NodeRun, NodeStatus, TaskEta
from storage.task_graphs import StepDurationRepo

DEFAULT_STEP_SECONDS = 120.0
"""Assumed duration of a step without any history."""

_MIN_BY_NAME, _MIN_BY_TYPE = 2, 3
_MIN_REMAINING = 10.0
_FULL_SAMPLE = 20


@dataclass(frozen=True, slots=True)
class DurationSample:
    """A finished step and its duration."""

    name: str
    type: str
    seconds: float


class DurationEstimator:
    """Expected durations by name, by type, or overall."""

    def __init__(self, samples: Iterable[DurationSample]) -> None:
        by_name: dict[str, list[float]] = {}
        by_type: dict[str, list[float]] = {}
        took: list[float] = []
        for each in samples:
            by_name.setdefault(each.name, []).append(each.seconds)
            by_type.setdefault(each.type, []).append(each.seconds)
            took.append(each.seconds)
        self.size = len(took)
        self._names = _means(by_name, _MIN_BY_NAME)
        self._types = _means(by_type, _MIN_BY_TYPE)
        self._mean = fmean(took) if took else DEFAULT_STEP_SECONDS

    def expected_seconds(self, node: WorkflowNode) -> float | None:
        """By the settings, else the mean by name, by type or of all steps; None if unknown."""
        by_history = self._names.get(node.title, self._types.get(node.type, self._mean))
        return node.spec.expected_seconds(node.settings, by_history)


def _means(seen: Mapping[str, list[float]], least: int) -> Mapping[str, float]:
    return {name: fmean(took) for name, took in seen.items() if len(took) >= least}


def estimate_eta(
    remaining: Iterable[RemainingStep],
    durations: DurationEstimator,
    *,
    done: int,
    total: int,
    parallel: int,
    now: datetime,
) -> TaskEta:
    """Estimate the remaining time of automatic steps; steps for people are unpredictable.
    `remaining` lists steps with their run and their number of repetitions."""
    each: list[tuple[float, int]] = []
    for node, run, times in remaining:
        expected = durations.expected_seconds(node)
        if expected is not None:
            each.append((_remaining_seconds(expected, run, now), times))
    longest = max((seconds for seconds, _ in each), default=0.0)
    in_all = sum(seconds * times for seconds, times in each)
    return TaskEta(
        seconds=max(longest, in_all / max(1, parallel)),
        confidence=eta_confidence(durations.size, done, total),
        steps=sum(times for _, times in each),
    )


def eta_confidence(samples: int, done: int, total: int) -> float:
    """From 0 to 1: one half for the amount of history, one half for the progress of this task."""
    seen = min(samples / _FULL_SAMPLE, 1.0)
    own = min(done / total + 0.3, 1.0) if done and total else 0.3
    return (seen + own) / 2


def _remaining_seconds(expected: float, run: NodeRun | None, now: datetime) -> float:
    if run is not None and run.wake_at is not None:
        return max(0.0, (run.wake_at - now).total_seconds())
    if run is None or run.status is not NodeStatus.RUNNING:
        return expected
    if run.started_at is None:
        return expected / 2
    elapsed = max(timedelta(0), now - run.started_at).total_seconds()
    return max(expected - elapsed, _MIN_REMAINING)


_CACHE_TIME = timedelta(minutes=5)


class DurationHistory:
    """Durations of finished tasks, cached for some minutes."""

    def __init__(self, db: Database) -> None:
        self._durations = StepDurationRepo(db)
        self._samples: tuple[DurationSample, ...] = ()
        self._expires_at: datetime | None = None
        self._lock = asyncio.Lock()

    async def estimator(
        self, workflow: Workflow, runs: Mapping[str, NodeRun], now: datetime
    ) -> DurationEstimator:
        """Includes the steps that the task itself has finished."""
        async with self._lock:
            if self._expires_at is None or now >= self._expires_at:
                self._samples = await self._load_samples()
                self._expires_at = now + _CACHE_TIME
        took = (
            (run.path, (run.ended_at - run.started_at).total_seconds())
            for run in runs.values()
            if run.status is NodeStatus.DONE and run.started_at and run.ended_at
        )
        return DurationEstimator((*self._samples, *_duration_samples(workflow.nodes_by_id, took)))

    async def _load_samples(self) -> tuple[DurationSample, ...]:
        found: list[DurationSample] = []
        for each in await self._durations.list_recent():
            try:
                nodes = load_workflow(each.graph_body).nodes_by_id
            except InvalidGraph:
                # Plans in the format of an earlier release are not comparable.
                continue
            found += _duration_samples(nodes, each.step_seconds)
        return tuple(found)


def _duration_samples(
    nodes: Mapping[str, WorkflowNode], took: Iterable[tuple[str, float]]
) -> Iterator[DurationSample]:
    for path, seconds in took:
        place = parse_activation(path)
        node = nodes.get(place.node) if place is not None else None
        if node is not None and node.role is NodeRole.TASK:
            yield DurationSample(node.title, node.type, max(0.0, seconds))
