"""Defines people, channels and chats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NewType

PersonId = NewType("PersonId", str)
ChatId = NewType("ChatId", str)


class Channel(StrEnum):
    FEISHU = "feishu"
    TELEGRAM = "telegram"
    WEB = "web"

    @property
    def recognizes_repeats(self) -> bool:
        """Whether a message that is sent again under the same key appears once."""
        return self is not Channel.TELEGRAM


class PersonRole(StrEnum):
    """A person's role; an owner may do everything a member may."""

    OWNER = "owner"
    MEMBER = "member"

    def allows(self, needed: PersonRole) -> bool:
        return self is PersonRole.OWNER or needed is PersonRole.MEMBER


class ChatKind(StrEnum):
    PRIVATE = "private"
    GROUP = "group"


class Language(StrEnum):
    CHINESE = "zh"
    ENGLISH = "en"

    @staticmethod
    def from_tag(tag: str) -> Language | None:
        """The language of a tag such as `zh-hans` or `en_GB`; None for any other."""
        primary = tag.strip().casefold().replace("_", "-").partition("-")[0]
        return next((each for each in Language if each == primary), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A person with access. `language` is None while it is guessed from their messages."""

    id: PersonId
    name: str
    role: PersonRole
    language: Language | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A person with their accounts. `is_configured_owner`: the settings make them an owner.
    `is_local_web_owner`: they use the local web chat and are always an owner. `joined` are the
    accounts that were linked to the main one, with the persons they were of."""

    person: Person
    accounts: tuple[tuple[Channel, str], ...]
    is_configured_owner: bool = False
    is_local_web_owner: bool = False
    joined: Mapping[tuple[Channel, str], PersonId] = field(default_factory=dict)


class AccountLinkState(StrEnum):
    """The code of an OPEN link can be used. ASKED waits for a confirmation, LINKED holds, REFUSED
    never held, ENDED was taken apart. REVOKED: `joined` has no access any more."""

    OPEN = "open"
    ASKED = "asked"
    LINKED = "linked"
    REFUSED = "refused"
    ENDED = "ended"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountLink:
    """Two persons who are one: `joined`, whose accounts are of `kept` while the link holds. The
    `maker` made the code in `maker_chat`, the `taker` used it."""

    id: str
    state: AccountLinkState
    maker: PersonId
    maker_chat: ChatId
    taker: PersonId | None
    taker_chat: ChatId | None
    kept: PersonId | None
    joined: PersonId | None
    created_at: datetime
    expires_at: datetime
    linked_at: datetime | None
    ended_at: datetime | None


class ChatMemory(StrEnum):
    """Whether a chat has memory; `INCOGNITO` ends with `/new` or `/incognito off`."""

    ON = "on"
    OFF = "off"
    INCOGNITO = "incognito"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSettings:
    """A chat's overrides; empty means the default.

    `project` is the working folder of its tasks, `persona` the worker, `queue` the effect of a new
    message on a running answer: `cut` it short or `wait` for its end. With `memory_off` nothing is
    remembered here, and no memories are used; `incognito`: until the conversation ends.
    `client_language` is that of the reader's app or page, for want of a better one.
    """

    model: str = ""
    backend: str = ""
    language: Language | None = None
    project: str = ""
    persona: str = ""
    queue: str = ""
    memory_off: bool = False
    incognito: bool = False
    client_language: Language | None = None

    @property
    def memory(self) -> ChatMemory:
        if self.incognito:
            return ChatMemory.INCOGNITO
        return ChatMemory.OFF if self.memory_off else ChatMemory.ON


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """One conversation on one channel. `thread` is empty outside topics; `person_id` is the partner
    of a private chat once paired."""

    id: ChatId
    channel: Channel
    external_id: str
    thread: str
    kind: ChatKind
    title: str
    settings: ChatSettings
    person_id: PersonId | None

    @property
    def is_unopened(self) -> bool:
        """Whether it is a Feishu account (`ou_…`) to which one may write, but whose chat (`oc_…`)
        is not known because nothing has come from there."""
        return self.channel is Channel.FEISHU and self.external_id.startswith("ou_")


class PairingState(StrEnum):
    PENDING = "pending"
    APPROVED = "approved"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairingRequest:
    """A stranger's request for access."""

    code: str
    channel: Channel
    external_id: str
    name: str
    chat_id: ChatId
    state: PairingState
    created_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSession:
    """A signed-in browser. `seen_at` may be some minutes old; `user_agent` is what the browser said
    of itself, cleaned and shortened."""

    id: str
    person_id: PersonId
    created_at: datetime
    seen_at: datetime
    expires_at: datetime
    user_agent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WebVisitor:
    """Who asks for a page or calls the API. `session_id` is empty for a program with a token;
    `is_local`: it is the local owner, to whom the web chat belongs."""

    person: Person
    is_local: bool
    session_id: str = ""


class WebKeyKind(StrEnum):
    """SIGN_IN and NEW_TOKEN are links that work once; a TOKEN works until it is revoked."""

    SIGN_IN = "sign_in"
    NEW_TOKEN = "new_token"  # noqa: S105 - a kind, not a password
    TOKEN = "token"  # noqa: S105 - a kind, not a password


@dataclass(frozen=True, slots=True, kw_only=True)
class WebLink:
    """A link that works once. `name` is that of the token to be made."""

    id: str
    kind: WebKeyKind
    person_id: PersonId
    name: str
    created_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiToken:
    """A person's token for programs, without its secret. `seen_at` may be some minutes old."""

    id: str
    person_id: PersonId
    name: str
    created_at: datetime
    seen_at: datetime | None = None
