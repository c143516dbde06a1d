"""However much urgent work comes: long waiting ends, and what cuts in alternates with it."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from bot.engine.dispatch.preempt import yieldings
from bot.engine.workflow.store import LEASE
from storage.records.tasks import Control, Priority, Task, TaskStatus
from tests.contracts.lives import Life
from tests.engine_world import Clock, Engine

PATIENCE = timedelta(hours=12)
STEP = timedelta(minutes=20)


@dataclass
class Shift:
    """Slots that work in steps of one length, on the real queue; time passes step by step."""

    world: Engine
    clock: Clock
    slots: int
    left: dict[str, int] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    async def add(self, name: str, priority: Priority, steps: int) -> Task:
        task = await self.world.add(name, source=name, priority=priority)
        self.left[task.id] = steps
        return task

    async def step(self) -> None:
        """Fill the slots, ask who must make room, work for one step, and settle it."""
        queue, tasks = self.world.store.queue, self.world.store.tasks
        async with self.world.db.write() as tx:
            while len(await queue.running(tx)) < self.slots:
                claimed = await queue.claim(
                    tx, owner="shift", now=self.clock(), lease=LEASE, patience=PATIENCE
                )
                if claimed is None:
                    break
            running = await queue.running(tx)
            waiting = await queue.waiting(tx, self.slots, beside=running)
            for each in yieldings(running, waiting, self.slots):
                await tasks.move(
                    tx, each.victim, control=Control.YIELD, priority=each.victim.priority
                )
            self.clock.time += STEP
            for task in await queue.running(tx):
                self.told.append(task.title)
                self.left[task.id] -= 1
                if not self.left[task.id]:
                    now = self.clock()
                    await tasks.move(tx, task, status=TaskStatus.COMPLETED, ended_at=now)
                elif task.control is Control.YIELD:
                    await tasks.move(tx, task, status=TaskStatus.PENDING, resumed_first=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """One task of `steps` under urgent ones of these lengths; `started` before they came, with
    `backlog` of them there already."""

    steps: int
    slots: int
    urgent: tuple[int, ...]
    started: bool
    backlog: int


@given(
    weather=st.builds(
        Weather,
        steps=st.integers(1, 6),
        slots=st.integers(1, 3),
        urgent=st.lists(st.integers(1, 3), min_size=1, max_size=4).map(tuple),
        started=st.booleans(),
        backlog=st.integers(0, 5),
    )
)
@settings(
    max_examples=12,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_under_an_endless_stream_of_urgent_work_normal_work_ends(
    life: Life, weather: Weather
) -> None:
    home = Path(tempfile.mkdtemp(prefix="waiting-"))
    try:
        asyncio.run(_starve(life, home, weather))
    finally:
        shutil.rmtree(home)


async def _starve(life: Life, home: Path, weather: Weather) -> None:
    clock, steps = Clock(), weather.steps
    async with life(home, clock=clock, running=False) as world:
        shift = Shift(world=world, clock=clock, slots=weather.slots)
        normal = await shift.add("normal", Priority.NORMAL, steps)
        queued = clock.time
        if weather.started and steps > 1:
            await shift.step()
        for n in range(weather.backlog):
            await shift.add(f"before {n}", Priority.URGENT, 1)
        n = 0
        while shift.left[normal.id]:
            # More urgent work than the slots can do, for ever.
            for _ in range(weather.slots + 1):
                n += 1
                size = weather.urgent[n % len(weather.urgent)]
                await shift.add(f"urgent {n}", Priority.URGENT, size)
            await shift.step()
            # One urgent task to its end before each of its steps, and one more before the first.
            most = (steps + 1) * (max(weather.urgent) + 1) + weather.backlog + 2
            assert clock.time - queued - PATIENCE <= STEP * most, shift.told
        if weather.slots == 1 and not weather.started:
            assert clock.time - queued > PATIENCE, "urgent work goes first until then"
            did = [k for k, name in enumerate(shift.told) if name == "normal"]
            assert all(b - a > 1 for a, b in pairwise(did)), "and cuts in still"
