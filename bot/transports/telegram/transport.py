"""Telegram as a Transport. The Bot API library is loaded when the channel starts, not before."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from bot.transports.base import Delivery, Intake, Letter, Menu, Unavailable
from storage.records.messages import RemoteFile
from storage.records.people import Channel, Chat

if TYPE_CHECKING:
    from bot.transports.telegram.polling import Pace
    from bot.transports.telegram.session import Session
    from bot.transports.telegram.streaming import StreamPace

REQUEST_SECONDS = 15.0
PRESS_SECONDS = 2.0


class TelegramTransport:
    """One bot. `base_url` is the host root, empty for the public API."""

    channel = Channel.TELEGRAM

    def __init__(
        self,
        *,
        token: str,
        base_url: str,
        intake: Intake,
        home: Path,
        menu: Menu,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        request_seconds: float = REQUEST_SECONDS,
        press_seconds: float = PRESS_SECONDS,
        pace: Pace | None = None,
        stream_pace: StreamPace | None = None,
    ) -> None:
        self._token = token.strip()
        self._base_url = base_url.strip()
        self._intake = intake
        self._home = home
        self._menu = menu
        self._sleep = sleep
        self._request_seconds = request_seconds
        self._press_seconds = press_seconds
        self._pace = pace
        self._stream_pace = stream_pace
        self._session: Session | None = None

    async def start(self, stack: AsyncExitStack) -> None:
        from bot.transports.telegram.session import open_session  # loads the library

        self._session = await open_session(
            stack,
            token=self._token,
            base_url=self._base_url,
            intake=self._intake,
            home=self._home,
            menu=self._menu,
            sleep=self._sleep,
            request_seconds=self._request_seconds,
            press_seconds=self._press_seconds,
            pace=self._pace,
            stream_pace=self._stream_pace,
        )

    async def run(self) -> None:
        await self._running().poller.run()

    async def deliver(self, letter: Letter) -> Delivery:
        return await self._running().deliveries.deliver(letter)

    async def stream(self, letter: Letter, markdown: str) -> None:
        self._running().stream(letter, markdown)

    async def typing(self, chat: Chat) -> None:
        await self._running().typing(chat)

    async def fetch(self, file: RemoteFile, into: Path) -> Path:
        return await self._running().fetch(file, into)

    def _running(self) -> Session:
        if self._session is None:
            raise Unavailable("the Telegram channel has not started")
        return self._session
