"""A fake of what people see and change of memory: it keeps the port's promises in a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from handlers.services.memory import MemoryRefused, Tell
from storage.records.memory.entries import (
    GLOBAL,
    Category,
    Entry,
    EntryId,
    EntryState,
    MemoryKind,
    Origin,
    Scope,
    ScopeKind,
    Strength,
    Tier,
)
from storage.records.memory.shown import (
    BadLine,
    Behind,
    Brought,
    CleanReport,
    EntryPage,
    ExportedEntries,
    FoundEntry,
    MemoryStats,
    ShownEntry,
    Wanted,
)
from storage.records.people import Chat, ChatKind, Person
from storage.records.tasks import Task
from tests.samples import NOW


def an_entry(entry_id: str, text: str, **more: object) -> Entry:
    known = {
        "id": EntryId(entry_id),
        "number": 1,
        "revision": 1,
        "kind": MemoryKind.LONGTERM,
        "scope": GLOBAL,
        "text": text,
        "category": Category.OTHER,
        "label": "",
        "abstract": "",
        "overview": "",
        "keywords": (),
        "importance": 0.5,
        "confidence": 1.0,
        "tier": Tier.CORE,
        "state": EntryState.ACTIVE,
        "dynamic": False,
        "pinned": False,
        "key": "",
        "origin": Origin.MANUAL,
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
        "strength": Strength(),
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
    return Entry(**known)  # type: ignore[arg-type]  # the values fit, one by one


class FakeMemory:
    """Knows the entries that it was given; each person's own are seen in private only."""

    def __init__(self) -> None:
        self.known: dict[str, Entry] = {}
        self.behind = Behind()
        self.of_tasks: dict[str, Behind] = {}
        self.found: Sequence[FoundEntry] = ()
        self.report = CleanReport(noise=(), doubles=(), weak=(), done=False)
        self.asked: list[tuple[str, ...]] = []
        self.carried_out: set[str] = set()

    def keep(self, *entries: Entry) -> None:
        self.known |= {each.id: each for each in entries}

    async def list(
        self, who: Person, chat: Chat, wanted: Wanted, *, scope: str = "", page: int = 1
    ) -> EntryPage:
        aside = {
            Wanted.CANDIDATES: EntryState.CANDIDATE,
            Wanted.REJECTED: EntryState.REJECTED,
        }
        state = aside.get(wanted, EntryState.ACTIVE)
        seen = [each for each in self._seen(who, chat) if each.state is state]
        return EntryPage(entries=seen, scopes=[GLOBAL], total=len(seen), page=page, more=False)

    async def search(
        self, who: Person, chat: Chat, query: str, *, limit: int = 10
    ) -> Sequence[FoundEntry]:
        if self.found:
            return self.found
        found = [each for each in self._seen(who, chat) if query in each.text]
        return [FoundEntry(entry=each, score=1.0) for each in found[:limit]]

    async def show(self, who: Person, chat: Chat, entry_id: str) -> ShownEntry:
        return ShownEntry(entry=self._one(who, chat, entry_id), strength=80.0, mine=True)

    async def add(
        self, who: Person, chat: Chat, text: str, *, scope: str = "", source: str = ""
    ) -> Entry:
        entry = an_entry(f"new{len(self.known)}", text, scope=Scope(ScopeKind.PERSON, who.id))
        self.keep(entry)
        return entry

    async def edit(
        self, who: Person, chat: Chat, entry_id: str, text: str, *, revision: int = 0
    ) -> Entry:
        entry = self._one(who, chat, entry_id)
        if revision and revision != entry.revision:
            raise MemoryRefused("changed", entry.id)
        self.keep(replace(entry, text=text, revision=entry.revision + 1))
        return self.known[entry.id]

    async def forget(
        self, who: Person, chat: Chat, entry_id: str, *, source: str = "", revision: int = 0
    ) -> Entry:
        if entry_id not in self.known and source in self.carried_out:
            raise MemoryRefused("forgotten", entry_id)
        if revision not in {0, self._one(who, chat, entry_id).revision}:
            raise MemoryRefused("changed", entry_id)
        gone = self.known.pop(self._one(who, chat, entry_id).id)
        self.carried_out.add(source)
        return gone

    async def pin(self, who: Person, chat: Chat, entry_id: str, *, pinned: bool) -> Entry:
        self.keep(replace(self._one(who, chat, entry_id), pinned=pinned))
        return self.known[entry_id]

    async def move(self, who: Person, chat: Chat, entry_id: str, scope: str) -> Entry:
        self.keep(replace(self._one(who, chat, entry_id), scope=Scope.of(scope)))
        return self.known[entry_id]

    async def decide(
        self, who: Person, chat: Chat, entry_id: str, *, keep: bool, wording: str = ""
    ) -> Entry:
        state = EntryState.ACTIVE if keep else EntryState.REJECTED
        self.keep(replace(self._one(who, chat, entry_id), state=state))
        return self.known[entry_id]

    async def why(self, who: Person, chat: Chat, *, session: str = "", turn: int = 0) -> Behind:
        return self.behind

    async def why_task(self, who: Person, chat: Chat, task: Task) -> Behind:
        return self.of_tasks.get(task.id, Behind())

    async def helped(self, who: Person, chat: Chat, *, session: str = "", turn: int = 0) -> Behind:
        self.asked.append(("helped", who.id, session, str(turn)))
        used = [replace(each, confirmed=each.entry is not None) for each in self.behind.used]
        return replace(self.behind, used=used)

    async def handbook(self, who: Person, chat: Chat) -> Sequence[Entry]:
        return [each for each in self.known.values() if each.kind is MemoryKind.HANDBOOK]

    async def write_chapter(self, who: Person, chat: Chat, chapter: str, text: str) -> Entry:
        for each in await self.handbook(who, chat):
            if each.key == f"handbook:{chapter}":
                self.keep(replace(each, text=text))
                return self.known[each.id]
        raise MemoryRefused("unknown_chapter", "principles")

    async def stats(self, who: Person, chat: Chat) -> MemoryStats:
        return MemoryStats(
            by_kind={"longterm": len(self.known)},
            by_state={"active": len(self.known)},
            by_scope={"global": len(self.known)},
            jobs_waiting=0,
            jobs_failed=0,
            vectors=0,
            model="",
        )

    async def clean(self, who: Person, chat: Chat, *, dry: bool, source: str = "") -> CleanReport:
        return replace(self.report, done=not dry, backup="" if dry else "exports/memory.jsonl")

    async def export(self, who: Person, chat: Chat) -> ExportedEntries:
        return ExportedEntries(path="exports/m.jsonl", size=10, entries=len(self.known))

    async def bring(
        self,
        who: Person,
        chat: Chat,
        path: str,
        *,
        scope: str = "",
        tell: Tell | None = None,
        source: str = "",
    ) -> Brought:
        if tell is not None:
            await tell(100, 200)
        bad = {3: BadLine.NO_TEXT, 5: BadLine.NO_JSON, 8: BadLine.NO_TEXT}
        return Brought(added=2, known=1, bad=bad)

    async def restore(self, who: Person, chat: Chat, path: str, *, source: str = "") -> Brought:
        return Brought(added=1, known=0, bad={})

    def _seen(self, who: Person, chat: Chat) -> Sequence[Entry]:
        own = Scope(ScopeKind.PERSON, who.id)
        private = chat.kind is ChatKind.PRIVATE
        return [
            each
            for each in self.known.values()
            if each.scope.kind is not ScopeKind.PERSON or (private and each.scope == own)
        ]

    def _one(self, who: Person, chat: Chat, entry_id: str) -> Entry:
        for each in self._seen(who, chat):
            if each.id == entry_id:
                return each
        raise MemoryRefused("unknown", entry_id)
