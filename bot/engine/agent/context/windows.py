"""How many tokens each model can take, and how much of that a session may be."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, Protocol

from bot.engine.llm.base import MAX_ANSWER

log = logging.getLogger(__name__)

LEAST = 2_000
"""No window is believed to be smaller."""
_MARGIN = 0.8
"""Of what is left for a session: how long it is, is an estimate."""
_LEAST_ROOM = 500
_ANSWER = 4
"""The part of a window that an answer may fill: one in so many."""
_LESS = 0.75
_UNSAID = 0.5
_STEPS = 16
_MOST_SEATS = 1_024

KEPT = timedelta(days=30)
"""That a service's word counts: models change behind their names."""
_MARK = "windows.learnt"

_Model = tuple[str, str]


class Notes(Protocol):
    """Where what was learnt outlives the program: `storage.marks.Marks`."""

    async def get(self, name: str) -> Any: ...

    async def put(self, name: str, value: Any) -> None: ...


class _NoNotes:
    async def get(self, name: str) -> Any:
        return None

    async def put(self, name: str, value: Any) -> None:
        """Nobody asks for it again."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Learnt:
    """`own` is what people had set for the model then."""

    window: int
    own: int
    at: datetime


async def _unpublished(_backend: str, _model: str) -> int:
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """`session` is how many tokens of a session may be told, None where the model's window is not
    known; `answer` is how long its answer may be."""

    session: int | None = None
    answer: int = MAX_ANSWER


@dataclass(slots=True, kw_only=True)
class Windows:
    """`own` are people's figures by a model's name or a pattern of it; `published` is asked once
    for each model and says 0 where it knows none. What a service has said counts most, for 30 days
    and as long as people's figure stays what it was then."""

    own: Mapping[str, int] = field(default_factory=dict)
    published: Callable[[str, str], Awaitable[int]] = _unpublished
    notes: Notes = field(default_factory=_NoNotes)
    now: Callable[[], datetime] = _utc_now
    _known: dict[_Model, int] = field(default_factory=dict)
    _learnt: dict[_Model, _Learnt] = field(default_factory=dict)
    _read: bool = False
    _seats: dict[str, _Model] = field(default_factory=dict)

    async def of(self, backend: str, model: str) -> int:
        """0 where nobody knows."""
        key = (backend, model)
        learnt = (await self._noted()).get(key)
        if learnt is not None and self._holds(key, learnt):
            return learnt.window
        if key not in self._known:
            self._known[key] = self._owned(*key) or await self.published(*key)
        return self._known[key]

    async def of_session(self, session_id: str, backend: str, model: str) -> int:
        """Of the model that was asked last there; `model` is whose session it once was."""
        return await self.of(*self._seats.get(session_id, (backend, model)))

    async def room(self, session_id: str, backend: str, model: str, beside: int) -> Room:
        """For a model that is asked now, and reads so many tokens `beside` the session."""
        self._seats.pop(session_id, None)
        self._seats[session_id] = (backend, model)
        if len(self._seats) > _MOST_SEATS:
            del self._seats[next(iter(self._seats))]
        window = await self.of(backend, model)
        if not window:
            return Room()
        answer = min(MAX_ANSWER, window // _ANSWER)
        left = int((window - answer - beside) * _MARGIN)
        # In steps: what is told from turn to turn shall not change with the length of a question.
        step = max(1, window // _STEPS)
        return Room(session=max(_LEAST_ROOM, left - left % step), answer=answer)

    async def learn(self, backend: str, model: str, *, said: int, sent: int, began: bool) -> None:
        """`sent` tokens, by our estimate, were too many; `said` is the window by the service's own
        words. Where it was known and a run did not even begin, our estimates are too low: from now
        on less is told. `began`: what the run has read since may have been too much."""
        known = await self.of(backend, model)
        window = said or int(sent * _UNSAID)
        if known and window >= known:
            window = known if began else int(known * _LESS)
        noted = await self._noted()
        noted[backend, model] = _Learnt(
            window=max(LEAST, window), own=self._owned(backend, model), at=self.now()
        )
        await self.notes.put(_MARK, [_row(*each) for each in noted.items() if self._holds(*each)])
        log.info("%s %s is told no more than %d tokens from now on", backend, model, window)

    async def _noted(self) -> dict[_Model, _Learnt]:
        if not self._read:
            kept = dict(map(_read, await self.notes.get(_MARK) or ()))
            # What was learnt meanwhile is newer.
            self._learnt, self._read = kept | self._learnt, True
        return self._learnt

    def _holds(self, key: _Model, learnt: _Learnt) -> bool:
        return self.now() - learnt.at < KEPT and self._owned(*key) == learnt.own

    def _owned(self, backend: str, model: str) -> int:
        names = (model.lower(), f"{backend}:{model}".lower())
        for pattern, window in self.own.items():
            if any(fnmatchcase(name, pattern.lower()) for name in names):
                return window
        return 0


def _row(key: _Model, learnt: _Learnt) -> list[Any]:
    return [*key, learnt.window, learnt.own, learnt.at.isoformat()]


def _read(row: Any) -> tuple[_Model, _Learnt]:
    backend, model, window, own, at = row
    return (backend, model), _Learnt(window=window, own=own, at=datetime.fromisoformat(at))
