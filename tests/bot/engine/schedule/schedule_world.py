"""The scheduler on a real store, with a poster that keeps cards in the transactions they belong
to."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import sqlalchemy as sa

from bot.engine.schedule.firing import DueTimes, ScheduledService, ScheduleFirer
from bot.engine.schedule.service import ScheduleService
from bot.engine.timing import DayHours, WeekdayCalendar, WorkingCalendar, next_due
from bot.engine.workflow.named_workflows import WorkflowLibrary
from cards.card_json import dump_card, load_card
from cards.model import Card
from cards.render.text import render
from storage import schema
from storage.db import Transaction
from storage.ids import IdGenerator
from storage.key_value import KeyValueStore
from storage.messages.chats import ChatRepo
from storage.people import PeopleRepo
from storage.records.messages import DeliveryUrgency
from storage.records.people import ChatId, Language, PersonId
from storage.records.schedules import (
    Firing,
    Interval,
    MessageBody,
    NewSchedule,
    Schedule,
    ScheduleBody,
    ScheduleKind,
    ScheduleState,
    Timing,
)
from storage.records.tasks import Task
from storage.schedules import ScheduleRepo
from tests.engine_harness import BOSS, CHAT, START, EngineHarness, FakeBackend, run_engine

UTC_NAME = "UTC"


class Death(BaseException):
    """The process dies."""


def _raise_death() -> None:
    raise Death


class StoredPoster:
    """Stores cards like the outbox, in the caller's transaction. Calls `die` at the `death`-th
    moment from now: inside a transaction or after its commit."""

    def __init__(self, key_values: KeyValueStore) -> None:
        self._key_values = key_values
        self.death: int | None = None
        self.die: Callable[[], None] = _raise_death

    async def prepare(self, card: Card) -> Card:
        return card

    async def post(
        self,
        tx: Transaction,
        to: ChatId,
        card: Card,
        *,
        key: str,
        urgency: DeliveryUrgency,
        reply_to: str = "",
    ) -> None:
        self._live()
        # A second card under a key would be a message that is said twice.
        assert not await self.has(key)
        await self._key_values.write(tx, f"card {key}", dump_card(card))
        self._live()

    def wake(self) -> None:
        self._live()

    async def text(self, key: str) -> str:
        return render(load_card(await self._key_values.get(f"card {key}"))).text

    async def has(self, key: str) -> bool:
        return await self._key_values.get(f"card {key}") is not None

    def _live(self) -> None:
        if self.death is not None:
            self.death -= 1
            if self.death < 0:
                self.death = None
                self.die()


@dataclass
class ScheduleWorld:
    engine: EngineHarness
    schedules: ScheduleRepo
    firer: ScheduleFirer
    service: ScheduleService
    poster: StoredPoster
    due_times: DueTimes
    time: datetime = START
    clock: Callable[[], datetime] | None = None
    """In place of `time`."""
    wakes: list[str] = field(default_factory=list)

    def now(self) -> datetime:
        return self.clock() if self.clock else self.time

    def advance(self, **span: float) -> None:
        self.time += timedelta(**span)

    async def add(
        self,
        timing: Timing | None = None,
        body: ScheduleBody | None = None,
        *,
        zone: str = UTC_NAME,
        **options: Any,
    ) -> Schedule:
        """A schedule that fires."""
        new = new_schedule(timing or every(hours=1), body, zone=zone, **options)
        made = await self.service.propose(new)
        view = await self.service.confirm(made.schedule.id, by=BOSS, chat=CHAT.id)
        assert view.schedule.state is ScheduleState.ACTIVE
        return view.schedule

    async def firings(self, schedule: Schedule) -> list[Firing]:
        """The oldest first."""
        return [*reversed(await self.schedules.list_firings(schedule.id, 10_000))]

    async def tasks(self) -> Sequence[Task]:
        rows = await self.engine.db.fetch_column(sa.select(schema.tasks.c.id))
        return [await self.engine.store.tasks.get(each) for each in rows]

    async def get(self, schedule: Schedule) -> Schedule:
        return await self.schedules.get(schedule.id)


_SOURCES = iter(range(1_000_000))


def new_schedule(
    timing: Timing, body: ScheduleBody | None = None, *, zone: str = UTC_NAME, **options: Any
) -> NewSchedule:
    body = body or MessageBody(text="Water the plants")
    reminder = isinstance(body, MessageBody)
    values: dict[str, Any] = {
        "kind": ScheduleKind.REMINDER if reminder else ScheduleKind.JOB,
        "title": "Plants",
        "owner_id": BOSS.id,
        "chat_id": CHAT.id,
        "source": f"message:{next(_SOURCES)}",
    }
    return NewSchedule(timing=timing, zone=zone, body=body, **{**values, **options})


def every(*, start: datetime = START, **span: float) -> Interval:
    return Interval(every=timedelta(**span), start=start)


@asynccontextmanager
async def schedule_world(
    home: Path,
    *,
    services: Mapping[str, ScheduledService] | None = None,
    quiet_hours: DayHours | None = None,
    start_dispatcher: bool = False,
    backend: FakeBackend | None = None,
) -> AsyncGenerator[ScheduleWorld, None]:
    async with run_engine(home, backend, start_dispatcher=start_dispatcher) as engine:
        ids = IdGenerator()
        schedules = ScheduleRepo(engine.db)
        poster = StoredPoster(KeyValueStore(engine.db))
        due_times = DueTimes(calendar=WeekdayCalendar(), quiet_hours=quiet_hours)
        wakes: list[str] = []
        world: ScheduleWorld

        def now() -> datetime:
            return world.now()

        async def english(_chat: ChatId, _person: PersonId, _text: str) -> Language:
            return Language.ENGLISH

        async def owner_chats() -> list[tuple[ChatId, Language]]:
            return [(CHAT.id, Language.ENGLISH)]

        async def never_in_git(_folder: Path) -> bool:
            return False

        async def the_chat(_chat: ChatId) -> Any:
            return CHAT

        firer = ScheduleFirer(
            db=engine.db,
            schedules=schedules,
            task_repo=engine.store.tasks,
            people=PeopleRepo(engine.db, ids, ChatRepo(engine.db, ids)),
            tasks=engine.tasks,
            workflows=WorkflowLibrary(home, engine.store.graphs),
            poster=poster,
            due_times=due_times,
            services=services or {},
            language_of=english,
            owner_chats=owner_chats,
            in_git=never_in_git,
            now=now,
            on_tasks=engine.dispatcher.wake,
        )
        service = ScheduleService(
            db=engine.db,
            schedules=schedules,
            tasks=engine.store.tasks,
            firer=firer,
            due_times=due_times,
            get_chat=the_chat,
            zone=ZoneInfo(UTC_NAME),
            now=now,
            new_id=ids.short_id,
            on_change=lambda: wakes.append("timer"),
        )
        world = ScheduleWorld(
            engine=engine,
            schedules=schedules,
            firer=firer,
            service=service,
            poster=poster,
            due_times=due_times,
            wakes=wakes,
        )
        yield world


def upcoming(
    timing: Timing, *, after: datetime, zone: ZoneInfo, calendar: WorkingCalendar, count: int
) -> tuple[datetime, ...]:
    """The next firings, at most `count`."""

    def walk() -> Iterator[datetime]:
        due = next_due(timing, after=after, zone=zone, calendar=calendar)
        while due is not None:
            yield due
            due = next_due(timing, after=due, zone=zone, calendar=calendar)

    return tuple(islice(walk(), count))
