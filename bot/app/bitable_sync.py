"""Builds the synchronisation of tasks, logs and memories with a Bitable."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from uuid import uuid4

from bot.app.container import Container
from bot.sync.local_rows import LocalRowReader
from bot.sync.orders import MessageIntake, RowOrders
from bot.sync.ports import TableService
from bot.sync.service import MAX_HOLD, TICK, BitableSyncService
from bot.sync.session import SyncDeps
from storage.bitable import BitableRepo
from storage.memory.entries import MemoryEntryRepo
from storage.records.memory import (
    GLOBAL_SCOPE,
    MemoryEntry,
    MemoryKind,
    MemoryScope,
    MemoryScopeKind,
)
from storage.records.people import Chat

_MIRRORED = (MemoryKind.LONGTERM, MemoryKind.HANDBOOK, MemoryKind.PROFILE, MemoryKind.FACT)
_MAX_MEMORIES = 1000


def build_sync(core: Container, intake: MessageIntake, tables: TableService) -> BitableSyncService:
    store = core.repositories
    repo = BitableRepo(store.db)
    people = core.services.people
    entries = store.memory.entries
    return BitableSyncService(
        deps=SyncDeps(
            db=store.db,
            repo=repo,
            tables=tables,
            local=LocalRowReader(
                repo=repo,
                tasks=core.services.tasks,
                people=people,
                list_memories=partial(_list_memories, entries),
            ),
            orders=RowOrders(db=store.db, inbox=store.inbox, intake=intake, people=people),
            now=core.clock.now,
            new_token=lambda: str(uuid4()),
        ),
        tasks=core.services.tasks,
        people=people,
        memory_state=partial(_memory_state, repo),
        notify=store.owner_cards(core.courier).notify,
        clock=core.clock,
        poll_seconds=core.settings.bitable_poll_seconds,
        hold=lambda: min(max(TICK, core.quota.level.edit_factor or MAX_HOLD), MAX_HOLD),
    )


def _scopes(chat: Chat) -> Sequence[MemoryScope]:
    """All that everybody in the chat may read: nobody's private memories."""
    return MemoryScope(MemoryScopeKind.CHAT, chat.id), GLOBAL_SCOPE


async def _list_memories(entries: MemoryEntryRepo, chat: Chat) -> Sequence[MemoryEntry]:
    return await entries.list(_scopes(chat), kinds=_MIRRORED, limit=_MAX_MEMORIES)


async def _memory_state(repo: BitableRepo, chat: Chat) -> str:
    return await repo.memory_state([str(each) for each in _scopes(chat)])
