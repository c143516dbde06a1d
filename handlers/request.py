"""What a handler is given and what it gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from cards.courier import CardRef
from cards.model import Card
from cards.words import Words
from handlers.ports import Services
from storage.records.messages import Urgency
from storage.records.people import Chat, Person


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One message or press of a paired person, ready to act on.

    `args` is what follows the command word, or the whole text of talk. `source` names this
    arrival for ever: whatever it changes is changed under it, so that one handled again after a
    crash changes nothing twice. `origin` names the message instead, through all its corrections:
    one message makes one task. `files` are what was sent along, relative to the data directory.
    `answer` is the card an answer is streamed into. `zone` is the Boss's.
    """

    person: Person
    chat: Chat
    words: Words
    args: str
    source: str
    origin: str
    now: datetime
    zone: ZoneInfo
    services: Services
    answer: CardRef
    files: tuple[str, ...] = ()
    message_id: str = ""
    model: str = ""
    backend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What to tell the person. The card goes under `key`, or `reply:<inbox row>` where that is
    empty; `in_place` says that it replaces the card whose button was pressed, and `key` is that
    card's. `toast` is the small answer to a press, `good` False if it was refused. Neither card
    nor toast: say nothing. `data` says the same to a program: plain JSON values, for those who
    asked from the command line; None where there is nothing but the card to tell."""

    card: Card | None = None
    key: str = ""
    in_place: bool = False
    toast: str = ""
    good: bool = True
    urgency: Urgency = Urgency.ANSWER
    data: Mapping[str, Any] | None = None
