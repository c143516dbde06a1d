"""The execution core in this process with a worker that answers at once, and raw SQLite as its
peer."""

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

from bot.app.repositories import build_repositories
from bot.engine.llm.answer_schemas import PlanAnswer, PlanStep, StepAnswer
from bot.engine.llm.backend import RunPurpose, RunRequest, RunResult
from bot.engine.tasks.notifier import QueuePositionTracker, TaskNotifier
from bot.transports.outbox import AnswerStreams, OutboxCourier
from bot.transports.ports import SystemClock
from storage.key_value import KeyValueStore
from storage.records.people import Language
from storage.records.tasks import ResultForm
from tests.engine_harness import (
    EngineHarness,
    FakeBackend,
    ManualClock,
    ignore_events,
    no_account,
    run_engine,
    run_result,
)

PRAGMAS = ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=5000", "foreign_keys=ON")
_SUMMARY = "Read what was there, did what was asked, and wrote down what came of it. " * 4


class RealClock(ManualClock):
    """The engine's clock, telling the time that it is."""

    def __call__(self) -> datetime:
        return datetime.now(UTC)


@dataclass
class InstantBackend(FakeBackend):
    """Answers at once. `begun` receives the purpose, the task's text and the step's title of each
    call as it arrives; the answer waits for the event that it may return."""

    titles: Callable[[str], tuple[str, ...]] = field(default=lambda _task: ("do it",))
    begun: Callable[[RunPurpose, str, str], asyncio.Event | None] = field(
        default=lambda _purpose, _task, _title: None
    )
    answer: Callable[[str], StepAnswer] = field(
        default=lambda _title: StepAnswer(status="done", summary=_SUMMARY)
    )

    async def respond(self, request: RunRequest) -> RunResult:
        self.requests.clear()  # the list would grow for ever
        is_plan = request.purpose is RunPurpose.PLAN
        text = str(request.facts["text" if is_plan else "instruction"])
        title = "" if is_plan else str(request.facts["step"]["title"])
        held = self.begun(request.purpose, text, title)
        if held is not None:
            await held.wait()
        if not is_plan:
            return run_result(self.answer(title))
        steps = [PlanStep(title=each, detail=f"The part {each}.") for each in self.titles(text)]
        # Not validated: a plan may hold more steps than a model may give.
        return run_result(PlanAnswer.model_construct(plan="One by one.", steps=steps, answer=""))


@asynccontextmanager
async def run_core(
    home: Path, worker: FakeBackend, *, slots: int = 1, cards: bool = True
) -> AsyncGenerator[EngineHarness, None]:
    """The engine at work. With `cards`, the notifier writes every task's card to the outbox as it
    does in the program."""
    async with run_engine(home, worker, slots=slots, clock=RealClock()) as world:
        notifying = asyncio.create_task(_notify(world, home)) if cards else None
        try:
            yield world
        finally:
            if notifying is not None:
                notifying.cancel()
                with suppress(asyncio.CancelledError):
                    await notifying


async def _notify(world: EngineHarness, home: Path) -> None:
    clock = SystemClock()
    store = build_repositories(world.db, clock)

    async def english(*_whom: object) -> Language:
        return Language.ENGLISH

    courier = OutboxCourier(
        db=world.db,
        chats=store.chats,
        outbox=store.outbox,
        actions=store.actions,
        streams=AnswerStreams(
            outbox=store.outbox,
            transports={},
            is_paused=lambda _chat: True,
            may_stream=lambda _chat, _edits: False,
            may_send=lambda _chat, _edits: False,
            language_of=english,
        ),
        wake=lambda: None,
        clock=clock,
        mask=str,
    )
    reporter = TaskNotifier(
        db=world.db,
        journal=world.store.events,
        views=world.views,
        courier=courier,
        language_of=english,
        home=home,
        zone=ZoneInfo("UTC"),
        now=clock.now,
        positions=QueuePositionTracker(queue=world.store.queue, key_values=KeyValueStore(world.db)),
        on_events=ignore_events,
        result_form=ResultForm.CARD,
        account_of=no_account,
        mask=str,
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(reporter.run())
        while True:
            await world.changed.wait()
            world.changed.clear()
            reporter.wake()


class RawCommits:
    """A writer of plain `sqlite3`, on the same disk, with the same pragmas."""

    def __init__(self, home: Path) -> None:
        self._connection = sqlite3.connect(home / "raw.db", isolation_level=None)
        for pragma in PRAGMAS:
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS raw (id INTEGER PRIMARY KEY, row TEXT)"
        )

    def times(self, commits: int, size: int = 200) -> list[float]:
        """Commit one row of `size` bytes so many times; the milliseconds of each commit."""
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
