"""The parts of the Telegram channel, fitted together."""

from __future__ import annotations

import contextlib
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from telegram.constants import ChatAction
from telegram.error import TelegramError

from bot.transports.base import Intake, Letter, Menu
from bot.transports.telegram.api import PUBLIC_API, Client, open_client
from bot.transports.telegram.delivery import Deliveries, target_of
from bot.transports.telegram.files import download
from bot.transports.telegram.polling import Pace, Poller, Sleep
from bot.transports.telegram.presses import Presses
from bot.transports.telegram.sending import Sender
from bot.transports.telegram.streaming import StreamPace, Streams
from storage.records.messages import RemoteFile
from storage.records.people import Chat


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    client: Client
    sender: Sender
    streams: Streams
    deliveries: Deliveries
    poller: Poller

    def stream(self, letter: Letter, markdown: str) -> None:
        reply_to = letter.reply_to if letter.placed is None else ""
        self.streams.show(letter, markdown, target_of(letter.chat, reply_to))

    async def typing(self, chat: Chat) -> None:
        with contextlib.suppress(TelegramError):
            await self.sender.action(target_of(chat), ChatAction.TYPING)

    async def fetch(self, file: RemoteFile, into: Path) -> Path:
        return await download(self.client.bot, file, into)


async def open_session(
    stack: AsyncExitStack,
    *,
    token: str,
    base_url: str,
    intake: Intake,
    home: Path,
    menu: Menu,
    sleep: Sleep,
    request_seconds: float,
    press_seconds: float,
    pace: Pace | None,
    stream_pace: StreamPace | None,
) -> Session:
    """Build everything; what must be closed goes on the stack."""
    client = await open_client(stack, token=token, base_url=base_url, patience=request_seconds)
    sender = Sender(client.bot)
    streams = Streams(sender, stream_pace or StreamPace(), sleep)
    stack.push_async_callback(streams.close)
    poller = Poller(
        client=client,
        intake=intake,
        presses=Presses(bot=client.bot, intake=intake, patience=press_seconds),
        menu=menu,
        address=base_url or PUBLIC_API,
        pace=pace or Pace(),
        sleep=sleep,
    )
    return Session(
        client=client,
        sender=sender,
        streams=streams,
        deliveries=Deliveries(sender, streams, home),
        poller=poller,
    )
