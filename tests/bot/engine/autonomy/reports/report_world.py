"""Reports on a real store whose rows are made by hand."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import sqlalchemy as sa

from bot.engine.autonomy.reports.report_builder import ReportBuilder
from bot.engine.autonomy.reports.service import ReportService
from bot.engine.schedule.firing import DueTimes
from bot.engine.tasks.access import TaskAccess
from bot.engine.timing import DayHours, WeekdayCalendar
from bot.engine.tracing.span_ids import node_span_id
from cards.courier import CardRef
from cards.model import Card
from cards.render.text import render
from storage import schema
from storage.db import Database
from storage.ids import IdGenerator
from storage.messages.chats import ChatRepo
from storage.people import PeopleRepo
from storage.records.autonomy import ReportPeriod, WorkReport
from storage.records.messages import DeliveryUrgency
from storage.records.people import ChatId, Language, Person, PersonId
from storage.reports import ReportRepo
from storage.schedules import ScheduleRepo
from tests.engine_harness import BOSS, CHAT, CHATS, START, open_seeded_database

NOW = START
UTC_ZONE = ZoneInfo("UTC")


class SentCards:
    """Keeps the cards by key, the newest for each."""

    def __init__(self) -> None:
        self.by_key: dict[str, tuple[ChatId, Card]] = {}

    async def send(
        self, to: ChatId, card: Card, *, key: str, urgency: DeliveryUrgency, reply_to: str = ""
    ) -> CardRef:
        self.by_key[key] = (to, card)
        return CardRef(key=key, revision=1)

    async def stream(self, ref: CardRef, markdown: str) -> None:
        raise AssertionError("a report is not streamed")

    @property
    def texts(self) -> list[str]:
        return [render(card).text for _, card in self.by_key.values()]


@dataclass
class ReportWorld:
    db: Database
    service: ReportService
    schedules: ScheduleRepo
    sent: SentCards
    home: Path
    time: datetime = NOW
    numbers: dict[str, int] = field(default_factory=dict)

    async def report(
        self,
        period: ReportPeriod = ReportPeriod.DAY,
        *,
        by: Person = BOSS,
        chat: ChatId = CHAT.id,
        until: datetime | None = None,
    ) -> WorkReport:
        return await self.service.report(period, by=by, chat=chat, until=until or self.time)

    async def add_task(
        self,
        *,
        status: str = "completed",
        ended: datetime | None = None,
        seconds: float = 60.0,
        title: str = "Work",
        micros: int = 0,
        by: PersonId = BOSS.id,
        chat: ChatId = CHAT.id,
        steps: tuple[str, ...] = (),
    ) -> str:
        """A task that ended, by default an hour ago; its cost is booked at its end. `steps` are the
        titles of a plan whose steps have all been done in equal shares of time."""
        number = self.numbers["task"] = self.numbers.get("task", 0) + 1
        task_id = f"t{number:05}"
        end = ended or self.time - timedelta(hours=1)
        is_over = status in {"completed", "failed", "cancelled"}
        async with self.db.write() as tx:
            await tx.execute(
                sa.insert(schema.tasks).values(
                    id=task_id,
                    source=f"message:{task_id}",
                    title=title,
                    instruction=title,
                    priority="normal",
                    rank=2,
                    status=status,
                    phase="ended" if is_over else "doing",
                    control="run",
                    chat_id=chat,
                    created_by=by,
                    files=[],
                    graph_version=1 if steps else 0,
                    created_at=end - timedelta(seconds=seconds),
                    started_at=end - timedelta(seconds=seconds),
                    ended_at=end if is_over else None,
                )
            )
        if micros:
            await self.add_usage(micros, at=end, task=task_id, by=by, chat=chat)
        if steps:
            nodes = [{"id": f"s{n}", "title": each, "type": "task"} for n, each in enumerate(steps)]
            async with self.db.write() as tx:
                await tx.execute(
                    sa.insert(schema.task_graphs).values(
                        task_id=task_id,
                        version=1,
                        body={"nodes": nodes},
                        reason="",
                        author="planner",
                        at=end,
                    )
                )
            share = seconds / len(steps)
            for n in range(len(steps)):
                start = end - timedelta(seconds=seconds - n * share)
                await self.add_run(task_id, f"s{n}", start=start, seconds=share)
        return task_id

    async def add_run(
        self,
        task: str,
        path: str,
        *,
        start: datetime | None = None,
        seconds: float = 10.0,
        status: str = "done",
        attempt: int = 1,
    ) -> None:
        start = start or self.time - timedelta(hours=1)
        values = {
            "task_id": task,
            "path": path,
            "status": status,
            "attempt": attempt,
            "output": {},
            "started_at": start,
            "ended_at": start + timedelta(seconds=seconds),
        }
        async with self.db.write() as tx:
            await tx.execute(
                sa.delete(schema.node_runs).where(
                    schema.node_runs.c.task_id == task, schema.node_runs.c.path == path
                )
            )
            await tx.execute(sa.insert(schema.node_runs).values(values))
        if attempt == 1 and status != "skipped":
            await self.add_attempt(task, path, 1, start=start)

    async def add_attempt(
        self,
        task: str,
        path: str,
        attempt: int,
        *,
        start: datetime | None = None,
        error: str = "",
        micros: int = 0,
        call_status: str = "done",
    ) -> None:
        start = start or self.time - timedelta(hours=1)
        key = {"task_id": task, "path": path, "attempt": attempt}
        async with self.db.write() as tx:
            attempts = schema.node_attempts
            where = [attempts.c[name] == value for name, value in key.items()]
            await tx.execute(sa.delete(attempts).where(*where))
            await tx.execute(
                sa.insert(attempts).values(**key, started_at=start, ended_at=start, error=error)
            )
            if micros:
                span = f"{task}{path}{attempt}"
                await tx.execute(sa.delete(schema.spans).where(schema.spans.c.span_id == span))
                await tx.execute(
                    sa.insert(schema.spans).values(
                        span_id=span,
                        trace_id=task,
                        parent_id=node_span_id(task, path, attempt),
                        name="chat",
                        kind="model_call",
                        task_id=task,
                        status=call_status,
                        attributes={"shiftboss.cost_micros": micros},
                        started_at=start,
                        ended_at=start,
                    )
                )

    async def add_usage(
        self,
        micros: int | None,
        *,
        at: datetime | None = None,
        task: str | None = None,
        by: PersonId = BOSS.id,
        chat: ChatId = CHAT.id,
    ) -> None:
        async with self.db.write() as tx:
            await tx.execute(
                sa.insert(schema.usage).values(
                    at=at or self.time - timedelta(hours=1),
                    purpose="work",
                    backend="b",
                    model="m",
                    person_id=by,
                    chat_id=chat,
                    task_id=task,
                    requests=1,
                    input_tokens=90,
                    output_tokens=10,
                    cache_read_tokens=0,
                    cache_write_tokens=0,
                    cost_micros=micros,
                )
            )

    async def execute(self, statement: sa.Executable, values: Any = None) -> None:
        async with self.db.write() as tx:
            await tx.execute(statement, values)


@asynccontextmanager
async def report_world(
    home: Path, *, zone: ZoneInfo = UTC_ZONE, quiet_hours: DayHours | None = None
) -> AsyncGenerator[ReportWorld, None]:
    async with AsyncExitStack() as stack:
        db = await open_seeded_database(home / "shiftboss.db", stack)
        ids, sent, schedules = IdGenerator(), SentCards(), ScheduleRepo(db)
        people = PeopleRepo(db, ids, ChatRepo(db, ids))

        async def english(_chat: ChatId, _person: PersonId, _text: str) -> Language:
            return Language.ENGLISH

        async def get_chat(chat: ChatId) -> Any:
            return CHATS[chat]

        world: ReportWorld
        service = ReportService(
            home=home,
            db=db,
            builder=ReportBuilder(reports=ReportRepo(db), zone=zone),
            schedules=schedules,
            due_times=DueTimes(calendar=WeekdayCalendar(), quiet_hours=quiet_hours),
            people=people,
            access=TaskAccess(get_chat),
            courier=sent,
            language_of=english,
            now=lambda: world.time,
            new_id=ids.short_id,
            on_change=lambda: None,
        )
        world = ReportWorld(db=db, service=service, schedules=schedules, sent=sent, home=home)
        yield world
