"""Keeps Markdown files of memories in sync: writes them on changes, imports edits, and sets up the
default handbook and the import of the legacy memory file."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path

from bot.engine.memory.access import LOCAL_EDITOR, ManualMemory
from bot.engine.memory.change_feed import ForeignWriteDetector, MemoryChangeFeed
from bot.engine.memory.markdown_sync.layout import (
    MemoryFile,
    MemoryPageMapper,
    OwnerNotifier,
    default_chapters,
    has_files,
)
from bot.engine.memory.markdown_sync.reconciler import (
    FileReconciler,
    PendingFile,
    PendingFileFinder,
)
from bot.engine.memory.writer import MemoryWriter
from cards.catalog import catalog_for
from storage.errors import NotFound, StoreUnavailable
from storage.key_value import KeyValueStore
from storage.memory.entries import MemoryEntryRepo
from storage.memory.markdown.folder import FileSignature, MarkdownFolder
from storage.memory.markdown.page_format import MarkdownLayout, parse_page
from storage.memory.markdown.sync_store import FileSnapshot, FileSnapshotRepo, SyncedEntryRepo
from storage.people import PeopleRepo
from storage.records.memory import (
    GLOBAL_SCOPE,
    MAX_ENTRY_TEXT,
    MemoryKind,
    MemoryNotSaved,
    MemoryScope,
    MemoryScopeKind,
    text_hash,
)
from storage.records.people import ChatId, Language, PersonId, PersonRole

log = logging.getLogger(__name__)

LEGACY_PATHS = ("context/MEMORY.md", "context/memory.md")
RENAMED_LEGACY_FILE = "MEMORY.before.md"

_HANDBOOK_MARK = "memory:handbook"
_IMPORTED_MARK = "memory:brought:"
_DIGEST_CHARS = 16


class ScopeNames:
    """Display names of scopes, and the owners' scopes. `language` is the one fixed for everyone, if
    any."""

    def __init__(self, people: PeopleRepo, language: Language | None) -> None:
        self._people = people
        self._language = language

    async def owners(self) -> Collection[MemoryScope]:
        return [
            MemoryScope(MemoryScopeKind.PERSON, each.person.id)
            for each in await self._people.list_members()
            if each.person.role is PersonRole.OWNER
        ]

    async def language(self) -> Language:
        """The fixed language, or the first known one of a member."""
        if self._language is not None:
            return self._language
        members = await self._people.list_members()
        spoken = (each.person.language for each in members if each.person.language)
        return next(spoken, Language.ENGLISH)

    async def name_of(self, scope: MemoryScope) -> str:
        with suppress(NotFound):
            match scope.kind:
                case MemoryScopeKind.PERSON:
                    return (await self._people.get(PersonId(scope.name))).name
                case MemoryScopeKind.CHAT:
                    chat = await self._people.get_chat(ChatId(scope.name))
                    return chat.title or str(chat.channel)
                case MemoryScopeKind.PROJECT:
                    return Path(scope.name).name
        return scope.name


@dataclass(slots=True, kw_only=True)
class InitialFileImport:
    data_dir: Path
    folder: MarkdownFolder
    entries: MemoryEntryRepo
    writer: MemoryWriter
    key_values: KeyValueStore
    pages: MemoryPageMapper
    language: Callable[[], Awaitable[Language]]
    notify_owners: OwnerNotifier
    owners: Callable[[], Awaitable[Collection[MemoryScope]]]

    async def __call__(self) -> None:
        self.pages.words = catalog_for(await self.language())
        await self._write_default_handbook()
        for path in LEGACY_PATHS:
            await self._import_legacy_file(path)

    async def _write_default_handbook(self) -> None:
        """Once per data directory: removed chapters stay removed."""
        if await self.key_values.get(_HANDBOOK_MARK):
            return
        found = await self.entries.list([GLOBAL_SCOPE], kinds=(MemoryKind.HANDBOOK,))
        written = {each.key for each in found}
        for chapter in default_chapters(self.pages.words):
            if chapter.key not in written:
                await self.writer.add(chapter, LOCAL_EDITOR)
        await self.key_values.put(_HANDBOOK_MARK, True)

    async def _import_legacy_file(self, path: str) -> None:
        """Import the legacy file into the owners' scopes, since only owners saw it, and move it
        aside. Safe to repeat; if it cannot be moved, imported lines are not imported again because
        they may have been forgotten."""
        found = await asyncio.to_thread(self.folder.read, path)
        owners = [each for each in await self.owners() if each.kind is MemoryScopeKind.PERSON]
        if found.body is None or not owners:
            return
        page = await asyncio.to_thread(parse_page, found.body, MarkdownLayout.LIST)
        texts = [
            (section.title or page.title, text)
            for section in page.sections
            for line in section.lines
            for text in _split_text(line.text)
        ]
        known = set(await self.key_values.get(_IMPORTED_MARK + path) or ())
        for owner in owners:
            for title, text in texts:
                if _text_digest(text) in known:
                    continue
                wanted = ManualMemory(text=text, scope=owner, label=title, kind=MemoryKind.LONGTERM)
                with suppress(MemoryNotSaved):
                    await self.writer.add(wanted, LOCAL_EDITOR)
        brought = known.union(_text_digest(text) for _, text in texts)
        if brought != known:
            await self.key_values.put(_IMPORTED_MARK + path, sorted(brought))
        try:
            kept = await asyncio.to_thread(_move_aside, self.data_dir / path)
        except OSError as error:
            log.warning("%s is in memory now but the file cannot be moved aside: %s", path, error)
            return
        await self.key_values.put(_IMPORTED_MARK + path, None)
        if texts:
            await self.notify_owners(path, "brought", kept, n=len(texts), kept=kept)


def _split_text(text: str) -> list[str]:
    text = text.strip()
    return [text[at : at + MAX_ENTRY_TEXT] for at in range(0, len(text), MAX_ENTRY_TEXT)]


def _text_digest(text: str) -> str:
    return text_hash(text)[:_DIGEST_CHARS]


def _move_aside(path: Path) -> str:
    """Rename the file without overwriting another."""
    to, number = path.with_name(RENAMED_LEGACY_FILE), 1
    while to.exists():
        number += 1
        to = path.with_name(f"{number}.{RENAMED_LEGACY_FILE}")
    path.rename(to)
    return to.name


POLL_SECONDS = 0.6
"""Seconds between checks of frequently edited files; every other check includes foreign writes."""

IDLE_POLL_SECONDS, MAX_QUIET_CHECKS = 2.4, 25
"""Seconds between checks after so many without a change: the checks are most of what an idle
Shiftboss does."""

DEBOUNCE_SECONDS = 0.2
"""Seconds to wait for further changes before writing files."""

MAX_HOT_FILES = 200
"""Files checked each time; beyond that, older days and episodes take turns."""

LOG_INTERVAL = timedelta(minutes=1)
"""Minimum time between log messages while the store is unavailable."""

MAX_PARALLEL_CHECKS = 4
"""Parallel checks, so that a slow file does not delay the others."""

_SLICE = 200


class MarkdownSyncService:
    """A service that syncs memories and files. People in `always_scopes` have files even without
    memories."""

    name = "memory files"

    def __init__(
        self,
        *,
        folder: MarkdownFolder,
        bases: FileSnapshotRepo,
        repo: SyncedEntryRepo,
        pages: MemoryPageMapper,
        reconciler: FileReconciler,
        feed: MemoryChangeFeed,
        always_scopes: Callable[[], Awaitable[Collection[MemoryScope]]],
        name_of: Callable[[MemoryScope], Awaitable[str]],
        prepare: Callable[[], Awaitable[None]],
        foreign_writes: ForeignWriteDetector,
        now: Callable[[], datetime],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        """`prepare` runs once before the first file is written."""
        self._folder = folder
        self._bases = bases
        self._repo = repo
        self._pages = pages
        self._reconciler = reconciler
        self._subscription = feed.subscribe()
        self._always_scopes_of = always_scopes
        self._pending_files = PendingFileFinder(
            repo=repo, zone=pages.zone, name_of=name_of, now=now
        )
        self._prepare = prepare
        self._foreign_writes = foreign_writes
        self._now = now
        self._sleep = sleep
        self._always_scopes: frozenset[MemoryScope] = frozenset((GLOBAL_SCOPE,))
        self._files: dict[str, MemoryFile] = {}
        self._signatures: dict[str, FileSignature | None] = {}
        self._retry: set[str] = set()
        self._rotation = 0
        self._quiet_checks = 0
        self._warned_at: datetime | None = None
        self._busy: set[str] = set()
        self._requested: set[str] = set()

    async def start(self, stack: AsyncExitStack) -> None: ...

    async def run(self) -> None:
        while not await self._try_with_store(self.sync_all):
            await self._sleep(POLL_SECONDS)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_files())
            group.create_task(self._follow_changes())

    async def sync_all(self) -> None:
        """Sync all files, including edits made while Shiftboss was not running."""
        await self._foreign_writes.reset()
        await self._guarded(self._prepare, "the first files of memories")
        self._always_scopes = frozenset((GLOBAL_SCOPE, *await self._always_scopes_of()))
        known = await self._bases.list_latest()
        for scope in await self._scopes():
            await self._sync_pending(await self._pending_files.find_pending(scope, known), known)
        # Days whose last entry was forgotten while no files were written.
        for path in sorted(known.keys() - self._files.keys()):
            place = self._pending_files.day_file_at(path)
            if place is None:
                await self._reconciler.remove_stale(path)
            else:
                await self._sync_pending([PendingFile(file=place)], {})

    async def write_changed(self, scopes: Iterable[MemoryScope] | None = None) -> None:
        """Write the files of these scopes, or of all."""
        for scope in await self._scopes() if scopes is None else sorted(scopes):
            if has_files(scope):
                await self._sync_pending(await self._pending_files.find_pending(scope, ()), {})

    async def read_back(self) -> None:
        """Import edits made since the last check."""
        signs = await asyncio.to_thread(self._folder.get_signatures, self._files_to_check())
        due = [path for path, sign in signs.items() if self._signatures.get(path) != sign]
        self._quiet_checks = 0 if due or self._retry else self._quiet_checks + 1
        for path in dict.fromkeys((*due, *self._retry)):
            await self._reconcile_once_at_a_time(self._files[path])

    async def _scopes(self) -> Sequence[MemoryScope]:
        return sorted(filter(has_files, {*self._always_scopes, *await self._repo.list_scopes()}))

    async def _sync_pending(
        self, due: Sequence[PendingFile], known: Mapping[str, FileSnapshot]
    ) -> None:
        """Sync the files that differ from their `known` snapshots."""
        self._files |= {each.file.path: each.file for each in due}
        # Pending until done, so that an interrupted file is retried.
        self._retry |= {each.file.path for each in due}
        for each in due:
            path = each.file.path
            sign = await self._reconciler.signature_if_unchanged(each, known.get(path))
            if sign is None:
                await self._reconcile_once_at_a_time(each.file)
            else:
                self._signatures[path] = sign
                self._retry.discard(path)

    async def _watch_files(self) -> None:
        looks = set[asyncio.Task[bool]]()
        async with asyncio.TaskGroup() as group:
            for turn in count():
                is_idle = self._quiet_checks >= MAX_QUIET_CHECKS
                if turn % 2 == 0 or is_idle:
                    await self._try_with_store(self._foreign_writes.publish_changes)
                if len(looks) < MAX_PARALLEL_CHECKS:
                    look = group.create_task(self._try_with_store(self.read_back))
                    looks.add(look)
                    look.add_done_callback(looks.discard)
                await self._sleep(IDLE_POLL_SECONDS if is_idle else POLL_SECONDS)

    async def _follow_changes(self) -> None:
        while True:
            scopes = await self._subscription.wait()
            self._quiet_checks = 0
            await self._sleep(DEBOUNCE_SECONDS)
            while not await self._try_with_store(partial(self.write_changed, scopes)):
                await self._sleep(POLL_SECONDS)

    async def _try_with_store(self, what: Callable[[], Awaitable[None]]) -> bool:
        """False if the store is unavailable and the call must be repeated."""
        try:
            await self._guarded(what, "files of memories")
        except StoreUnavailable as error:
            if self._warned_at is None or abs(self._now() - self._warned_at) >= LOG_INTERVAL:
                log.warning("memory files wait for the store: %s", error)
                self._warned_at = self._now()
            return False
        return True

    async def _guarded(self, what: Callable[[], Awaitable[None]], named: str) -> bool:
        """False after an error."""
        try:
            await what()
        except StoreUnavailable:
            raise
        except Exception:
            # Error boundary: arbitrary file content must not stop Shiftboss.
            log.exception("%s: not retried until something changes", named)
            return False
        return True

    async def _reconcile_once_at_a_time(self, file: MemoryFile) -> None:
        """Skip the file if it is being reconciled already."""
        if file.path in self._busy:
            self._requested.add(file.path)
            return
        self._busy.add(file.path)
        try:
            await self._reconcile(file)
        finally:
            self._busy.discard(file.path)
            if file.path in self._requested:
                self._requested.discard(file.path)
                self._retry.add(file.path)

    async def _reconcile(self, file: MemoryFile) -> None:
        async def settle() -> None:
            empty = file.scope in self._always_scopes and file.kind.is_standing
            settled = await self._reconciler.reconcile(file, keep_empty=empty)
            self._signatures[file.path] = settled.signature
            (self._retry.add if settled.retry else self._retry.discard)(file.path)

        if not await self._guarded(settle, file.path):
            self._signatures |= await asyncio.to_thread(self._folder.get_signatures, [file.path])
            self._retry.discard(file.path)

    def _files_to_check(self) -> Sequence[str]:
        """Frequently edited files, and some of the others in turn."""
        if len(self._files) <= MAX_HOT_FILES:
            return list(self._files)
        since = self._now().astimezone(self._pages.zone).date() - timedelta(days=1)
        hot = [
            path
            for path, place in self._files.items()
            if place.kind.is_standing or (place.day is not None and place.day >= since)
        ]
        cold = sorted(self._files.keys() - set(hot))
        begins = self._rotation % max(1, len(cold))
        self._rotation = begins + _SLICE
        return [*hot, *cold[begins : begins + _SLICE]]
