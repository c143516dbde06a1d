"""Steps of a long chain, each committed to disk, against raw commits of the same size."""

from __future__ import annotations

import asyncio
import itertools
import os
import sqlite3
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from sqlalchemy import event

from benchmarks.core import Worker, core, raw_commits
from benchmarks.figures import held, p50, p95
from bot.engine.llm.base import Purpose
from tests.engine_world import Engine

_NODES = 300
_ROUNDS = 3
_SHORT = 30
_RATIO = 0.5
_CPU_BAR = 10.0
_WALL_BAR = 25.0
_WRITTEN = """
SELECT (SELECT sum(length(output) + length(path)) FROM node_runs)
     + (SELECT sum(length(content)) FROM messages)
     + (SELECT sum(length(text) + length(kind)) FROM events)
     + (SELECT count(*) * 120 FROM usage) + (SELECT count(*) * 60 FROM node_attempts)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Milliseconds from step to step, CPU milliseconds and statements a step, bytes a step, and
    the mean raw commit before and after, of that many bytes."""

    wall: list[float]
    cpu: float
    statements: float
    size: int
    raw: float

    @property
    def ratio(self) -> float:
        return self.raw / mean(self.wall)


async def measure() -> list[str]:
    """The ratio of the best round, the median beside it: a loaded machine only ever slows."""
    chains = [await _chain(_NODES, cards=False) for _ in range(_ROUNDS)]
    told = await _chain(_NODES, cards=True)
    short = await _chain(_SHORT, cards=False)
    best = max(chains, key=lambda chain: chain.ratio)
    ratios = sorted(chain.ratio for chain in chains)
    verdict = "kept" if best.ratio >= _RATIO else "MISSED"
    over = mean(best.wall) - best.raw
    return [
        (
            f"{_rate(best.wall):.0f} steps/s against {1000 / best.raw:.0f} raw commits/s of"
            f" {best.size} bytes: ratio {best.ratio:.3f}, median {p50(ratios):.3f}"
            f" (bar ≥ {_RATIO}: {verdict}); load {os.getloadavg()[0]:.1f}"
        ),
        (
            f"all but the commit takes {over:.1f} ms a step: the ratio is {_RATIO} where a raw"
            " commit takes as long"
        ),
        held(f"CPU a step at {_NODES} nodes", min(c.cpu for c in chains), "ms", _CPU_BAR),
        held(f"wall p95 at {_NODES} nodes", min(p95(c.wall) for c in chains), "ms", _WALL_BAR),
        (
            f"statements a step: {best.statements:.1f}; at {_SHORT} nodes: CPU {short.cpu:.1f} ms,"
            f" wall p95 {p95(short.wall):.1f} ms"
        ),
        (
            f"with every card kept true meanwhile: {_rate(told.wall):.0f} steps/s,"
            f" CPU {told.cpu:.1f} ms, wall p95 {p95(told.wall):.1f} ms"
        ),
    ]


def _rate(wall: list[float]) -> float:
    return 1000 / mean(wall)


async def _chain(nodes: int, *, cards: bool) -> Chain:
    marks: list[tuple[float, float]] = []
    done = asyncio.Event()

    def note(purpose: Purpose, _task: str, _title: str) -> None:
        if purpose is Purpose.STEP:
            marks.append((time.perf_counter(), time.process_time()))
            if len(marks) == nodes:
                done.set()

    titles = tuple(f"step {n}" for n in range(1, nodes + 1))
    worker = Worker(titles=lambda _task: titles, begun=note)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with raw_commits(home) as commits:
            async with core(home, worker, cards=cards) as world:
                counted = _statements(world)
                await world.add("Go through the list")
                await done.wait()
            size = _size(home, nodes)
            raw = mean(commits.times(nodes, size))
    pairs = list(itertools.pairwise(marks))
    return Chain(
        wall=[1000 * (after[0] - before[0]) for before, after in pairs],
        cpu=1000 * (marks[-1][1] - marks[0][1]) / len(pairs),
        statements=len(counted) / nodes,
        size=size,
        raw=raw,
    )


def _statements(world: Engine) -> list[None]:
    """Grows by one with each statement that the store runs."""
    counted: list[None] = []

    def count(*_told: object) -> None:
        counted.append(None)

    for door in {world.db._writer, world.db._reader}:  # noqa: SLF001 - no other way in
        event.listen(door.sync_engine, "before_cursor_execute", count)
    return counted


def _size(home: Path, nodes: int) -> int:
    with closing(sqlite3.connect(home / "shiftboss.db")) as connection:
        return int(connection.execute(_WRITTEN).fetchone()[0] / nodes)
