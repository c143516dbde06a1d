"""Reconciles a Markdown file with the store, edits first, and finds the files that may need
writing."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta, tzinfo

from bot.engine.memory.markdown_sync.edit_import import (
    EditImportOutcome,
    EditImportResult,
    FileEditImporter,
)
from bot.engine.memory.markdown_sync.layout import (
    MemoryFile,
    MemoryFileKind,
    MemoryPageMapper,
    OwnerNotifier,
    day_file,
    entry_kinds_of,
    episode_file,
    scope_folder,
    standing_files,
)
from storage.memory.markdown import sync_store as shelves
from storage.memory.markdown.folder import FileContent, FileSignature, MarkdownFolder
from storage.memory.markdown.page_format import MarkdownLayout, MarkdownPage, PageDigest, parse_page
from storage.memory.markdown.sync_store import (
    EntryOutline,
    FileSnapshot,
    FileSnapshotRepo,
    SyncedEntryRepo,
    body_hash,
)
from storage.records.memory import MemoryEntry, MemoryKind, MemoryScope

COMMIT_LAG = timedelta(seconds=2)
"""Maximum time between an entry's change time and its commit."""


@dataclass(slots=True, kw_only=True)
class PendingFile:
    """A file to check. `ids` and `newest` (last change) describe the entries of a day or an
    episode; None if they were not loaded."""

    file: MemoryFile
    ids: set[str] | None = None
    newest: datetime | None = None

    def add(self, each: EntryOutline) -> None:
        self.ids = set() if self.ids is None else self.ids
        if each.is_shown:
            self.ids.add(each.id)
        self.newest = max(self.newest or each.updated_at, each.updated_at)


@dataclass(slots=True)
class _ScopeState:
    """A scope's state at the last check."""

    count: int = 0
    last_number: int = 0
    checked_at: datetime | None = None
    files: dict[str, MemoryFile] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class PendingFileFinder:
    """Finds the files of each scope. `name_of` returns a scope's display name."""

    repo: SyncedEntryRepo
    zone: tzinfo
    name_of: Callable[[MemoryScope], Awaitable[str]]
    now: Callable[[], datetime]
    _states: dict[MemoryScope, _ScopeState] = field(default_factory=dict, init=False)
    _folders: dict[str, tuple[MemoryScope, str]] = field(default_factory=dict, init=False)

    async def find_pending(
        self, scope: MemoryScope, known_paths: Iterable[str]
    ) -> Sequence[PendingFile]:
        """All standing files, and days and episodes changed since the last call. Folders of
        `known_paths` keep their names."""
        name = await self.name_of(scope)
        folder = scope_folder(scope, name, (*self._known_files(scope), *known_paths))
        self._folders[folder] = scope, name
        found = {each.path: PendingFile(file=each) for each in standing_files(scope, folder, name)}
        found |= await self._find_changed(scope, folder, name)
        self._states[scope].files |= {path: each.file for path, each in found.items()}
        return list(found.values())

    def day_file_at(self, path: str) -> MemoryFile | None:
        """The scope's file for a day at this path, if it is one."""
        folder, _, file = path.rpartition("/")
        scope, name = self._folders.get(folder, (None, ""))
        day = _parse_day(file)
        return None if scope is None or day is None else day_file(scope, folder, name, day)

    def _known_files(self, scope: MemoryScope) -> Iterable[str]:
        state = self._states.get(scope)
        return () if state is None else state.files

    async def _find_changed(
        self, scope: MemoryScope, folder: str, name: str
    ) -> Mapping[str, PendingFile]:
        kinds = (
            *entry_kinds_of(scope, MemoryFileKind.DAY),
            *entry_kinds_of(scope, MemoryFileKind.EPISODE),
        )
        state = self._states.setdefault(scope, _ScopeState())
        # Counted before reading: a concurrent change causes one extra check rather than a missed
        # one.
        count, newest = await self.repo.count(scope, kinds)
        since = self.now() - COMMIT_LAG
        if state.checked_at is not None and since < state.checked_at:
            # The clock was set back, so newer changes look older.
            state.checked_at = None
        due: dict[str, PendingFile] = {}
        fresh, last = 0, 0
        # Include the last number: if its entry was forgotten, a restore may have reused the number.
        known = max(0, state.last_number - 1)
        while found := await self.repo.list_outlines(
            scope, kinds, after=last, since=state.checked_at, known_up_to=known
        ):
            last = found[-1].number
            fresh += sum(each.number > state.last_number for each in found)
            for each in found:
                place = self._file_for(each, scope, folder, name)
                due.setdefault(place.path, PendingFile(file=place)).add(each)
        if count < state.count + fresh:
            due |= {
                path: PendingFile(file=place)
                for path, place in state.files.items()
                if not place.kind.is_standing
            }
        state.count, state.checked_at, state.last_number = count, since, newest
        return due

    def _file_for(
        self, each: EntryOutline, scope: MemoryScope, folder: str, name: str
    ) -> MemoryFile:
        day = each.said_at.astimezone(self.zone).date()
        if each.kind is MemoryKind.EPISODE:
            return episode_file(scope, name, each.id, day)
        return day_file(scope, folder, name, day)


def _parse_day(file: str) -> date | None:
    try:
        return date.fromisoformat(file.removesuffix(".md"))
    except ValueError:
        return None


log = logging.getLogger(__name__)

PARTIAL_SAVE_GRACE = timedelta(seconds=3)
"""How long an incomplete file may still be in the process of being saved."""

LEFTOVER_GRACE = timedelta(seconds=2)
"""How long an editor may still write to a file that was just replaced."""

WRITE_RETRY_AFTER = timedelta(seconds=30)
"""Retry interval after a failed write, for example on a full disk."""

_TRANSIENT_ERRNOS = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO))
_MAX_ATTEMPTS = 5
_MAX_PAGE_NUMBER = 10**8


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileResult:
    """`signature` is the file as last read or written; `retry` requests another check even without
    a change."""

    signature: FileSignature | None = None
    retry: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReplacedFile:
    body: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class _FailedWrite:
    """A file that could not be written, with its intended write number."""

    number: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class _DiskState:
    """The file's content, whether a person has changed it, and removed lines not forgotten yet."""

    found: FileContent
    page: MarkdownPage | None
    changed: bool
    missing: frozenset[str]


@dataclass(kw_only=True)
class FileReconciler:
    """Reconciles one file at a time per path. After a crash the store is correct and the file is
    old or new; a repeat has the same result."""

    folder: MarkdownFolder
    bases: FileSnapshotRepo
    repo: SyncedEntryRepo
    pages: MemoryPageMapper
    edit_importer: FileEditImporter
    notify_owners: OwnerNotifier
    now: Callable[[], datetime]
    _partial_files: dict[str, tuple[FileSignature | None, datetime]] = field(
        default_factory=dict, init=False
    )
    _replaced: dict[str, _ReplacedFile] = field(default_factory=dict, init=False)
    _failed_writes: dict[str, _FailedWrite] = field(default_factory=dict, init=False)

    async def reconcile(self, file: MemoryFile, *, keep_empty: bool) -> ReconcileResult:
        """With `keep_empty`, the file exists even without content."""
        for _ in range(_MAX_ATTEMPTS):
            settled = await self._reconcile_once(file, keep_empty)
            if settled is not None:
                return settled
        return ReconcileResult(retry=True)

    async def signature_if_unchanged(
        self, pending: PendingFile, latest: FileSnapshot | None
    ) -> FileSignature | None:
        """The file's signature if neither side has changed since it was `latest` written; None if
        unsure."""
        if pending.ids is None or pending.newest is None or latest is None:
            return None
        if (
            latest.page_digest.removed
            or pending.newest >= latest.at - COMMIT_LAG
            or pending.ids != latest.page_digest.lines.keys()
        ):
            return None
        path = pending.file.path
        found = await asyncio.to_thread(self.folder.read, path)
        old, new = await asyncio.to_thread(self.folder.read_leftovers, path)
        alone = old.signature is None and new.signature is None
        is_same = found.body is not None and latest.matches(found.body)
        return found.signature if alone and is_same else None

    async def remove_stale(self, path: str) -> None:
        """Remove a file that shows nothing any more, unless it was edited."""
        found = await asyncio.to_thread(self.folder.read, path)
        latest = await self.bases.find_latest(path)
        ours = found.body is not None and latest is not None and latest.matches(found.body)
        if found.signature is not None and ours:
            with suppress(OSError):
                await asyncio.to_thread(self.folder.delete, path, found.signature)
        if ours or found.signature is None:
            await self.bases.delete(path)

    async def _reconcile_once(self, file: MemoryFile, empty: bool) -> ReconcileResult | None:
        """None if something changed concurrently."""
        latest = await self.bases.find_latest(file.path)
        aside, gone = await self._import_leftovers(file, latest)
        found = await asyncio.to_thread(self.folder.read, file.path)
        if found.problem is not None:
            await self.notify_owners(file.path, found.problem.value, str(found.signature))
            return ReconcileResult(signature=found.signature, retry=aside)
        disk, changed = None, False
        if found.body is None:
            self.edit_importer.mark_absent(file)
        else:
            disk = await asyncio.to_thread(parse_page, found.body, file.kind.layout)
            changed = latest is None or not latest.matches(found.body)
        if disk is not None and (changed or (latest is not None and latest.page_digest.removed)):
            if self._may_be_partial(file, disk, found):
                return ReconcileResult(signature=found.signature, retry=True)
            taken = await self._import_edits(file, disk, latest)
            gone |= taken.missing
            if taken.outcome is EditImportOutcome.STUCK:
                return ReconcileResult(signature=found.signature, retry=bool(gone))
            if taken.outcome is EditImportOutcome.AGAIN:
                return None
        self._partial_files.pop(file.path, None)
        seen = _DiskState(found=found, page=disk, changed=changed, missing=gone)
        return await self._show_entries(file, seen, latest, empty=empty)

    async def _import_edits(
        self, file: MemoryFile, disk: MarkdownPage, latest: FileSnapshot | None
    ) -> EditImportResult:
        base = None
        if latest is not None and disk.write_number == latest.number:
            base = latest.page_digest
        elif disk.write_number:
            base = await self.bases.find_page_digest(file.path, disk.write_number)
        return await self.edit_importer.import_edits(
            file, base, disk, await self._list_entries(file)
        )

    async def _show_entries(
        self, file: MemoryFile, seen: _DiskState, latest: FileSnapshot | None, *, empty: bool
    ) -> ReconcileResult | None:
        entries = await self._list_entries(file)
        found, disk = seen.found, seen.page
        if not entries and not empty:
            return await self._remove_empty(file, found)
        rivals = await self.repo.list_conflicts(file.scope)
        shown = [each for each in entries if each.id not in seen.missing]
        page = await asyncio.to_thread(self.pages.build_page, file, shown, rivals)
        if disk is not None and not seen.changed and page.visible_content == disk.visible_content:
            again = file.path in self._replaced or len(shown) < len(entries)
            return ReconcileResult(signature=found.signature, retry=again)
        failed = self._failed_writes.get(file.path)
        if failed is not None and timedelta() <= self.now() - failed.at < WRITE_RETRY_AFTER:
            return ReconcileResult(signature=found.signature, retry=True)
        number = (
            failed.number
            if failed
            else max(latest.number if latest else 0, disk.write_number if disk else 0)
            % _MAX_PAGE_NUMBER
            + 1
        )
        page = replace(
            page, write_number=number, front_matter="" if disk is None else disk.front_matter
        )
        whole = page
        if len(shown) < len(entries):
            whole = await asyncio.to_thread(self.pages.build_page, file, entries, rivals)
        began = PageDigest.of_page(whole, with_titles=file.kind.layout is MarkdownLayout.BOOK)
        began = replace(began, removed=sorted(seen.missing & began.lines.keys()))
        if len(entries) >= shelves.MAX_FILE_ENTRIES:
            page = replace(page, left_out=page.left_out + await self._count_left_out(file))
        body = await asyncio.to_thread(self.pages.render_page, file, page)
        base = FileSnapshot(
            path=file.path, number=number, hash=body_hash(body), page_digest=began, at=self.now()
        )
        await self.bases.put(base, on_disk=disk.write_number if disk else 0)
        return await self._write(file, base, body, found)

    async def _write(
        self, file: MemoryFile, base: FileSnapshot, body: str, found: FileContent
    ) -> ReconcileResult | None:
        try:
            made = await asyncio.to_thread(self.folder.write, file.path, body, found.signature)
        except OSError as error:
            log.warning("%s cannot be written: %s", file.path, error)
            trouble = "link" if isinstance(error, NotADirectoryError) else "unusable"
            await self.notify_owners(file.path, trouble, str(error.errno))
            passing = error.errno in _TRANSIENT_ERRNOS
            if passing:
                # With the same number, so that snapshots of older versions are kept.
                self._failed_writes[file.path] = _FailedWrite(number=base.number, at=self.now())
            return ReconcileResult(signature=found.signature, retry=passing)
        self._failed_writes.pop(file.path, None)
        if made is None:
            return None
        if found.body is not None:
            self._replaced[file.path] = _ReplacedFile(body=found.body, at=self.now())
        return ReconcileResult(
            signature=made, retry=found.body is not None or bool(base.page_digest.removed)
        )

    async def _remove_empty(self, file: MemoryFile, found: FileContent) -> ReconcileResult | None:
        if found.signature is None:
            return ReconcileResult()
        gone = await asyncio.to_thread(self.folder.delete, file.path, found.signature)
        return ReconcileResult() if gone else None

    async def _import_leftovers(
        self, file: MemoryFile, latest: FileSnapshot | None
    ) -> tuple[bool, frozenset[str]]:
        """Import content left beside the file: saved at the moment it was replaced, or left by a
        crash. Returns whether something remains, and which lines are missing there."""
        gone = frozenset[str]()
        old, new = await asyncio.to_thread(self.folder.read_leftovers, file.path)
        if old.body is None and new.body is None:
            return False, gone
        replaced = self._replaced.get(file.path)
        since = None if replaced is None else self.now() - replaced.at
        # The clock may have been set back.
        fresh = since is not None and timedelta() <= since < LEFTOVER_GRACE
        for body in (old.body, new.body):
            if body is None or await self.bases.is_known(file.path, body):
                continue
            if replaced is None or body != replaced.body:
                disk = await asyncio.to_thread(parse_page, body, file.kind.layout)
                # Incomplete: it is still being written, or is our own interrupted write.
                if not disk.has_end_mark:
                    continue
                taken = await self._import_edits(file, disk, latest)
                gone |= taken.missing
                if taken.outcome is not EditImportOutcome.DONE:
                    return True, gone
        if fresh:
            return True, gone
        self._replaced.pop(file.path, None)
        await asyncio.to_thread(self.folder.delete_leftovers, file.path)
        return False, gone

    def _may_be_partial(self, file: MemoryFile, disk: MarkdownPage, found: FileContent) -> bool:
        if disk.has_end_mark and disk.write_number:
            return False
        sign, since = self._partial_files.get(file.path, (None, self.now()))
        if sign != found.signature or since > self.now():
            since = self.now()
        self._partial_files[file.path] = found.signature, since
        return self.now() - since < PARTIAL_SAVE_GRACE

    async def _count_left_out(self, file: MemoryFile) -> int:
        span = file.span(self.pages.zone) if file.kind is MemoryFileKind.DAY else None
        since, before = span or (None, None)
        return await self.repo.count_left_out(
            file.scope, file.entry_kinds, since=since, before=before
        )

    async def _list_entries(self, file: MemoryFile) -> Sequence[MemoryEntry]:
        span = file.span(self.pages.zone) if file.kind is MemoryFileKind.DAY else None
        return await self.repo.list_shown(
            file.scope,
            file.entry_kinds,
            since=span[0] if span else None,
            before=span[1] if span else None,
            only=file.entry,
        )
