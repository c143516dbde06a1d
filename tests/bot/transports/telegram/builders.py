"""The surroundings of the Telegram channel in its tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from bot.transports.ports import DeliveryResult, OutboundMessage, Transport
from bot.transports.telegram.polling import TelegramPollPace
from bot.transports.telegram.streaming import TelegramStreamPace
from bot.transports.telegram.transport import TelegramTransport
from cards.actions import PauseTask
from cards.model import Block, ButtonsBlock, Card, CardButton, TextBlock
from storage.records.messages import DeliveryUrgency, MessagePlacement, OutboxId
from storage.records.people import Channel, Chat, ChatId, ChatKind, ChatSettings, Language
from tests.emulators.telegram import chats
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.fakes.inbox import FakeInbox

TOKEN = "k3m9qa7x2b4c"
PAUSE = ButtonsBlock(
    items=(CardButton(label="Pause", action=PauseTask(task_id="k3m9qa"), token=TOKEN),)
)


class FakeSleep:
    """Passes at once and remembers how long it should have been."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.before: dict[float, Callable[[], Any]] = {}

    async def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)
        act = self.before.pop(seconds, None)
        if act is not None:
            await act()
        await asyncio.sleep(0)


# Shapes the type checker compares.
_TRANSPORT: type[Transport] = TelegramTransport


def menu(language: Language) -> tuple[tuple[str, str], ...]:
    if language is Language.CHINESE:
        return (("help", "帮助"), ("帮助", "同上"))
    return (
        ("help", "What you can type"),
        ("run", "Start a task"),
        ("bad-name", "not for Telegram"),
    )


async def deliver_whole(transport: Transport, message: OutboundMessage) -> DeliveryResult:
    """The card and then its files, turn by turn as the outbox does it."""
    result = await transport.deliver(message)
    degraded = [*result.degraded]
    while result.files_left:
        message = replace(message, placed=result.placed, repeat=False, files_only=True)
        result = await transport.deliver(message)
        degraded += result.degraded
    return replace(result, degraded=tuple(degraded))


def make_transport(
    tg: TelegramEmulator, intake: FakeInbox, home: Path, sleep: Any, **changed: Any
) -> TelegramTransport:
    settings: dict[str, Any] = {
        "token": tg.token,
        "base_url": tg.base_url,
        "inbox": intake,
        "home": home,
        "menu": menu,
        "sleep": sleep,
        "request_seconds": 5.0,
        "pace": TelegramPollPace(poll=5.0),
        "stream_pace": TelegramStreamPace(),
    }
    return TelegramTransport(**(settings | changed))


@asynccontextmanager
async def started(transport: TelegramTransport) -> AsyncIterator[TelegramTransport]:
    """Able to send, not receiving."""
    async with AsyncExitStack() as stack:
        await transport.start(stack)
        yield transport


@asynccontextmanager
async def running(transport: TelegramTransport) -> AsyncIterator[TelegramTransport]:
    """Sending and receiving; leaving is as sudden as a crash."""
    async with started(transport):
        task = asyncio.create_task(transport.run())
        try:
            yield transport
        finally:
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled(), task.exception()


def chat_record(
    chat: chats.TelegramChat, *, thread: int | None = None, language: str = "en"
) -> Chat:
    return Chat(
        id=ChatId(f"telegram:{chat.id}"),
        channel=Channel.TELEGRAM,
        external_id=str(chat.id),
        thread=str(thread or ""),
        kind=ChatKind.PRIVATE if chat.kind == "private" else ChatKind.GROUP,
        title=chat.title,
        settings=ChatSettings(language=Language(language)),
        person_id=None,
    )


def letter(chat: chats.TelegramChat, *blocks: Block, **rest: Any) -> OutboundMessage:
    thread = rest.pop("thread", None)
    language = rest.pop("language", "en")
    title = rest.pop("title", "")
    plain: dict[str, Any] = {
        "outbox_id": OutboxId(1),
        "revision": 1,
        "urgency": DeliveryUrgency.ANSWER,
        "idempotency_key": "u1",
    }
    return OutboundMessage(
        chat=chat_record(chat, thread=thread, language=language),
        card=Card(title=title, blocks=blocks),
        language=Language(language),
        **(plain | rest),
    )


def text_letter(chat: chats.TelegramChat, text: str, **rest: Any) -> OutboundMessage:
    return letter(chat, TextBlock(markdown=text), **rest)


def later(
    first: OutboundMessage, placed: MessagePlacement | None, *blocks: Block
) -> OutboundMessage:
    """The next revision of a letter."""
    return replace(
        first,
        card=replace(first.card, blocks=blocks),
        revision=first.revision + 1,
        placed=placed,
    )
