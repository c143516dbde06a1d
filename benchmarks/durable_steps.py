"""Steps of a long chain, each committed to disk, against raw commits of the same size."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any, TypeAlias
from unittest.mock import patch

from sqlalchemy import event

from benchmarks.engine_runs import InstantBackend, raw_commits, run_core
from benchmarks.figures import Figure, Measurement, Scale, at_least, at_most
from benchmarks.measurements import p50, p95
from bot.engine.llm.backend import RunPurpose
from bot.engine.workflow.checkpoint import TaskCheckpoint
from bot.engine.workflow.checkpoint_events import CheckpointEvent, StepEnded
from tests.engine_harness import EngineHarness

_NODES = 300
_ROUNDS = 3
_SHORT_NODES = 30
_SIZE = 1_060
_WRITTEN = """
SELECT (SELECT sum(length(output) + length(path)) FROM node_runs)
     + (SELECT sum(length(content)) FROM messages)
     + (SELECT sum(length(text) + length(kind)) FROM events)
     + (SELECT count(*) * 120 FROM usage) + (SELECT count(*) * 60 FROM node_attempts)
"""

_TimeMark: TypeAlias = tuple[float, float]
"""Seconds of the clock and of the processor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The measured times of one chain.

    Milliseconds: `wall` from step to step, `boundaries` for everything between two steps'
    calls that is computed and written, `checkpoints` for its transaction alone, `raw` for the mean
    raw commit. A step takes `cpu` milliseconds and awaits `statements`; it writes `size` bytes."""

    wall: list[float]
    boundaries: list[float]
    checkpoints: list[float]
    cpu: float
    statements: float
    size: int
    raw: float

    @property
    def ratio(self) -> float:
        return self.raw / mean(self.checkpoints)

    @property
    def boundary_ratio(self) -> float:
        return self.raw / mean(self.boundaries)

    @property
    def step_ratio(self) -> float:
        return self.raw / mean(self.wall)


async def measure(scale: Scale) -> list[Measurement]:
    """A chain of 300 steps runs to its end; the worker answers at once. Each step is one commit. A
    *checkpoint* is its transaction, from its beginning until it is on the disk and the connection
    is given back. A *boundary* adds what is computed for it, a *whole step* also the session's new
    messages, workspace, prompt, answer and files. One raw commit of the same size is made before
    each step, so that a slow moment of the disk hits both. The best of three rounds counts.

    A boundary crosses to the connection's thread once. The first statement of its transaction
    checks that the task is still as the last boundary left it, that the lease is ours and that
    nobody has given an order since. Where somebody has, nothing is written and the boundary is
    repeated with the task read again: two crossings. Everything a boundary decides is computed
    before its transaction begins, so other writers wait for the disk and not for us. A checkpoint
    costs a raw commit and a constant beside it: the ratio grows with a slower disk.

    Cards are written by another task of the same loop, several events to a card, and are measured
    in a chain of their own."""
    nodes, short_nodes = scale.pick((_NODES, _SHORT_NODES), (6, 4))
    chains = [await _chain(nodes, cards=False) for _ in range(scale.pick(_ROUNDS, 1))]
    with_cards = await _chain(nodes, cards=True)
    short = await _chain(short_nodes, cards=False)
    best = max(chains, key=lambda chain: chain.ratio)
    return [
        *_ratios(chains, best),
        *_speeds(chains, best),
        Figure("statements awaited a step", best.statements),
        Figure(f"CPU a step at {short_nodes} nodes", short.cpu, "ms"),
        Figure(f"step to step at {short_nodes} nodes, p95", p95(short.wall), "ms"),
        Figure("whole steps, with every card written", _per_second(with_cards.wall), "steps/s"),
        Figure("CPU a step, with every card written", with_cards.cpu, "ms"),
    ]


def _ratios(chains: list[Chain], best: Chain) -> list[Figure]:
    return [
        Figure("checkpoints against raw commits, best round", best.ratio, "×", at_least(0.5)),
        Figure("the same, median round", p50([each.ratio for each in chains]), "×"),
        Figure("boundaries against raw commits, best round", best.boundary_ratio, "×"),
        Figure("whole steps against raw commits, best round", best.step_ratio, "×"),
        Figure("raw commit", best.raw, "ms"),
        Figure("checkpoint without the commit", mean(best.checkpoints) - best.raw, "ms"),
        Figure("bytes a step", best.size),
    ]


def _speeds(chains: list[Chain], best: Chain) -> list[Figure]:
    cpu = min(each.cpu for each in chains)
    wall = min(p95(each.wall) for each in chains)
    return [
        Figure("checkpoints", _per_second(best.checkpoints), "/s"),
        Figure("whole steps, with the call and its prompt", _per_second(best.wall), "steps/s"),
        Figure("CPU a step", cpu, "ms", at_most(10)),
        Figure("step to step, p95", wall, "ms", at_most(25)),
    ]


def _per_second(milliseconds: list[float]) -> float:
    return 1000 / mean(milliseconds)


async def _chain(nodes: int, *, cards: bool) -> Chain:
    marks: list[tuple[_TimeMark, _TimeMark]] = []
    raw: list[float] = []
    done = asyncio.Event()

    def note(purpose: RunPurpose, _task: str, _title: str) -> None:
        if purpose is RunPurpose.STEP:
            arrived = _mark()
            raw.extend(commits.times(1, _SIZE))
            marks.append((arrived, _mark()))
            if len(marks) == nodes:
                done.set()

    titles = tuple(f"step {n}" for n in range(1, nodes + 1))
    worker = InstantBackend(titles=lambda _task: titles, begun=note)
    boundaries: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with raw_commits(home) as commits, _timed_boundaries(boundaries):
            async with run_core(home, worker, cards=cards) as world:
                counted = _statements(world)
                checkpoints = _checkpoints(world)
                await world.create_task("Go through the list")
                await done.wait()
            size = _size(home, nodes)
    pairs = [(left, arrived) for (_, left), (arrived, _) in itertools.pairwise(marks)]
    return Chain(
        wall=[1000 * (arrived[0] - left[0]) for left, arrived in pairs],
        boundaries=boundaries,
        # The first few belong to the plan.
        checkpoints=checkpoints[-nodes:],
        cpu=1000 * mean(arrived[1] - left[1] for left, arrived in pairs),
        statements=len(counted) / nodes,
        size=size,
        raw=mean(raw),
    )


def _mark() -> _TimeMark:
    return time.perf_counter(), time.process_time()


def _statements(world: EngineHarness) -> list[None]:
    """A list that grows by one with each statement that the store runs."""
    counted: list[None] = []

    def count(*_told: object) -> None:
        counted.append(None)

    for door in {world.db._writer, world.db._reader}:  # noqa: SLF001 - the engines are public nowhere
        event.listen(door.sync_engine, "before_cursor_execute", count)
    return counted


@contextmanager
def _timed_boundaries(took: list[float]) -> Iterator[None]:
    """Takes the milliseconds of each boundary that settles a step."""
    commit = TaskCheckpoint.commit

    async def timed(self: TaskCheckpoint, event: CheckpointEvent, *args: Any, **named: Any) -> Any:
        begun = time.perf_counter()
        following = await commit(self, event, *args, **named)
        if isinstance(event, StepEnded):
            took.append(1000 * (time.perf_counter() - begun))
        return following

    with patch.object(TaskCheckpoint, "commit", timed):
        yield


def _checkpoints(world: EngineHarness) -> list[float]:
    """Milliseconds of each writing transaction, until its connection is given back."""
    took: list[float] = []
    begun = [0.0]

    def begin(*_told: object) -> None:
        begun[0] = time.perf_counter()

    def end(*_told: object) -> None:
        took.append(1000 * (time.perf_counter() - begun[0]))

    writer = world.db._writer.sync_engine  # noqa: SLF001 - as above
    event.listen(writer, "begin", begin)
    event.listen(writer, "checkin", end)
    return took


def _size(home: Path, nodes: int) -> int:
    with closing(sqlite3.connect(home / "shiftboss.db")) as connection:
        return int(connection.execute(_WRITTEN).fetchone()[0] / nodes)
