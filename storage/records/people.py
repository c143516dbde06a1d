"""Who speaks with Shiftboss, and where."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NewType

PersonId = NewType("PersonId", str)
ChatId = NewType("ChatId", str)


class Channel(StrEnum):
    FEISHU = "feishu"
    TELEGRAM = "telegram"
    WEB = "web"


class Role(StrEnum):
    """What a paired person may do; an owner may do all a member may."""

    OWNER = "owner"
    MEMBER = "member"

    def allows(self, needed: Role) -> bool:
        return self is Role.OWNER or needed is Role.MEMBER


class ChatKind(StrEnum):
    PRIVATE = "private"
    GROUP = "group"


class Language(StrEnum):
    CHINESE = "zh"
    ENGLISH = "en"


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A Boss: someone paired. `language` is None while it is to be guessed from what they write."""

    id: PersonId
    name: str
    role: Role
    language: Language | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """Somebody who is let in, with their accounts. `named`: the settings make them an owner;
    `local`: they are whoever opens the local web chat, and always an owner."""

    person: Person
    accounts: tuple[tuple[Channel, str], ...]
    named: bool = False
    local: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSettings:
    """What the chat overrides; empty means the program's own choice. `project` is the folder its
    tasks work in, `persona` who does the work, `queue` what a message does to an answer in the
    making: `cut` it short, or `wait` for its end."""

    model: str = ""
    backend: str = ""
    language: Language | None = None
    project: str = ""
    persona: str = ""
    queue: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """One conversation on one channel. `thread` is empty outside topics; `person_id` is the
    partner of a private chat once paired."""

    id: ChatId
    channel: Channel
    external_id: str
    thread: str
    kind: ChatKind
    title: str
    settings: ChatSettings
    person_id: PersonId | None


class PairingState(StrEnum):
    PENDING = "pending"
    APPROVED = "approved"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """A stranger who asked to be let in."""

    code: str
    channel: Channel
    external_id: str
    name: str
    chat_id: ChatId
    state: PairingState
    created_at: datetime
    expires_at: datetime
