"""Ports by which owners connect models and chat platforms."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from storage.records.autonomy import HealthFinding
from storage.records.bitable import BitableBase, BitableReport, BitableStatus
from storage.records.channels import (
    ChannelState,
    FeishuApp,
    FeishuSetup,
    FeishuStepState,
    OwnerCode,
    SetupSession,
    TelegramConnection,
    TelegramResult,
)
from storage.records.messages import IncomingMessage
from storage.records.people import Channel, Chat, Language, Person
from storage.records.system import ModelConnection, ModelSetup


class ModelSetupPort(Protocol):
    """Callers check that an owner asks."""

    async def get_setup(self) -> ModelSetup: ...

    async def connect(self, new: ModelConnection, *, by: Person) -> HealthFinding:
        """Call the model, and if it answers, store how to reach it and use it for all calls from
        now on. Returns what the call found; with points nothing was changed. Raises UserError."""


class FeishuSetupPort(Protocol):
    """Callers check that an owner asks."""

    async def get_setup(self, session: SetupSession) -> FeishuSetup: ...

    async def show_code(self, session: SetupSession) -> FeishuSetup:
        """Show a new code, in place of any that is shown."""

    async def cancel(self, session: SetupSession) -> None:
        """End this session's code, or forget what an earlier run has left."""

    async def save_again(self, session: SetupSession) -> None:
        """Try again to save an app whose code is UNSAVED."""

    async def connect(self, new: FeishuApp) -> HealthFinding | None:
        """Use the app from now on, unless a finding is returned: then nothing was changed. Raises
        UserError."""

    async def check(self) -> Sequence[FeishuStepState]:
        """Ask the platform how the app is set up; nothing without an app."""


class ChannelSetupPort(Protocol):
    """Callers check that an owner asks, but for `claim_owner_code`, which anybody may call."""

    async def get_channels(self) -> Sequence[ChannelState]:
        """The chat platforms, whether they are connected or not."""

    async def connect_telegram(self, new: TelegramConnection, *, by: Person) -> TelegramResult:
        """Ask Telegram about the bot, and if nothing is in the way, store its token and use it from
        now on. Raises UserError."""

    async def check(self, channel: Channel) -> Sequence[HealthFinding]:
        """The bot that is connected, as the platform describes it."""

    async def disconnect(self, channel: Channel, *, seen: str = "") -> None:
        """Forget how the platform is connected, and leave it now. Raises UserError."""

    async def create_owner_code(self, channel: Channel, *, by: Person) -> OwnerCode:
        """A new code instead of any earlier one. Raises UserError where it could not work."""

    async def claim_owner_code(
        self, code: str, incoming: IncomingMessage, *, now: datetime
    ) -> bool:
        """Make the sender an owner if this is the open code of the channel; doing so again changes
        nothing. Wrong codes count, and after some the code is void. Raises UserError."""


class BitablePort(Protocol):
    """Callers check that an owner asks. All but `status` and `disconnect` raise UserError; these
    two and `rebuild` do not ask the platform."""

    async def status(self) -> BitableStatus: ...

    async def set_up(
        self, token: str, *, by: Person, chat: Chat, language: Language
    ) -> BitableReport:
        """Make a base with its tables, or use the one that `token` (or a link) names; then fill
        what it lacks. Doing so again makes nothing twice. Its tasks are those of `chat`, or of the
        owner's private chat in Feishu if `chat` is elsewhere."""

    async def check(self) -> BitableReport:
        """Look for what is missing; changes nothing."""

    async def repair(self) -> BitableReport: ...

    async def rebuild(self) -> BitableBase:
        """Soon make the tables what the store says, whatever people changed in them."""

    async def disconnect(self) -> BitableBase | None:
        """Stop using the base, which stays as it is. Returns it."""
