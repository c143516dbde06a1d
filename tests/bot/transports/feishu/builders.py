"""A fake core behind the transport, and letters to give it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from bot.transports.feishu.transport import FeishuTransport
from bot.transports.ports import DeliveryResult, OutboundMessage, PressToast
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
from storage.records.messages import (
    DeliveryUrgency,
    InboxId,
    IncomingChatOpen,
    IncomingMessage,
    IncomingPress,
    MessagePlacement,
    OutboxId,
)
from storage.records.people import Channel, ChatId, ChatKind, ChatSettings, Language
from storage.records.people import Chat as StoredChat
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.feishu.tenant import FeishuChat
from tests.waiting import ChangeSignal

TOKEN = "aaaabbbbcccc"


class FakeFeishuInbox:
    """Stores in memory, keeps the promise about repeats, answers presses as told."""

    def __init__(self) -> None:
        self.arrived: list[IncomingMessage | IncomingChatOpen] = []
        self.pressed: list[IncomingPress] = []
        self.recalled: list[str] = []
        self.arrived_before_recall = 0
        self.connections: list[Channel] = []
        self.alerts: list[tuple[str, dict[str, object]]] = []
        self.broken = 0
        self.press_error: Exception | None = None
        self.toast = PressToast(text="Paused")
        self.gate: asyncio.Event | None = None
        self.during_press: Callable[[], Awaitable[object]] | None = None
        self._seen: set[str] = set()
        self._changes = ChangeSignal()

    async def accept(
        self, incoming: IncomingMessage | IncomingChatOpen, *, dedupe: str
    ) -> InboxId | None:
        if self.broken:
            self.broken -= 1
            raise OSError("disk full")
        if dedupe in self._seen:
            return None
        self._seen.add(dedupe)
        self.arrived.append(incoming)
        self._changes.notify()
        return InboxId(len(self.arrived))

    async def recall(self, channel: Channel, *, dedupe: str) -> None:
        self.recalled.append(dedupe)
        self.arrived_before_recall = len(self.arrived)
        self._changes.notify()

    async def press(
        self, incoming: IncomingPress, *, dedupe: str, wait_seconds: float
    ) -> PressToast:
        self.pressed.append(incoming)
        self._changes.notify()
        if self.press_error is not None:
            raise self.press_error
        if self.during_press is not None:
            await self.during_press()
        if self.gate is not None:
            await self.gate.wait()
        return self.toast

    def connected(self, channel: Channel) -> None:
        self.connections.append(channel)

    def alert(self, channel: Channel, key: str, **facts: object) -> None:
        self.alerts.append((key, facts))
        self._changes.notify()

    async def until(self, condition: Callable[[], object]) -> None:
        await self._changes.until_true(condition)

    async def message(self, number: int = 1) -> IncomingMessage:
        """The newest of so many messages, once they are there."""
        await self.until(lambda: len(self.arrived) >= number)
        found = self.arrived[number - 1]
        assert isinstance(found, IncomingMessage)
        return found


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
    inbox: FakeFeishuInbox
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
