"""Which conversations one listener may look back into."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Column, ColumnElement, Select, and_, case, func, literal, or_, select

from storage import schema
from storage.agents.tables import helpers
from storage.ids import TASK_LENGTH
from storage.records.people import ChatId, ChatKind, PersonId
from storage.work.tasks import Sight

_S = schema.sessions.c
_C = schema.chats.c
_H = helpers.c
_CHAT, _TASK, _HELPER = "chat:", "task:", "helper:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hearing:
    """This chat; where only `person` hears what is said here, all private chats of theirs too;
    and the sessions of the tasks in `sight`. Whoever hears a conversation or a task hears the
    helpers that it has sent off, too."""

    chat: ChatId | None
    person: PersonId | None = None
    sight: Sight | None = None

    @property
    def clause(self) -> ColumnElement[bool]:
        """Of `sessions`, by their keys."""
        found: list[ColumnElement[bool]] = [_S.key == f"{_CHAT}{self.chat}"]
        sent: list[ColumnElement[bool]] = [and_(_H.task_id.is_(None), _H.chat_id == self.chat)]
        if self.person is not None:
            own = and_(_C.person_id == self.person, _C.kind == ChatKind.PRIVATE.value)
            found.append(_S.key.in_(select(literal(_CHAT) + _C.id).where(own)))
            sent.append(and_(_H.task_id.is_(None), _H.chat_id.in_(select(_C.id).where(own))))
        if self.sight is not None:
            task = func.substr(_S.key, len(_TASK) + 1, TASK_LENGTH)
            seen = select(schema.tasks.c.id).where(self.sight.clause)
            found.append(and_(_S.key.startswith(_TASK, autoescape=True), task.in_(seen)))
            sent.append(_H.task_id.in_(seen))
        found.append(_S.key.in_(select(literal(_HELPER) + _H.id).where(or_(*sent))))
        return or_(*found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spell:
    """A stretch of time, its end not among it; without limits all time."""

    since: datetime | None = None
    before: datetime | None = None

    def clauses(self, at: ColumnElement[Any]) -> Iterator[ColumnElement[bool]]:
        if self.since is not None:
            yield at >= self.since
        if self.before is not None:
            yield at < self.before


def stretches_of(at: Column[Any], hearing: Hearing, spell: Spell, size: int) -> Select[Any]:
    """Where that time is cut for stretches of about so many rows each, the newest first. `at` is
    of a table with a `session_id`."""
    number = func.row_number().over(order_by=at.desc()).label("number")
    rows = (
        select(at.label("at"), number)
        .join(schema.sessions, _S.id == at.table.c.session_id)
        .where(hearing.clause, *spell.clauses(at))
        .subquery()
    )
    return select(rows.c.at).where(rows.c.number % size == 0).order_by(rows.c.number)


def cut_at(spell: Spell, cuts: Sequence[datetime]) -> Sequence[Spell]:
    """The stretches between these, the newest first; none has what another has."""
    whole = dict.fromkeys(cuts)
    return [
        Spell(since=since, before=before)
        for since, before in zip((*whole, spell.since), (spell.before, *whole), strict=True)
    ]


def how_many(text: ColumnElement[str], words: Sequence[str]) -> ColumnElement[int]:
    """The number of these words that are in it."""
    count: ColumnElement[int] = literal(0)
    for found in has_all(text, words):
        count += case((found, 1), else_=0)
    return count


def has_all(text: ColumnElement[str], words: Sequence[str]) -> list[ColumnElement[bool]]:
    """Wherever they stand in it, in small letters or large ones."""
    return [text.icontains(word, autoescape=True) for word in words]
