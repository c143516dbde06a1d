"""The incoming side of the mail room, with a router that does as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.transports.intake import Intake
from handlers.request import Reply
from storage.records.messages import InboxId, InboxRow, MessageIn, PressIn
from storage.records.people import Channel
from tests.bot.transports.mail_fakes import (
    PATIENCE,
    FakeClock,
    FakeTransport,
    Post,
    build_post,
    said,
)
from tests.fresh_store import open_store
from tests.storage.mail_room import message, place, sender


class FakeRouter:
    """Echoes. A text in `trouble` raises that often first; one in `gates` waits for its gate."""

    def __init__(self) -> None:
        self.handled: list[tuple[InboxRow, tuple[str, ...]]] = []
        self.arrived: list[InboxRow] = []
        self.done: list[str] = []
        self.trouble: dict[str, list[Exception]] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.replies: dict[str, Reply] = {}
        self.refusals: dict[str, Reply] = {}
        self.strangers: set[str] = set()
        self._news = asyncio.Event()

    @property
    def begun(self) -> list[str]:
        return [name_of(row) for row, _ in self.handled]

    def is_immediate(self, incoming: MessageIn) -> bool:
        return incoming.text.startswith("/stop")

    def arriving(self, row: InboxRow) -> None:
        self.arrived.append(row)

    async def waiting(self, row: InboxRow) -> Reply | None:
        return self.refusals.get(name_of(row))

    async def knows(self, incoming: MessageIn) -> bool:
        return incoming.text not in self.strangers

    async def handle(self, row: InboxRow, files: tuple[str, ...]) -> Reply:
        name = name_of(row)
        self.handled.append((row, files))
        self._news.set()
        if name in self.gates:
            await self.gates[name].wait()
        if self.trouble.get(name):
            raise self.trouble[name].pop(0)
        self.done.append(name)
        self._news.set()
        return self.replies.get(name, Reply(card=said(f"echo {name}")))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self._news.clear()
                await self._news.wait()


@dataclass
class Desk:
    intake: Intake
    router: FakeRouter
    post: Post
    clock: FakeClock
    home: Path

    @property
    def telegram(self) -> FakeTransport:
        return self.post.telegram

    async def say(self, text: str = "hi", *, dedupe: str = "", **rest: Any) -> InboxId | None:
        incoming = message(text, **({"sent_at": self.clock.now()} | rest))
        return await self.intake.accept(incoming, dedupe=dedupe or f"d:{text}")

    async def press(
        self, token: str = "t", *, dedupe: str = "", patience: float = 2.0, **rest: Any
    ) -> Any:
        facts: dict[str, Any] = {"place": place(), "sender": sender(), "message_id": "m1"}
        incoming = PressIn(token=token, **(facts | rest))
        return await self.intake.press(incoming, dedupe=dedupe or f"p:{token}", patience=patience)

    async def card(self, key: str) -> str:
        """What is written on the card under `key`; empty if there is none."""
        row = await self.post.room.outbox.by_key(key)
        return "" if row is None else str(row.card["fallback"])

    async def count(self, query: str) -> int:
        async with self.post.room.db.read() as view:
            return int((await view.exec_driver_sql(query)).scalar() or 0)


def name_of(row: InboxRow) -> str:
    match row.incoming:
        case MessageIn(text=text):
            return text
        case PressIn(token=token):
            return token
        case _:
            return "entry"


@asynccontextmanager
async def front_desk(
    folder: Path,
    *,
    clock: FakeClock | None = None,
    router: FakeRouter | None = None,
    started: bool = True,
) -> AsyncIterator[Desk]:
    """A desk on the store in `folder`; leaving it is as good as a kill."""
    clock, router = clock or FakeClock(), router or FakeRouter()
    transports = {Channel.TELEGRAM: FakeTransport(Channel.TELEGRAM, clock)}
    home = folder / "home"
    home.mkdir(exist_ok=True)
    async with AsyncExitStack() as stack:
        db = await stack.enter_async_context(open_store(folder))
        post = build_post(db, clock, transports)
        everyone: dict[Channel, Any] = dict(transports)
        intake = Intake(
            db=db,
            chats=post.room.chats,
            inbox=post.room.inbox,
            outbox=post.room.outbox,
            actions=post.room.actions,
            courier=post.courier,
            delivery=post.delivery,
            router=router,
            transports=everyone,
            home=home,
            clock=clock,
            alerts=post.alerts,
        )
        await post.delivery.start(stack)
        stack.push_async_callback(post.stop)
        if started:
            await intake.start(stack)
        yield Desk(intake=intake, router=router, post=post, clock=clock, home=home)
