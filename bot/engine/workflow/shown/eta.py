"""How long what is left will take, by how long the like took before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import fmean

from bot.engine.workflow.model.nodes import Delay, NodeType
from bot.engine.workflow.model.shape import Node
from bot.engine.workflow.shown.outline import Left
from storage.records.tasks import Eta, NodeRun, NodeStatus

UNKNOWN = 120.0
"""Seconds a step takes where nobody has seen one."""

_BY_NAME, _BY_TYPE = 2, 3
_LEAST = 10.0
_MANY = 20
_PERSONS = {NodeType.HUMAN, NodeType.SCHEDULE}


@dataclass(frozen=True, slots=True)
class Sample:
    """A step that was done, and the seconds it took."""

    name: str
    type: str
    seconds: float


class Past:
    """What is known of how long steps take."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        by_name: dict[str, list[float]] = {}
        by_type: dict[str, list[float]] = {}
        took: list[float] = []
        for each in samples:
            by_name.setdefault(each.name, []).append(each.seconds)
            by_type.setdefault(each.type, []).append(each.seconds)
            took.append(each.seconds)
        self.size = len(took)
        self._names = _means(by_name, _BY_NAME)
        self._types = _means(by_type, _BY_TYPE)
        self._mean = fmean(took) if took else UNKNOWN

    def seconds(self, node: Node) -> float:
        """By its name, else by its type, else as any step."""
        if isinstance(node.config, Delay):
            return node.config.seconds
        return self._names.get(node.title, self._types.get(node.type, self._mean))


def _means(seen: Mapping[str, list[float]], least: int) -> Mapping[str, float]:
    return {name: fmean(took) for name, took in seen.items() if len(took) >= least}


def eta(
    left: Iterable[Left],
    past: Past,
    *,
    done: int,
    total: int,
    parallel: int,
    now: datetime,
) -> Eta:
    """For what machines do: nobody knows how long people take. `left` are steps with how far they
    are and how often they are to be done; so many of them at once."""
    each: list[tuple[float, int]] = []
    for node, run, times in left:
        if node.type not in _PERSONS:
            each.append((_seconds(node, run, past, now), times))
    longest = max((seconds for seconds, _ in each), default=0.0)
    in_all = sum(seconds * times for seconds, times in each)
    return Eta(
        seconds=max(longest, in_all / max(1, parallel)),
        confidence=confidence(past.size, done, total),
        steps=sum(times for _, times in each),
    )


def confidence(samples: int, done: int, total: int) -> float:
    """From 0 to 1: half for what was seen before, half for how far this task is."""
    seen = min(samples / _MANY, 1.0)
    own = min(done / total + 0.3, 1.0) if done and total else 0.3
    return (seen + own) / 2


def _seconds(node: Node, run: NodeRun | None, past: Past, now: datetime) -> float:
    if run is not None and run.wake_at is not None:
        return max(0.0, (run.wake_at - now).total_seconds())
    expected = past.seconds(node)
    if run is None or run.status is not NodeStatus.RUNNING:
        return expected
    if run.started_at is None:
        return expected / 2
    elapsed = max(timedelta(0), now - run.started_at).total_seconds()
    return max(expected - elapsed, _LEAST)
