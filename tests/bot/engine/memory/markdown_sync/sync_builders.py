"""A data folder with its memories, a person's editor, and a clock that is turned by hand."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from bot.engine.memory.access import LOCAL_EDITOR, ManualMemory
from bot.engine.memory.candidate_review import CandidateReview
from bot.engine.memory.change_feed import ForeignWriteDetector, MemoryChangeFeed
from bot.engine.memory.consolidation import MemoryConsolidator
from bot.engine.memory.markdown_sync.edit_import import MOVE_GRACE, FileEditImporter
from bot.engine.memory.markdown_sync.layout import MemoryPageMapper
from bot.engine.memory.markdown_sync.reconciler import PARTIAL_SAVE_GRACE, FileReconciler
from bot.engine.memory.markdown_sync.sync_service import InitialFileImport, MarkdownSyncService
from bot.engine.memory.promotion import FactPromoter, QualityMetrics
from bot.engine.memory.writer import MemoryWriter
from cards.catalog import catalog_for
from storage.db import Database
from storage.ids import IdGenerator
from storage.key_value import KeyValueStore
from storage.memory.bulk_import import EntryBatchWriter
from storage.memory.cells import CellRepo
from storage.memory.entries import MemoryEntryRepo
from storage.memory.markdown.folder import MarkdownFolder
from storage.memory.markdown.sync_store import FileSnapshotRepo, SyncedEntryRepo
from storage.records.memory import (
    GLOBAL_SCOPE,
    MemoryCategory,
    MemoryEntry,
    MemoryKind,
    MemoryScope,
    MemoryScopeKind,
    MemoryState,
    NewMemoryEntry,
)
from storage.records.people import Language
from storage.search.inverted_index import InvertedIndex

NOW = datetime(2026, 11, 22, 17, 30, tzinfo=UTC)
ZONE = ZoneInfo("Asia/Shanghai")
ANN = MemoryScope(MemoryScopeKind.PERSON, "annid")
TEAM = MemoryScope(MemoryScopeKind.CHAT, "teamid")


@dataclass
class RecordingNotifier:
    notices: list[tuple[str, str, dict[str, object]]] = field(default_factory=list)
    _seen: set[tuple[str, str, str]] = field(default_factory=set)

    async def __call__(self, path: str, what: str, state: str, **facts: object) -> None:
        if (path, what, state) not in self._seen:
            self._seen.add((path, what, state))
            self.notices.append((path, what, facts))

    @property
    def kinds(self) -> list[str]:
        return [what for _, what, _ in self.notices]


def build_writer(
    db: Database, entries: MemoryEntryRepo, feed: MemoryChangeFeed, now: Callable[[], datetime]
) -> MemoryWriter:
    cells, quality = CellRepo(db, entries), QualityMetrics(KeyValueStore(db))
    return MemoryWriter(
        db=db,
        entries=entries,
        cells=cells,
        consolidator=MemoryConsolidator(
            entries=entries,
            cells=cells,
            index=InvertedIndex(db),
            promoter=FactPromoter(entries=entries, cells=cells, quality=quality),
        ),
        candidate_review=CandidateReview(
            entries=entries, cells=cells, quality=quality, feed=feed, now=now
        ),
        feed=feed,
        redact=lambda text: text.replace("hunter2", "***"),
        now=now,
    )


class SyncSetup:
    def __init__(self, home: Path, db: Database, language: Language = Language.ENGLISH) -> None:
        self.home = home
        self.db = db
        self.language = language
        self.clock = NOW
        self.notifier = RecordingNotifier()
        self.feed = MemoryChangeFeed()
        self.entries = MemoryEntryRepo(db, IdGenerator(), InvertedIndex(db))
        self.repo = SyncedEntryRepo(db)
        self.writer = build_writer(db, self.entries, self.feed, self.now)
        self.start()

    def start(self) -> None:
        """A program that has just been started knows only what is stored."""
        folder, bases = MarkdownFolder(self.home), FileSnapshotRepo(self.db)
        pages = MemoryPageMapper(words=catalog_for(Language.ENGLISH), zone=ZONE)
        self.initial_import = InitialFileImport(
            data_dir=self.home,
            folder=folder,
            entries=self.entries,
            writer=self.writer,
            key_values=KeyValueStore(self.db),
            pages=pages,
            language=self.read_language,
            notify_owners=self.notifier,
            owners=self.owners,
        )
        self.folder, self.bases, self.pages = folder, bases, pages
        self.edit_importer = FileEditImporter(
            repo=self.repo,
            line_repo=EntryBatchWriter(self.db, IdGenerator(), self.entries),
            writer=self.writer,
            pages=pages,
            notify_owners=self.notifier,
            now=self.now,
        )
        self.reconciler = FileReconciler(
            folder=folder,
            bases=bases,
            repo=self.repo,
            pages=pages,
            edit_importer=self.edit_importer,
            notify_owners=self.notifier,
            now=self.now,
        )
        self.foreign_writes = ForeignWriteDetector(
            store_version=self.db.data_version, repo=self.repo, feed=self.feed
        )
        self.sync_service = MarkdownSyncService(
            folder=folder,
            bases=bases,
            repo=self.repo,
            pages=pages,
            reconciler=self.reconciler,
            feed=self.feed,
            always_scopes=self.owners,
            name_of=self.name_of,
            prepare=self.initial_import,
            foreign_writes=self.foreign_writes,
            now=self.now,
            sleep=self.pause,
        )

    def now(self) -> datetime:
        return self.clock

    async def pause(self, seconds: float) -> None:
        self.clock += timedelta(seconds=seconds)

    async def owners(self) -> Collection[MemoryScope]:
        return [ANN]

    async def read_language(self) -> Language:
        return self.language

    async def name_of(self, scope: MemoryScope) -> str:
        return {ANN: "Ann", TEAM: "The Team"}.get(scope, scope.name)

    async def add(
        self,
        text: str,
        scope: MemoryScope = GLOBAL_SCOPE,
        kind: MemoryKind = MemoryKind.LONGTERM,
        category: MemoryCategory = MemoryCategory.OTHER,
        *,
        at: datetime | None = None,
        valid_from: datetime | None = None,
        valid_until: datetime | None = None,
    ) -> MemoryEntry:
        """Add an entry as the program does."""
        new = NewMemoryEntry(
            kind=kind,
            scope=scope,
            text=text,
            category=category,
            said_at=at or self.clock,
            valid_from=valid_from,
            valid_until=valid_until,
        )
        async with self.db.write() as tx:
            made = await self.entries.add(tx, new, now=self.clock)
        assert made is not None
        return made

    async def add_manual(self, text: str, scope: MemoryScope = GLOBAL_SCOPE) -> MemoryEntry:
        return await self.writer.add(ManualMemory(text=text, scope=scope), LOCAL_EDITOR)

    async def texts(
        self, scope: MemoryScope = GLOBAL_SCOPE, kind: MemoryKind | None = None
    ) -> list[str]:
        kinds = (kind,) if kind else (MemoryKind.LONGTERM, MemoryKind.PROFILE, MemoryKind.FACT)
        found = await self.entries.list([scope], kinds=kinds, states=(MemoryState.ACTIVE,))
        return sorted(each.text for each in found)

    def path(self, name: str) -> Path:
        """`name` may leave out how the folder of a person or chat is told from another's."""
        if (self.home / name).parent.name and not (self.home / name).parent.exists():
            folder = (self.home / name).parent
            (found,) = folder.parent.glob(f"{folder.name}-*")
            return found / Path(name).name
        return self.home / name

    def read(self, name: str = "MEMORY.md") -> str:
        return self.path(name).read_text()

    def save(self, body: str, name: str = "MEMORY.md") -> None:
        """As editors do that write into the same file."""
        self.path(name).write_text(body)

    def change(self, old: str, new: str, name: str = "MEMORY.md") -> None:
        body = self.read(name)
        assert old in body
        self.save(body.replace(old, new), name)

    def line(self, text: str, name: str = "MEMORY.md") -> str:
        (found,) = [each for each in self.read(name).split("\n") if text in each]
        return found

    def shown(self, name: str = "MEMORY.md") -> list[str]:
        """The texts of a file's lines, without their marks."""
        lines = [each for each in self.read(name).split("\n") if each.startswith("- ")]
        return [re.sub(r" <!--.*-->$", "", each)[2:] for each in lines]

    async def wait(self) -> None:
        """Until what is not whole counts as saved, nothing lies aside, and what is missing is
        forgotten."""
        await self.sync_service.read_back()
        self.clock += max(PARTIAL_SAVE_GRACE, MOVE_GRACE)
        await self.sync_service.read_back()
