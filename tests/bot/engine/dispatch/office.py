"""Tasks that wait for decisions: a real store and mail room, and all who act on either."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from bot.app.services import CardService
from bot.engine.agent.budget import grant
from bot.engine.dispatch.decisions import Decisions
from bot.engine.dispatch.requests import Requests
from bot.engine.dispatch.telling.line import Line
from bot.engine.dispatch.telling.reporter import Reporter
from bot.engine.dispatch.timekeeper import Timekeeper
from bot.transports.clock import SystemClock
from bot.transports.courier import OutboxCourier
from bot.transports.streams import Streams
from cards.card_json import load_card
from cards.model import Card
from cards.render.text import render
from handlers.language import LanguageOfLetters
from handlers.work.copies import Copies
from storage.approvals import Approvals
from storage.ids import Ids
from storage.mail.actions import Actions
from storage.mail.chats import Chats
from storage.mail.outbox import Outbox
from storage.marks import Marks
from storage.people import People
from storage.records.approvals import Approval
from storage.records.people import Language, PersonId
from storage.records.tasks import EventKind, Task, TaskStatus, TaskView
from tests.engine_world import BOSS, Clock, Engine, FakeBackend, engine


@dataclass
class Office:
    world: Engine
    approvals: Approvals
    requests: Requests
    reporter: Reporter
    timekeeper: Timekeeper
    outbox: Outbox
    copies_of: Copies
    news: asyncio.Event
    woken: list[str] = field(default_factory=list)

    async def waiting(self, text: str = "Deploy it", **facts: Any) -> tuple[Task, Approval]:
        """A task that waits for leave to take its one risky step."""
        task = await self.world.add(text, **facts)
        view = await self.world.until(task, TaskStatus.WAITING)
        await self.told()
        return view.task, (await self.approvals.of_task(task.id))[-1]

    async def told(self) -> None:
        while await self.reporter.tell():
            pass

    async def decide(
        self, approval: Approval, *, approve: bool, reason: str = "", source: str = "d:1"
    ) -> Approval:
        """In the store alone: no card is touched."""
        decided = await self.approvals.decide(
            approval, approve=approve, by=BOSS, source=source, reason=reason
        )
        self.world.dispatcher.wake()
        return decided

    async def view(self, task: Task) -> TaskView:
        return await self.world.views.view(task.id)

    async def kinds(self, task: Task) -> Sequence[EventKind]:
        return [event.kind for event in await self.world.store.journal.latest(task.id, 50)]

    async def copies(self, approval: Approval) -> dict[str, str]:
        """What each copy of the request says, by chat."""
        return {
            chat: f"{card.title}\n{render(card).text}"
            for chat, card in (await self.cards(approval)).items()
        }

    async def cards(self, approval: Approval) -> dict[str, Card]:
        keys = await self.outbox.by_prefix(f"approval:{approval.id}:")
        rows = [await self.outbox.by_key(key) for key, _ in keys]
        return {row.chat_id: load_card(row.card) for row in rows if row is not None}

    async def letters(self) -> int:
        """How many messages there are, of whatever kind."""
        return len(await self.outbox.by_prefix(""))


class _Clock(SystemClock):
    """The world's time of day."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> datetime:
        return self._clock()


@asynccontextmanager
async def office(home: Path, backend: FakeBackend | None = None) -> AsyncGenerator[Office, None]:
    worker = backend or FakeBackend(steps=("Deploy it",))
    async with engine(home, worker) as world:
        chats, outbox = Chats(world.db, Ids()), Outbox(world.db)
        people = People(world.db, Ids(), chats)
        courier = OutboxCourier(
            db=world.db,
            chats=chats,
            outbox=outbox,
            actions=Actions(world.db, Ids()),
            streams=Streams(
                outbox=outbox,
                transports={},
                rests=lambda _chat: False,
                language_of=LanguageOfLetters(people, None),
            ),
            wake=lambda: None,
            clock=_Clock(world.clock),
        )
        news, woken = asyncio.Event(), list[str]()

        async def english(_task: Task) -> Language:
            return Language.ENGLISH

        async def name_of(person: PersonId) -> str:
            return (await people.get(person)).name

        decisions = Decisions(
            store=world.store,
            language_of=english,
            name_of=name_of,
            now=world.clock,
            grant=grant,
        )
        approvals = Approvals(world.db, now=world.clock, consequences=decisions.consequences)
        copies = Copies(
            people=people,
            cards=CardService(outbox, chats),
            courier=courier,
            zone=ZoneInfo("UTC"),
        )
        requests = Requests(
            db=world.db,
            approvals=approvals,
            tasks=world.store.tasks,
            copies=copies,
            language_of=english,
            now=world.clock,
            on_asked=news.set,
        )
        reporter = Reporter(
            journal=world.store.journal,
            views=world.views,
            courier=courier,
            language_of=english,
            home=home,
            zone=ZoneInfo("UTC"),
            now=world.clock,
            line=Line(queue=world.store.queue, marks=Marks(world.db)),
            asking=requests,
        )
        timekeeper = Timekeeper(
            approvals=approvals,
            requests=requests,
            now=world.clock,
            news=news,
            on_change=lambda: woken.append("dispatcher"),
        )
        yield Office(
            world=world,
            approvals=approvals,
            requests=requests,
            reporter=reporter,
            timekeeper=timekeeper,
            outbox=outbox,
            copies_of=copies,
            news=news,
            woken=woken,
        )
