"""Defines incoming events, outgoing cards and button actions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Any, Literal, NewType, TypeAlias

from storage.records.people import Channel, ChatId, ChatKind, PersonId

InboxId = NewType("InboxId", int)
OutboxId = NewType("OutboxId", int)


class AttachmentKind(StrEnum):
    IMAGE = "image"
    FILE = "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """A file on the platform, not downloaded yet. Only the transport interprets `reference`; `size`
    is 0 if unknown."""

    kind: AttachmentKind
    reference: Mapping[str, str]
    name: str
    mime: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAddress:
    """A chat in the platform's own ids."""

    channel: Channel
    chat: str
    kind: ChatKind
    thread: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSender:
    """The sender in the platform's own ids. `language` is a hint such as `zh-hans`. `anonymous`:
    a person who writes under an account that many share; `is_bot` is then true as well.
    `web_session` is the session of the browser it came from, if any."""

    external_id: str
    name: str = ""
    language: str = ""
    is_bot: bool = False
    anonymous: bool = False
    web_session: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingMessage:
    """`message_id` is the platform's. `addressed`: in a group, the bot was mentioned or replied to.
    `edited`: corrects an earlier message. `quiet`: sent by a program, which gets the answer;
    neither is part of the conversation. `forwarded`: somebody else's words, passed on. `told` is a
    note from Shiftboss for the chat's worker, in place of a person's text."""

    place: ChatAddress
    sender: MessageSender
    message_id: str
    text: str
    addressed: bool
    sent_at: datetime
    attachments: tuple[RemoteFile, ...] = ()
    reply_to: str = ""
    edited: bool = False
    quiet: bool = False
    forwarded: bool = False
    told: str = ""
    kind: Literal["message"] = "message"


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingPress:
    """A button press, a chosen option (`value`) or a submitted form (`form`)."""

    place: ChatAddress
    sender: MessageSender
    token: str
    message_id: str
    value: str = ""
    form: Mapping[str, str] = field(default_factory=dict)
    kind: Literal["press"] = "press"


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingChatOpen:
    """Someone opened the private chat, or the bot was added to a group."""

    place: ChatAddress
    sender: MessageSender
    kind: Literal["entry"] = "entry"


Incoming: TypeAlias = IncomingMessage | IncomingPress | IncomingChatOpen


WAITS_OUTCOME = "waits"


class InboxState(StrEnum):
    """A HELD event waits for a person's decision: it came late, or was one of too many."""

    NEW = "new"
    HELD = "held"
    HANDLED = "handled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxRow:
    """`outcome` says how a settled event ended: `card <key>`, `toast`, `shell` (answered where the
    command was typed), `joined <id>` (answered together with another event), `dropped` (a person
    decided so, or the sender took it back) or `silent <reason>`. An unsettled one is
    `WAITS_OUTCOME` if its chat shows that it waits."""

    id: InboxId
    incoming: Incoming
    chat_id: ChatId
    state: InboxState
    attempts: int
    received_at: datetime
    outcome: str = ""

    @property
    def source(self) -> str:
        """The event's permanent name, under which changes are recorded."""
        return f"inbox:{self.id}"


class DeliveryUrgency(IntEnum):
    """Delivery order when a platform limits the rate; lower goes first.

    ANSWER is also for a card's last state, NOTICE also for a changed state; PROGRESS is for edits
    that may be skipped.
    """

    ANSWER = 0
    APPROVAL = 1
    NOTICE = 2
    FILES = 3
    PROGRESS = 4


class OutboxState(StrEnum):
    """QUEUED has a revision to show, SHOWN has none, DEAD was given up."""

    QUEUED = "queued"
    SHOWN = "shown"
    DEAD = "dead"


UNREACHABLE_ERROR = "unreachable"
"""Begins the error of a message that was given up because its chat was closed to us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedEvent:
    """An incoming event and how far its answer got. `answer` is the state of the card that answers
    it; None if no card does, or if the card is deleted."""

    row: InboxRow
    answer: OutboxState | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePlacement:
    """A delivered message: the platform's message ids in order, and what the transport needs to
    edit it, such as a card entity's id and sequence."""

    message_ids: tuple[str, ...]
    state: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxRow:
    """One logical message. `card` is JSON; `maybe_delivered` says that this revision was sent
    without confirmation."""

    id: OutboxId
    key: str
    chat_id: ChatId
    urgency: DeliveryUrgency
    card: Mapping[str, Any]
    reply_to: str
    revision: int
    placement: MessagePlacement | None
    maybe_delivered: bool
    attempts: int
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CardActionRow:
    """The action of one button on one card. Empty `allowed` means everyone with access who may
    write in that chat and has the action's role."""

    token: str
    card_key: str
    chat_id: ChatId
    action: Mapping[str, Any]
    allowed: tuple[PersonId, ...]
    single_use: bool
    expires_at: datetime
    used_by: PersonId | None
    used_at: datetime | None
    retired: bool
