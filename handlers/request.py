"""What a handler is given and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

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
    message for ever: whatever it creates is created under it, so that a message handled again
    after a crash changes nothing twice. `files` are what was sent along, relative to the data
    directory. `answer` is the card an answer is streamed into.
    """

    person: Person
    chat: Chat
    words: Words
    args: str
    source: str
    now: datetime
    services: Services
    answer: CardRef
    files: tuple[str, ...] = ()
    message_id: str = ""
    model: str = ""
    backend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What to tell the person. `in_place` replaces the card whose button was pressed;
    `toast` is the small answer to a press, `good` False if it was refused."""

    card: Card | None = None
    in_place: bool = False
    toast: str = ""
    good: bool = True
    urgency: Urgency = Urgency.ANSWER
