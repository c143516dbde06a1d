"""Steps of a long chain, each committed to disk, against raw commits of the same size."""

from __future__ import annotations

import asyncio
import itertools
import os
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

from benchmarks.core import Worker, core, raw_commits
from benchmarks.figures import held, p50, p95
from bot.engine.llm.base import Purpose
from bot.engine.workflow.boundary import Boundary
from bot.engine.workflow.steps import Following
from tests.engine_world import Engine

_NODES = 300
_ROUNDS = 3
_SHORT = 30
_SIZE = 1_060
_RATIO = 0.5
_CPU_BAR = 10.0
_WALL_BAR = 25.0
_WRITTEN = """
SELECT (SELECT sum(length(output) + length(path)) FROM node_runs)
     + (SELECT sum(length(content)) FROM messages)
     + (SELECT sum(length(text) + length(kind)) FROM events)
     + (SELECT count(*) * 120 FROM usage) + (SELECT count(*) * 60 FROM node_attempts)
"""

_Mark: TypeAlias = tuple[float, float]
"""Seconds of the clock and of the processor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Milliseconds from step to step; of the boundary between two, with all that is worked out
    for it; and of its transaction alone, from its beginning to when it is on the disk. CPU
    milliseconds and statements awaited a step; bytes a step, and the mean raw commit of about as
    many, one before each step: a slow moment of the disk hits both."""

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
    def worked_out(self) -> float:
        return self.raw / mean(self.boundaries)

    @property
    def whole(self) -> float:
        return self.raw / mean(self.wall)


async def measure() -> list[str]:
    """The ratio of the best round, the median beside it: a loaded machine only ever slows."""
    chains = [await _chain(_NODES, cards=False) for _ in range(_ROUNDS)]
    told = await _chain(_NODES, cards=True)
    short = await _chain(_SHORT, cards=False)
    best = max(chains, key=lambda chain: chain.ratio)
    ratios = sorted(chain.ratio for chain in chains)
    verdict = "kept" if best.ratio >= _RATIO else "MISSED"
    wholes = [chain.whole for chain in chains]
    worked_out = [chain.worked_out for chain in chains]
    over = mean(best.checkpoints) - best.raw
    return [
        (
            f"{_rate(best.checkpoints):.0f} checkpoints/s against {1000 / best.raw:.0f} raw"
            f" commits/s of {best.size} bytes: ratio {best.ratio:.3f}, median {p50(ratios):.3f}"
            f" (bar ≥ {_RATIO}: {verdict}); load {os.getloadavg()[0]:.1f}"
        ),
        (
            f"all but the commit takes {over:.2f} ms a checkpoint: the ratio is {_RATIO} where a"
            f" raw commit takes as long; here it takes {best.raw:.2f} ms"
        ),
        (
            f"with all that is worked out for it: {_rate(best.boundaries):.0f}/s, ratio"
            f" {max(worked_out):.3f}, median {p50(worked_out):.3f}"
        ),
        (
            f"whole steps, with the call and its prompt: {_rate(best.wall):.0f}/s, ratio"
            f" {max(wholes):.3f}, median {p50(wholes):.3f}"
        ),
        held(f"CPU a step at {_NODES} nodes", min(c.cpu for c in chains), "ms", _CPU_BAR),
        held(f"wall p95 at {_NODES} nodes", min(p95(c.wall) for c in chains), "ms", _WALL_BAR),
        (
            f"statements awaited a step: {best.statements:.1f}; at {_SHORT} nodes:"
            f" CPU {short.cpu:.1f} ms, wall p95 {p95(short.wall):.1f} ms"
        ),
        (
            f"with every card kept true meanwhile: {_rate(told.wall):.0f} steps/s,"
            f" CPU {told.cpu:.1f} ms, wall p95 {p95(told.wall):.1f} ms"
        ),
    ]


def _rate(wall: list[float]) -> float:
    return 1000 / mean(wall)


async def _chain(nodes: int, *, cards: bool) -> Chain:
    marks: list[tuple[_Mark, _Mark]] = []
    raw: list[float] = []
    done = asyncio.Event()

    def note(purpose: Purpose, _task: str, _title: str) -> None:
        if purpose is Purpose.STEP:
            arrived = _mark()
            raw.extend(commits.times(1, _SIZE))
            marks.append((arrived, _mark()))
            if len(marks) == nodes:
                done.set()

    titles = tuple(f"step {n}" for n in range(1, nodes + 1))
    worker = Worker(titles=lambda _task: titles, begun=note)
    boundaries: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with raw_commits(home) as commits, _timed_boundaries(boundaries):
            async with core(home, worker, cards=cards) as world:
                counted = _statements(world)
                checkpoints = _checkpoints(world)
                await world.add("Go through the list")
                await done.wait()
            size = _size(home, nodes)
    pairs = [(left, arrived) for (_, left), (arrived, _) in itertools.pairwise(marks)]
    return Chain(
        wall=[1000 * (arrived[0] - left[0]) for left, arrived in pairs],
        boundaries=boundaries,
        # The first few are the plan's.
        checkpoints=checkpoints[-nodes:],
        cpu=1000 * mean(arrived[1] - left[1] for left, arrived in pairs),
        statements=len(counted) / nodes,
        size=size,
        raw=mean(raw),
    )


def _mark() -> _Mark:
    return time.perf_counter(), time.process_time()


def _statements(world: Engine) -> list[None]:
    """Grows by one with each statement that the store runs."""
    counted: list[None] = []

    def count(*_told: object) -> None:
        counted.append(None)

    for door in {world.db._writer, world.db._reader}:  # noqa: SLF001 - no other way in
        event.listen(door.sync_engine, "before_cursor_execute", count)
    return counted


@contextmanager
def _timed_boundaries(took: list[float]) -> Iterator[None]:
    """Takes the milliseconds of each boundary that settles a step."""
    settle = Boundary.settle

    async def timed(*args: Any, **named: Any) -> Following:
        begun = time.perf_counter()
        following = await settle(*args, **named)
        took.append(1000 * (time.perf_counter() - begun))
        return following

    with patch.object(Boundary, "settle", timed):
        yield


def _checkpoints(world: Engine) -> list[float]:
    """Milliseconds of each transaction that writes, its connection given back included."""
    took: list[float] = []
    begun = [0.0]

    def begin(*_told: object) -> None:
        begun[0] = time.perf_counter()

    def end(*_told: object) -> None:
        took.append(1000 * (time.perf_counter() - begun[0]))

    writer = world.db._writer.sync_engine  # noqa: SLF001 - no other way in
    event.listen(writer, "begin", begin)
    event.listen(writer, "checkin", end)
    return took


def _size(home: Path, nodes: int) -> int:
    with closing(sqlite3.connect(home / "shiftboss.db")) as connection:
        return int(connection.execute(_WRITTEN).fetchone()[0] / nodes)
