"""Records conversation turns and finished tasks as memory cells, in the transaction that completes
them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from typing import TypeAlias

from bot.engine.memory.access import MemoryReader
from bot.engine.memory.change_feed import MemoryChangeFeed
from bot.engine.memory.consolidation import MemoryConsolidator, NotedStatement
from bot.engine.memory.noise_filter import (
    NoiseKind,
    classify_noise,
    is_denial,
    strip_workflow_scaffold,
    to_storable_text,
)
from bot.engine.memory.noted_facts import NotedFacts
from cards.failure_texts import without_failure_texts
from cards.formats import truncate
from storage.db import STORE_RETRY_SECONDS, Database, Transaction
from storage.errors import StoreUnavailable
from storage.memory.cells import CellRepo, ExtractionJobRepo, FinishedTask, FinishedTaskRepo
from storage.memory.withheld_turns import WithheldTurnRepo
from storage.people import current_person_id
from storage.records.memory import (
    PROJECT_KEY,
    SKILL_KEY,
    USER_TEXT_LENGTH_KEY,
    MemoryEntry,
    MemoryKind,
    MemoryOrigin,
    MemoryScope,
    MemoryTier,
    NewMemoryEntry,
)
from storage.records.people import Chat, ChatId, Person, PersonId
from storage.records.tasks import Task, TaskId, TaskStatus

TURNS_PER_EXTRACTION = 4
"""Turns per extraction call."""
MAX_USER_TEXT = 1200
MAX_ASSISTANT_TEXT = 2400
_LONG_ANSWER = 200
_ALWAYS_NOISE = frozenset({NoiseKind.META, NoiseKind.COMPLAINT})


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationTurn:
    """A message and its answer. `source` is unique and prevents duplicates; `assistant_text` is
    empty if the answer was interrupted. `forwarded`: the message is somebody else's words, which
    are stored as a quotation and are no statement of the person."""

    person: Person
    chat: Chat
    user_text: str
    assistant_text: str
    source: str
    at: datetime
    skill: str = ""
    forwarded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedTaskRecord:
    """A finished task, with the person and chat it was done for."""

    task: TaskId
    person: Person | None
    chat: Chat
    instruction: str
    outcome: str
    project: str
    source: str
    at: datetime
    skill: str = ""


@dataclass(slots=True, kw_only=True)
class MemoryRecorder:
    """`jobs` queues extractions to run after `extraction_delay`; `redact` removes secrets; days end
    at midnight in `zone`."""

    cells: CellRepo
    consolidator: MemoryConsolidator
    jobs: ExtractionJobRepo | None
    feed: MemoryChangeFeed
    redact: Callable[[str], str]
    zone: tzinfo
    noted: NotedFacts
    extraction_delay: timedelta = timedelta()

    async def record_turn(
        self, tx: Transaction, turn: ConversationTurn, recorded: list[NotedStatement]
    ) -> MemoryEntry | None:
        """Store a turn in its person's or group's scope, and append explicit statements to
        `recorded`. None for noise, duplicates and forgotten turns. Call `publish_change` after the
        commit."""
        # Imported on first use: its many patterns cost the start.
        from bot.engine.memory.explicit_statements import (
            asks_to_remember,
            build_statement_entry,
            find_explicit_statements,
        )
        from bot.engine.memory.said_dates import writes_month_first
        from bot.engine.memory.said_endings import find_endings

        # The turn may have begun before its person's accounts were linked.
        person = await current_person_id(tx, turn.person.id)
        said, own, answer = self._read(turn)
        scope = MemoryReader(chat=turn.chat, person=person).write_scope
        today = turn.at.astimezone(self.zone).date()
        month_first = writes_month_first(self.zone)
        statements = find_explicit_statements(own, today, month_first=month_first)
        endings = find_endings(own, today, month_first=month_first)
        tells = bool(statements or endings)
        if scope is None or not _is_worth_keeping(said, answer, has_statement=tells):
            return None
        cell = NewMemoryEntry(
            kind=MemoryKind.CELL,
            scope=scope,
            text=_joined(said, answer),
            tier=MemoryTier.PERIPHERAL,
            confidence=1.0,
            source=f"turn:{turn.source}",
            sender=turn.person.name,
            thread=f"chat:{turn.chat.id}",
            person=person,
            chat=turn.chat.id,
            said_at=turn.at,
            extra=_cell_extra(said, turn.skill),
        )
        if any(each.is_request for each in statements):
            await self.cells.remove_tombstone(tx, cell)
        kept = await self.cells.add(tx, cell, now=turn.at)
        if kept is not None:
            for each in statements:
                entry = build_statement_entry(kept, each, self.zone)
                noted = await self.consolidator.add_statement(
                    tx, entry, kept, is_request=each.is_request
                )
                recorded += [] if noted is None else [noted]
            recorded += await self.consolidator.end_facts(
                tx, endings, kept, self.zone, made=[each.entry for each in recorded]
            )
            await self._queue_extraction(
                tx, kept, 1 if asks_to_remember(own) else TURNS_PER_EXTRACTION
            )
        return kept

    async def record_task(self, tx: Transaction, task: FinishedTaskRecord) -> MemoryEntry | None:
        """Store a task's instruction and outcome."""
        asked = self._clean(task.instruction, MAX_USER_TEXT)
        done = self._clean(task.outcome, MAX_ASSISTANT_TEXT)
        person = task.person
        person_id = None if person is None else await current_person_id(tx, person.id)
        scope = MemoryReader(chat=task.chat, person=person_id).write_scope
        if scope is None or not asked:
            return None
        cell = NewMemoryEntry(
            kind=MemoryKind.CELL,
            scope=scope,
            text=_joined(asked, done),
            tier=MemoryTier.PERIPHERAL,
            confidence=1.0,
            origin=MemoryOrigin.TASK,
            source=task.source,
            sender="" if person is None else person.name,
            thread=f"task:{task.task}",
            person=person_id,
            chat=task.chat.id,
            task=task.task,
            said_at=task.at,
            extra={PROJECT_KEY: task.project, **_cell_extra(asked, task.skill)},
        )
        kept = await self.cells.add(tx, cell, now=task.at)
        if kept is not None:
            await self._queue_extraction(tx, kept, 1)
        return kept

    def publish_change(self, scope: MemoryScope) -> None:
        """Call this after the commit."""
        self.feed.publish(scope)

    async def _queue_extraction(self, tx: Transaction, cell: MemoryEntry, enough: int) -> None:
        if self.jobs is not None:
            now = cell.said_at
            due = now + self.extraction_delay
            await self.jobs.add_cell(tx, cell, batch_size=enough, now=now, due_at=due)

    def _read(self, turn: ConversationTurn) -> tuple[str, str, str]:
        """Return the message as it is stored, the part that the person said, and the answer."""
        said = self._clean(turn.user_text, MAX_USER_TEXT)
        answer = self._clean(without_failure_texts(turn.assistant_text), MAX_ASSISTANT_TEXT)
        if len(answer) < _LONG_ANSWER and is_denial(answer):
            answer = ""
        if turn.forwarded:
            return "\n".join(f"> {line}" for line in said.splitlines()), "", answer
        return said, said, answer

    def _clean(self, text: str, most: int) -> str:
        """Redact before cutting: half a secret would not be recognised."""
        whole = strip_workflow_scaffold(self.redact(to_storable_text(text)))
        return truncate(whole, most)


def _cell_extra(said: str, skill: str) -> dict[str, object]:
    return {USER_TEXT_LENGTH_KEY: len(said), **({SKILL_KEY: skill} if skill else {})}


def _joined(said: str, answer: str) -> str:
    return "\n\n".join(filter(None, (said, answer)))


def _is_worth_keeping(said: str, answer: str, *, has_statement: bool) -> bool:
    """True unless the text is small talk; short texts count if they got a long answer or contain an
    explicit statement."""
    noise = classify_noise(said)
    if noise is None or (noise is NoiseKind.SHORT and has_statement):
        return True
    return bool(said) and noise not in _ALWAYS_NOISE and len(answer) >= _LONG_ANSWER


log = logging.getLogger(__name__)

RecordTaskOutcome: TypeAlias = Callable[[Transaction, TaskId, bool], Awaitable[None]]
"""Rates the memories that a task used, by whether it succeeded."""

_RATED_STATUSES = {TaskStatus.COMPLETED, TaskStatus.FAILED}
_POLL_SECONDS = 60.0


@dataclass(slots=True, kw_only=True)
class FinishedTaskRecorder:
    """A service that records every finished task once, also across restarts. `record_outcome`
    receives each task's outcome in the transaction that records it."""

    name = "memory-tasks"

    db: Database
    ended_tasks: FinishedTaskRepo
    task_of: Callable[[TaskId], Awaitable[Task]]
    chat_of: Callable[[ChatId], Awaitable[Chat]]
    person_of: Callable[[PersonId], Awaitable[Person]]
    recorder: MemoryRecorder
    withheld: WithheldTurnRepo
    record_outcome: RecordTaskOutcome | None = None
    _wake_event: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def wake(self) -> None:
        self._wake_event.set()

    async def start(self, stack: AsyncExitStack) -> None:
        await self.ended_tasks.start_cursor()

    async def run(self) -> None:
        while True:
            self._wake_event.clear()
            rest = _POLL_SECONDS
            try:
                await self.record_finished()
            except StoreUnavailable as error:
                log.warning("task results wait for the store: %s", error)
                rest = STORE_RETRY_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(rest):
                    await self._wake_event.wait()

    async def record_finished(self) -> None:
        """Record all finished tasks that are not recorded yet."""
        while ended := await self.ended_tasks.list_next():
            for each in ended:
                await self._record(each)

    async def _record(self, ended: FinishedTask) -> None:
        task = await self.task_of(ended.task)
        skills = await self.ended_tasks.list_loaded_skills(task.id)
        work = FinishedTaskRecord(
            task=task.id,
            person=await self.person_of(task.created_by),
            chat=await self.chat_of(task.chat_id),
            instruction=task.instruction,
            outcome=without_failure_texts(
                "\n".join(filter(None, (task.summary, task.status_reason)))
            ),
            project=task.project_dir,
            # With several skills, the lessons cannot be assigned to one.
            skill=skills[0] if len(skills) == 1 else "",
            source=f"task:{task.id}:{ended.event_id}",
            at=ended.at,
        )
        async with self.db.write() as tx:
            remembers = task.use_memory and not work.chat.settings.memory_off
            remembers &= not await self.withheld.is_task(tx, task.id)
            cell = await self.recorder.record_task(tx, work) if remembers else None
            if self.record_outcome is not None and task.status in _RATED_STATUSES:
                await self.record_outcome(tx, task.id, task.status is TaskStatus.COMPLETED)
            await self.ended_tasks.mark_processed(tx, ended)
        if cell is not None:
            self.recorder.publish_change(cell.scope)
