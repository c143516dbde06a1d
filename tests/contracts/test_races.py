"""Orders that race the boundaries of steps: whatever comes first, none is lost."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from storage.errors import WrongState
from storage.records.tasks import NodeStatus, Task, TaskPriority, TaskStatus
from tests.contracts.dispatcher_lives import DispatcherLife, NamedStepsBackend, add_task
from tests.engine_harness import BOSS, EngineHarness
from tests.thoroughness import sampled
from tests.waiting import wait_until

TASKS = sampled(50, 30)
AT_ONCE = 10
ORDERS_EACH = sampled(20, 6)
STEPS = 6
KINDS = ("tell", "inject", "pause", "priority")


@dataclass
class RacingUser:
    """Gives one task its orders, and remembers those that were taken."""

    world: EngineHarness
    task: Task
    chance: random.Random
    said: list[str] = field(default_factory=list)
    injected: list[str] = field(default_factory=list)
    given: Counter[str] = field(default_factory=Counter)

    async def send_commands(self) -> None:
        await self.until_planned()
        for n in range(ORDERS_EACH):
            await asyncio.sleep(self.chance.random() * 0.02)
            last = n == ORDERS_EACH - 1 and self.chance.random() < 0.2
            kind = "stop" if last else self.chance.choice(KINDS)
            self.given[kind] += 1
            try:
                await self.order(kind, n)
            except WrongState:
                assert (await self.now()).status.is_final, kind
                self.given["too late"] += 1
        await self.wait_until_done()

    async def order(self, kind: str, n: int) -> None:
        foreman, task, source = self.world.tasks, self.task, f"{n} to {self.task.id}"
        match kind:
            case "tell":
                await foreman.send_message(task, f"hint {n}", by=BOSS, source=source)
                self.said.append(f"hint {n}")
            case "inject":
                title = f"more {n} of {task.title}"
                await foreman.inject(task, [title], by=BOSS, source=source)
                self.injected.append(title)
            case "pause":
                await foreman.pause(task, by=BOSS, source=source)
                await asyncio.sleep(self.chance.random() * 0.01)
                await foreman.resume(task, by=BOSS, source=f"{source}, again")
            case "priority":
                await foreman.set_priority(task, TaskPriority.URGENT, by=BOSS, source=source)
                assert (await self.now()).priority is TaskPriority.URGENT
            case _:
                await foreman.stop(task, by=BOSS, source=source)
                assert (await self.now()).status is TaskStatus.CANCELLED

    async def wait_until_done(self) -> None:
        """Everything that was taken is there at the end."""
        end = (await self.world.until(self.task)).task.status
        async with self.world.db.write() as tx:
            said = (await self.world.store.events.get_worker_input(self.task.id, tx=tx)).messages
        steps = (await self.world.views.view(self.task.id)).steps
        done = [step.title for step in steps if step.status is NodeStatus.DONE]
        assert list(said) == self.said
        assert end in {TaskStatus.COMPLETED, TaskStatus.CANCELLED}
        if end is TaskStatus.COMPLETED:
            assert set(self.injected) <= set(done), "an injected step was lost"
            own = [title for title in done if title.startswith(f"{self.task.title} ")]
            assert len(own) == len(set(own)) == STEPS

    async def until_planned(self) -> None:
        async def is_planned() -> bool:
            return bool((await self.now()).graph_version)

        await wait_until(is_planned)

    async def now(self) -> Task:
        return await self.world.store.tasks.get(self.task.id)


async def test_commands_at_random_moments_all_take_effect(
    life: DispatcherLife, tmp_path: Path
) -> None:
    backend, chance = NamedStepsBackend(steps=STEPS), random.Random(7)
    given: Counter[str] = Counter()
    async with life(tmp_path, backend, slots=3) as world:
        for first in range(0, TASKS, AT_ONCE):
            tasks = [await add_task(world, f"t{n}") for n in range(first, first + AT_ONCE)]
            people = [RacingUser(world=world, task=task, chance=chance) for task in tasks]
            await asyncio.gather(*(person.send_commands() for person in people))
            given += sum((person.given for person in people), Counter())

    late = given.pop("too late", 0)
    assert sum(given.values()) == TASKS * ORDERS_EACH
    assert late < TASKS * ORDERS_EACH / 2, "most must find their task at work"
    steps = [title for title in backend.ended if title.startswith(("t", "more"))]
    assert len(steps) == len(set(steps)), "no step was finished twice"
