"""What arrives from a platform, what goes out to one, and what a button leads to."""

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
    """A file on the platform, not fetched yet. `reference` is the transport's own to understand;
    `size` is 0 where the platform does not say."""

    kind: AttachmentKind
    reference: Mapping[str, str]
    name: str
    mime: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where something happened, in the platform's own ids."""

    channel: Channel
    chat: str
    kind: ChatKind
    thread: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """Who did it, in the platform's own ids. `language` is a hint such as `zh-hans`."""

    external_id: str
    name: str = ""
    language: str = ""
    is_bot: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageIn:
    """Someone wrote. `message_id` is the platform's; `addressed` says that in a group the bot
    itself was mentioned or replied to; `edited` marks a correction of an earlier message; `quiet`
    is a program's: whoever asked gets the answer, and neither is a part of the conversation.
    `told` is what the house itself has to tell the chat's worker, as if `sender` had brought it:
    then nobody has written anything."""

    place: Place
    sender: Sender
    message_id: str
    text: str
    addressed: bool
    sent_at: datetime
    attachments: tuple[RemoteFile, ...] = ()
    reply_to: str = ""
    edited: bool = False
    quiet: bool = False
    told: str = ""
    kind: Literal["message"] = "message"


@dataclass(frozen=True, slots=True, kw_only=True)
class PressIn:
    """Someone pressed a button, picked an option (`value`) or sent a form (`form`)."""

    place: Place
    sender: Sender
    token: str
    message_id: str
    value: str = ""
    form: Mapping[str, str] = field(default_factory=dict)
    kind: Literal["press"] = "press"


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryIn:
    """Someone opened the private chat, or the bot was added to a group."""

    place: Place
    sender: Sender
    kind: Literal["entry"] = "entry"


Incoming: TypeAlias = MessageIn | PressIn | EntryIn


class InboxState(StrEnum):
    NEW = "new"
    HANDLED = "handled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxRow:
    id: InboxId
    incoming: Incoming
    chat_id: ChatId
    state: InboxState
    attempts: int
    received_at: datetime


class Urgency(IntEnum):
    """Order in which messages leave when a platform's pace is the limit; lower goes first."""

    ANSWER = 0
    APPROVAL = 1
    NOTICE = 2
    PROGRESS = 3


class OutboxState(StrEnum):
    """`queued` has a revision to show; `shown` has none; `dead` never will be shown."""

    QUEUED = "queued"
    SHOWN = "shown"
    DEAD = "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Where a message ended up: the platform's message ids in order, and what the transport
    needs to change it later (a card entity's id and sequence, say)."""

    message_ids: tuple[str, ...]
    state: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxRow:
    """One logical message. `card` is the card as JSON; `tried` says that this very revision was
    handed to the platform once and nobody knows whether it arrived."""

    id: OutboxId
    key: str
    chat_id: ChatId
    urgency: Urgency
    card: Mapping[str, Any]
    reply_to: str
    revision: int
    placed: Placed | None
    tried: bool
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionRow:
    """What one button on one card does. `allowed` empty means everyone paired who may speak
    in that chat and has the action's role."""

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
