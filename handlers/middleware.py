"""What everything that arrives goes through before it is answered."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import reduce
from typing import TypeAlias

from cards import formats
from cards.views.errors import notice_card
from cards.words import Words, words_for
from handlers.errors import card_of, explain
from handlers.language import guessed, hinted
from handlers.ports import People
from handlers.request import Reply
from storage.records.messages import InboxRow, MessageIn, PressIn
from storage.records.people import Language, Person

TOAST = 180
"""What the smallest platform shows of an answer to a press, less a margin."""

_REMEMBERED_PEOPLE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One stored arrival on its way to an answer. `person` is None until recognised, and for
    strangers."""

    row: InboxRow
    files: tuple[str, ...]
    now: datetime
    words: Words
    person: Person | None = None

    @property
    def text(self) -> str:
        return self.row.incoming.text if isinstance(self.row.incoming, MessageIn) else ""

    @property
    def who(self) -> str:
        """The sender, unique over all channels."""
        return f"{self.row.incoming.place.channel}:{self.row.incoming.sender.external_id}"

    @property
    def is_press(self) -> bool:
        return isinstance(self.row.incoming, PressIn)


Next: TypeAlias = Callable[[Arrival], Awaitable[Reply]]
Middleware: TypeAlias = Callable[[Arrival, Next], Awaitable[Reply]]


def wrapped(middlewares: Sequence[Middleware], last: Next) -> Next:
    """One callable that goes through all of them, the first outermost."""
    return reduce(_around, reversed(middlewares), last)


def refused(arrival: Arrival, title: str, hint: str) -> Reply:
    """Say no: on a card, or in a toast if it was a press."""
    if arrival.is_press:
        # Plain text: marks would be seen.
        told = " · ".join(filter(None, (title, hint))).replace("`", "")
        return Reply(toast=formats.line(told, TOAST), good=False)
    return Reply(card=notice_card(title, hint), good=False, data={"error": title, "hint": hint})


def error_boundary(new_incident: Callable[[], str]) -> Middleware:
    """Whatever fails further in becomes a card or a toast."""

    async def boundary(arrival: Arrival, call_next: Next) -> Reply:
        try:
            return await call_next(arrival)
        except Exception as error:  # noqa: BLE001 - one message's failure must end with an answer to that message
            told = explain(error, arrival.words, new_incident())
            if arrival.is_press:
                return refused(arrival, told.title, told.hint)
            data = {"error": told.title, "hint": told.hint}
            return Reply(card=card_of(error, told), good=False, data=data)

    return boundary


def recognise(people: People, fallback: Language, fixed: Language | None = None) -> Middleware:
    """Find out who it is, what they may do and which language they read: the `fixed` one, else
    the person's. What somebody writes tells their language once, then it is remembered."""

    async def recogniser(arrival: Arrival, call_next: Next) -> Reply:
        incoming = arrival.row.incoming
        person = await people.who(incoming.place.channel, incoming.sender.external_id)
        written = guessed(arrival.text)
        if person and person.language is None and written and fixed is None:
            await people.speak(person, written)
            person = replace(person, language=written)
        language = (
            fixed
            or (person.language if person else None)
            or written
            or hinted(incoming.sender.language)
            or fallback
        )
        return await call_next(replace(arrival, person=person, words=words_for(language)))

    return recogniser


class RateLimit:
    """At most `most` arrivals a person in `within`; the first too many is told that none over
    the limit are acted on, the others get silence. Presses always get their toast. Strangers
    are not counted here: the door answers them more rarely still. What is `urgent` always
    passes: nobody may be too fast to stop something."""

    def __init__(
        self,
        *,
        most: int = 60,
        within: timedelta = timedelta(minutes=1),
        urgent: Callable[[Arrival], bool] = lambda _: False,
    ) -> None:
        self._most = most
        self._within = within
        self._urgent = urgent
        self._seen: OrderedDict[str, deque[datetime]] = OrderedDict()
        self._told: dict[str, datetime] = {}

    async def __call__(self, arrival: Arrival, call_next: Next) -> Reply:
        if arrival.person is None or self._admits(arrival.person.id, arrival.now):
            return await call_next(arrival)
        if self._urgent(arrival):
            return await call_next(arrival)
        who = arrival.person.id
        words = arrival.words
        if arrival.is_press:
            return refused(arrival, words("error.too_fast.title"), words("error.too_fast.hint"))
        told_at = self._told.get(who)
        if told_at is not None and arrival.now - told_at < self._within:
            return Reply()
        self._told[who] = arrival.now
        return refused(arrival, words("error.too_fast.title"), words("error.too_fast.hint"))

    def _admits(self, who: str, now: datetime) -> bool:
        recent = self._seen.setdefault(who, deque())
        self._seen.move_to_end(who)
        while len(self._seen) > _REMEMBERED_PEOPLE:
            forgotten, _ = self._seen.popitem(last=False)
            self._told.pop(forgotten, None)
        while recent and now - recent[0] >= self._within:
            recent.popleft()
        if len(recent) >= self._most:
            return False
        recent.append(now)
        return True


def _around(call_next: Next, middleware: Middleware) -> Next:
    async def call(arrival: Arrival) -> Reply:
        return await middleware(arrival, call_next)

    return call
