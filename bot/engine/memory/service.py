"""Implements the handlers' memory port: listing, search and changes of memories by people."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from functools import partial
from typing import assert_never

from bot.engine.memory.access import ManualMemory, MemoryEditor, MemoryReader
from bot.engine.memory.consent import MemoryConsent
from bot.engine.memory.decay import UsageTracker, current_strength
from bot.engine.memory.export_import import MemoryRestorer, MemoryTransfer, ignore_progress
from bot.engine.memory.maintenance import ForgetCommandLog, MemoryCleanup
from bot.engine.memory.markdown_sync.layout import (
    CHAPTERS,
    build_chapter,
    chapter_name,
    chapter_order,
    find_chapter,
)
from bot.engine.memory.retriever import ALL_KINDS, MemoryRetriever
from bot.engine.memory.writer import MemoryWriter
from cards.catalog import TextCatalog, catalog_for
from cards.views.memory import matches_chapter, spoken_text
from handlers.ports_workers import MemoryRequestRejected, ProgressCallback
from storage.errors import AmbiguousId, ConcurrentUpdate, NotAllowed, NotFound, WrongState
from storage.memory.access_stats import MemoryCounts
from storage.memory.entries import MemoryEntryRepo
from storage.records.memory import (
    GLOBAL_SCOPE,
    MAX_ENTRY_TEXT,
    MEMORY_PAGE_SIZE,
    AnswerMemories,
    MemoryCleanReport,
    MemoryDetail,
    MemoryEntry,
    MemoryExport,
    MemoryImportReport,
    MemoryKind,
    MemoryListFilter,
    MemoryMatch,
    MemoryNotSaved,
    MemoryOrigin,
    MemoryPage,
    MemoryRejectionReason,
    MemoryScope,
    MemoryScopeKind,
    MemoryState,
    MemoryStats,
    is_offer,
)
from storage.records.memory import candidate_digest as wording_of
from storage.records.memory_consent import ConsentRequest, ConsentWish
from storage.records.memory_evidence import EntityEntries
from storage.records.people import Chat, Language, Person, PersonRole
from storage.records.tasks import Task
from storage.search.terms import query_terms, tokenize
from storage.search.vectors import VectorRepo

_FULL_WEIGHT = 1.0


def mark_near_matches(
    hits: Iterable[MemoryMatch], query: str, *, now: datetime, zone: tzinfo
) -> Sequence[MemoryMatch]:
    """Set `is_indirect` on matches that contain no word of the query."""
    wanted = _query_terms(query, now, zone)
    return [
        replace(hit, is_indirect=wanted.isdisjoint(tokenize(spoken_text(hit.entry))))
        for hit in hits
    ]


def _query_terms(query: str, now: datetime, zone: tzinfo) -> frozenset[str]:
    """Full-weight terms; character pairs instead of single characters where the query has any."""
    known = query_terms(query, now=now, zone=zone)
    bare = {term for term, weight in known.items() if weight == _FULL_WEIGHT and term.isalnum()}
    longer = {term for term in bare if len(term) > 1 or term.isascii()}
    return frozenset(longer or bare)


_MAX_ID_LENGTH = 16
_MAX_CHAPTERS = 50
_MAX_SEARCHED = 1_000
_MAX_ABOUT = 200
_OWNERLESS_KINDS = {
    MemoryScopeKind.PROJECT,
    MemoryScopeKind.SKILL,
    MemoryScopeKind.AGENT,
    MemoryScopeKind.CUSTOM,
}
_KINDS_BY_VIEW: Mapping[MemoryListFilter, tuple[MemoryKind, ...]] = {
    MemoryListFilter.KNOWN: (MemoryKind.PROFILE, MemoryKind.LONGTERM, MemoryKind.FACT),
    MemoryListFilter.HANDBOOK: (MemoryKind.HANDBOOK,),
    MemoryListFilter.PROFILE: (MemoryKind.PROFILE,),
    MemoryListFilter.LONGTERM: (MemoryKind.LONGTERM,),
    MemoryListFilter.FACTS: (MemoryKind.FACT,),
    MemoryListFilter.CELLS: (MemoryKind.CELL,),
    MemoryListFilter.EPISODES: (MemoryKind.EPISODE,),
}
_STATES_BY_VIEW: Mapping[MemoryListFilter, tuple[MemoryState, ...]] = {
    MemoryListFilter.CANDIDATES: (MemoryState.CANDIDATE,),
    MemoryListFilter.ARCHIVED: (MemoryState.ARCHIVED,),
    MemoryListFilter.SUPERSEDED: (MemoryState.SUPERSEDED,),
    MemoryListFilter.REJECTED: (MemoryState.REJECTED,),
}


def _selection(
    kind: MemoryListFilter,
) -> tuple[tuple[MemoryKind, ...], tuple[MemoryState, ...]]:
    return _KINDS_BY_VIEW.get(kind, ()), _STATES_BY_VIEW.get(kind, (MemoryState.ACTIVE,))


_COUNTED_VIEWS = (
    MemoryListFilter.KNOWN,
    MemoryListFilter.CANDIDATES,
    MemoryListFilter.CELLS,
    MemoryListFilter.EPISODES,
    MemoryListFilter.HANDBOOK,
    MemoryListFilter.SUPERSEDED,
    MemoryListFilter.ARCHIVED,
    MemoryListFilter.REJECTED,
)
_REFUSAL_REASONS: Mapping[MemoryRejectionReason, str] = {
    MemoryRejectionReason.EMPTY: "empty",
    MemoryRejectionReason.TOO_LONG: "too_long",
    MemoryRejectionReason.NO_CANDIDATE: "wrong_state",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryService:
    """Implements `handlers.ports_workers.MemoryPort`."""

    entries: MemoryEntryRepo
    figures: MemoryCounts
    vectors: VectorRepo
    writer: MemoryWriter
    retriever: MemoryRetriever
    usage: UsageTracker
    transfer: MemoryTransfer
    restorer: MemoryRestorer
    cleanup: MemoryCleanup
    forget_log: ForgetCommandLog
    consent: MemoryConsent
    quality_report: Callable[[], Awaitable[Mapping[str, float]]]
    now: Callable[[], datetime]
    zone: tzinfo
    embedding_model: str = ""

    def find_consent_request(self, text: str) -> ConsentWish | None:
        # Imported on first use: its many patterns cost the start.
        from bot.engine.memory.consent_rules import find_consent_request

        return find_consent_request(text)

    def find_permission(self, text: str) -> str | None:
        from bot.engine.memory.consent_permission import find_permission

        return find_permission(text)

    async def expect_no_more(self, chat: Chat, *, source: str) -> bool:
        return await self.consent.expect_no_more(chat, source)

    async def withhold(
        self,
        chat: Chat,
        wanted: ConsentRequest,
        *,
        source: str,
        reply_to: str = "",
        is_sure: bool = True,
    ) -> bool:
        match wanted:
            case ConsentRequest.THIS | ConsentRequest.TOPIC:
                await self.consent.withhold_this(chat, source)
            case ConsentRequest.CHAT:
                await self.consent.withhold_chat(chat, source)
            case ConsentRequest.BEFORE:
                return await self.consent.withhold_before(chat, source, reply_to, is_sure=is_sure)
            case ConsentRequest.NEXT:
                await self.consent.expect_next(chat, source)
            case _:
                assert_never(wanted)
        return True

    async def withhold_expected(self, chat: Chat, *, source: str) -> bool:
        return await self.consent.withhold_expected(chat, source)

    async def keep_after_all(
        self, person: Person, chat: Chat, *, source: str, with_before: bool
    ) -> bool:
        return await self.consent.keep_after_all(person, chat, source, with_before=with_before)

    async def list(
        self, person: Person, chat: Chat, kind: MemoryListFilter, *, scope: str = "", page: int = 1
    ) -> MemoryPage:
        by = await self._editor_for(person, chat)
        scopes, (kinds, states) = self._visible_scopes(by, scope), _selection(kind)
        total = await self.entries.count(scopes, kinds=kinds, states=states)
        page = max(1, min(page, 1 + max(0, total - 1) // MEMORY_PAGE_SIZE))
        found = await self.entries.list(
            scopes,
            kinds=kinds,
            states=states,
            limit=MEMORY_PAGE_SIZE,
            offset=(page - 1) * MEMORY_PAGE_SIZE,
        )
        return MemoryPage(
            entries=found,
            total=total,
            page=page,
            has_more=page * MEMORY_PAGE_SIZE < total,
            other_counts=await self._count_views(scopes),
        )

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
        by = await self._editor_for(person, chat)
        scopes, (kinds, states) = self._visible_scopes(by, scope), _selection(kind)
        found = await self.entries.list_newest(
            scopes, kinds=kinds, states=states, before=before, limit=limit + 1
        )
        return MemoryPage(
            entries=found[:limit],
            total=await self.entries.count(scopes, kinds=kinds, states=states),
            page=1,
            has_more=len(found) > limit,
        )

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
        scopes, (kinds, states) = _reader_for(person, chat).scopes, _selection(kind)
        if scope:
            wanted = self._parse_scope(await self._editor_for(person, chat), scope)
            scopes = [each for each in scopes if each == wanted]
        if states != (MemoryState.ACTIVE,):
            # No index has what is not in use.
            held = await self.entries.list(
                scopes, kinds=kinds, states=states, limit=_MAX_SEARCHED, offset=0
            )
            words = query.casefold().split()
            named = [each for each in held if all(word in each.text.casefold() for word in words)]
            return [MemoryMatch(entry=each, score=0.0) for each in named[:limit]]
        found = await self.retriever.search_scopes(scopes, query, limit, kinds=kinds or ALL_KINDS)
        return mark_near_matches(found, query, now=self.now(), zone=self.zone)

    async def list_about(self, person: Person, chat: Chat, name: str) -> Sequence[EntityEntries]:
        # Imported on first use: its many patterns cost the start.
        from bot.engine.memory.entities import MAX_NAME, group_by_entity

        scopes = (await self._editor_for(person, chat)).scopes or ()
        name = " ".join(name.split())[:MAX_NAME]
        if found := await self._list_naming(scopes, name):
            return group_by_entity(name, found)
        shorter, _, description = name.rpartition(" ")
        groups = group_by_entity(shorter, await self._list_naming(scopes, shorter))
        return [each for each in groups if description.casefold() in each.description.split()]

    async def _list_naming(self, scopes: Sequence[MemoryScope], name: str) -> Sequence[MemoryEntry]:
        """Facts that hold first, then past ones, then turns; the newest first."""
        from bot.engine.memory.entities import mentions_name

        hits = await self.retriever.index.search(
            scopes,
            dict.fromkeys(tokenize(name), 1.0),
            _MAX_ABOUT,
            states=(MemoryState.ACTIVE, MemoryState.SUPERSEDED),
        )
        found = await self.entries.list_by_numbers([hit.number for hit in hits], scopes)
        named = [each for each in found if mentions_name(name, each.text)]
        return sorted(
            named,
            key=lambda each: (
                each.kind is MemoryKind.CELL,
                each.state is not MemoryState.ACTIVE,
                -each.said_at.timestamp(),
            ),
        )

    async def show(self, person: Person, chat: Chat, entry_id: str) -> MemoryDetail:
        by = await self._editor_for(person, chat)
        entry = await self._find_entry(by, entry_id)
        left = current_strength(entry, self.now())
        return MemoryDetail(entry=entry, strength=left, is_editable=by.may_write(entry.scope))

    async def add(
        self, person: Person, chat: Chat, text: str, *, scope: str = "", source: str = ""
    ) -> MemoryEntry:
        by = await self._editor_for(person, chat)
        wanted = ManualMemory(
            text=text,
            scope=self._parse_scope(by, scope) if scope else None,
            source=f"hand:{source}" if source else None,
        )
        with _translate_errors():
            return await self.writer.add(wanted, by)

    async def edit(
        self, person: Person, chat: Chat, entry_id: str, text: str, *, revision: int = 0
    ) -> MemoryEntry:
        by = await self._editor_for(person, chat)
        entry = await self._find_entry(by, entry_id)
        # A repeat is no change: the first command may have failed before its reply.
        if revision and revision != entry.revision and entry.text != text.strip():
            raise MemoryRequestRejected("changed", entry.id)
        with _translate_errors(entry.id):
            return await self.writer.edit(entry, text, by)

    async def forget(
        self, person: Person, chat: Chat, entry_id: str, *, source: str = "", revision: int = 0
    ) -> MemoryEntry:
        by = await self._editor_for(person, chat)
        try:
            entry = await self._find_entry(by, entry_id)
        except MemoryRequestRejected as error:
            if source and await self.forget_log.contains(source):
                raise MemoryRequestRejected("forgotten", entry_id) from error
            raise
        if revision and revision != entry.revision:
            raise MemoryRequestRejected("changed", entry.id)
        with _translate_errors(entry.id):
            await self.writer.forget(
                entry,
                by,
                in_transaction=partial(self.forget_log.add, source=source) if source else None,
            )
        return entry

    async def pin(self, person: Person, chat: Chat, entry_id: str, *, pinned: bool) -> MemoryEntry:
        by = await self._editor_for(person, chat)
        entry = await self._find_entry(by, entry_id)
        with _translate_errors(entry.id):
            return await self.writer.pin(entry, by, pinned=pinned)

    async def move(self, person: Person, chat: Chat, entry_id: str, scope: str) -> MemoryEntry:
        by = await self._editor_for(person, chat)
        entry = await self._find_entry(by, entry_id)
        with _translate_errors(entry.id):
            return await self.writer.move(entry, self._parse_scope(by, scope), by)

    async def decide(
        self, person: Person, chat: Chat, entry_id: str, *, keep: bool, wording: str = ""
    ) -> MemoryEntry:
        by = await self._editor_for(person, chat)
        entry = await self._find_entry(by, entry_id)
        if _is_already_decided(entry, keep=keep):
            return entry
        if wording and wording != wording_of(entry):
            raise MemoryRequestRejected("changed", entry.id)
        with _translate_errors(entry.id):
            decide = self.writer.confirm if keep else self.writer.reject
            return await decide(entry, by)

    async def explain_answer(
        self, person: Person, chat: Chat, *, session: str = "", turn: int = 0
    ) -> AnswerMemories:
        scopes = (await self._editor_for(person, chat)).scopes or ()
        if session:
            return await self.usage.explain_answer(chat.id, session, turn, scopes)
        return await self.usage.explain_last_answer(chat.id, scopes)

    async def explain_task(self, person: Person, chat: Chat, task: Task) -> AnswerMemories:
        return await self.usage.explain_task(
            task.id, (await self._editor_for(person, chat)).scopes or ()
        )

    async def mark_helpful(
        self, person: Person, chat: Chat, *, session: str = "", turn: int = 0
    ) -> AnswerMemories:
        by = await self._editor_for(person, chat)
        told = await self.explain_answer(person, chat, session=session, turn=turn)
        await self.usage.confirm_used(chat.id, told.session, told.turn, by.scopes or ())
        return await self.explain_answer(person, chat, session=told.session, turn=told.turn)

    async def get_handbook(self, person: Person, chat: Chat) -> Sequence[MemoryEntry]:
        found = await self.entries.list(
            [GLOBAL_SCOPE], kinds=[MemoryKind.HANDBOOK], limit=_MAX_CHAPTERS
        )
        return sorted(found, key=lambda each: (chapter_order(each.key), each.number))

    async def write_chapter(self, person: Person, chat: Chat, name: str, text: str) -> MemoryEntry:
        chapters, words = await self.get_handbook(person, chat), _words_for(person)
        known = next((each for each in chapters if matches_chapter(each, name)), None)
        ours = find_chapter(name) if known is None else chapter_name(known.key)
        if known is None and not ours:
            titles = [words(f"mirror.chapter.{each}") for each in CHAPTERS]
            own = [each.label for each in chapters if chapter_name(each.key) not in CHAPTERS]
            raise MemoryRequestRejected("unknown_chapter", ", ".join((*titles, *own)))
        by = await self._editor_for(person, chat)
        wanted = build_chapter(ours or name, text, words)
        with _translate_errors(ours):
            return await self.writer.add(
                replace(wanted, label=known.label) if known else wanted, by
            )

    async def stats(self, person: Person, chat: Chat) -> MemoryStats:
        """Only owners in a private chat see global counts."""
        scopes = (await self._editor_for(person, chat)).scopes or ()
        counted = MemoryStats(
            by_kind=await self.figures.count_by_kind(scopes),
            by_state=await self.figures.count_by_state(scopes),
            by_scope=await self.figures.count_by_scope(scopes),
        )
        if person.role is not PersonRole.OWNER or not _reader_for(person, chat).is_private:
            return counted
        return replace(
            counted,
            jobs_waiting=await self.figures.count_jobs("waiting"),
            jobs_failed=await self.figures.count_jobs("failed"),
            vectors=await self.vectors.count(self.embedding_model),
            embedding_model=self.embedding_model,
            quality=await self.quality_report(),
        )

    async def clean(
        self, person: Person, chat: Chat, *, dry_run: bool, source: str = ""
    ) -> MemoryCleanReport:
        return await self.cleanup.run(await self._editor_for(person, chat), dry_run, source=source)

    async def export(self, person: Person, chat: Chat) -> MemoryExport:
        scopes = (await self._editor_for(person, chat)).scopes or ()
        return await self.transfer.export(scopes, name=f"memory-{person.id}-{chat.id}")

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
        by = await self._editor_for(person, chat)
        target = self._parse_scope(by, scope) if scope else _reader_for(person, chat).write_scope
        if target is None or not by.may_write(target):
            raise MemoryRequestRejected("not_yours", scope)
        return await self.transfer.import_file(
            path, by, target, progress or ignore_progress, source=source
        )

    async def restore(
        self, person: Person, chat: Chat, path: str, *, source: str = ""
    ) -> MemoryImportReport:
        if person.role is not PersonRole.OWNER or not _reader_for(person, chat).is_private:
            raise MemoryRequestRejected("not_yours")
        return await self.restorer.restore(path, source=source)

    async def _editor_for(self, who: Person, chat: Chat) -> MemoryEditor:
        """Owners in a private chat also see the scopes of projects, skills and personas."""
        reader = _reader_for(who, chat)
        besides: Sequence[MemoryScope] = ()
        if reader.is_private and who.role is PersonRole.OWNER:
            known = await self.figures.list_scopes()
            besides = [s for s in known if s.kind in _OWNERLESS_KINDS and s not in reader.scopes]
        return MemoryEditor(person=who, reader=reader, extra_scopes=besides)

    async def _find_entry(self, editor: MemoryEditor, entry_id: str) -> MemoryEntry:
        try:
            return await self.entries.find(entry_id.strip().lower()[:_MAX_ID_LENGTH], editor.scopes)
        except NotFound as error:
            raise MemoryRequestRejected("unknown", entry_id) from error
        except AmbiguousId as error:
            raise MemoryRequestRejected("ambiguous", ", ".join(error.candidates)) from error

    async def _count_views(self, scopes: Sequence[MemoryScope]) -> Mapping[MemoryListFilter, int]:
        kinds = await self.figures.count_by_kind(scopes, state=MemoryState.ACTIVE)
        states = await self.figures.count_by_state(scopes)
        return {
            wanted: sum(kinds.get(each, 0) for each in _KINDS_BY_VIEW.get(wanted, ()))
            + sum(states.get(each, 0) for each in _STATES_BY_VIEW.get(wanted, ()))
            for wanted in _COUNTED_VIEWS
        }

    def _visible_scopes(self, editor: MemoryEditor, scope: str) -> Sequence[MemoryScope]:
        seen = editor.scopes or ()
        if not scope:
            return seen
        wanted = self._parse_scope(editor, scope)
        return [each for each in seen if each == wanted]

    def _parse_scope(self, editor: MemoryEditor, name: str) -> MemoryScope:
        """Raises MemoryRequestRejected for an unknown scope."""
        assert editor.reader is not None
        assert editor.person is not None
        chat, short = editor.reader.chat, name.strip()
        near: Mapping[str, MemoryScope | None] = {
            "me": MemoryScope(MemoryScopeKind.PERSON, editor.person.id),
            "chat": MemoryScope(MemoryScopeKind.CHAT, chat.id) if chat else None,
            "project": (
                MemoryScope(MemoryScopeKind.PROJECT, editor.reader.project)
                if editor.reader.project
                else None
            ),
        }
        words = {"我": "me", "本聊天": "chat", "项目": "project", "所有人": "global"}
        short = words.get(short, short)
        if (found := near.get(short.casefold())) is not None:
            return found
        try:
            return MemoryScope.parse(short)
        except ValueError as error:
            raise MemoryRequestRejected("unknown_scope", name) from error


def _reader_for(who: Person, chat: Chat) -> MemoryReader:
    return MemoryReader(chat=chat, person=who.id, project=chat.settings.project)


def _is_already_decided(entry: MemoryEntry, *, keep: bool) -> bool:
    """Already decided this way, maybe by the same command before a crash."""
    if not keep:
        return entry.state is MemoryState.REJECTED
    if entry.state is not MemoryState.ACTIVE:
        return False
    by_hand = entry.kind is MemoryKind.LONGTERM and entry.origin is MemoryOrigin.MANUAL
    return by_hand or is_offer(entry)


def _words_for(who: Person) -> TextCatalog:
    return catalog_for(who.language or Language.ENGLISH)


@contextmanager
def _translate_errors(entry_id: str = "") -> Iterator[None]:
    try:
        yield
    except NotAllowed as error:
        raise MemoryRequestRejected("not_yours", entry_id) from error
    except NotFound as error:
        raise MemoryRequestRejected("unknown", entry_id) from error
    except ConcurrentUpdate as error:
        raise MemoryRequestRejected("changed", entry_id) from error
    except WrongState as error:
        raise MemoryRequestRejected("wrong_state", entry_id) from error
    except MemoryNotSaved as error:
        detail = str(MAX_ENTRY_TEXT) if error.reason is MemoryRejectionReason.TOO_LONG else entry_id
        raise MemoryRequestRejected(_REFUSAL_REASONS[error.reason], detail) from error
