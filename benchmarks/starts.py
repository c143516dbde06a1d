"""How soon work starts: when all is idle, and when something urgent must cut in."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.core import Worker, core, raw_commits
from benchmarks.figures import held, p50, p95
from bot.engine.llm.base import Purpose
from storage.records.tasks import Control, Priority, Task
from tests.engine_world import Engine

_BAR = 100.0
_IDLE_ROUNDS = 200
_WARM_UP = 20
_URGENT_ROUNDS = 100
_SLOTS = 2


async def enqueue_to_start() -> list[str]:
    """From the order to the moment the worker is asked for a plan, the program idle before; a
    raw commit after each, so that a slow moment of the disk hits both."""
    begun = asyncio.Event()
    at = [0.0]

    def note(purpose: Purpose, _task: str, _title: str) -> None:
        if purpose is Purpose.PLAN:
            at[0] = time.perf_counter()
            begun.set()

    took: list[float] = []
    raw: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with raw_commits(home) as commits:
            async with core(home, Worker(begun=note), slots=3) as world:
                for _ in range(_WARM_UP + _IDLE_ROUNDS):
                    begun.clear()
                    ordered = time.perf_counter()
                    task = await world.add("Count the chairs")
                    await begun.wait()
                    took.append(1000 * (at[0] - ordered))
                    await world.until(task)
                    await _quiet(world)
                    raw += commits.times(1)
    return _idle_lines(took[_WARM_UP:], raw[_WARM_UP:])


def _idle_lines(took: list[float], raw: list[float]) -> list[str]:
    return [
        (
            f"p50: {p50(took):.1f} ms, {p50(took) / p50(raw):.0f} × one raw commit"
            f" ({p50(raw):.2f} ms); {_load()}"
        ),
        f"p95 of all: {p95(took):.1f} ms, {p95(took) / p95(raw):.0f} × the raw p95",
        held("p95 of the quietest quarter", _quietest(took), "ms", _BAR),
    ]


@dataclass
class Stage:
    """Who is under way, and what each waits for. `order` is who began what, in order."""

    gates: dict[str, asyncio.Event] = field(default_factory=dict)
    order: list[tuple[float, str, str]] = field(default_factory=list)
    moved: asyncio.Event = field(default_factory=asyncio.Event)

    def begun(self, purpose: Purpose, task: str, title: str) -> asyncio.Event | None:
        name = "plan" if purpose is Purpose.PLAN else title
        self.order.append((time.perf_counter(), task, name))
        self.moved.set()
        return None if name == "plan" else self.gates.get(f"{task}/{name}")

    def hold(self, task: str, title: str) -> asyncio.Event:
        return self.gates.setdefault(f"{task}/{title}", asyncio.Event())

    async def until(self, task: str, name: str) -> float:
        """When this began; waits for it."""
        while True:
            self.moved.clear()
            for at, who, what in self.order:
                if (who, what) == (task, name):
                    return at
            await self.moved.wait()

    def after(self, task: str, name: str) -> str:
        """Which other task began something first after this."""
        names = [(who, what) for _, who, what in self.order]
        rest = names[names.index((task, name)) + 1 :]
        return next(who for who, _ in rest if who != task)


async def urgent_start() -> list[str]:
    """Two normal tasks hold both slots and two more wait; an urgent one arrives. From the end of
    the step that must make room to the moment the worker is asked to plan the urgent task; then
    whether the one that made room goes on before those that wait."""
    took: list[float] = []
    resumed = 0
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage()
        worker = Worker(titles=_titles, begun=stage.begun)
        async with core(Path(folder), worker, slots=_SLOTS) as world:
            for n in range(_WARM_UP // 2 + _URGENT_ROUNDS):
                stage.order.clear()
                stage.gates.clear()
                delay, first = await _cut_in(world, stage, f"round {n}")
                if n >= _WARM_UP // 2:
                    took.append(delay)
                    resumed += first
    return [
        f"p50: {p50(took):.1f} ms; {_load()}",
        f"p95 of all: {p95(took):.1f} ms",
        held("p95 of the quietest quarter", _quietest(took), "ms", _BAR),
        (
            f"the paused one went on before all that waited: {resumed} of {_URGENT_ROUNDS}"
            f" (bar {_URGENT_ROUNDS}: {'kept' if resumed == _URGENT_ROUNDS else 'MISSED'})"
        ),
    ]


def _titles(task: str) -> tuple[str, ...]:
    return ("first", "second") if "long" in task else ("only",)


async def _cut_in(world: Engine, stage: Stage, name: str) -> tuple[float, bool]:
    """One round, ended with an empty queue."""
    longs = [f"{name} long {n}" for n in range(_SLOTS)]
    ends = {text: stage.hold(text, "first") for text in longs}
    urgent_end = stage.hold(f"{name} urgent", "only")
    made: list[Task] = []
    for text in longs:
        made.append(await world.add(text, priority=Priority.NORMAL))
        await stage.until(text, "first")
    made += [await world.add(f"{name} late {n}", priority=Priority.NORMAL) for n in range(2)]
    made.append(await world.add(f"{name} urgent", priority=Priority.URGENT))
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


async def _victim(world: Engine, running: list[Task]) -> Task:
    while True:
        for task in running:
            now = await world.store.tasks.get(task.id)
            if now.control is Control.YIELD:
                return now
        await asyncio.sleep(0.002)


async def _quiet(world: Engine) -> None:
    """Wait until every card is told: then the program is idle."""
    while await world.store.journal.untold(1):
        await asyncio.sleep(0.002)


def _quietest(took: list[float]) -> float:
    """The p95 of the best quarter of the run: what others do on the machine only ever slows."""
    size = len(took) // 4
    return min(p95(took[at : at + size]) for at in range(0, 4 * size, size))


def _load() -> str:
    return f"load {os.getloadavg()[0]:.1f}"
