"""What a dispatcher needs around it, whichever it is: a store, tasks of steps that wait when told
to, people who order. One entry of `LIVES` plugs an implementation into the suite."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

from storage.records.tasks import Task, TaskStatus
from tests.engine_world import Engine, FakeBackend, engine, plan_of

Life: TypeAlias = Callable[..., AbstractAsyncContextManager[Engine]]
"""One life of the program on a home: `life(home, backend, slots=…, clock=…, running=…, …)`. It ends
as a death does; the next one on the same home takes up what it left."""

LIVES: Mapping[str, Life] = {"local on SQLite": engine}


class Named(FakeBackend):
    """A task of the text `a` has the steps `a 1`, `a 2`, …: `steps` of them, or as many as a text
    `a*5` asks for. A step that is held waits until it is let go; `ended` holds what came through,
    `cut` what was cancelled while it waited."""

    def __init__(self, steps: int = 2) -> None:
        super().__init__()
        self.number = steps
        self.gates: dict[str, asyncio.Event] = {}
        self.ended: list[str] = []
        self.cut: list[str] = []
        self.on_plan = self._plan

    def hold(self, *steps: str) -> None:
        for step in steps:
            self.gates[step] = asyncio.Event()

    def let_go(self, *steps: str) -> None:
        for step in steps or tuple(self.gates):
            self.gates[step].set()

    async def begun(self, step: str) -> None:
        async with asyncio.timeout(60):
            while step not in self.done:
                await asyncio.sleep(0.002)

    async def settle(self, request: Any) -> Any:
        step = request.facts.get("step", {}).get("title", "")
        try:
            if gate := self.gates.get(step):
                await gate.wait()
            result = await super().settle(request)
        except asyncio.CancelledError:
            self.cut.append(step)
            raise
        if step:
            self.ended.append(step)
        return result

    def _plan(self) -> object:
        name, _, number = str(self.asked[-1].facts["text"]).partition("*")
        return plan_of(
            *(f"{name} {n}" for n in range(1, int(number or self.number) + 1)),
            repeatable=self.repeatable,
        )


async def add(world: Engine, name: str, **changes: Any) -> Task:
    """A task of this name, once, over all lives."""
    return await world.add(name, source=f"message {name}", **changes)


async def all_done(world: Engine, *tasks: Task) -> None:
    for task in tasks:
        assert (await world.until(task)).task.status is TaskStatus.COMPLETED


async def reasoned(world: Engine, task: Task) -> str:
    """Wait until its card says why it is where it is."""
    async with asyncio.timeout(60):
        while not (reason := (await world.views.view(task.id)).task.status_reason):
            await asyncio.sleep(0.002)
    return reason


async def status(world: Engine, task: Task) -> TaskStatus:
    return (await world.store.tasks.get(task.id)).status
