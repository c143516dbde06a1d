"""Defines how a chat platform is connected, and how the first person there becomes an owner."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from storage.records.autonomy import HealthFinding
from storage.records.people import Channel, Person
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
