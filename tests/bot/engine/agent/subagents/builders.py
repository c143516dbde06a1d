"""Helpers on a real store and a backend that does as it is told, over several lives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from sqlalchemy import insert

from bot.engine.agent.subagents.service import SubagentDeps, SubagentService
from bot.engine.agent.subagents.spawning import SpawnRequest, SubagentSpawner
from bot.engine.agent.worker_context import WorkerContextBuilder
from bot.engine.llm.backend import RunPurpose, RunRequest, RunResult
from bot.engine.permissions.requests import DecisionSignal
from bot.engine.tasks.subagent_reports import SubagentReportDelivery
from bot.engine.workers.spec import CostAccount, WorkerSpec
from storage import schema
from storage.db import Database
from storage.ids import IdGenerator
from storage.messages.chats import ChatRepo
from storage.messages.inbox import InboxRepo
from storage.people import PeopleRepo
from storage.records.messages import InboxRow
from storage.records.people import Language
from storage.records.tasks import SubagentStatus, Task
from storage.records.workers import Subagent
from storage.tools import ToolCallRepo
from tests.agent_builders import make_context_builder
from tests.engine_harness import (
    BOSS,
    CHAT,
    EngineHarness,
    FakeBackend,
    ManualClock,
    no_sleep,
    run_engine,
    run_result,
)
from tests.waiting import WAIT_SECONDS

ACCOUNT = "boss-account"
_IDS = count(1)


@dataclass
class SubagentAnswersBackend(FakeBackend):
    """`on_helper` is asked what a helper says: a text, an error, or an event to wait for."""

    on_helper: Callable[[str], Any] = field(default=lambda prompt: f"found {prompt}")
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def prompts(self) -> list[str]:
        return [each.prompt for each in self.requests if each.purpose is RunPurpose.HELPER]

    async def respond(self, request: RunRequest) -> RunResult:
        if request.purpose is not RunPurpose.HELPER:
            return await super().respond(request)
        told = self.on_helper(request.prompt)
        self.begun.set()
        if isinstance(told, asyncio.Event):
            await told.wait()
            told = "late"
        if isinstance(told, BaseException):
            raise told
        return run_result(text=str(told))


@dataclass
class SubagentSetup:
    """One life."""

    world: EngineHarness
    backend: SubagentAnswersBackend
    service: SubagentService
    kit: SubagentDeps
    spawning: SubagentSpawner
    posted: list[InboxRow]
    arrived: asyncio.Event

    async def job(self, task: Task | None, *, depth: int = 0, path: str = "s1") -> WorkerSpec:
        key = f"task:{task.id}" if task else f"chat:{CHAT.id}"
        session = await self.world.gateway.open_session(
            key, self.world.gateway.select_backend("", "")
        )
        return WorkerSpec(
            account=CostAccount(person=BOSS.id, chat=CHAT.id, task=task.id if task else None),
            session=session,
            language=Language.ENGLISH,
            workspace=Path(),
            step_path=path if task else "",
            depth=depth,
        )

    async def send(self, job: WorkerSpec, task: str = "look", *, keep: bool = True) -> Subagent:
        wish = SpawnRequest(
            task=task, label=f"label {task}", persona="", keep=keep, arguments={"t": task}
        )
        return await self.spawning.spawn(job, wish)

    async def ended(self, helper: Subagent) -> Subagent:
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                rung = self.kit.ended_signal.next_event()
                now = await self.kit.repo.get(helper.id)
                if now.status.is_final:
                    return now
                await rung.wait()

    async def at_work(self, helper: Subagent) -> Subagent:
        async with asyncio.timeout(WAIT_SECONDS):
            await self.backend.begun.wait()
        now = await self.kit.repo.get(helper.id)
        assert now.status is SubagentStatus.RUNNING
        return now

    async def until_posted(self) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            await self.arrived.wait()

    async def said_to(self, task: Task) -> Sequence[str]:
        async with self.world.db.read() as view:
            return (await self.world.store.events.get_worker_input(task.id, tx=view)).messages


@asynccontextmanager
async def subagent_setup(
    home: Path,
    backend: SubagentAnswersBackend,
    *,
    slots: int = 3,
    serving: bool = True,
    bench: WorkerContextBuilder | None = None,
    clock: ManualClock | None = None,
    **more: Any,
) -> AsyncGenerator[SubagentSetup, None]:
    """Its end is a death: nothing is drained."""
    async with run_engine(home, backend, clock=clock, context_builder=bench, **more) as world:
        made = _build_setup(home, world, backend, slots, bench or make_context_builder())
        loop = None
        if serving:
            await made.service.start(_NullStack())  # type: ignore[arg-type] # it only pushes its end
            loop = asyncio.create_task(made.service.run())
        try:
            yield made
        finally:
            if loop is not None:
                loop.cancel()
                with suppress(asyncio.CancelledError):
                    await loop
            await made.service._stop()


class _NullStack:
    def push_async_callback(self, _end: Callable[..., Any]) -> None:
        """The end comes by hand."""


def _build_setup(
    home: Path,
    world: EngineHarness,
    backend: SubagentAnswersBackend,
    slots: int,
    bench: WorkerContextBuilder,
) -> SubagentSetup:
    db, ids, posted, arrived = world.db, IdGenerator(), list[InboxRow](), asyncio.Event()

    async def workspace_of(task: Task) -> Path:
        return home / "work" / task.id

    async def english(_task: Task) -> Language:
        return Language.ENGLISH

    async def nobody() -> Sequence[str]:
        return ("tester",)

    def on_report(row: InboxRow) -> None:
        posted.append(row)
        arrived.set()

    parents = SubagentReportDelivery(
        store=world.store,
        people=PeopleRepo(db, ids, ChatRepo(db, ids)),
        inbox=InboxRepo(db),
        home=home,
        workspace_of=workspace_of,
        language_of=english,
        fixed_language=None,
        now=world.clock,
        on_change=world.dispatcher.wake,
        on_report=on_report,
    )
    kit = SubagentDeps(
        db=db,
        repo=world.store.subagents,
        calls=ToolCallRepo(db),
        gateway=world.gateway,
        context_builder=bench,
        parents=parents,
        slots=asyncio.Semaphore(slots),
        ended_signal=DecisionSignal(),
        closing=asyncio.Event(),
        claim=claim_all,
        now=world.clock,
        sleep=no_sleep,
        approval_timeout=0.01,
    )
    service = SubagentService(kit, new_incident=lambda: "i1", grace=5)
    spawning = SubagentSpawner(
        db=db,
        repo=world.store.subagents,
        list_personas=nobody,
        new_id=lambda: f"h{next(_IDS)}",
        now=world.clock,
        on_accepted=service.wake,
    )
    return SubagentSetup(
        world=world,
        backend=backend,
        service=service,
        kit=kit,
        spawning=spawning,
        posted=posted,
        arrived=arrived,
    )


async def give_account(db: Database) -> None:
    """The Boss has an account where the chat is."""
    account = {"channel": CHAT.channel, "external_id": ACCOUNT, "person_id": BOSS.id}
    async with db.write() as tx:
        await tx.execute(insert(schema.identities).values(account))


async def claim_all(_helper: Subagent) -> bool:
    return True
