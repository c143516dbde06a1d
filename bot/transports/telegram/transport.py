"""The Telegram transport. The Bot API library is loaded when the channel starts."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bot.transports.ports import (
    CommandMenu,
    DeliveryResult,
    InboxPort,
    OutboundMessage,
    PlatformUnavailable,
)
from storage.records.messages import RemoteFile
from storage.records.people import Channel, Chat

if TYPE_CHECKING:
    from bot.transports.telegram.polling import TelegramPollPace
    from bot.transports.telegram.session import TelegramSession
    from bot.transports.telegram.streaming import TelegramStreamPace

REQUEST_TIMEOUT = 15.0
PRESS_WAIT = 2.0


@dataclass(kw_only=True, eq=False)
class TelegramTransport:
    """One bot. `base_url` is the host root, empty for the public API."""

    channel = Channel.TELEGRAM

    token: str = field(repr=False)
    base_url: str
    inbox: InboxPort
    home: Path
    menu: CommandMenu
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    request_seconds: float = REQUEST_TIMEOUT
    press_seconds: float = PRESS_WAIT
    pace: TelegramPollPace | None = None
    stream_pace: TelegramStreamPace | None = None
    _session: TelegramSession | None = field(default=None, init=False)

    async def start(self, stack: AsyncExitStack) -> None:
        with _without_module("cryptography"):
            from bot.transports.telegram.session import open_telegram_session  # loads the library

        self._session = await open_telegram_session(
            stack,
            token=self.token.strip(),
            base_url=self.base_url.strip(),
            inbox=self.inbox,
            home=self.home,
            menu=self.menu,
            sleep=self.sleep,
            request_seconds=self.request_seconds,
            press_seconds=self.press_seconds,
            pace=self.pace,
            stream_pace=self.stream_pace,
        )

    async def run(self) -> None:
        await self._get_session().poller.run()

    async def deliver(self, message: OutboundMessage) -> DeliveryResult:
        return await self._get_session().deliveries.deliver(message)

    async def stream(self, message: OutboundMessage, markdown: str) -> None:
        self._get_session().stream(message, markdown)

    async def show_typing(self, chat: Chat) -> None:
        await self._get_session().show_typing(chat)

    async def fetch(self, file: RemoteFile, into: Path) -> Path:
        return await self._get_session().fetch(file, into)

    def _get_session(self) -> TelegramSession:
        if self._session is None:
            raise PlatformUnavailable("the Telegram channel has not started")
        return self._session


@contextmanager
def _without_module(name: str) -> Iterator[None]:
    """Make the module look missing while others load: the library would use it for passports only,
    and it takes 7 MB."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]  # None is "not there"
    try:
        yield
    finally:
        del sys.modules[name]
