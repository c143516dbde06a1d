"""The surroundings of a dispatcher under test: a store, tasks with named steps, people's commands.
An entry in `DISPATCHERS` runs the suite on another implementation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

from storage.records.tasks import Task, TaskStatus
from tests.engine_harness import EngineHarness, FakeBackend, make_plan, run_engine
from tests.waiting import WAIT_SECONDS

DispatcherLife: TypeAlias = Callable[..., AbstractAsyncContextManager[EngineHarness]]
"""One life of the program on a home: `life(home, backend, slots=…, clock=…, start_dispatcher=…,
…)`. It ends like a crash; the next one on the same home takes over."""

DISPATCHERS: Mapping[str, DispatcherLife] = {"local on SQLite": run_engine}


class NamedStepsBackend(FakeBackend):
    """A task of the text `a` has the steps `a 1`, `a 2`, …: `steps` of them, or as many as a text
    `a*5` asks for. `ended` lists finished steps, `cancelled` those cancelled while they ran."""

    def __init__(self, steps: int = 2) -> None:
        super().__init__()
        self.step_count = steps
        self.ended: list[str] = []
        self.cancelled: list[str] = []
        self.on_plan = self._plan

    async def respond(self, request: Any) -> Any:
        step = request.facts.get("step", {}).get("title", "")
        try:
            result = await super().respond(request)
        except asyncio.CancelledError:
            self.cancelled.append(step)
            raise
        if step:
            self.ended.append(step)
        return result

    def _plan(self) -> object:
        name, _, number = str(self.requests[-1].facts["text"]).partition("*")
        return make_plan(
            *(f"{name} {n}" for n in range(1, int(number or self.step_count) + 1)),
            repeatable=self.repeatable,
        )


async def add_task(world: EngineHarness, name: str, **changes: Any) -> Task:
    """A task of this name, once, over all lives."""
    return await world.create_task(name, source=f"message {name}", **changes)


async def wait_until_done(world: EngineHarness, *tasks: Task) -> None:
    for task in tasks:
        assert (await world.until(task)).task.status is TaskStatus.COMPLETED


async def wait_for_reason(world: EngineHarness, task: Task) -> str:
    """Wait until its card says why it is where it is."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not (reason := (await world.views.view(task.id)).task.status_reason):
            await asyncio.sleep(0.002)
    return reason


async def task_status(world: EngineHarness, task: Task) -> TaskStatus:
    return (await world.store.tasks.get(task.id)).status
