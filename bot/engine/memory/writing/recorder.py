"""Keeps what was said and done as cells, in the transaction that makes it so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from bot.engine.memory.changed import Changed
from bot.engine.memory.scopes import Reader
from bot.engine.memory.writing.noise import Noise, noise_of, without_scaffold
from bot.engine.memory.writing.plainly import Plainly, Taken
from bot.engine.memory.writing.rules import is_emphatic, plainly_said
from bot.engine.memory.writing.service import plain
from storage.db import Transaction
from storage.memory.cells import Cells
from storage.memory.jobs import JobRepo
from storage.records.memory.entries import Entry, MemoryKind, NewEntry, Origin, Scope, Tier
from storage.records.people import Chat, Person
from storage.records.tasks import TaskId

ENOUGH = 4
"""Turns from which facts are drawn together."""
MOST_SAID = 1200
MOST_ANSWERED = 2400
PROJECT, SKILL = "project", "skill"
"""Of a cell's `extra`: where the work was done, and by which skill."""
_LONG_ANSWER = 200
_ELLIPSIS = "…"
_NEVER = frozenset({Noise.META, Noise.COMPLAINT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What somebody said and what they were answered. `source` names it for ever: kept twice it
    is there once. `answer` is empty where it was cut short;
    `skill` is the one that it was worked on with."""

    person: Person
    chat: Chat
    said: str
    answer: str
    source: str
    at: datetime
    skill: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A task that has ended, for the person and the chat that it was done for; `skill` is the one
    that it was worked on with."""

    task: TaskId
    person: Person | None
    chat: Chat
    asked: str
    done: str
    project: str
    source: str
    at: datetime
    skill: str = ""


class Recorder:
    def __init__(
        self,
        *,
        cells: Cells,
        plainly: Plainly,
        jobs: JobRepo | None,
        changed: Changed,
        mask: Callable[[str], str],
        rest: timedelta = timedelta(),
    ) -> None:
        """`plainly` takes down what is said so plainly that no model is needed; `jobs` are what a
        model is to draw facts from, after a `rest`; `mask` takes secrets out of a text."""
        self._cells = cells
        self._plainly = plainly
        self._jobs = jobs
        self._changed = changed
        self._mask = mask
        self._rest = rest

    async def said(
        self, tx: Transaction, turn: Turn, taken: list[Taken] | None = None
    ) -> Entry | None:
        """Keep a turn with its person, or with their group. None for what is noise, for what is
        kept already, and for what somebody wanted forgotten. What was said plainly is put into
        `taken`. Tell of it after the commit."""
        said = self._clean(turn.said, MOST_SAID)
        answer = self._clean(turn.answer, MOST_ANSWERED)
        scope = Reader(chat=turn.chat, person=turn.person.id).keeps_in
        if scope is None or not _is_worth(said, answer):
            return None
        cell = NewEntry(
            kind=MemoryKind.CELL,
            scope=scope,
            text=_joined(said, answer),
            tier=Tier.PERIPHERAL,
            confidence=1.0,
            source=f"turn:{turn.source}",
            sender=turn.person.name,
            thread=f"chat:{turn.chat.id}",
            person=turn.person.id,
            chat=turn.chat.id,
            said_at=turn.at,
            extra={"said": len(said), **({SKILL: turn.skill} if turn.skill else {})},
        )
        if any(plain.is_wish for plain in plainly_said(said)):
            await self._cells.dig_up(tx, cell)
        kept = await self._cells.add(tx, cell, now=turn.at)
        if kept is not None:
            noted = await self._plainly.take_down(tx, kept, said)
            if taken is not None:
                taken.extend(noted)
            await self._gather(tx, kept, 1 if is_emphatic(said) else ENOUGH)
        return kept

    async def task_done(self, tx: Transaction, work: Work) -> Entry | None:
        """Keep what was wanted and what came of it, as `said`."""
        asked = self._clean(work.asked, MOST_SAID)
        done = self._clean(work.done, MOST_ANSWERED)
        person = work.person
        scope = Reader(chat=work.chat, person=None if person is None else person.id).keeps_in
        if scope is None or not asked:
            return None
        cell = NewEntry(
            kind=MemoryKind.CELL,
            scope=scope,
            text=_joined(asked, done),
            tier=Tier.PERIPHERAL,
            confidence=1.0,
            origin=Origin.TASK,
            source=work.source,
            sender="" if person is None else person.name,
            thread=f"task:{work.task}",
            person=None if person is None else person.id,
            chat=work.chat.id,
            task=work.task,
            said_at=work.at,
            extra={
                "said": len(asked),
                PROJECT: work.project,
                **({SKILL: work.skill} if work.skill else {}),
            },
        )
        kept = await self._cells.add(tx, cell, now=work.at)
        if kept is not None:
            await self._gather(tx, kept, 1)
        return kept

    def kept(self, scope: Scope) -> None:
        """To be called once the transaction is through."""
        self._changed.tell(scope)

    async def _gather(self, tx: Transaction, cell: Entry, enough: int) -> None:
        if self._jobs is not None:
            now = cell.said_at
            due = now + self._rest
            await self._jobs.gather(tx, cell, enough=enough, now=now, due_at=due)

    def _clean(self, text: str, most: int) -> str:
        """Masked before it is cut: half a secret is not known as one."""
        whole = without_scaffold(self._mask(plain(text)))
        return whole if len(whole) <= most else whole[: most - 1].rstrip() + _ELLIPSIS


def said_in(cell: Entry) -> str:
    """What the person said, of a cell."""
    return cell.text[: _length(cell)]


def answered_in(cell: Entry) -> str:
    return cell.text[_length(cell) :].strip()


def _length(cell: Entry) -> int:
    said = cell.extra.get("said")
    return said if isinstance(said, int) else len(cell.text)


def _joined(said: str, answer: str) -> str:
    return "\n\n".join(filter(None, (said, answer)))


def _is_worth(said: str, answer: str) -> bool:
    """Thanks and greetings are not; a short word that got a long answer is, and so is one that
    says something plainly: three characters tell what somebody eats."""
    noise = noise_of(said)
    if noise is None or (noise is Noise.SHORT and plainly_said(said)):
        return True
    return bool(said) and noise not in _NEVER and len(answer) >= _LONG_ANSWER
