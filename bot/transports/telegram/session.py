"""Assembles the components of the Telegram transport, and downloads received files."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from telegram.constants import ChatAction
from telegram.error import TelegramError

from bot.transports.files import MAX_DOWNLOAD_BYTES, write_new_file
from bot.transports.ports import CommandMenu, FileTooLarge, InboxPort, OutboundMessage
from bot.transports.telegram.api import (
    PUBLIC_API,
    TelegramClient,
    open_telegram_client,
    translate_error,
)
from bot.transports.telegram.delivery import TelegramDelivery, get_target
from bot.transports.telegram.incoming import TelegramPressHandler
from bot.transports.telegram.messages import AskedConfirmations, TelegramSender
from bot.transports.telegram.polling import AsyncSleep, TelegramPoller, TelegramPollPace
from bot.transports.telegram.streaming import TelegramStreamPace, TelegramStreams
from storage.records.messages import RemoteFile
from storage.records.people import Chat


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramSession:
    client: TelegramClient
    sender: TelegramSender
    streams: TelegramStreams
    deliveries: TelegramDelivery
    poller: TelegramPoller

    def stream(self, message: OutboundMessage, markdown: str) -> None:
        reply_to = message.reply_to if message.placed is None else ""
        self.streams.show(message, markdown, get_target(message.chat, reply_to))

    async def show_typing(self, chat: Chat) -> None:
        with contextlib.suppress(TelegramError):
            await self.sender.send_action(get_target(chat), ChatAction.TYPING)

    async def fetch(self, file: RemoteFile, into: Path) -> Path:
        """Download a received file. Raises DeliveryError only."""
        if file.size > MAX_DOWNLOAD_BYTES:
            raise FileTooLarge(f"{file.size} bytes")
        try:
            remote = await self.client.bot.get_file(file.reference["file_id"])
            content = bytes(await remote.download_as_bytearray())
        except TelegramError as error:
            raise translate_error(error, repeatable=True) from error
        if len(content) > MAX_DOWNLOAD_BYTES:
            raise FileTooLarge(f"{len(content)} bytes")
        return await asyncio.to_thread(write_new_file, into, file.name, content)


async def open_telegram_session(
    stack: AsyncExitStack,
    *,
    token: str,
    base_url: str,
    inbox: InboxPort,
    home: Path,
    menu: CommandMenu,
    sleep: AsyncSleep,
    request_seconds: float,
    press_seconds: float,
    pace: TelegramPollPace | None,
    stream_pace: TelegramStreamPace | None,
) -> TelegramSession:
    """Build all components and register their cleanup on the stack."""
    client = await open_telegram_client(
        stack, token=token, base_url=base_url, request_seconds=request_seconds
    )
    asked = AskedConfirmations()
    sender = TelegramSender(client.bot, asked)
    streams = TelegramStreams(sender, stream_pace or TelegramStreamPace(), sleep)
    stack.push_async_callback(streams.close)
    poller = TelegramPoller(
        client=client,
        inbox=inbox,
        press_handler=TelegramPressHandler(
            bot=client.bot, inbox=inbox, asked=asked, wait_seconds=press_seconds
        ),
        menu=menu,
        address=base_url or PUBLIC_API,
        pace=pace or TelegramPollPace(),
        sleep=sleep,
    )
    return TelegramSession(
        client=client,
        sender=sender,
        streams=streams,
        deliveries=TelegramDelivery(sender, streams, home),
        poller=poller,
    )
