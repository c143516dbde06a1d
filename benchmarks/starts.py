"""How soon work starts: when all is idle, and when something urgent must cut in."""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.engine_runs import InstantBackend, raw_commits, run_core
from benchmarks.figures import Figure, Measurement, Scale, at_least, at_most
from benchmarks.measurements import p50, p95, p95_of_quietest_quarter
from bot.engine.llm.backend import RunPurpose
from storage.records.tasks import Task, TaskControl, TaskPriority
from tests.engine_harness import EngineHarness

_BAR = at_most(100)
_IDLE_ROUNDS = 200
_IDLE_WARM_UP = 20
_URGENT_ROUNDS = 100
_URGENT_WARM_UP = 10
_SLOTS = 2


async def measure_enqueue_to_start(scale: Scale) -> list[Measurement]:
    """A task is ordered while the program is idle. The time runs from the order to the moment the
    worker is asked for a plan. A raw commit follows each round, so that a slow moment of the disk
    hits both. The bar holds for the quietest quarter of the rounds."""
    warm_up, rounds = scale.pick(_IDLE_WARM_UP, 1), scale.pick(_IDLE_ROUNDS, 4)
    begun = asyncio.Event()
    at = [0.0]

    def note(purpose: RunPurpose, _task: str, _title: str) -> None:
        if purpose is RunPurpose.PLAN:
            at[0] = time.perf_counter()
            begun.set()

    took: list[float] = []
    raw: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with raw_commits(home) as commits:
            async with run_core(home, InstantBackend(begun=note), slots=3) as world:
                for _ in range(warm_up + rounds):
                    begun.clear()
                    ordered = time.perf_counter()
                    task = await world.create_task("Count the chairs")
                    await begun.wait()
                    took.append(1000 * (at[0] - ordered))
                    await world.until(task)
                    await _quiet(world)
                    raw += commits.times(1)
    took, raw = took[warm_up:], raw[warm_up:]
    return [
        Figure("order to plan, p50", p50(took), "ms"),
        Figure("order to plan, p95 of all rounds", p95(took), "ms"),
        Figure(
            "order to plan, p95 of the quietest quarter", p95_of_quietest_quarter(took), "ms", _BAR
        ),
        Figure("raw commit, p50", p50(raw), "ms"),
        Figure("order to plan in raw commits, p50", p50(took) / p50(raw), "×"),
    ]


@dataclass
class StartTimer:
    """Notes when each step begins and can hold it back. `order` lists time, task and step as they
    began."""

    gates: dict[str, asyncio.Event] = field(default_factory=dict)
    order: list[tuple[float, str, str]] = field(default_factory=list)
    moved: asyncio.Event = field(default_factory=asyncio.Event)

    def begun(self, purpose: RunPurpose, task: str, title: str) -> asyncio.Event | None:
        name = "plan" if purpose is RunPurpose.PLAN else title
        self.order.append((time.perf_counter(), task, name))
        self.moved.set()
        return None if name == "plan" else self.gates.get(f"{task}/{name}")

    def hold(self, task: str, title: str) -> asyncio.Event:
        return self.gates.setdefault(f"{task}/{title}", asyncio.Event())

    async def until(self, task: str, name: str) -> float:
        """Wait for this step to begin; the time at which it did."""
        while True:
            self.moved.clear()
            for at, who, what in self.order:
                if (who, what) == (task, name):
                    return at
            await self.moved.wait()

    def after(self, task: str, name: str) -> str:
        """The task that was the first other one to begin something after this step."""
        names = [(who, what) for _, who, what in self.order]
        rest = names[names.index((task, name)) + 1 :]
        return next(who for who, _ in rest if who != task)


async def measure_urgent_start(scale: Scale) -> list[Measurement]:
    """Two normal tasks hold both slots, two more wait, and an urgent one arrives. The time runs
    from the end of the step that must make room to the moment the worker is asked to plan the
    urgent task. Afterwards the task that made room must go on before those that wait."""
    warm_up, rounds = scale.pick(_URGENT_WARM_UP, 1), scale.pick(_URGENT_ROUNDS, 4)
    took: list[float] = []
    resumed = 0
    with tempfile.TemporaryDirectory() as folder:
        stage = StartTimer()
        worker = InstantBackend(titles=_titles, begun=stage.begun)
        async with run_core(Path(folder), worker, slots=_SLOTS) as world:
            for n in range(warm_up + rounds):
                stage.order.clear()
                stage.gates.clear()
                delay, first = await _cut_in(world, stage, f"round {n}")
                if n >= warm_up:
                    took.append(delay)
                    resumed += first
    return [
        Figure("end of step to urgent plan, p50", p50(took), "ms"),
        Figure("end of step to urgent plan, p95 of all rounds", p95(took), "ms"),
        Figure(
            "end of step to urgent plan, p95 of the quietest quarter",
            p95_of_quietest_quarter(took),
            "ms",
            _BAR,
        ),
        Figure(f"paused task went on first, of {rounds}", resumed, "", at_least(rounds)),
    ]


def _titles(task: str) -> tuple[str, ...]:
    return ("first", "second") if "long" in task else ("only",)


async def _cut_in(world: EngineHarness, stage: StartTimer, name: str) -> tuple[float, bool]:
    """One round, ended with an empty queue: its milliseconds, and whether the paused task went on
    first."""
    longs = [f"{name} long {n}" for n in range(_SLOTS)]
    ends = {text: stage.hold(text, "first") for text in longs}
    urgent_end = stage.hold(f"{name} urgent", "only")
    made: list[Task] = []
    for text in longs:
        made.append(await world.create_task(text, priority=TaskPriority.NORMAL))
        await stage.until(text, "first")
    made += [
        await world.create_task(f"{name} late {n}", priority=TaskPriority.NORMAL) for n in range(2)
    ]
    made.append(await world.create_task(f"{name} urgent", priority=TaskPriority.URGENT))
    victim = await _victim(world, made[:_SLOTS])
    await _quiet(world)
    ends[victim.instruction].set()
    ended = time.perf_counter()
    started = await stage.until(f"{name} urgent", "plan")
    await stage.until(f"{name} urgent", "only")
    urgent_end.set()
    await stage.until(victim.instruction, "second")
    first = stage.after(f"{name} urgent", "only") == victim.instruction
    for gate in ends.values():
        gate.set()
    for task in made:
        await world.until(task)
    await _quiet(world)
    return 1000 * (started - ended), first


async def _victim(world: EngineHarness, running: list[Task]) -> Task:
    while True:
        for task in running:
            now = await world.store.tasks.get(task.id)
            if now.control is TaskControl.YIELD:
                return now
        await asyncio.sleep(0.002)


async def _quiet(world: EngineHarness) -> None:
    """Wait until every event is notified: then the program is idle."""
    while await world.store.events.list_unnotified(1):
        await asyncio.sleep(0.002)
