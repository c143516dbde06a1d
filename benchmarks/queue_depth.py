"""The cost of a dispatch against the length of the queue."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

from sqlalchemy import insert

from benchmarks.figures import Figure, Measurement, Scale, at_most
from bot.engine.tasks.preemption import plan_preemptions
from bot.engine.workflow.task_store import LEASE_DURATION
from storage import schema
from storage.records.tasks import NewTask, TaskId, TaskPriority
from storage.tasks import new_task_row
from tests.builders import STARVATION_LIMIT
from tests.engine_harness import BOSS, CHAT, EngineHarness, run_engine

_DEPTHS = (10, 100, 1_000, 10_000)
_TIMES = 40
_ROUNDS = 3
_SLOTS = 3
_BAR = at_most(2)
_PROJECTS: Mapping[str, Callable[[int], str]] = {
    "no project": lambda _n: "",
    "one project": lambda _n: "/srv/one",
    "a project each": lambda n: f"/srv/p{n}",
}


async def measure(scale: Scale) -> list[Measurement]:
    """The dispatcher claims the next task and plans who must make room, with 10 to 10,000 tasks in
    the queue. The commit is left out: it costs the same at any depth. Each figure is the best
    round's median. A claim looks at the first twenty of the queue; where none of them may start, it
    looks at the first few of each project folder (`ix_tasks_heads`). So only the number of folders
    counts, and only where the first twenty are all held up."""
    depths = scale.pick(_DEPTHS, (10, 30))
    figures: list[Measurement] = []
    for name, project in _PROJECTS.items():
        cost = {depth: await _cost(depth, project, scale) for depth in depths}
        figures += [Figure(f"{name}, {n:,} queued", each, "ms") for n, each in cost.items()]
        least, most = min(depths), max(depths)
        growth = cost[most] / cost[least]
        figures.append(Figure(f"{name}, {most:,} against {least:,}", growth, "×", _BAR))
    return figures


async def _cost(depth: int, project: Callable[[int], str], scale: Scale) -> float:
    times, rounds = scale.pick((_TIMES, _ROUNDS), (2, 1))
    with tempfile.TemporaryDirectory() as folder:
        async with run_engine(Path(folder), start_dispatcher=False) as world:
            await _queue(world, depth, project)
            return min(
                [median([await _dispatch(world) for _ in range(times)]) for _ in range(rounds)]
            )


async def _queue(world: EngineHarness, depth: int, project: Callable[[int], str]) -> None:
    """Fill the queue with tasks of all priorities, a tenth of them interrupted before, and run one
    of them."""
    base = datetime.now(UTC) - timedelta(hours=1)
    ranks = (TaskPriority.URGENT, TaskPriority.IMPORTANT, TaskPriority.NORMAL)
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
        row = new_task_row(new, TaskId(f"q{n}"), base + timedelta(milliseconds=n))
        rows.append({**row, "resumed_first": n % 10 != 0})
    async with world.db.write() as tx:
        await tx.execute(insert(schema.tasks), rows)
    await _claim_for_good(world)


async def _claim_for_good(world: EngineHarness) -> None:
    async with world.db.write() as tx:
        now = datetime.now(UTC)
        await world.store.queue.claim(
            tx, owner="other", now=now, lease=LEASE_DURATION, aging_after=STARVATION_LIMIT
        )


async def _dispatch(world: EngineHarness) -> float:
    """Milliseconds of the statements and rules that each wake-up of the dispatcher runs."""
    queue, now, took = world.store.queue, datetime.now(UTC), 0.0
    async with world.db.write() as tx, tx.begin_nested() as taken_back:
        begun = time.perf_counter()
        await queue.claim(
            tx, owner="us", now=now, lease=LEASE_DURATION, aging_after=STARVATION_LIMIT
        )
        waiting = await queue.list_preempting_candidates(tx, _SLOTS)
        plan_preemptions(await queue.list_running(tx), waiting, _SLOTS)
        took = time.perf_counter() - begun
        # The queue stays as deep as it was.
        await taken_back.rollback()
    return 1000 * took
