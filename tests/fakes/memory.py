"""A fake of what people see and change of memory: it keeps the port's promises in a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from handlers.ports_workers import MemoryRequestRejected, ProgressCallback
from storage.records.memory import (
    GLOBAL_SCOPE,
    AnswerMemories,
    EntryId,
    ImportLineError,
    MemoryCategory,
    MemoryCleanReport,
    MemoryDetail,
    MemoryEntry,
    MemoryExport,
    MemoryImportReport,
    MemoryKind,
    MemoryListFilter,
    MemoryMatch,
    MemoryOrigin,
    MemoryPage,
    MemoryScope,
    MemoryScopeKind,
    MemoryState,
    MemoryStats,
    MemoryStrength,
    MemoryTier,
)
from storage.records.memory_consent import ConsentRequest, ConsentWish
from storage.records.memory_evidence import EntityEntries
from storage.records.people import Chat, ChatId, ChatKind, Person
from storage.records.tasks import Task
from tests.builders import NOW


def make_memory(entry_id: str, text: str, **more: object) -> MemoryEntry:
    known = {
        "id": EntryId(entry_id),
        "number": 1,
        "revision": 1,
        "kind": MemoryKind.LONGTERM,
        "scope": GLOBAL_SCOPE,
        "text": text,
        "category": MemoryCategory.OTHER,
        "label": "",
        "abstract": "",
        "overview": "",
        "keywords": (),
        "importance": 0.5,
        "confidence": 1.0,
        "tier": MemoryTier.CORE,
        "state": MemoryState.ACTIVE,
        "dynamic": False,
        "pinned": False,
        "key": "",
        "origin": MemoryOrigin.MANUAL,
        "source": None,
        "evidence": (),
        "sender": "",
        "thread": "",
        "person": None,
        "chat": None,
        "task": None,
        "said_at": NOW,
        "valid_from": NOW,
        "valid_until": None,
        "invalidated_at": None,
        "supersedes": None,
        "superseded_by": None,
        "strength": MemoryStrength(),
        "used": 0,
        "last_used_at": None,
        "shown": 0,
        "last_shown_at": None,
        "bad_recalls": 0,
        "suppressed_until": None,
        "created_at": NOW,
        "updated_at": NOW,
        "extra": {},
        **more,
    }
    return MemoryEntry(**known)  # type: ignore[arg-type]  # the values fit, one by one


class FakeMemory:
    """Knows the entries that it was given; each person's own are seen in private only."""

    def __init__(self) -> None:
        self.entries: dict[str, MemoryEntry] = {}
        self.wishes: dict[str, ConsentWish] = {}
        self.permissions: dict[str, str] = {}
        self.announced: dict[ChatId, bool] = {}
        self.behind = AnswerMemories()
        self.of_tasks: dict[str, AnswerMemories] = {}
        self.found: Sequence[MemoryMatch] = ()
        self.report = MemoryCleanReport(noise=(), doubles=(), weak=(), done=False)
        self.calls: list[tuple[str, ...]] = []
        self.done_sources: set[str] = set()

    def store(self, *entries: MemoryEntry) -> None:
        self.entries |= {each.id: each for each in entries}

    def find_consent_request(self, text: str) -> ConsentWish | None:
        return self.wishes.get(text)

    def find_permission(self, text: str) -> str | None:
        return self.permissions.get(text)

    async def expect_no_more(self, chat: Chat, *, source: str) -> bool:
        return self.announced.pop(chat.id, False)

    async def withhold(
        self,
        chat: Chat,
        wanted: ConsentRequest,
        *,
        source: str,
        reply_to: str = "",
        is_sure: bool = True,
    ) -> bool:
        self.calls.append(("withhold", chat.id, wanted, source, reply_to))
        return True

    async def withhold_expected(self, chat: Chat, *, source: str) -> bool:
        return False

    async def keep_after_all(
        self, person: Person, chat: Chat, *, source: str, with_before: bool
    ) -> bool:
        self.calls.append(("keep", chat.id, source, str(with_before)))
        return True

    async def list(
        self, person: Person, chat: Chat, kind: MemoryListFilter, *, scope: str = "", page: int = 1
    ) -> MemoryPage:
        aside = {
            MemoryListFilter.CANDIDATES: MemoryState.CANDIDATE,
            MemoryListFilter.REJECTED: MemoryState.REJECTED,
        }
        state = aside.get(kind, MemoryState.ACTIVE)
        seen = [each for each in self._visible(person, chat) if each.state is state]
        return MemoryPage(entries=seen, total=len(seen), page=page, has_more=False)

    async def list_newest(
        self,
        person: Person,
        chat: Chat,
        kind: MemoryListFilter,
        *,
        scope: str = "",
        before: int | None = None,
        limit: int,
    ) -> MemoryPage:
        raise NotImplementedError

    async def search(
        self,
        person: Person,
        chat: Chat,
        query: str,
        *,
        kind: MemoryListFilter = MemoryListFilter.ALL,
        scope: str = "",
        limit: int = 10,
    ) -> Sequence[MemoryMatch]:
        if self.found:
            return self.found
        found = [each for each in self._visible(person, chat) if query in each.text]
        return [MemoryMatch(entry=each, score=1.0) for each in found[:limit]]

    async def list_about(self, person: Person, chat: Chat, name: str) -> Sequence[EntityEntries]:
        found = [each for each in self._visible(person, chat) if name in each.text]
        return [EntityEntries(description="", entries=found)] if found else []

    async def show(self, person: Person, chat: Chat, entry_id: str) -> MemoryDetail:
        return MemoryDetail(
            entry=self._one(person, chat, entry_id), strength=80.0, is_editable=True
        )

    async def add(
        self, person: Person, chat: Chat, text: str, *, scope: str = "", source: str = ""
    ) -> MemoryEntry:
        entry = make_memory(
            f"new{len(self.entries)}", text, scope=MemoryScope(MemoryScopeKind.PERSON, person.id)
        )
        self.store(entry)
        return entry

    async def edit(
        self, person: Person, chat: Chat, entry_id: str, text: str, *, revision: int = 0
    ) -> MemoryEntry:
        entry = self._one(person, chat, entry_id)
        if revision and revision != entry.revision:
            raise MemoryRequestRejected("changed", entry.id)
        self.store(replace(entry, text=text, revision=entry.revision + 1))
        return self.entries[entry.id]

    async def forget(
        self, person: Person, chat: Chat, entry_id: str, *, source: str = "", revision: int = 0
    ) -> MemoryEntry:
        if entry_id not in self.entries and source in self.done_sources:
            raise MemoryRequestRejected("forgotten", entry_id)
        if revision not in {0, self._one(person, chat, entry_id).revision}:
            raise MemoryRequestRejected("changed", entry_id)
        gone = self.entries.pop(self._one(person, chat, entry_id).id)
        self.done_sources.add(source)
        return gone

    async def pin(self, person: Person, chat: Chat, entry_id: str, *, pinned: bool) -> MemoryEntry:
        self.store(replace(self._one(person, chat, entry_id), pinned=pinned))
        return self.entries[entry_id]

    async def move(self, person: Person, chat: Chat, entry_id: str, scope: str) -> MemoryEntry:
        self.store(replace(self._one(person, chat, entry_id), scope=MemoryScope.parse(scope)))
        return self.entries[entry_id]

    async def decide(
        self, person: Person, chat: Chat, entry_id: str, *, keep: bool, wording: str = ""
    ) -> MemoryEntry:
        state = MemoryState.ACTIVE if keep else MemoryState.REJECTED
        self.store(replace(self._one(person, chat, entry_id), state=state))
        return self.entries[entry_id]

    async def explain_answer(
        self, person: Person, chat: Chat, *, session: str = "", turn: int = 0
    ) -> AnswerMemories:
        return self.behind

    async def explain_task(self, person: Person, chat: Chat, task: Task) -> AnswerMemories:
        return self.of_tasks.get(task.id, AnswerMemories())

    async def mark_helpful(
        self, person: Person, chat: Chat, *, session: str = "", turn: int = 0
    ) -> AnswerMemories:
        self.calls.append(("helped", person.id, session, str(turn)))
        used = [replace(each, confirmed=each.entry is not None) for each in self.behind.used]
        return replace(self.behind, used=used)

    async def get_handbook(self, person: Person, chat: Chat) -> Sequence[MemoryEntry]:
        return [each for each in self.entries.values() if each.kind is MemoryKind.HANDBOOK]

    async def write_chapter(
        self, person: Person, chat: Chat, chapter: str, text: str
    ) -> MemoryEntry:
        for each in await self.get_handbook(person, chat):
            if each.key == f"handbook:{chapter}":
                self.store(replace(each, text=text))
                return self.entries[each.id]
        raise MemoryRequestRejected("unknown_chapter", "principles")

    async def stats(self, person: Person, chat: Chat) -> MemoryStats:
        return MemoryStats(
            by_kind={"longterm": len(self.entries)},
            by_state={"active": len(self.entries)},
            by_scope={"global": len(self.entries)},
            jobs_waiting=0,
            jobs_failed=0,
            vectors=0,
            embedding_model="",
        )

    async def clean(
        self, person: Person, chat: Chat, *, dry_run: bool, source: str = ""
    ) -> MemoryCleanReport:
        return replace(
            self.report, done=not dry_run, backup="" if dry_run else "exports/memory.jsonl"
        )

    async def export(self, person: Person, chat: Chat) -> MemoryExport:
        return MemoryExport(path="exports/m.jsonl", size=10, entries=len(self.entries))

    async def import_entries(
        self,
        person: Person,
        chat: Chat,
        path: str,
        *,
        scope: str = "",
        progress: ProgressCallback | None = None,
        source: str = "",
    ) -> MemoryImportReport:
        if progress is not None:
            await progress(100, 200)
        bad = {3: ImportLineError.NO_TEXT, 5: ImportLineError.NO_JSON, 8: ImportLineError.NO_TEXT}
        return MemoryImportReport(added=2, already_known=1, line_errors=bad)

    async def restore(
        self, person: Person, chat: Chat, path: str, *, source: str = ""
    ) -> MemoryImportReport:
        return MemoryImportReport(added=1, already_known=0, line_errors={})

    def _visible(self, who: Person, chat: Chat) -> Sequence[MemoryEntry]:
        own = MemoryScope(MemoryScopeKind.PERSON, who.id)
        private = chat.kind is ChatKind.PRIVATE
        return [
            each
            for each in self.entries.values()
            if each.scope.kind is not MemoryScopeKind.PERSON or (private and each.scope == own)
        ]

    def _one(self, who: Person, chat: Chat, entry_id: str) -> MemoryEntry:
        for each in self._visible(who, chat):
            if each.id == entry_id:
                return each
        raise MemoryRequestRejected("unknown", entry_id)
