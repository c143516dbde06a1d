"""A fake core behind the transport, and letters to give it."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field, replace
from pathlib import Path

from bot.transports.feishu.transport import FeishuTransport
from bot.transports.ports import DeliveryResult, OutboundMessage
from cards.actions import PauseTask
from cards.model import (
    ButtonsBlock,
    Card,
    CardButton,
    ChecklistBlock,
    ChecklistItem,
    ChecklistState,
    ProgressBlock,
    TextBlock,
)
from storage.records.messages import DeliveryUrgency, MessagePlacement, OutboxId
from storage.records.people import Channel, ChatId, ChatKind, ChatSettings, Language
from storage.records.people import Chat as StoredChat
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.feishu.tenant import FeishuChat
from tests.fakes.inbox import FakeInbox

TOKEN = "aaaabbbbcccc"


class InstantSleep:
    """Pauses that take no time but give way, so that tests wait for nothing."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0.001)


@dataclass(slots=True, kw_only=True)
class FeishuHarness:
    """One transport with everything around it."""

    fs: FeishuEmulator
    inbox: FakeInbox
    transport: FeishuTransport
    home: Path
    quick: InstantSleep
    calls: list[int]
    rows: dict[int, DeliveryResult] = field(default_factory=dict)
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def letter(
        self, chat: FeishuChat, card: Card, *, thread: str = "", reply_to: str = ""
    ) -> OutboundMessage:
        """A first revision of a new letter."""
        number = next(self.numbers)
        return OutboundMessage(
            outbox_id=OutboxId(number),
            chat=stored(chat, thread=thread),
            card=card,
            revision=1,
            urgency=DeliveryUrgency.ANSWER,
            idempotency_key=f"uuid-{number}-1",
            reply_to=reply_to,
        )

    async def show(self, message: OutboundMessage) -> DeliveryResult:
        """The card and then its files, turn by turn as the outbox does it."""
        result = await self.transport.deliver(message)
        degraded = [*result.degraded]
        while result.files_left:
            message = replace(message, placed=result.placed, files_only=True)
            result = await self.transport.deliver(message)
            degraded += result.degraded
        return replace(result, degraded=tuple(degraded))

    async def post(
        self, chat: FeishuChat, card: Card, **more: str
    ) -> tuple[OutboundMessage, DeliveryResult]:
        letter = self.letter(chat, card, **more)
        return letter, await self.show(letter)


def next_revision(
    message: OutboundMessage, card: Card, placed: MessagePlacement | None
) -> OutboundMessage:
    revision = message.revision + 1
    uuid = f"{message.idempotency_key.rpartition('-')[0]}-{revision}"
    return replace(message, card=card, placed=placed, revision=revision, idempotency_key=uuid)


def stored(chat: FeishuChat, *, thread: str = "", language: Language | None = None) -> StoredChat:
    return StoredChat(
        id=ChatId(f"c{chat.chat_id}"),
        channel=Channel.FEISHU,
        external_id=chat.chat_id,
        thread=thread,
        kind=ChatKind.PRIVATE if chat.kind == "p2p" else ChatKind.GROUP,
        title=chat.title,
        settings=ChatSettings(language=language),
        person_id=None,
    )


def plain(text: str) -> Card:
    return Card(blocks=(TextBlock(markdown=text),))


def answer(text: str) -> Card:
    """A card whose text streams."""
    return Card(blocks=(TextBlock(markdown=text, id="answer"),), summary=text[:30])


def task(percent: int, *, title: str = "Haiku") -> Card:
    pause = CardButton(label="Pause", action=PauseTask(task_id="t1"), token=TOKEN)
    state = ChecklistState.DONE if percent == 100 else ChecklistState.RUNNING
    return Card(
        title=title,
        summary=f"{title} {percent}%",
        blocks=(
            ProgressBlock(percent=percent),
            ChecklistBlock(items=(ChecklistItem(label="write", state=state),)),
            ButtonsBlock(items=(pause,)),
        ),
    )
