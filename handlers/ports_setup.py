"""Declares the ports by which owners connect models and chat platforms."""

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
        """Test a way to reach a model with a real call; if it answers, store it and use it for all
        calls. Returns the findings of the test: if there are any, nothing was changed. Raises
        UserError."""


class FeishuSetupPort(Protocol):
    """Callers check that an owner asks."""

    async def get_setup(self, session: SetupSession) -> FeishuSetup: ...

    async def show_code(self, session: SetupSession) -> FeishuSetup:
        """Show a new QR code in place of any earlier one."""

    async def cancel(self, session: SetupSession) -> None:
        """End this session's code, or discard what an earlier run has left."""

    async def save_again(self, session: SetupSession) -> None:
        """Try again to save the app of a code whose state is UNSAVED."""

    async def connect(self, new: FeishuApp) -> HealthFinding | None:
        """Connect the app, and return findings. If there are any, nothing was changed. Raises
        UserError."""

    async def check(self) -> Sequence[FeishuStepState]:
        """Ask the platform how the app is set up. Without an app there is nothing to ask."""


class ChannelSetupPort(Protocol):
    """Callers check that an owner asks, but for `claim_owner_code`, which anybody may call."""

    async def get_channels(self) -> Sequence[ChannelState]:
        """The chat platforms, whether they are connected or not."""

    async def connect_telegram(self, new: TelegramConnection, *, by: Person) -> TelegramResult:
        """Ask Telegram about the bot, and if nothing is in the way, store its token and use it from
        now on. Raises UserError."""

    async def check(self, channel: Channel) -> Sequence[HealthFinding]:
        """Ask the platform to describe the connected bot."""

    async def disconnect(self, channel: Channel, *, seen: str = "") -> None:
        """Delete the platform's credentials and disconnect at once. Raises UserError."""

    async def create_owner_code(self, channel: Channel, *, by: Person) -> OwnerCode:
        """A new code instead of any earlier one. Raises UserError where it could not work."""

    async def claim_owner_code(
        self, code: str, incoming: IncomingMessage, *, now: datetime
    ) -> bool:
        """Make the sender an owner if this is the channel's open code; repeating it changes
        nothing. After several wrong codes the code is void. Raises UserError."""


class BitablePort(Protocol):
    """Callers check that an owner asks. All but `status` and `disconnect` raise UserError; these
    two and `rebuild` do not ask the platform."""

    async def status(self) -> BitableStatus: ...

    async def set_up(
        self, token: str, *, by: Person, chat: Chat, language: Language
    ) -> BitableReport:
        """Create a base with its tables, or use the one that `token` (or a link) names, and add
        what it lacks. Repeating it creates nothing twice. Tasks created in it belong to `chat`, or
        to the owner's private Feishu chat if `chat` is on another channel."""

    async def check(self) -> BitableReport:
        """Look for missing tables and fields; changes nothing."""

    async def repair(self) -> BitableReport: ...

    async def rebuild(self) -> BitableBase:
        """Schedule a rewrite of the tables from the store; people's edits in them are lost."""

    async def disconnect(self) -> BitableBase | None:
        """Stop using the base, which stays as it is. Returns it."""
