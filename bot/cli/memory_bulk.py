"""Bulk import and search directly in the store, with or without a running Shiftboss."""

from __future__ import annotations

import asyncio
import fcntl
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from bot.app.lifecycle import StartFailure, home_unusable
from bot.app.memory_retrieval import build_embedding_index, build_retriever
from bot.app.preflight import explain_start_failures, prepare_home
from bot.app.repositories import RepositorySet, build_repositories
from bot.app.running_program import has_run_before
from bot.config.settings import Settings
from bot.engine.memory.access import (
    CHAT_SCOPE,
    OWN_SCOPE,
    UnknownScopeName,
    parse_scope,
    scopes_in_chat,
)
from bot.engine.memory.bulk_jsonl import BulkQuery, BulkQueryResult, BulkReader, UnreadableRow
from bot.engine.memory.retriever import MemoryRetriever
from bot.engine.redaction import SecretMasker
from bot.transports.ports import SystemClock
from bot.transports.web.ports import LOCAL_PLACE, LOCAL_SENDER
from cards.catalog import catalog_for
from storage.data_directory import DataDirectoryLock
from storage.db import Database
from storage.errors import DataDirectoryInUse, DataDirectoryUnusable
from storage.memory.bulk_import import ConversationImporter
from storage.memory.entries import MemoryEntryRepo
from storage.migrate import HEAD_REVISION
from storage.records.memory import MemoryScope
from storage.records.people import Chat, Language
from storage.store_identity import verify_store

_BATCH_SIZE = 400
_WRITE_PAUSE, _SHORT_WRITE_PAUSE = 0.12, 0.02
"""Pauses in seconds between writes. A running Shiftboss retries ten times a second; without one, a
short pause is enough."""
_LOCK_FILE = "import.lock"
_HOME_WAIT = 20.0
_RETRY_INTERVAL = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryImportResult:
    added: int
    duplicates: int
    bad_lines: tuple[UnreadableRow, ...]


async def import_memory_rows(settings: Settings, file: BinaryIO, into: str) -> MemoryImportResult:
    """Import all rows; an interrupted import can be repeated. Raises StartFailure."""
    with explain_start_failures(settings):
        async with _open_store(settings) as store:
            now = SystemClock().now()
            if not into.strip():
                raise StartFailure("--scope must not be empty")
            (scope,) = await _resolve_scopes(settings, store, into)
            mask = SecretMasker(settings.secret_values).mask
            reading = BulkReader(scope=scope, zone=settings.zone, now=now, redact=mask)
            imports = ConversationImporter(
                store.db, store.ids, store.memory.index, scope, zone=settings.zone
            )
            entries, new, read = reading.read_entries(file), 0, 0
            while some := list(islice(entries, _BATCH_SIZE)):
                imports.count_terms(some)
                async with _import_lock(settings.home):
                    async with store.db.write() as tx:
                        new += await imports.add(tx, some, now=now)
                    await asyncio.sleep(
                        _WRITE_PAUSE if has_run_before(settings) else _SHORT_WRITE_PAUSE
                    )
                read += len(some)
            return MemoryImportResult(
                added=new, duplicates=read - new, bad_lines=tuple(reading.unreadable)
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySearcher:
    """Searches `scopes` with the usual ranking."""

    scopes: Sequence[MemoryScope]
    entries: MemoryEntryRepo
    recall: MemoryRetriever

    async def find(self, query: BulkQuery, limit: int) -> BulkQueryResult:
        hits = await self.recall.search_scopes(self.scopes, query.query, limit)
        return BulkQueryResult(query=query, hits=tuple(hits))

    async def is_empty(self) -> bool:
        return not await self.entries.count(self.scopes)


@asynccontextmanager
async def open_memory_search(
    settings: Settings, within: str
) -> AsyncGenerator[MemorySearcher, None]:
    """Raises StartFailure."""
    with explain_start_failures(settings):
        async with _open_store(settings) as store:
            scopes = await _resolve_scopes(settings, store, within)
            meanings = build_embedding_index(settings, store.db, store.memory)
            yield MemorySearcher(
                scopes=scopes,
                entries=store.memory.entries,
                recall=build_retriever(settings, store.db, store.memory, SystemClock(), meanings),
            )


@asynccontextmanager
async def _import_lock(home: Path) -> AsyncGenerator[None, None]:
    """Only one import writes at a time, so that other writers get their turn."""
    with (home / _LOCK_FILE).open("ab") as lock:
        while not _try_lock(lock):  # noqa: ASYNC110 - other processes set no event here
            await asyncio.sleep(_RETRY_INTERVAL)
        yield


def _try_lock(lock: BinaryIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def _resolve_scopes(
    settings: Settings, store: RepositorySet, name: str
) -> Sequence[MemoryScope]:
    try:
        return await resolve_scopes(settings, store, name, SystemClock().now())
    except UnknownScopeName as unknown:
        raise StartFailure(f"--scope: {unknown}") from unknown


async def resolve_scopes(
    settings: Settings, store: RepositorySet, name: str, now: datetime
) -> Sequence[MemoryScope]:
    """Resolve a scope name; without one, all scopes that the local owner may see. `me` and `chat`
    are the owner's. Raises UnknownScopeName."""
    name = name.strip()
    if name in {"", OWN_SCOPE, CHAT_SCOPE}:
        return scopes_in_chat(await _local_owner_chat(settings, store, now), name)
    return (parse_scope(name),)


async def _local_owner_chat(settings: Settings, store: RepositorySet, now: datetime) -> Chat:
    """The local owner's chat, created if necessary."""
    chat = await store.chats.find(LOCAL_PLACE)
    if chat is not None and chat.person_id is not None:
        return chat
    spoken = Language.ENGLISH if settings.language == "auto" else Language(settings.language)
    local = catalog_for(spoken)("welcome.local_owner")
    await store.people.ensure_owners(settings.owner_ids, now=now, local_name=local)
    async with store.db.write() as tx:
        return await store.chats.get_or_create(tx, LOCAL_PLACE, LOCAL_SENDER, now)


@asynccontextmanager
async def _open_store(settings: Settings) -> AsyncGenerator[RepositorySet, None]:
    _prepare_store(settings)
    async with AsyncExitStack() as stack:
        db = await Database.open(settings.database, stack)
        yield build_repositories(db, SystemClock(), zone=settings.zone)


def _prepare_store(settings: Settings) -> None:
    """Prepare the store unless another process holds the data directory and does so itself. The
    directory is not held during the work, so that Shiftboss may start."""
    until = time.monotonic() + _HOME_WAIT
    while True:
        try:
            with DataDirectoryLock(settings.home, is_temporary=True):
                return prepare_home(
                    settings, "ERROR" if settings.log_level == "ERROR" else "WARNING"
                )
        except DataDirectoryInUse as error:
            facts = verify_store(settings.home, settings.database, in_use=True)
            if facts is not None and facts.revision == HEAD_REVISION:
                return None
            if time.monotonic() > until:
                raise StartFailure(
                    f"another Shiftboss (process {error.pid}) holds {settings.home}, and its store"
                    " is of another version: stop it, and start `shiftboss run` of this version"
                ) from error
        except DataDirectoryUnusable as error:
            raise home_unusable(error) from error
        time.sleep(_RETRY_INTERVAL)
