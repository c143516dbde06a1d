"""Defines a handler's input and output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, TypedDict
from zoneinfo import ZoneInfo

from cards.catalog import TextCatalog
from cards.courier import CardRef
from cards.model import Card
from handlers.errors import ActionForbidden
from handlers.ports import HandlerServices, InterruptedMessage
from storage.records.messages import DeliveryUrgency
from storage.records.people import Chat, ChatKind, Person, PersonRole


class ChangeAuthor(TypedDict):
    """Who changes something, and the event that identifies the change."""

    by: Person
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One message or press of a person with access.

    `args` is the text after the command word, or the whole message. `source` identifies this event
    permanently: changes are recorded under it, so that a repeat after a crash changes nothing
    twice. `origin` identifies the message across its edits: one message creates one task. `files`
    were sent along, relative to the data directory. `answer_ref` is the card an answer is streamed
    into. `zone` is the Boss's. `interrupted` may be answered together with this message;
    `missing_files` were sent along too, but could not be fetched. `heard_at` is when the message
    came, or was sent if it came late: it decides about nothing that was asked later. `web_session`
    is that of the browser it came from, if any.
    """

    person: Person
    chat: Chat
    words: TextCatalog
    args: str
    source: str
    origin: str
    now: datetime
    zone: ZoneInfo
    services: HandlerServices
    answer_ref: CardRef
    files: tuple[str, ...] = ()
    message_id: str = ""
    model: str = ""
    backend: str = ""
    interrupted: tuple[InterruptedMessage, ...] = ()
    missing_files: tuple[str, ...] = ()
    heard_at: datetime | None = None
    web_session: str = ""

    @property
    def author(self) -> ChangeAuthor:
        return {"by": self.person, "source": self.source}

    @property
    def by_owner(self) -> bool:
        return self.person.role.allows(PersonRole.OWNER)

    def require_owner(self) -> None:
        if not self.by_owner:
            raise ActionForbidden

    @property
    def in_private(self) -> bool:
        """False if others read along."""
        return self.chat.kind is ChatKind.PRIVATE


class Silence(StrEnum):
    """Why an event gets no reply. INTERRUPTED ones are answered with a later message."""

    BOT = "bot"
    STRANGER = "stranger"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The reply to a person.

    The card goes under `key`, or `reply:<inbox row>` if that is empty; `in_place`: it replaces the
    pressed card, whose key is `key`. `toast` answers a press, with `good` False for a refusal.
    A message always gets a card, unless there is a reason for `silence`. `joined` are the sources
    of interrupted messages that this reply answers too. `data` is the same content as JSON for
    command-line clients; None if there is only the card.
    """

    card: Card | None = None
    key: str = ""
    in_place: bool = False
    toast: str = ""
    good: bool = True
    urgency: DeliveryUrgency = DeliveryUrgency.ANSWER
    data: Mapping[str, Any] | None = None
    silence: Silence | None = None
    joined: tuple[str, ...] = ()
