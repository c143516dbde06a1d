"""Memory in bulk, straight in the store: beside a program that runs on the home, or without."""

from __future__ import annotations

import asyncio
import fcntl
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from bot.app.failures import StartFailure, unusable
from bot.app.memory.named import UnknownName, scopes_named
from bot.app.memory.recall import build_meanings, searching
from bot.app.store import Store, build_store
from bot.app.terminal.address import has_run
from bot.app.terminal.opening import explained, prepare
from bot.config.settings import Settings
from bot.engine.agent.masking import Masking
from bot.engine.memory.bulk.queries import Found, Query
from bot.engine.memory.bulk.rows import BadLine, Reading
from bot.engine.memory.recall import Recall
from bot.transports.clock import SystemClock
from storage.db import Database
from storage.errors import HomeBusy, HomeUnusable
from storage.home import Home
from storage.memory.entries import EntryRepo
from storage.memory.imports import Imports
from storage.migrate import is_current
from storage.records.memory.entries import Scope

_AT_ONCE = 400
_BREATH, _SHORT_BREATH = 0.12, 0.02
"""Seconds in which a program beside us may write: whoever waits looks ten times a second. Where
none has ever run, hardly anybody waits."""
_TURNS = "import.lock"
_PATIENCE = 20.0
_REST = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    new: int
    known: int
    bad: tuple[BadLine, ...]


async def import_rows(settings: Settings, file: BinaryIO, into: str) -> Imported:
    """Raises StartFailure. What was written before a failure stays: the same again goes on."""
    with explained(settings):
        async with _opened(settings) as store:
            now = SystemClock().now()
            if not into.strip():
                raise StartFailure("--scope must not be empty")
            (scope,) = await _scopes(settings, store, into)
            mask = Masking(settings.secrets).mask
            reading = Reading(scope=scope, zone=settings.zone, now=now, mask=mask)
            imports = Imports(store.db, store.ids, store.memory.index, scope, zone=settings.zone)
            entries, new, read = reading.entries(file), 0, 0
            while some := list(islice(entries, _AT_ONCE)):
                imports.get_ready(some)
                async with _turn(settings.home):
                    async with store.db.write() as tx:
                        new += await imports.add(tx, some, now=now)
                    await asyncio.sleep(_BREATH if has_run(settings) else _SHORT_BREATH)
                read += len(some)
            return Imported(new=new, known=read - new, bad=tuple(reading.bad))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """Looks things up in `scopes`, ranked as it is everywhere."""

    scopes: Sequence[Scope]
    entries: EntryRepo
    recall: Recall

    async def find(self, query: Query, limit: int) -> Found:
        hits = await self.recall.within(self.scopes, query.query, limit)
        return Found(query=query, hits=tuple(hits))

    async def is_empty(self) -> bool:
        return not await self.entries.count(self.scopes)


@asynccontextmanager
async def asking(settings: Settings, within: str) -> AsyncGenerator[Asking, None]:
    """Raises StartFailure."""
    with explained(settings):
        async with _opened(settings) as store:
            scopes = await _scopes(settings, store, within)
            meanings = build_meanings(settings, store)
            yield Asking(
                scopes=scopes,
                entries=store.memory.entries,
                recall=searching(settings, store, SystemClock(), meanings),
            )


@asynccontextmanager
async def _turn(home: Path) -> AsyncGenerator[None, None]:
    """Of several imports one writes at a time: together they would leave nobody else a gap."""
    with (home / _TURNS).open("ab") as lock:
        while not _is_ours(lock):  # noqa: ASYNC110 - other processes set no event here
            await asyncio.sleep(_REST)
        yield


def _is_ours(lock: BinaryIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def _scopes(settings: Settings, store: Store, name: str) -> Sequence[Scope]:
    try:
        return await scopes_named(settings, store, name, SystemClock().now())
    except UnknownName as unknown:
        raise StartFailure(f"--scope: {unknown}") from unknown


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncGenerator[Store, None]:
    _make_ready(settings)
    async with AsyncExitStack() as stack:
        db = await Database.open(settings.database, stack)
        yield build_store(db, SystemClock(), zone=settings.zone)


def _make_ready(settings: Settings) -> None:
    """Whoever holds the home has brought the store up, or is about to. We do not hold it while we
    work: the program may start meanwhile."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            with Home(settings.home, briefly=True):
                return prepare(settings, "ERROR" if settings.log_level == "ERROR" else "WARNING")
        except HomeBusy as error:
            if is_current(settings.database):
                return None
            if time.monotonic() > until:
                raise StartFailure(
                    f"another Shiftboss (process {error.pid}) holds {settings.home}, and its store"
                    " is of another version: stop it, and start `shiftboss run` of this version"
                ) from error
        except HomeUnusable as error:
            raise unusable(error) from error
        time.sleep(_REST)
