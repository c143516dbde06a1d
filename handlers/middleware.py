"""Defines the middleware that every incoming event passes before it is handled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from typing import TypeAlias

from cards import formats
from cards.catalog import TextCatalog, catalog_for
from cards.model import notice_card
from handlers.errors import explain_error, explanation_card
from handlers.language import guess_language, language_from_hint
from handlers.ports import InterruptedMessage, PeoplePort
from handlers.request import Reply
from storage.records.messages import InboxRow, IncomingMessage, IncomingPress
from storage.records.people import Language, Person

MAX_TOAST = 180
"""Characters of a toast on the strictest platform, with a margin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InboundEvent:
    """One stored event being handled. `person` is None until identified, and for strangers."""

    row: InboxRow
    files: tuple[str, ...]
    now: datetime
    words: TextCatalog
    person: Person | None = None
    interrupted: tuple[InterruptedMessage, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return self.row.incoming.text if isinstance(self.row.incoming, IncomingMessage) else ""

    @property
    def sender_key(self) -> str:
        """The sender, unique across channels."""
        return f"{self.row.incoming.place.channel}:{self.row.incoming.sender.external_id}"

    @property
    def is_press(self) -> bool:
        return isinstance(self.row.incoming, IncomingPress)


NextHandler: TypeAlias = Callable[[InboundEvent], Awaitable[Reply]]
Middleware: TypeAlias = Callable[[InboundEvent, NextHandler], Awaitable[Reply]]


def chain_middlewares(middlewares: Sequence[Middleware], last: NextHandler) -> NextHandler:
    """One callable that runs all middlewares, the first outermost."""

    def wrap(call_next: NextHandler, middleware: Middleware) -> NextHandler:
        return lambda arrival: middleware(arrival, call_next)

    return reduce(wrap, reversed(middlewares), last)


def refusal_reply(arrival: InboundEvent, title: str, hint: str) -> Reply:
    """A refusal as a card, or as a toast for a press."""
    if arrival.is_press:
        # Toasts are plain text.
        text = " · ".join(filter(None, (title, hint))).replace("`", "")
        return Reply(toast=formats.single_line(text, MAX_TOAST), good=False)
    return Reply(card=notice_card(title, hint), good=False, data={"error": title, "hint": hint})


def error_boundary(new_incident: Callable[[], str]) -> Middleware:
    """Turn any failure further in into a card or a toast."""

    async def boundary(arrival: InboundEvent, call_next: NextHandler) -> Reply:
        try:
            return await call_next(arrival)
        except Exception as error:  # noqa: BLE001 - one message's failure must end with an answer to that message
            explanation = explain_error(error, arrival.words, new_incident())
            if arrival.is_press:
                return refusal_reply(arrival, explanation.title, explanation.hint)
            data = {"error": explanation.title, "hint": explanation.hint}
            return Reply(card=explanation_card(error, explanation), good=False, data=data)

    return boundary


def identify_sender(
    people: PeoplePort, fallback: Language, fixed: Language | None = None
) -> Middleware:
    """Set the sender, their role and their language: `fixed`, else the person's own. The language
    is guessed from their messages once and then stored."""

    async def recogniser(arrival: InboundEvent, call_next: NextHandler) -> Reply:
        incoming = arrival.row.incoming
        person = await people.find_by_account(incoming.place.channel, incoming.sender.external_id)
        guess = guess_language(arrival.text)
        if person and person.language is None and guess and fixed is None:
            await people.set_language(person, guess)
            person = replace(person, language=guess)
        language = (
            fixed
            or (person.language if person else None)
            or guess
            or language_from_hint(incoming.sender.language)
            or fallback
        )
        return await call_next(replace(arrival, person=person, words=catalog_for(language)))

    return recogniser
