"""A fake core behind the transport, and letters to give it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from bot.transports.base import Delivery, Letter, Toast
from bot.transports.feishu.transport import FeishuTransport
from cards.actions import PauseTask
from cards.model import Button, Buttons, Card, Check, Checklist, CheckState, Progress, Text
from storage.records.messages import (
    EntryIn,
    InboxId,
    MessageIn,
    OutboxId,
    Placed,
    PressIn,
    Urgency,
)
from storage.records.people import Channel, ChatId, ChatKind, ChatSettings, Language
from storage.records.people import Chat as StoredChat
from tests.emulators.feishu.server import FeishuEmulator
from tests.emulators.feishu.world import Chat

TOKEN = "aaaabbbbcccc"


class FakeIntake:
    """Stores in memory, keeps the promise about repeats, answers presses as told."""

    def __init__(self) -> None:
        self.arrived: list[MessageIn | EntryIn] = []
        self.pressed: list[PressIn] = []
        self.alerts: list[tuple[str, dict[str, object]]] = []
        self.broken = 0
        self.press_error: Exception | None = None
        self.toast = Toast(text="Paused")
        self.gate: asyncio.Event | None = None
        self.during_press: Callable[[], Awaitable[object]] | None = None
        self._seen: set[str] = set()
        self._bell = asyncio.Event()

    async def accept(self, incoming: MessageIn | EntryIn, *, dedupe: str) -> InboxId | None:
        if self.broken:
            self.broken -= 1
            raise OSError("disk full")
        if dedupe in self._seen:
            return None
        self._seen.add(dedupe)
        self.arrived.append(incoming)
        self._ring()
        return InboxId(len(self.arrived))

    async def press(self, incoming: PressIn, *, dedupe: str, patience: float) -> Toast:
        self.pressed.append(incoming)
        self._ring()
        if self.press_error is not None:
            raise self.press_error
        if self.during_press is not None:
            await self.during_press()
        if self.gate is not None:
            await self.gate.wait()
        return self.toast

    def alert(self, channel: Channel, key: str, **facts: object) -> None:
        self.alerts.append((key, facts))
        self._ring()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                bell = self._bell
                await bell.wait()

    async def message(self, number: int = 1) -> MessageIn:
        """The newest of so many messages, once they are there."""
        await self.until(lambda: len(self.arrived) >= number)
        found = self.arrived[number - 1]
        assert isinstance(found, MessageIn)
        return found

    def _ring(self) -> None:
        bell, self._bell = self._bell, asyncio.Event()
        bell.set()


class Quick:
    """Pauses that take no time but give way, so that tests wait for nothing."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0.001)


@dataclass(slots=True, kw_only=True)
class Desk:
    """One transport with everything around it."""

    fs: FeishuEmulator
    intake: FakeIntake
    transport: FeishuTransport
    home: Path
    quick: Quick
    calls: list[int]
    rows: dict[int, Delivery] = field(default_factory=dict)
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def letter(self, chat: Chat, card: Card, *, thread: str = "", reply_to: str = "") -> Letter:
        """A first revision of a new letter."""
        number = next(self.numbers)
        return Letter(
            outbox_id=OutboxId(number),
            chat=stored(chat, thread=thread),
            card=card,
            revision=1,
            urgency=Urgency.ANSWER,
            uuid=f"uuid-{number}-1",
            reply_to=reply_to,
        )

    async def show(self, letter: Letter) -> Delivery:
        return await self.transport.deliver(letter)

    async def post(self, chat: Chat, card: Card, **more: str) -> tuple[Letter, Delivery]:
        letter = self.letter(chat, card, **more)
        return letter, await self.show(letter)


def next_revision(letter: Letter, card: Card, placed: Placed | None) -> Letter:
    revision = letter.revision + 1
    uuid = f"{letter.uuid.rpartition('-')[0]}-{revision}"
    return replace(letter, card=card, placed=placed, revision=revision, uuid=uuid)


def stored(chat: Chat, *, thread: str = "", language: Language | None = None) -> StoredChat:
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
    return Card(blocks=(Text(markdown=text),))


def answer(text: str) -> Card:
    """A card whose text streams."""
    return Card(blocks=(Text(markdown=text, id="answer"),), summary=text[:30])


def task(percent: int, *, title: str = "Haiku") -> Card:
    pause = Button(label="Pause", action=PauseTask(task_id="t1"), token=TOKEN)
    state = CheckState.DONE if percent == 100 else CheckState.RUNNING
    return Card(
        title=title,
        summary=f"{title} {percent}%",
        blocks=(
            Progress(percent=percent),
            Checklist(items=(Check(label="write", state=state),)),
            Buttons(items=(pause,)),
        ),
    )
