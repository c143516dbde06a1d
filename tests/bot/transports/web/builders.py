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
from blockbuster import blockbuster_ctx
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Origin

from bot.transports.front_signals import FrontSignals
from bot.transports.ports import OutboundMessage, PressToast
from bot.transports.web.ports import (
    HistoryItem,
    HistoryPage,
    SayResult,
    ShownCard,
    WebStartError,
)
from bot.transports.web.sessions import WebSessionService
from bot.transports.web.transport import WebTransport
from cards.catalog import TextCatalog
from cards.model import Card, CardTone, notice_card
from storage.db import Database
from storage.errors import StoreUnavailable
from storage.ids import IdGenerator
from storage.messages.chats import ChatRepo
from storage.people import PeopleRepo
from storage.records.messages import (
    ChatAddress,
    DeliveryUrgency,
    InboxId,
    IncomingChatOpen,
    IncomingMessage,
    IncomingPress,
    OutboxId,
)
from storage.records.people import Channel, Chat, ChatId, ChatKind, ChatSettings, Language, PersonId
from storage.web_sessions import WebSessionRepo
from tests.fakes.inbox import FakeInbox
from tests.migrated_database import migrated_url
from tests.waiting import WAIT_SECONDS

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


async def _nothing(_incoming: IncomingMessage) -> None:
    return


class FakeWebInbox(FakeInbox):
    """`answer` is called for each new message, `toast_for` decides what a press is told."""

    def __init__(self) -> None:
        super().__init__(Channel.WEB)
        self.answer: Callable[[IncomingMessage], Awaitable[None]] = _nothing
        self.toast_for: Callable[[IncomingPress], PressToast] = lambda _: PressToast(text="Done")

    async def accept(
        self, incoming: IncomingMessage | IncomingChatOpen, *, dedupe: str
    ) -> InboxId | None:
        inbox_id = await super().accept(incoming, dedupe=dedupe)
        if inbox_id is not None and isinstance(incoming, IncomingMessage):
            self.task = asyncio.create_task(self.handle(incoming))
        return inbox_id

    async def handle(self, incoming: IncomingMessage) -> None:
        # Answers come after the message is stored, as in the program.
        await asyncio.sleep(0)
        await self.answer(incoming)

    async def press(
        self, incoming: IncomingPress, *, dedupe: str, wait_seconds: float
    ) -> PressToast:
        await super().press(incoming, dedupe=dedupe, wait_seconds=wait_seconds)
        return self.toast_for(incoming)


@dataclass
class FakeWebHistory:
    inbox: FakeWebInbox
    cards: dict[OutboxId, ShownCard] = field(default_factory=dict)

    async def read(
        self, place: ChatAddress, limit: int, before: datetime | None = None
    ) -> HistoryPage:
        def at(item: HistoryItem) -> datetime:
            return item.at if isinstance(item, ShownCard) else item.sent_at

        held: list[HistoryItem] = [*self.inbox.messages, *self.cards.values()]
        items = sorted((each for each in held if before is None or at(each) < before), key=at)
        shown = tuple(items[-limit:])
        return HistoryPage(items=shown, before=at(shown[0]) if len(items) > limit else None)


@dataclass
class FakeSayHandler:
    cards: tuple[Card, ...] = ()
    received: list[IncomingMessage] = field(default_factory=list)
    broken: bool = False
    store_away: bool = False
    good: bool = True
    data: dict[str, object] | None = None

    async def say(self, incoming: IncomingMessage, *, dedupe: str) -> SayResult:
        if self.broken:
            raise OSError(28, "No space left on device")
        if self.store_away:
            raise StoreUnavailable("could not extend file: No space left on device")
        self.received.append(incoming)
        return SayResult(cards=self.cards, good=self.good, data=self.data)


@dataclass
class FakeWebAlerts:
    current: list[str] = field(default_factory=list)

    def describe(self, words: TextCatalog) -> Sequence[str]:
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


class WebHarness:
    """Time moves by one second at every look at the clock, so that order is certain."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.inbox = FakeWebInbox()
        self.history = FakeWebHistory(self.inbox)
        self.say_handler = FakeSayHandler()
        self.alerts = FakeWebAlerts()
        self.port = 0
        self.guessers: list[str] = []
        self.languages: list[Language] = []
        self.settings: dict[str, Any] = {}
        self._clock = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
        self.transport: WebTransport
        self.sessions: WebSessionService
        self._cookie = ""
        self._stack: AsyncExitStack
        self._running: asyncio.Task[None]

    def now(self) -> datetime:
        self._clock += timedelta(seconds=1)
        return self._clock

    async def hear_of_guessing(self, address: str) -> None:
        self.guessers.append(address)

    async def hear_language(self, language: Language) -> None:
        self.languages.append(language)

    async def prepare(self, stack: AsyncExitStack) -> None:
        """A transport that is not started yet."""
        wanted = {"host": "127.0.0.1", "token": TOKEN, "menu": menu, **self.settings}
        url = await asyncio.to_thread(migrated_url, self.home)
        db = await Database.open(url, stack)
        ids = IdGenerator()
        await PeopleRepo(db, ids, ChatRepo(db, ids)).ensure_owners((), now=self.now())
        self.sessions = WebSessionService(repo=WebSessionRepo(db), ids=ids, now=self.now)
        self.transport = WebTransport(
            port=self.port,
            home=self.home,
            inbox=self.inbox,
            history=self.history,
            say_handler=self.say_handler,
            alerts=self.alerts,
            sessions=self.sessions,
            on_guessing=self.hear_of_guessing,
            on_language=self.hear_language,
            signals=FrontSignals("", "here"),
            now=self.now,
            **wanted,
        )

    async def start(self) -> None:
        self._stack = AsyncExitStack()
        await self.prepare(self._stack)
        try:
            await self.transport.start(self._stack)
        except WebStartError:
            await self._stack.aclose()
            raise
        self._cookie = await self.sessions.open("the harness")
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
            self.history.cards[number] = ShownCard(
                outbox_id=number,
                revision=revision,
                card=card,
                at=known.at if known else self.now(),
                reply_to=reply_to,
            )
        await self.transport.deliver(letter(outbox_id, card, revision, reply_to))

    def hold_conversation(self, length: int) -> None:
        """Cards that came a second after one another."""
        begun = datetime(2026, 2, 1, 9, 0, tzinfo=UTC)
        for number in range(1, length + 1):
            shown = notice_card(f"card {number}", "said", tone=CardTone.INFO)
            self.history.cards[OutboxId(number)] = ShownCard(
                outbox_id=OutboxId(number),
                revision=1,
                card=shown,
                at=begun + timedelta(seconds=number),
            )

    @property
    def url(self) -> str:
        return self.transport.address.rstrip("/")

    @property
    def cookie(self) -> dict[str, str]:
        """Of a browser that has signed in."""
        return {f"shiftboss_{self.port}": self._cookie}

    def browser(self, **changes: Any) -> httpx.AsyncClient:
        """Someone who has opened the page."""
        headers = {"origin": self.url} | changes.pop("headers", {})
        return self.stranger(cookies=self.cookie, headers=headers, **changes)

    def stranger(self, **changes: Any) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=self.url, trust_env=False, timeout=WAIT_SECONDS, **changes
        )

    @asynccontextmanager
    async def tab(self, language: str = "en", *, shown: str = "") -> AsyncIterator[TabUser]:
        """A page that shows `shown`; `language` is its handshake's header."""
        name, value = next(iter(self.cookie.items()))
        headers = {"cookie": f"{name}={value}", "accept-language": language}
        address = self.url.replace("http", "ws") + "/ws" + (f"?language={shown}" if shown else "")
        origin = Origin(self.url)
        async with connect(
            address,
            origin=origin,
            additional_headers=headers,
            proxy=None,
            open_timeout=WAIT_SECONDS,
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
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                frame: dict[str, Any] = json.loads(await self.socket.recv())
                if frame["type"] == kind:
                    return frame


@asynccontextmanager
async def running_web_chat(home: Path) -> AsyncIterator[WebHarness]:
    """One whose event loop nothing may block."""
    world = WebHarness(home)
    with blockbuster_ctx("bot.transports.web") as guard:
        # The store looks at its file before each write.
        guard.functions["os.stat"].can_block_in("storage/db.py", "_current_identity")
        await world.start()
        yield world
        await world.stop()


def letter(outbox_id: int, card: Card, revision: int = 1, reply_to: str = "") -> OutboundMessage:
    return OutboundMessage(
        outbox_id=OutboxId(outbox_id),
        chat=CHAT,
        card=card,
        revision=revision,
        urgency=DeliveryUrgency.ANSWER,
        idempotency_key=f"u{outbox_id}-{revision}",
        reply_to=reply_to,
    )
