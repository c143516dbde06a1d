"""A clock one turns by hand, a platform that does as it is told, and a post office around them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from bot.transports.alerts import ChannelAlerts
from bot.transports.outbox import OutboxCourier
from bot.transports.outbox_sender import OutboxSender
from bot.transports.ports import DeliveryResult as Shown
from bot.transports.ports import OutboundMessage
from bot.transports.quota import MonthlyQuota
from bot.transports.rate_limits import CHANNEL_LIMITS, ChannelLimits
from cards.model import Card, TextBlock
from handlers.language import CardLanguageResolver
from storage.db import Database
from storage.records.messages import DeliveryUrgency, MessagePlacement, RemoteFile
from storage.records.people import Channel, Chat, Language
from tests.migrated_database import open_database
from tests.storage.message_store import START, MessageStore
from tests.waiting import ChangeSignal, wait_until


class FakeClock:
    """Time stands still until `advance`."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []
        self._changes = ChangeSignal()

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def elapsed(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        sleeper = (self.seconds + seconds, asyncio.get_running_loop().create_future())
        self._sleepers.append(sleeper)
        self._changes.notify()
        try:
            await sleeper[1]
        finally:
            self._sleepers.remove(sleeper)

    def advance(self, seconds: float) -> None:
        self.seconds += seconds
        for deadline, sleeper in self._sleepers:
            # Clocks are floats: what is due to the microsecond is due.
            if deadline <= self.seconds + 1e-6 and not sleeper.done():
                sleeper.set_result(None)

    async def someone_sleeps(self, seconds: float) -> None:
        """Wait until somebody wants to be woken in just so many seconds."""
        await self._changes.until_true(
            lambda: any(abs(at - self.seconds - seconds) < 1e-3 for at, _ in self._sleepers)
        )


class FakeTransport:
    """Shows every letter, unless `script` says what to raise first."""

    def __init__(self, channel: Channel = Channel.TELEGRAM, clock: FakeClock | None = None) -> None:
        self.channel = channel
        self.letters: list[OutboundMessage] = []
        self.times: list[float] = []
        self.streamed: list[str] = []
        self.streamed_in: list[Language] = []
        self.typed: list[Chat] = []
        self.script: deque[Exception | None] = deque()
        self.gate: asyncio.Event | None = None
        self.files: dict[str, Exception | None] = {}
        self.files_of: dict[str, int] = {}
        self._clock = clock
        self._changes = ChangeSignal()

    @property
    def texts(self) -> list[str]:
        return [text_of(letter.card) for letter in self.letters]

    async def start(self, stack: AsyncExitStack) -> None: ...

    async def run(self) -> None: ...

    async def deliver(self, message: OutboundMessage) -> Shown:
        self.letters.append(message)
        self.times.append(self._clock.seconds if self._clock else 0.0)
        self._changes.notify()
        if self.gate is not None:
            await self.gate.wait()
        trouble = self.script.popleft() if self.script else None
        if trouble is not None:
            raise trouble
        placed = message.placed or MessagePlacement(message_ids=(f"m{message.outbox_id}",))
        left = self.files_of.get(text_of(message.card), 0)
        if message.files_only and left:
            left = self.files_of[text_of(message.card)] = left - 1
            ids = (*placed.message_ids, f"m{message.outbox_id}-file{left}")
            placed = MessagePlacement(message_ids=ids)
        return Shown(placed=placed, files_left=left)

    async def stream(self, message: OutboundMessage, markdown: str) -> None:
        self.streamed.append(markdown)
        self.streamed_in.append(message.language)
        self._changes.notify()

    async def show_typing(self, chat: Chat) -> None:
        self.typed.append(chat)
        self._changes.notify()

    async def fetch(self, file: RemoteFile, into: Path) -> Path:
        trouble = self.files.get(file.name)
        if trouble is not None:
            raise trouble
        path = into / file.name
        path.write_text(f"bytes of {file.name}")
        return path

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that happens here."""
        await self._changes.until_true(condition)

    async def sent(self, count: int) -> None:
        await self.until(lambda: len(self.letters) >= count)


@dataclass
class OutboxHarness:
    """Everything of the mail room that speaks to platforms, on one store."""

    room: MessageStore
    clock: FakeClock
    transports: dict[Channel, FakeTransport]
    outbox_sender: OutboxSender
    courier: OutboxCourier
    alerts: ChannelAlerts
    running: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def telegram(self) -> FakeTransport:
        return self.transports[Channel.TELEGRAM]

    def run(self) -> None:
        self.running.append(asyncio.create_task(self.outbox_sender.run()))

    async def stop(self) -> None:
        """As a kill does it: nothing gets to finish."""
        for task in self.running:
            task.cancel()
        await asyncio.gather(*self.running, return_exceptions=True)
        self.running.clear()

    async def say(
        self,
        chat: Chat,
        text: str,
        *,
        key: str = "k",
        urgency: DeliveryUrgency = DeliveryUrgency.ANSWER,
    ) -> None:
        await self.courier.send(chat.id, text_card(text), key=key, urgency=urgency)

    async def settled(self, key: str = "k", state: str = "shown") -> None:
        """Wait until the row under `key` is in that state."""
        await wait_until(lambda: self._is(key, state))

    async def stored_failures(self, count: int) -> bool:
        """True once so many rows wait for another try."""
        async with self.room.db.read() as view:
            found = await view.exec_driver_sql("SELECT count(*) FROM outbox WHERE error <> ''")
            return bool(found.scalar() == count)

    async def alerted(self) -> None:
        """Wait for an alert: it follows the row, which is stored first."""

        async def has_alert() -> bool:
            return any(health.alert for health in self.alerts.health())

        await wait_until(has_alert)

    async def _is(self, key: str, state: str) -> bool:
        async with self.room.db.read() as view:
            found = await view.exec_driver_sql("SELECT state FROM outbox WHERE key = ?", (key,))
            return found.scalar() == state


def text_card(text: str) -> Card:
    return Card(blocks=(TextBlock(markdown=text),))


def text_of(card: Card) -> str:
    return "\n".join(block.markdown for block in card.blocks if isinstance(block, TextBlock))


def build_outbox(
    db: Database,
    clock: FakeClock,
    transports: dict[Channel, FakeTransport],
    *,
    channel_limits: Mapping[Channel, ChannelLimits] = CHANNEL_LIMITS,
    quota: int = 0,
    grace_seconds: float = 0.0,
    fixed: Language | None = None,
    mask: Callable[[str], str] = str,
) -> OutboxHarness:
    room = MessageStore(db)
    alerts = ChannelAlerts(transports)
    quotas = {
        channel: MonthlyQuota(
            channel, key_values=room.key_values, alerts=alerts, now=clock.now, quota=quota
        )
        for channel in transports
    }
    everyone: dict[Channel, Any] = dict(transports)
    delivery = OutboxSender(
        db=db,
        outbox=room.outbox,
        transports=everyone,
        clock=clock,
        alerts=alerts,
        language_of=CardLanguageResolver(room.people, fixed),
        quotas=quotas,
        channel_limits=channel_limits,
        jitter=lambda: 1.0,
        grace_seconds=grace_seconds,
    )
    courier = OutboxCourier(
        db=db,
        chats=room.chats,
        outbox=room.outbox,
        actions=room.actions,
        streams=delivery.streams,
        wake=delivery.wake,
        clock=clock,
        mask=mask,
    )
    return OutboxHarness(
        room=room,
        clock=clock,
        transports=transports,
        outbox_sender=delivery,
        courier=courier,
        alerts=alerts,
    )


@asynccontextmanager
async def outbox_harness(
    folder: Path,
    *channels: Channel,
    clock: FakeClock | None = None,
    **rest: Any,
) -> AsyncIterator[OutboxHarness]:
    """A post office on the store in `folder`; what is in there from before is still in there."""
    clock = clock or FakeClock()
    transports = {
        channel: FakeTransport(channel, clock) for channel in channels or (Channel.TELEGRAM,)
    }
    async with AsyncExitStack() as stack:
        db = await stack.enter_async_context(open_database(folder))
        post = build_outbox(db, clock, transports, **rest)
        await post.outbox_sender.start(stack)
        stack.push_async_callback(post.stop)
        yield post
