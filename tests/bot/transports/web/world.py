"""The web chat on a real port, with an intake and a history that remember what happened."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Origin

from bot.transports.base import Letter, Toast
from bot.transports.web.ports import CardShown, Said, Spoken
from bot.transports.web.token import cookie_value
from bot.transports.web.transport import WebTransport
from cards.model import Card
from cards.words import Words
from storage.records.messages import EntryIn, InboxId, MessageIn, OutboxId, Place, PressIn, Urgency
from storage.records.people import Channel, Chat, ChatId, ChatKind, ChatSettings, Language, PersonId

TOKEN = "a-token-for-tests"
CHAT = Chat(
    id=ChatId("c1"),
    channel=Channel.WEB,
    external_id="local",
    thread="",
    kind=ChatKind.PRIVATE,
    title="",
    settings=ChatSettings(),
    person_id=PersonId("p1"),
)


async def _nothing(_incoming: MessageIn) -> None:
    return


@dataclass
class FakeIntake:
    """`answer` is called for each new message, `toast` decides what a press is told."""

    accepted: list[MessageIn | EntryIn] = field(default_factory=list)
    pressed: list[PressIn] = field(default_factory=list)
    alerts: list[str] = field(default_factory=list)
    answer: Callable[[MessageIn], Awaitable[None]] = _nothing
    toast: Callable[[PressIn], Toast] = lambda _press: Toast(text="Done")
    broken: bool = False
    keys: set[str] = field(default_factory=set)
    said: list[MessageIn] = field(default_factory=list)

    async def accept(self, incoming: MessageIn | EntryIn, *, dedupe: str) -> InboxId | None:
        if self.broken:
            raise OSError(28, "No space left on device")
        if dedupe in self.keys:
            return None
        self.keys.add(dedupe)
        self.accepted.append(incoming)
        if isinstance(incoming, MessageIn):
            self.said.append(incoming)
            self.task = asyncio.create_task(self.handle(incoming))
        return InboxId(len(self.accepted))

    async def handle(self, incoming: MessageIn) -> None:
        # Answers come after the message is stored, as in the program.
        await asyncio.sleep(0)
        await self.answer(incoming)

    async def press(self, incoming: PressIn, *, dedupe: str, patience: float) -> Toast:
        if self.broken:
            raise OSError(28, "No space left on device")
        self.pressed.append(incoming)
        return self.toast(incoming)

    def alert(self, channel: Channel, key: str, **facts: object) -> None:
        self.alerts.append(f"{channel}.{key}")


@dataclass
class FakeHistory:
    intake: FakeIntake
    cards: dict[OutboxId, CardShown] = field(default_factory=dict)

    async def recent(self, place: Place, limit: int) -> Sequence[Said]:
        items: list[Said] = [*self.intake.said, *self.cards.values()]
        items.sort(key=lambda item: item.at if isinstance(item, CardShown) else item.sent_at)
        return items[-limit:]


@dataclass
class FakeSpeaker:
    cards: tuple[Card, ...] = ()
    heard: list[MessageIn] = field(default_factory=list)
    broken: bool = False
    good: bool = True
    data: dict[str, object] | None = None

    async def say(self, incoming: MessageIn, *, dedupe: str) -> Spoken:
        if self.broken:
            raise OSError(28, "No space left on device")
        self.heard.append(incoming)
        return Spoken(cards=self.cards, good=self.good, data=self.data)


@dataclass
class FakeAlerts:
    current: list[str] = field(default_factory=list)

    def lines(self, words: Words) -> Sequence[str]:
        return [f"{words.language}: {line}" for line in self.current]


def menu(language: Language) -> tuple[tuple[str, str], ...]:
    if language is Language.CHINESE:
        return (("run", "开始一个任务"), ("list", "列出任务"), ("help", "查看所有命令"))
    return (
        ("run", "Start a task"),
        ("list", "List tasks"),
        ("stop", "Stop a task"),
        ("status", "How Shiftboss is doing"),
        ("help", "All commands"),
    )


class World:
    """Time moves by one second at every look at the clock, so that order is certain."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.intake = FakeIntake()
        self.history = FakeHistory(self.intake)
        self.speaker = FakeSpeaker()
        self.alerts = FakeAlerts()
        self.port = 0
        self.settings: dict[str, Any] = {}
        self._clock = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
        self.transport: WebTransport
        self._stack: AsyncExitStack
        self._running: asyncio.Task[None]

    def now(self) -> datetime:
        self._clock += timedelta(seconds=1)
        return self._clock

    async def start(self) -> None:
        wanted = {"host": "127.0.0.1", "token": TOKEN, **self.settings}
        self.transport = WebTransport(
            port=self.port,
            home=self.home,
            intake=self.intake,
            menu=menu,
            history=self.history,
            speaker=self.speaker,
            alerts=self.alerts,
            now=self.now,
            **wanted,
        )
        self._stack = AsyncExitStack()
        await self.transport.start(self._stack)
        self._running = asyncio.create_task(self.transport.run())
        self.port = httpx.URL(self.transport.address).port or 0

    async def stop(self) -> None:
        self._running.cancel()
        await asyncio.wait([self._running])
        await self._stack.aclose()

    async def show(self, outbox_id: int, card: Card, revision: int = 1, reply_to: str = "") -> None:
        """As the delivery loop does: the row is there first, then it is delivered."""
        number = OutboxId(outbox_id)
        known = self.history.cards.get(number)
        if known is None or revision >= known.revision:
            self.history.cards[number] = CardShown(
                outbox_id=number,
                revision=revision,
                card=card,
                at=known.at if known else self.now(),
                reply_to=reply_to,
            )
        await self.transport.deliver(letter(outbox_id, card, revision, reply_to))

    @property
    def url(self) -> str:
        return self.transport.address.rstrip("/")

    @property
    def cookie(self) -> dict[str, str]:
        return {f"shiftboss_{self.port}": cookie_value(self.transport.token)}

    def browser(self, **changes: Any) -> httpx.AsyncClient:
        """Someone who has opened the page."""
        headers = {"origin": self.url} | changes.pop("headers", {})
        return httpx.AsyncClient(
            base_url=self.url, cookies=self.cookie, headers=headers, trust_env=False, **changes
        )

    def stranger(self, **changes: Any) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.url, trust_env=False, **changes)

    @asynccontextmanager
    async def tab(self, language: str = "en") -> AsyncIterator[TabUser]:
        name, value = next(iter(self.cookie.items()))
        headers = {"cookie": f"{name}={value}", "accept-language": language}
        address = self.url.replace("http", "ws") + "/ws"
        origin = Origin(self.url)
        async with connect(
            address, origin=origin, additional_headers=headers, proxy=None
        ) as socket:
            yield TabUser(socket)


class TabUser:
    """One open page, by its socket."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def send(self, **frame: Any) -> None:
        await self.socket.send(json.dumps(frame))

    async def next(self, kind: str) -> dict[str, Any]:
        """The next frame of that type; others before it are passed over."""
        async with asyncio.timeout(60):
            while True:
                frame: dict[str, Any] = json.loads(await self.socket.recv())
                if frame["type"] == kind:
                    return frame


def letter(outbox_id: int, card: Card, revision: int = 1, reply_to: str = "") -> Letter:
    return Letter(
        outbox_id=OutboxId(outbox_id),
        chat=CHAT,
        card=card,
        revision=revision,
        urgency=Urgency.ANSWER,
        uuid=f"u{outbox_id}-{revision}",
        reply_to=reply_to,
    )
