"""A data folder with its memories, a person's editor, and a clock that is turned by hand."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from bot.engine.memory.changed import Changed
from bot.engine.memory.mirror.first import First
from bot.engine.memory.mirror.leaving import WAITS
from bot.engine.memory.mirror.mirror import Mirror
from bot.engine.memory.mirror.others import Others
from bot.engine.memory.mirror.pages import Pages
from bot.engine.memory.mirror.reconcile import PATIENCE, Reconciler
from bot.engine.memory.mirror.taking import Taking
from bot.engine.memory.writing.rights import HOME
from bot.engine.memory.writing.service import ByHand, MemoryWriter
from cards.words import words_for
from storage.db import Database
from storage.ids import Ids
from storage.marks import Marks
from storage.memory.cells import Cells
from storage.memory.entries import EntryRepo
from storage.memory.files.bases import Bases
from storage.memory.files.folder import Folder
from storage.memory.files.lines import Lines
from storage.memory.files.shelf import Shelf
from storage.memory.index import Index
from storage.records.memory.entries import (
    GLOBAL,
    Category,
    Entry,
    EntryState,
    MemoryKind,
    NewEntry,
    Scope,
    ScopeKind,
)
from storage.records.people import Language

NOW = datetime(2026, 11, 22, 17, 30, tzinfo=UTC)
ZONE = ZoneInfo("Asia/Shanghai")
ANN = Scope(ScopeKind.PERSON, "annid")
TEAM = Scope(ScopeKind.CHAT, "teamid")


@dataclass
class Told:
    notices: list[tuple[str, str, dict[str, object]]] = field(default_factory=list)
    _seen: set[tuple[str, str, str]] = field(default_factory=set)

    async def __call__(self, path: str, what: str, state: str, **facts: object) -> None:
        if (path, what, state) not in self._seen:
            self._seen.add((path, what, state))
            self.notices.append((path, what, facts))

    @property
    def kinds(self) -> list[str]:
        return [what for _, what, _ in self.notices]


class Desk:
    def __init__(self, home: Path, db: Database, language: Language = Language.ENGLISH) -> None:
        self.home = home
        self.db = db
        self.language = language
        self.at = NOW
        self.told = Told()
        self.changed = Changed()
        self.entries = EntryRepo(db, Ids(), Index(db))
        self.shelf = Shelf(db)
        self.writer = MemoryWriter(
            db=db,
            entries=self.entries,
            cells=Cells(db, self.entries),
            changed=self.changed,
            mask=lambda text: text.replace("hunter2", "***"),
            now=self.now,
        )
        self.start()

    def start(self) -> None:
        """A program that has just been started knows only what is stored."""
        folder, bases = Folder(self.home), Bases(self.db)
        pages = Pages(words=words_for(Language.ENGLISH), zone=ZONE)
        self.first = First(
            home=self.home,
            folder=folder,
            entries=self.entries,
            writer=self.writer,
            marks=Marks(self.db),
            pages=pages,
            language=self.spoken,
            tell=self.told,
            owners=self.owners,
        )
        self.folder, self.bases, self.pages = folder, bases, pages
        self.taking = Taking(
            shelf=self.shelf,
            lines=Lines(self.db, Ids(), self.entries),
            writer=self.writer,
            pages=pages,
            tell=self.told,
            now=self.now,
        )
        self.reconciler = Reconciler(
            folder=folder,
            bases=bases,
            shelf=self.shelf,
            pages=pages,
            taking=self.taking,
            tell=self.told,
            now=self.now,
        )
        self.others = Others(version=self.db.version, shelf=self.shelf, changed=self.changed)
        self.mirror = Mirror(
            folder=folder,
            bases=bases,
            shelf=self.shelf,
            pages=pages,
            reconciler=self.reconciler,
            changed=self.changed,
            always=self.owners,
            name_of=self.name_of,
            prepare=self.first,
            others=self.others,
            now=self.now,
            sleep=self.pause,
        )

    def now(self) -> datetime:
        return self.at

    async def pause(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)

    async def owners(self) -> Collection[Scope]:
        return [ANN]

    async def spoken(self) -> Language:
        return self.language

    async def name_of(self, scope: Scope) -> str:
        return {ANN: "Ann", TEAM: "The Team"}.get(scope, scope.name)

    async def add(
        self,
        text: str,
        scope: Scope = GLOBAL,
        kind: MemoryKind = MemoryKind.LONGTERM,
        category: Category = Category.OTHER,
        at: datetime | None = None,
    ) -> Entry:
        """What the program writes on its own."""
        new = NewEntry(kind=kind, scope=scope, text=text, category=category, said_at=at or self.at)
        async with self.db.write() as tx:
            made = await self.entries.add(tx, new, now=self.at)
        assert made is not None
        return made

    async def hand(self, text: str, scope: Scope = GLOBAL) -> Entry:
        return await self.writer.add(ByHand(text=text, scope=scope), HOME)

    async def texts(self, scope: Scope = GLOBAL, kind: MemoryKind | None = None) -> list[str]:
        kinds = (kind,) if kind else (MemoryKind.LONGTERM, MemoryKind.PROFILE, MemoryKind.FACT)
        found = await self.entries.list([scope], kinds=kinds, states=(EntryState.ACTIVE,))
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
        """What stands in the lines of a file, without their marks."""
        lines = [each for each in self.read(name).split("\n") if each.startswith("- ")]
        return [re.sub(r" <!--.*-->$", "", each)[2:] for each in lines]

    async def wait(self) -> None:
        """Until what is not whole counts as saved, nothing lies aside, and what is missing is
        forgotten."""
        await self.mirror.look()
        self.at += max(PATIENCE, WAITS)
        await self.mirror.look()
