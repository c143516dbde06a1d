"""The incoming side of the mail room, with a router that does as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from bot.transports.held_messages import HeldMessages
from bot.transports.inbox import InboxService
from handlers.request import Reply
from storage.records.messages import InboxId, InboxRow, IncomingMessage, IncomingPress
from storage.records.people import Channel
from tests.bot.transports.outbox_builders import (
    FakeClock,
    FakeTransport,
    OutboxHarness,
    build_outbox,
    text_card,
)
from tests.migrated_database import open_database
from tests.storage.message_store import message, place, sender
from tests.waiting import ChangeSignal


class FakeRouter:
    """Echoes. A text in `trouble` raises that often first; one in `gates` waits for its gate."""

    def __init__(self) -> None:
        self.handled: list[tuple[InboxRow, tuple[str, ...]]] = []
        self.arrived: list[InboxRow] = []
        self.modes: list[str] = []
        self.done: list[str] = []
        self.failures: dict[str, list[Exception]] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.replies: dict[str, Reply] = {}
        self.waiting: list[InboxRow] = []
        self.withdrawn: list[InboxRow] = []
        self.notices: dict[str, str] = {}
        self.missing: list[str] = []
        self.tasks: dict[str, str] = {}
        self.interrupted: list[tuple[str, tuple[str, ...]]] = []
        self.strangers: set[str] = set()
        self._changes = ChangeSignal()

    @property
    def begun(self) -> list[str]:
        return [name_of(row) for row, _ in self.handled]

    def is_immediate(self, incoming: IncomingMessage) -> bool:
        return incoming.text.startswith("/stop")

    def on_message_waiting(self, row: InboxRow, mode: str) -> None:
        self.arrived.append(row)
        self.modes.append(mode)

    def is_command(self, incoming: IncomingMessage) -> bool:
        return incoming.text.startswith("/")

    def is_urgent(self, incoming: IncomingMessage) -> bool:
        return incoming.text.startswith("/stop")

    def on_message_withdrawn(self, row: InboxRow) -> None:
        self.withdrawn.append(row)

    async def waiting_notice(self, row: InboxRow) -> str:
        self.waiting.append(row)
        return self.notices.get(name_of(row), "")

    async def is_known_sender(self, incoming: IncomingMessage) -> bool:
        return incoming.text not in self.strangers

    async def find_task(self, row: InboxRow) -> str:
        return self.tasks.get(name_of(row), "")

    async def handle(
        self,
        row: InboxRow,
        files: tuple[str, ...],
        interrupted: Sequence[InboxRow] = (),
        missing: Sequence[str] = (),
    ) -> Reply:
        self.missing += missing
        name = name_of(row)
        self.interrupted.append((name, tuple(map(name_of, interrupted))))
        self.handled.append((row, files))
        self._changes.notify()
        if name in self.gates:
            await self.gates[name].wait()
        if self.failures.get(name):
            raise self.failures[name].pop(0)
        self.done.append(name)
        self._changes.notify()
        return self.replies.get(name, Reply(card=text_card(f"echo {name}")))

    async def until(self, condition: Callable[[], bool]) -> None:
        await self._changes.until_true(condition)


@dataclass
class InboxHarness:
    inbox: InboxService
    router: FakeRouter
    post: OutboxHarness
    clock: FakeClock
    home: Path

    @property
    def telegram(self) -> FakeTransport:
        return self.post.telegram

    async def say(self, text: str = "hi", *, dedupe: str = "", **rest: Any) -> InboxId | None:
        incoming = message(text, **({"sent_at": self.clock.now()} | rest))
        return await self.inbox.accept(incoming, dedupe=dedupe or f"d:{text}")

    async def press(
        self, token: str = "t", *, dedupe: str = "", wait_seconds: float = 2.0, **rest: Any
    ) -> Any:
        facts: dict[str, Any] = {"place": place(), "sender": sender(), "message_id": "m1"}
        incoming = IncomingPress(token=token, **(facts | rest))
        return await self.inbox.press(
            incoming, dedupe=dedupe or f"p:{token}", wait_seconds=wait_seconds
        )

    async def card(self, key: str) -> str:
        """The text of the card under `key`; empty if there is none."""
        row = await self.post.room.outbox.find_by_key(key)
        return "" if row is None else str(row.card["fallback"])

    async def count(self, query: str) -> int:
        async with self.post.room.db.read() as view:
            return int((await view.exec_driver_sql(query)).scalar() or 0)


def name_of(row: InboxRow) -> str:
    match row.incoming:
        case IncomingMessage(text=text):
            return text
        case IncomingPress(token=token):
            return token
        case _:
            return "entry"


@asynccontextmanager
async def inbox_harness(
    folder: Path,
    *,
    clock: FakeClock | None = None,
    router: FakeRouter | None = None,
    started: bool = True,
) -> AsyncIterator[InboxHarness]:
    """A desk on the store in `folder`; leaving it is as good as a kill."""
    clock, router = clock or FakeClock(), router or FakeRouter()
    transports = {Channel.TELEGRAM: FakeTransport(Channel.TELEGRAM, clock)}
    home = folder / "home"
    home.mkdir(exist_ok=True)
    async with AsyncExitStack() as stack:
        db = await stack.enter_async_context(open_database(folder))
        post = build_outbox(db, clock, transports)
        everyone: dict[Channel, Any] = dict(transports)
        intake = InboxService(
            db=db,
            chats=post.room.chats,
            inbox=post.room.inbox,
            outbox=post.room.outbox,
            actions=post.room.actions,
            courier=post.courier,
            held=HeldMessages(
                db=db,
                inbox=post.room.inbox,
                courier=post.courier,
                zone=ZoneInfo("UTC"),
                clock=clock,
            ),
            outbox_sender=post.outbox_sender,
            router=router,
            transports=everyone,
            home=home,
            clock=clock,
            alerts=post.alerts,
        )
        await post.outbox_sender.start(stack)
        stack.push_async_callback(post.stop)
        if started:
            await intake.start(stack)
        yield InboxHarness(inbox=intake, router=router, post=post, clock=clock, home=home)
