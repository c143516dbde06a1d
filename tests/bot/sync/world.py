"""The synchronisation with the real store, inbox and handlers, and a table in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

from bot.app.bitable_sync import build_sync
from bot.app.container import Container, open_container
from bot.config.settings import load_settings
from bot.sync.ports import RecordId
from bot.sync.service import BitableSyncService
from bot.transports.inbox import InboxService
from bot.transports.ports import Clock
from cards.catalog import TextCatalog
from cards.model import Card
from storage.records.bitable import SyncedRow, TaskField
from storage.records.messages import ChatAddress, IncomingMessage, MessageSender
from storage.records.people import Channel, Chat, ChatKind, Person, PersonRole
from storage.records.tasks import NewTask, Task, TaskPriority
from tests.fakes.tables import FakeTables
from tests.migrated_database import lay_out_store

OWNER, MEMBER, STRANGER = "ou_owner", "ou_member", "ou_stranger"


class SyncClock:
    """Real time, moved on by the test."""

    def __init__(self) -> None:
        self.moved = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.moved

    def elapsed(self) -> float:
        return self.now().timestamp()

    def milliseconds(self) -> int:
        return int(self.now().timestamp() * 1000)

    async def sleep(self, seconds: float) -> None:
        self.moved += timedelta(seconds=seconds)
        await asyncio.sleep(0)


class _InboxClock:
    """Says the time of the test; what the inbox waits for comes at once."""

    def __init__(self, clock: SyncClock) -> None:
        self.now = clock.now
        self._slept = 0.0

    def elapsed(self) -> float:
        return self.now().timestamp() + self._slept

    async def sleep(self, seconds: float) -> None:
        self._slept += seconds
        await asyncio.sleep(0)


@dataclass
class SyncWorld:
    core: Container
    inbox: InboxService
    tables: FakeTables
    clock: SyncClock
    chat: Chat
    owner: Person
    member: Person
    sync: BitableSyncService
    notices: list[tuple[str, str]] = field(default_factory=list)

    async def settle(self, seconds: float = 12.0) -> None:
        """Let both sides come to rest."""
        for _ in range(4):
            self.clock.moved += timedelta(seconds=seconds)
            await self.sync.cycle()
            await self.handle_messages()

    async def handle_messages(self) -> None:
        for row in await self.core.repositories.inbox.list_unfinished():
            await self.inbox.wait_handled(row.id)

    async def say(self, account: str, text: str) -> None:
        """Say something in the chat."""
        incoming = IncomingMessage(
            place=ChatAddress(channel=Channel.FEISHU, chat="oc_team", kind=ChatKind.GROUP),
            sender=MessageSender(external_id=account),
            message_id="",
            text=text,
            addressed=True,
            sent_at=self.clock.now(),
        )
        await self.inbox.accept(incoming, dedupe=f"said:{uuid4()}")
        await self.handle_messages()

    async def failing_cycle(self) -> float:
        return await self.sync._guarded_cycle()

    async def task(self, text: str = "Do it", *, chat: Chat | None = None) -> Task:
        return await self.core.services.tasks.create(
            NewTask(
                title=text,
                instruction=text,
                priority=TaskPriority.NORMAL,
                chat_id=(chat or self.chat).id,
                created_by=self.owner.id,
                source=f"test:{uuid4()}",
            )
        )

    async def read(self, task: Task) -> Task:
        return await self.core.repositories.work.tasks.get(task.id)

    async def new_tasks(self) -> list[Task]:
        return list(await self.core.repositories.work.tasks.list_recent(100))

    async def row(self, task: Task) -> SyncedRow:
        (row,) = await self.sync.deps.repo.list_rows(local_ids=[task.id])
        return row

    async def record(self, task: Task) -> RecordId:
        return RecordId((await self.row(task)).record_id)

    async def shown(self, task: Task, key: TaskField) -> object:
        return self.tables.cell(await self.record(task), key)

    def restart(self) -> None:
        """Another life of the service over the same store and tables."""
        self.sync = _build(self.core, self.inbox, self.tables, self.clock, self.notices)


def _build(
    core: Container,
    inbox: InboxService,
    tables: FakeTables,
    clock: SyncClock,
    notices: list[tuple[str, str]],
) -> BitableSyncService:
    sync = build_sync(core, inbox, tables)

    async def notify(key: str, draw: Callable[[TextCatalog], Card]) -> None:
        if key not in [known for known, _ in notices]:
            notices.append((key, str(draw)))

    sync.clock, sync.notify = clock, notify
    object.__setattr__(sync.deps, "now", clock.now)
    return sync


@asynccontextmanager
async def sync_world(home: Path, **changes: object) -> AsyncIterator[SyncWorld]:
    lay_out_store(home)
    settings = load_settings()
    async with open_container(settings) as core, AsyncExitStack() as stack:
        store, now = core.repositories, core.clock.now()
        place = ChatAddress(channel=Channel.FEISHU, chat="oc_team", kind=ChatKind.GROUP)
        async with store.db.write() as tx:
            chat = await store.chats.get_or_create(tx, place, MessageSender(external_id=OWNER), now)
            member = await store.people.get_or_create(
                tx, Channel.FEISHU, MEMBER, name="Mei", role=PersonRole.MEMBER, now=now
            )
        owner = await store.people.find_by_account(Channel.FEISHU, OWNER)
        assert owner is not None
        clock = SyncClock()
        inbox = build_inbox(core, _InboxClock(clock))
        await inbox.start(stack)
        tables = FakeTables(now=clock.milliseconds, **changes)  # type: ignore[arg-type]
        notices: list[tuple[str, str]] = []
        sync = _build(core, inbox, tables, clock, notices)
        await sync.deps.repo.save_base(tables.base(chat.id, owner.id))
        yield SyncWorld(
            core=core,
            inbox=inbox,
            tables=tables,
            clock=clock,
            chat=chat,
            owner=owner,
            member=member,
            sync=sync,
            notices=notices,
        )


def build_inbox(core: Container, clock: Clock) -> InboxService:
    store = core.repositories
    return InboxService(
        db=store.db,
        chats=store.chats,
        inbox=store.inbox,
        outbox=store.outbox,
        actions=store.actions,
        courier=core.courier,
        held=core.held,
        outbox_sender=core.outbox_sender,
        router=core.router,
        transports=core.transports,
        home=core.settings.home,
        clock=clock,
        alerts=core.alerts,
    )
