"""An inbox for transports, in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bot.transports.ports import InboxPort, PressToast
from storage.records.messages import InboxId, IncomingChatOpen, IncomingMessage, IncomingPress
from storage.records.people import Channel
from tests.waiting import ChangeSignal


class FakeInbox:
    """Remembers what one channel gave it; fails, blocks or answers as a test says. So many calls as
    `failures` fail, `gate` holds messages back, and `during_press` runs before a press is
    answered."""

    def __init__(self, channel: Channel, toast: str = "done") -> None:
        self.channel = channel
        self.accepted: list[IncomingMessage | IncomingChatOpen] = []
        self.presses: list[IncomingPress] = []
        self.keys: list[str] = []
        self.recalled: list[str] = []
        self.accepted_before_recall = 0
        self.connections: list[Channel] = []
        self.accounts: list[str] = []
        self.alerts: list[tuple[str, dict[str, object]]] = []
        self.toast = PressToast(text=toast)
        self.failures = 0.0
        self.press_error: Exception | None = None
        self.during_press: Callable[[], Awaitable[object]] | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.entered = asyncio.Event()
        self._changes = ChangeSignal()

    async def accept(
        self, incoming: IncomingMessage | IncomingChatOpen, *, dedupe: str
    ) -> InboxId | None:
        self.entered.set()
        await self.gate.wait()
        self._fail_if_told()
        if dedupe in self.keys:
            return None
        self.keys.append(dedupe)
        self.accepted.append(incoming)
        self._changes.notify()
        return InboxId(len(self.keys))

    async def press(
        self, incoming: IncomingPress, *, dedupe: str, wait_seconds: float
    ) -> PressToast:
        self._fail_if_told()
        if self.press_error is not None:
            raise self.press_error
        self.presses.append(incoming)
        self.keys.append(dedupe)
        self._changes.notify()
        if self.during_press is not None:
            await self.during_press()
        return self.toast

    async def recall(self, channel: Channel, *, dedupe: str) -> None:
        assert channel is Channel.FEISHU, "no other platform tells of recalled messages"
        self.recalled.append(dedupe)
        self.accepted_before_recall = len(self.accepted)
        self._changes.notify()

    def connected(self, channel: Channel, account: str = "") -> None:
        self.connections.append(channel)
        self.accounts.append(account)

    def alert(self, channel: Channel, key: str, **facts: object) -> None:
        assert channel is self.channel
        self.alerts.append((key, facts))
        self._changes.notify()

    @property
    def alert_keys(self) -> list[str]:
        return [key for key, _ in self.alerts]

    @property
    def messages(self) -> list[IncomingMessage]:
        return [each for each in self.accepted if isinstance(each, IncomingMessage)]

    async def wait(self, holds: Callable[[], object], what: str = "") -> None:
        await self._changes.until(lambda: True if holds() else None, what=what)

    async def message(self, count: int = 1) -> IncomingMessage:
        """The newest message once there are `count` of them."""
        await self.wait(lambda: len(self.messages) >= count, f"{count} messages")
        return self.messages[count - 1]

    def _fail_if_told(self) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError(28, "No space left on device")


# A shape the type checker compares.
_INBOX: type[InboxPort] = FakeInbox
