"""The execution core in this process: the real store in a file, the real cards, a worker that
answers at once; and the raw SQLite that its commits are compared with."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from bot.app.store import build_store
from bot.engine.dispatch.telling.line import Line
from bot.engine.dispatch.telling.reporter import Reporter
from bot.engine.llm.answers import PlanAnswer, PlanStep, StepAnswer
from bot.engine.llm.base import Purpose, RunRequest, RunResult
from bot.transports.clock import SystemClock
from bot.transports.courier import OutboxCourier
from bot.transports.streams import Streams
from storage.marks import Marks
from storage.records.people import Language
from tests.engine_world import Clock, Engine, FakeBackend, answered, engine

PRAGMAS = ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=5000", "foreign_keys=ON")
_SUMMARY = "Read what was there, did what was asked, and wrote down what came of it. " * 4


class RealClock(Clock):
    """The engine's clock, telling the time that it is."""

    def __call__(self) -> datetime:
        return datetime.now(UTC)


@dataclass
class Worker(FakeBackend):
    """Answers at once. `begun` is told the purpose, the task's text and the step's title of each
    call as it arrives, and may return an event that the answer waits for."""

    titles: Callable[[str], tuple[str, ...]] = field(default=lambda _task: ("do it",))
    begun: Callable[[Purpose, str, str], asyncio.Event | None] = field(
        default=lambda _purpose, _task, _title: None
    )
    answer: Callable[[str], StepAnswer] = field(
        default=lambda _title: StepAnswer(status="done", summary=_SUMMARY)
    )

    async def settle(self, request: RunRequest) -> RunResult:
        self.asked.clear()  # it would grow for ever
        is_plan = request.purpose is Purpose.PLAN
        text = str(request.facts["text" if is_plan else "instruction"])
        title = "" if is_plan else str(request.facts["step"]["title"])
        held = self.begun(request.purpose, text, title)
        if held is not None:
            await held.wait()
        if not is_plan:
            return answered(self.answer(title))
        steps = [PlanStep(title=each, detail=f"The part {each}.") for each in self.titles(text)]
        # Past the checks: no model may give so many steps, injecting can.
        return answered(PlanAnswer.model_construct(plan="One by one.", steps=steps, answer=""))


@asynccontextmanager
async def core(
    home: Path, worker: FakeBackend, *, slots: int = 1, cards: bool = True
) -> AsyncGenerator[Engine, None]:
    """The engine at work, with every task's card kept true in the outbox, as it is in the
    program."""
    async with engine(home, worker, slots=slots, clock=RealClock()) as world:
        telling = asyncio.create_task(_tell(world, home)) if cards else None
        try:
            yield world
        finally:
            if telling is not None:
                telling.cancel()
                with suppress(asyncio.CancelledError):
                    await telling


async def _tell(world: Engine, home: Path) -> None:
    clock = SystemClock()
    store = build_store(world.db, clock)

    async def english(*_whom: object) -> Language:
        return Language.ENGLISH

    courier = OutboxCourier(
        db=world.db,
        chats=store.chats,
        outbox=store.outbox,
        actions=store.actions,
        streams=Streams(
            outbox=store.outbox, transports={}, rests=lambda _chat: True, language_of=english
        ),
        wake=lambda: None,
        clock=clock,
    )
    reporter = Reporter(
        journal=world.store.journal,
        views=world.views,
        courier=courier,
        language_of=english,
        home=home,
        zone=ZoneInfo("UTC"),
        now=clock.now,
        line=Line(queue=world.store.queue, marks=Marks(world.db)),
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(reporter.run())
        while True:
            await world.changed.wait()
            world.changed.clear()
            reporter.wake()


class RawCommits:
    """One writer of plain `sqlite3`, on the same disk, with the same pragmas."""

    def __init__(self, home: Path) -> None:
        self._connection = sqlite3.connect(home / "raw.db", isolation_level=None)
        for pragma in PRAGMAS:
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS raw (id INTEGER PRIMARY KEY, row TEXT)"
        )

    def times(self, commits: int, size: int = 200) -> list[float]:
        """Milliseconds of each: one row of `size` bytes, committed to disk."""
        row = "x" * size
        return [self._one(row) for _ in range(commits)]

    def close(self) -> None:
        self._connection.close()

    def _one(self, row: str) -> float:
        begun = time.perf_counter()
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute("INSERT INTO raw (row) VALUES (?)", (row,))
        self._connection.execute("COMMIT")
        return 1000 * (time.perf_counter() - begun)


def raw_commits(home: Path) -> closing[RawCommits]:
    return closing(RawCommits(home))
