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

from bot.engine.agent.account import Account
from bot.engine.agent.helpers.errand import HelperKit
from bot.engine.agent.helpers.service import HelperService
from bot.engine.agent.helpers.spawning import Spawning
from bot.engine.agent.leave.bell import Bell
from bot.engine.agent.tools.sessions_spawn import Wish
from bot.engine.agent.workbench import Job, Workbench
from bot.engine.dispatch.helped import Helped
from bot.engine.llm.base import Purpose, RunRequest, RunResult
from storage import schema
from storage.agents.calls import CallRepo
from storage.db import Database
from storage.ids import Ids
from storage.mail.chats import Chats
from storage.mail.inbox import Inbox
from storage.people import People
from storage.records.helpers import Helper
from storage.records.helping import HelperStatus
from storage.records.messages import InboxRow
from storage.records.people import Language
from storage.records.tasks import Task
from tests.engine_world import BOSS, CHAT, Clock, Engine, FakeBackend, answered, engine, no_wait

ACCOUNT = "boss-account"
_IDS = count(1)


@dataclass
class Talkative(FakeBackend):
    """`on_helper` is asked what a helper says: a text, an error, or an event to wait for."""

    on_helper: Callable[[str], Any] = field(default=lambda prompt: f"found {prompt}")
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def prompts(self) -> list[str]:
        return [each.prompt for each in self.asked if each.purpose is Purpose.HELPER]

    async def settle(self, request: RunRequest) -> RunResult:
        if request.purpose is not Purpose.HELPER:
            return await super().settle(request)
        told = self.on_helper(request.prompt)
        self.begun.set()
        if isinstance(told, asyncio.Event):
            await told.wait()
            told = "late"
        if isinstance(told, BaseException):
            raise told
        return answered(text=str(told))


@dataclass
class House:
    """One life."""

    world: Engine
    backend: Talkative
    service: HelperService
    kit: HelperKit
    spawning: Spawning
    posted: list[InboxRow]
    arrived: asyncio.Event

    async def job(self, task: Task | None, *, depth: int = 0, path: str = "s1") -> Job:
        key = f"task:{task.id}" if task else f"chat:{CHAT.id}"
        session = await self.world.desk.session(key, self.world.desk.choose("", ""))
        return Job(
            account=Account(person=BOSS.id, chat=CHAT.id, task=task.id if task else None),
            session=session,
            language=Language.ENGLISH,
            workspace=Path(),
            path=path if task else "",
            depth=depth,
        )

    async def send(self, job: Job, task: str = "look", *, keep: bool = True) -> Helper:
        wish = Wish(task=task, label=f"label {task}", persona="", keep=keep, arguments={"t": task})
        return await self.spawning.spawn(job, wish)

    async def ended(self, helper: Helper) -> Helper:
        async with asyncio.timeout(60):
            while True:
                rung = self.kit.ended.next()
                now = await self.kit.repo.get(helper.id)
                if now.status.is_final:
                    return now
                await rung.wait()

    async def at_work(self, helper: Helper) -> Helper:
        async with asyncio.timeout(60):
            await self.backend.begun.wait()
        now = await self.kit.repo.get(helper.id)
        assert now.status is HelperStatus.RUNNING
        return now

    async def until_posted(self) -> None:
        async with asyncio.timeout(60):
            await self.arrived.wait()

    async def said_to(self, task: Task) -> Sequence[str]:
        async with self.world.db.read() as view:
            return (await self.world.store.journal.orders(view, task.id)).said


@asynccontextmanager
async def house(
    home: Path,
    backend: Talkative,
    *,
    slots: int = 3,
    serving: bool = True,
    bench: Workbench | None = None,
    clock: Clock | None = None,
    **more: Any,
) -> AsyncGenerator[House, None]:
    """Its end is a death: nothing is drained."""
    async with engine(home, backend, clock=clock, bench=bench, **more) as world:
        made = _house(home, world, backend, slots, bench or Workbench())
        loop = None
        if serving:
            await made.service.start(_NoStack())  # type: ignore[arg-type] # it only pushes its end
            loop = asyncio.create_task(made.service.run())
        try:
            yield made
        finally:
            if loop is not None:
                loop.cancel()
                with suppress(asyncio.CancelledError):
                    await loop
            await made.service._stop()


class _NoStack:
    def push_async_callback(self, _end: Callable[..., Any]) -> None:
        """The end comes by hand."""


def _house(home: Path, world: Engine, backend: Talkative, slots: int, bench: Workbench) -> House:
    db, ids, posted, arrived = world.db, Ids(), list[InboxRow](), asyncio.Event()

    async def workspace_of(task: Task) -> Path:
        return home / "work" / task.id

    async def english(_task: Task) -> Language:
        return Language.ENGLISH

    async def nobody() -> Sequence[str]:
        return ("tester",)

    parents = Helped(
        store=world.store,
        people=People(db, ids, Chats(db, ids)),
        inbox=Inbox(db),
        home=home,
        workspace_of=workspace_of,
        language_of=english,
        fixed=None,
        now=world.clock,
        on_change=world.dispatcher.wake,
        post=[posted.append, lambda _row: arrived.set()],
    )
    kit = HelperKit(
        db=db,
        repo=world.store.helpers,
        calls=CallRepo(db),
        desk=world.desk,
        bench=bench,
        parents=parents,
        slots=asyncio.Semaphore(slots),
        ended=Bell(),
        closing=asyncio.Event(),
        now=world.clock,
        sleep=no_wait,
        patience=0.01,
    )
    service = HelperService(kit, new_incident=lambda: "i1", grace=5)
    spawning = Spawning(
        db=db,
        repo=world.store.helpers,
        personas=nobody,
        new_id=lambda: f"h{next(_IDS)}",
        now=world.clock,
        on_accepted=service.wake,
    )
    return House(
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
