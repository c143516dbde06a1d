"""A clock one turns by hand, a platform that does as it is told, and a post office around them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from bot.transports.alerts import Alerts
from bot.transports.base import Delivery as Shown
from bot.transports.base import Letter
from bot.transports.courier import OutboxCourier
from bot.transports.delivery import Delivery
from bot.transports.pacing import PACES, ChannelPace
from bot.transports.quota import MonthlyQuota
from cards.model import Card, Text
from handlers.language import LanguageOfLetters
from storage.db import Database
from storage.records.messages import Placed, RemoteFile, Urgency
from storage.records.people import Channel, Chat, Language
from tests.fresh_store import open_store
from tests.storage.mail_room import START, Room

PATIENCE = 60.0
"""Real seconds after which a test gives up waiting."""


class FakeClock:
    """Time stands still until `advance`."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []
        self._news = asyncio.Event()

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def elapsed(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        sleeper = (self.seconds + seconds, asyncio.get_running_loop().create_future())
        self._sleepers.append(sleeper)
        self._news.set()
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
        async with asyncio.timeout(PATIENCE):
            while not any(abs(at - self.seconds - seconds) < 1e-3 for at, _ in self._sleepers):
                self._news.clear()
                await self._news.wait()


class FakeTransport:
    """Shows every letter, unless `script` says what to raise first."""

    def __init__(self, channel: Channel = Channel.TELEGRAM, clock: FakeClock | None = None) -> None:
        self.channel = channel
        self.letters: list[Letter] = []
        self.times: list[float] = []
        self.streamed: list[str] = []
        self.streamed_in: list[Language] = []
        self.typed: list[Chat] = []
        self.script: deque[Exception | None] = deque()
        self.gate: asyncio.Event | None = None
        self.files: dict[str, Exception | None] = {}
        self._clock = clock
        self._news = asyncio.Event()

    @property
    def texts(self) -> list[str]:
        return [text_of(letter.card) for letter in self.letters]

    async def start(self, stack: AsyncExitStack) -> None: ...

    async def run(self) -> None: ...

    async def deliver(self, letter: Letter) -> Shown:
        self.letters.append(letter)
        self.times.append(self._clock.seconds if self._clock else 0.0)
        self._news.set()
        if self.gate is not None:
            await self.gate.wait()
        trouble = self.script.popleft() if self.script else None
        if trouble is not None:
            raise trouble
        return Shown(placed=letter.placed or Placed(message_ids=(f"m{letter.outbox_id}",)))

    async def stream(self, letter: Letter, markdown: str) -> None:
        self.streamed.append(markdown)
        self.streamed_in.append(letter.language)
        self._news.set()

    async def typing(self, chat: Chat) -> None:
        self.typed.append(chat)
        self._news.set()

    async def fetch(self, file: RemoteFile, into: Path) -> Path:
        trouble = self.files.get(file.name)
        if trouble is not None:
            raise trouble
        path = into / file.name
        path.write_text(f"bytes of {file.name}")
        return path

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that happens here."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self._news.clear()
                await self._news.wait()

    async def sent(self, count: int) -> None:
        await self.until(lambda: len(self.letters) >= count)


@dataclass
class Post:
    """Everything of the mail room that speaks to platforms, on one store."""

    room: Room
    clock: FakeClock
    transports: dict[Channel, FakeTransport]
    delivery: Delivery
    courier: OutboxCourier
    alerts: Alerts
    running: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def telegram(self) -> FakeTransport:
        return self.transports[Channel.TELEGRAM]

    def run(self) -> None:
        self.running.append(asyncio.create_task(self.delivery.run()))

    async def stop(self) -> None:
        """As a kill does it: nothing gets to finish."""
        for task in self.running:
            task.cancel()
        await asyncio.gather(*self.running, return_exceptions=True)
        self.running.clear()

    async def say(
        self, chat: Chat, text: str, *, key: str = "k", urgency: Urgency = Urgency.ANSWER
    ) -> None:
        await self.courier.send(chat.id, said(text), key=key, urgency=urgency)

    async def settled(self, key: str = "k", state: str = "shown") -> None:
        """Wait until the row under `key` is in that state."""
        await eventually(lambda: self._is(key, state))

    async def _is(self, key: str, state: str) -> bool:
        async with self.room.db.read() as view:
            found = await view.exec_driver_sql("SELECT state FROM outbox WHERE key = ?", (key,))
            return found.scalar() == state


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """For what only the store tells; every look at it is a wait of its own."""
    async with asyncio.timeout(PATIENCE):
        while not await condition():
            await asyncio.sleep(0.001)


def said(text: str) -> Card:
    return Card(blocks=(Text(markdown=text),))


def text_of(card: Card) -> str:
    return "\n".join(block.markdown for block in card.blocks if isinstance(block, Text))


def build_post(
    db: Database,
    clock: FakeClock,
    transports: dict[Channel, FakeTransport],
    *,
    paces: Mapping[Channel, ChannelPace] = PACES,
    quota: int = 0,
    last_words: float = 0.0,
    fixed: Language | None = None,
) -> Post:
    room = Room(db)
    alerts = Alerts(transports)
    quotas = {
        channel: MonthlyQuota(channel, marks=room.marks, alerts=alerts, now=clock.now, quota=quota)
        for channel in transports
    }
    everyone: dict[Channel, Any] = dict(transports)
    delivery = Delivery(
        db=db,
        outbox=room.outbox,
        transports=everyone,
        clock=clock,
        alerts=alerts,
        language_of=LanguageOfLetters(room.people, fixed),
        quotas=quotas,
        paces=paces,
        jitter=lambda: 1.0,
        last_words=last_words,
    )
    courier = OutboxCourier(
        db=db,
        chats=room.chats,
        outbox=room.outbox,
        actions=room.actions,
        streams=delivery.streams,
        wake=delivery.wake,
        clock=clock,
    )
    return Post(
        room=room,
        clock=clock,
        transports=transports,
        delivery=delivery,
        courier=courier,
        alerts=alerts,
    )


@asynccontextmanager
async def post_office(
    folder: Path,
    *channels: Channel,
    clock: FakeClock | None = None,
    **rest: Any,
) -> AsyncIterator[Post]:
    """A post office on the store in `folder`; what is in there from before is still in there."""
    clock = clock or FakeClock()
    transports = {
        channel: FakeTransport(channel, clock) for channel in channels or (Channel.TELEGRAM,)
    }
    async with AsyncExitStack() as stack:
        db = await stack.enter_async_context(open_store(folder))
        post = build_post(db, clock, transports, **rest)
        await post.delivery.start(stack)
        stack.push_async_callback(post.stop)
        yield post
