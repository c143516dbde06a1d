"""Defines how a chat platform is connected, and how the first person there becomes an owner."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from storage.records.autonomy import HealthFinding
from storage.records.people import Channel, Person, PersonId
from storage.records.system import ChannelHealth


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerCode:
    """Whoever sends `/start` and this code to the bot first becomes an owner. `link` opens the chat
    with it, where the platform has such links. `owner` is the name of the person who did."""

    code: str
    expires_at: datetime
    link: str = ""
    owner: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelState:
    """A chat platform. `fixed_by` names an environment variable that connects it and that the
    program cannot change. `link` opens a chat with the bot, empty if it is not known. `people` have
    access and have written there. `revision` changes with its settings. `findings` are what the
    platform said when it was last asked about this bot."""

    health: ChannelHealth
    revision: str
    is_configured: bool
    link: str = ""
    fixed_by: str = ""
    code: OwnerCode | None = None
    people: tuple[Person, ...] = ()
    findings: tuple[HealthFinding, ...] = ()

    @property
    def channel(self) -> Channel:
        return self.health.channel


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramConnection:
    """A bot to connect: its `token`, which may stand in a longer text, or the handle under which a
    checked one is `pending`. `delete_webhook` allows to take its messages from whoever has set a
    webhook. `seen` is the revision that the person saw, empty for any."""

    token: str = field(default="", repr=False)
    pending: str = ""
    delete_webhook: bool = False
    seen: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramResult:
    """`problem` is why nothing was changed. `pending` is a handle of the token if only a webhook is
    in the way. `is_other_bot`: the people of the bot before have to open a chat with this one."""

    findings: tuple[HealthFinding, ...]
    problem: HealthFinding | None = None
    pending: str = ""
    is_other_bot: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupSession:
    """The session in which an owner connects something; `session_id` is empty for a program."""

    person_id: PersonId
    session_id: str = ""


class FeishuCodeState(StrEnum):
    """UNSAVED: the app exists, and its secret could not be saved yet. WITHDRAWN: whoever showed the
    code may not connect anything any more."""

    WAITING = "waiting"
    CONNECTED = "connected"
    UNSAVED = "unsaved"
    DENIED = "denied"
    EXPIRED = "expired"
    USED = "used"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeishuCode:
    """A code that makes an app for the person who scans it. `url` is the address in it, while it is
    WAITING, until `expires_at`. `reason` is in the platform's words, `error` is of saving. `owner`
    is the account that became an owner, empty if none did."""

    state: FeishuCodeState
    url: str = ""
    expires_at: datetime | None = None
    reason: str = ""
    error: Exception | None = None
    app_id: str = ""
    owner: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsavedApp:
    """A code that was shown when the program ended. With `app_id` the app exists, and its secret is
    not known; without, it may exist. `link` opens it in the developer console."""

    app_id: str = ""
    is_lark: bool = False
    link: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeishuSetup:
    """`code` is that of the session that asks; `is_shown_elsewhere`: another session's is waiting.
    `app_id` is the app in use, empty for none, on the open platform `domain`."""

    app_id: str
    domain: str
    is_lark: bool
    code: FeishuCode | None = None
    is_shown_elsewhere: bool = False
    unsaved: UnsavedApp | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FeishuApp:
    """An app to connect."""

    app_id: str
    app_secret: str = field(repr=False)
    is_lark: bool = False


class FeishuStep(StrEnum):
    """A step in the developer console, in the order of the work."""

    CREDENTIALS = "credentials"
    BOT = "bot"
    SCOPES = "scopes"
    EVENTS = "events"
    CALLBACKS = "callbacks"
    VERSION = "version"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeishuStepState:
    """`is_done` is None if it is not known. `link` opens the page of the console; `needs` are the
    permissions, events or callbacks that belong there."""

    step: FeishuStep
    is_done: bool | None
    link: str
    needs: tuple[str, ...] = ()
    findings: tuple[HealthFinding, ...] = ()
