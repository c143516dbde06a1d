"""What it costs to start the next task and to see who must make room, however many wait."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

from sqlalchemy import insert

from benchmarks.figures import held
from bot.engine.dispatch.preempt import yieldings
from bot.engine.workflow.store import LEASE, PATIENCE
from storage import schema
from storage.records.tasks import NewTask, Priority, TaskId
from storage.work.rows import new_row
from tests.engine_world import BOSS, CHAT, Engine, engine

_DEPTHS = (10, 100, 1_000, 10_000)
_TIMES = 40
_ROUNDS = 3
_SLOTS = 3
_BAR = 2.0
_PROJECTS = {
    "no project": lambda _n: "",
    "one project": lambda _n: "/srv/one",
    "a project each": lambda n: f"/srv/p{n}",
}


async def measure() -> list[str]:
    """Statements and rules without the commit, which costs the same at any depth; the median of
    each round, the best of the rounds."""
    lines = []
    for name, project in _PROJECTS.items():
        cost = [await _at(depth, project) for depth in _DEPTHS]
        told = ", ".join(f"{d:,}: {c:.2f}" for d, c in zip(_DEPTHS, cost, strict=True))
        lines.append(f"{name}, ms at {told}")
        lines.append(held(f"{name}, 10,000 queued against 10", cost[-1] / cost[0], "×", _BAR))
    return [*lines, f"load {os.getloadavg()[0]:.1f}"]


async def _at(depth: int, project: object) -> float:
    with tempfile.TemporaryDirectory() as folder:
        async with engine(Path(folder), running=False) as world:
            await _queue(world, depth, project)
            rounds = [[await _dispatch(world) for _ in range(_TIMES)] for _ in range(_ROUNDS)]
            return min(map(median, rounds))


async def _queue(world: Engine, depth: int, project: object) -> None:
    """Of all priorities, a tenth of them interrupted before; one of them runs."""
    assert callable(project)
    base = datetime.now(UTC) - timedelta(hours=1)
    ranks = (Priority.URGENT, Priority.IMPORTANT, Priority.NORMAL)
    rows = []
    for n in range(depth):
        new = NewTask(
            title=f"Task {n}",
            instruction="Count the chairs",
            priority=ranks[n % 3],
            chat_id=CHAT.id,
            created_by=BOSS.id,
            source=f"queued:{n}",
            project_dir=project(n),
        )
        row = new_row(new, TaskId(f"q{n}"), base + timedelta(milliseconds=n))
        rows.append({**row, "resumed_first": n % 10 != 0})
    async with world.db.write() as tx:
        await tx.execute(insert(schema.tasks), rows)
    await _claim_for_good(world)


async def _claim_for_good(world: Engine) -> None:
    async with world.db.write() as tx:
        now = datetime.now(UTC)
        await world.store.queue.claim(tx, owner="other", now=now, lease=LEASE, patience=PATIENCE)


async def _dispatch(world: Engine) -> float:
    """Milliseconds of what the dispatcher does each time it is woken."""
    queue, now, took = world.store.queue, datetime.now(UTC), 0.0
    async with world.db.write() as tx, tx.begin_nested() as taken_back:
        begun = time.perf_counter()
        await queue.claim(tx, owner="us", now=now, lease=LEASE, patience=PATIENCE)
        waiting = await queue.waiting(tx, _SLOTS)
        yieldings(await queue.running(tx), waiting, _SLOTS)
        took = time.perf_counter() - begun
        # The queue stays as deep as it was.
        await taken_back.rollback()
    return 1000 * took


if __name__ == "__main__":
    print("\n".join(asyncio.run(measure())))
