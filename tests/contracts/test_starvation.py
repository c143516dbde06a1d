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

from bot.engine.tasks.preemption import plan_preemptions
from bot.engine.workflow.task_store import LEASE_DURATION
from storage.records.tasks import Task, TaskControl, TaskPriority, TaskStatus
from tests.contracts.dispatcher_lives import DispatcherLife
from tests.engine_harness import EngineHarness, ManualClock
from tests.thoroughness import sampled

PATIENCE = timedelta(hours=12)
STEP = timedelta(minutes=20)


@dataclass
class StarvationSimulation:
    """Slots that work in steps of one length, on the real queue; time passes step by step."""

    world: EngineHarness
    clock: ManualClock
    slots: int
    left: dict[str, int] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    async def add(self, name: str, priority: TaskPriority, steps: int) -> Task:
        task = await self.world.create_task(name, source=name, priority=priority)
        self.left[task.id] = steps
        return task

    async def step(self) -> None:
        """Fill the slots, ask who must make room, work for one step, and settle it."""
        queue, tasks = self.world.store.queue, self.world.store.tasks
        async with self.world.db.write() as tx:
            while len(await queue.list_running(tx)) < self.slots:
                claimed = await queue.claim(
                    tx, owner="shift", now=self.clock(), lease=LEASE_DURATION, aging_after=PATIENCE
                )
                if claimed is None:
                    break
            running = await queue.list_running(tx)
            waiting = await queue.list_preempting_candidates(tx, self.slots, running=running)
            for each in plan_preemptions(running, waiting, self.slots):
                await tasks.update(
                    tx, each.victim, control=TaskControl.YIELD, priority=each.victim.priority
                )
            self.clock.time += STEP
            for task in await queue.list_running(tx):
                self.told.append(task.title)
                self.left[task.id] -= 1
                if not self.left[task.id]:
                    now = self.clock()
                    await tasks.update(tx, task, status=TaskStatus.COMPLETED, ended_at=now)
                elif task.control is TaskControl.YIELD:
                    await tasks.update(tx, task, status=TaskStatus.PENDING, resumed_first=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationCase:
    """One task of `steps` under urgent ones of these lengths; `started` before they came, with
    `backlog` of them there already."""

    steps: int
    slots: int
    urgent: tuple[int, ...]
    started: bool
    backlog: int


@given(
    weather=st.builds(
        SimulationCase,
        steps=st.integers(1, 6),
        slots=st.integers(1, 3),
        urgent=st.lists(st.integers(1, 3), min_size=1, max_size=4).map(tuple),
        started=st.booleans(),
        backlog=st.integers(0, 5),
    )
)
@settings(
    max_examples=sampled(12, 6),
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_normal_tasks_finish_under_an_endless_stream_of_urgent_ones(
    life: DispatcherLife, weather: SimulationCase
) -> None:
    home = Path(tempfile.mkdtemp(prefix="waiting-"))
    try:
        asyncio.run(_starve(life, home, weather))
    finally:
        shutil.rmtree(home)


async def _starve(life: DispatcherLife, home: Path, weather: SimulationCase) -> None:
    clock, steps = ManualClock(), weather.steps
    async with life(home, clock=clock, start_dispatcher=False) as world:
        shift = StarvationSimulation(world=world, clock=clock, slots=weather.slots)
        normal = await shift.add("normal", TaskPriority.NORMAL, steps)
        queued = clock.time
        if weather.started and steps > 1:
            await shift.step()
        for n in range(weather.backlog):
            await shift.add(f"before {n}", TaskPriority.URGENT, 1)
        n = 0
        while shift.left[normal.id]:
            # More urgent work than the slots can do, for ever.
            for _ in range(weather.slots + 1):
                n += 1
                size = weather.urgent[n % len(weather.urgent)]
                await shift.add(f"urgent {n}", TaskPriority.URGENT, size)
            await shift.step()
            # One urgent task to its end before each of its steps, and one more before the first.
            most = (steps + 1) * (max(weather.urgent) + 1) + weather.backlog + 2
            assert clock.time - queued - PATIENCE <= STEP * most, shift.told
        if weather.slots == 1 and not weather.started:
            assert clock.time - queued > PATIENCE, "urgent work goes first until then"
            did = [k for k, name in enumerate(shift.told) if name == "normal"]
            assert all(b - a > 1 for a, b in pairwise(did)), "and cuts in still"
