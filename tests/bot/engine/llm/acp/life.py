"""A task by a fake CLI on a real store, and somebody who decides what it may do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.engine.agent.workbench import Workbench
from bot.engine.llm.acp.backend import AcpBackend
from storage.approvals import Approvals
from storage.db import Database
from storage.records.approvals import Approval, ApprovalState
from storage.records.tasks import Task, TaskStatus
from tests.bot.engine.agent.leave.world import decisions_on, leaves_on
from tests.emulators.acp.cli import FakeCli, result
from tests.engine_world import BOSS, Clock, Engine, engine

PLAN = result({"plan": "Ship it.", "steps": [{"title": "go live"}]})


class Cli(AcpBackend):
    models = ("",)


@dataclass
class Life:
    """`made` is a file with a line for each time that the call was really made."""

    world: Engine
    approvals: Approvals
    made: Path

    @property
    def times(self) -> int:
        return len(self.made.read_text().splitlines()) if self.made.exists() else 0

    async def request(self, task: Task) -> Approval:
        await self.world.until(task, TaskStatus.WAITING)
        (open_,) = [
            each
            for each in await self.approvals.of_task(task.id)
            if each.state is ApprovalState.WAITING
        ]
        return open_

    async def ends(self, task: Task) -> TaskStatus:
        """Somebody decides whatever is asked, and allows only what was not made already."""
        while True:
            for each in await self.approvals.of_task(task.id):
                if each.state is ApprovalState.WAITING:
                    await self.decide(each, approve=not self.times)
            view = await self.world.views.view(task.id)
            if view.task.status.is_final:
                return view.task.status
            await asyncio.sleep(0.005)

    async def decide(self, approval: Approval, *, approve: bool) -> None:
        source = f"d:{approval.id}"
        await self.approvals.decide(approval, approve=approve, by=BOSS, source=source)
        self.world.dispatcher.wake()


@asynccontextmanager
async def life(cli: FakeCli, clock: Clock) -> AsyncGenerator[Life, None]:
    def bench(db: Database, clock: Clock) -> Workbench:
        return Workbench(permits=leaves_on(db, clock, []))

    backend: Any = Cli(lambda: cli.agent, cli.house(patience=0))
    async with engine(cli.root, backend, bench=bench, clock=clock) as world:
        yield Life(world=world, approvals=decisions_on(world), made=cli.root / "made.txt")
