"""What people see and change of what is remembered, fitted to the port of the handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from functools import partial

from bot.app.memory.carrying import Carrying, unheard
from bot.app.memory.near import marked
from bot.app.memory.restoring import Restoring
from bot.engine.memory.cleaning import Cleaning
from bot.engine.memory.handbook import CHAPTERS, chapter, chapter_of, named, place_of
from bot.engine.memory.life import strength
from bot.engine.memory.recall import Recall
from bot.engine.memory.scopes import Reader
from bot.engine.memory.uses import Uses
from bot.engine.memory.writing.forgotten import Forgotten
from bot.engine.memory.writing.rights import By
from bot.engine.memory.writing.service import ByHand, MemoryWriter
from cards.views.memory.entries import is_chapter
from cards.words import Words, words_for
from handlers.services.memory import MemoryRefused, Tell
from storage.errors import AmbiguousId, NotAllowed, NotFound, Overtaken, WrongState
from storage.memory.entries import EntryRepo
from storage.memory.figures import MemoryFigures
from storage.memory.living.vectors import Vectors
from storage.records.memory.entries import (
    GLOBAL,
    MOST_TEXT,
    Entry,
    EntryState,
    MemoryKind,
    Origin,
    Scope,
    ScopeKind,
)
from storage.records.memory.offers import was_offered
from storage.records.memory.offers import wording as wording_of
from storage.records.memory.refusals import NotKept, WhyNotKept
from storage.records.memory.shown import (
    A_PAGE,
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
from storage.records.people import Chat, Language, Person, Role
from storage.records.tasks import Task

_LONGEST_ID = 16
_CHAPTERS = 50
_NOBODYS = {ScopeKind.PROJECT, ScopeKind.SKILL, ScopeKind.AGENT, ScopeKind.CUSTOM}
_KINDS: Mapping[Wanted, tuple[MemoryKind, ...]] = {
    Wanted.KNOWN: (MemoryKind.PROFILE, MemoryKind.LONGTERM, MemoryKind.FACT),
    Wanted.HANDBOOK: (MemoryKind.HANDBOOK,),
    Wanted.PROFILE: (MemoryKind.PROFILE,),
    Wanted.LONGTERM: (MemoryKind.LONGTERM,),
    Wanted.FACTS: (MemoryKind.FACT,),
    Wanted.CELLS: (MemoryKind.CELL,),
    Wanted.EPISODES: (MemoryKind.EPISODE,),
}
_STATES: Mapping[Wanted, tuple[EntryState, ...]] = {
    Wanted.CANDIDATES: (EntryState.CANDIDATE,),
    Wanted.ARCHIVED: (EntryState.ARCHIVED,),
    Wanted.SUPERSEDED: (EntryState.SUPERSEDED,),
    Wanted.REJECTED: (EntryState.REJECTED,),
}
_OFFERED = (
    Wanted.KNOWN,
    Wanted.CANDIDATES,
    Wanted.CELLS,
    Wanted.EPISODES,
    Wanted.HANDBOOK,
    Wanted.SUPERSEDED,
    Wanted.ARCHIVED,
    Wanted.REJECTED,
)
_KEPT: Mapping[WhyNotKept, str] = {
    WhyNotKept.EMPTY: "empty",
    WhyNotKept.TOO_LONG: "too_long",
    WhyNotKept.NO_CANDIDATE: "wrong_state",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBookService:
    """Satisfies `handlers.services.memory.MemoryBook`."""

    entries: EntryRepo
    figures: MemoryFigures
    vectors: Vectors
    writer: MemoryWriter
    recall: Recall
    uses: Uses
    carrying: Carrying
    restoring: Restoring
    cleaning: Cleaning
    forgotten: Forgotten
    quality: Callable[[], Awaitable[Mapping[str, float]]]
    now: Callable[[], datetime]
    zone: tzinfo
    embedder: str = ""

    async def list(
        self, who: Person, chat: Chat, wanted: Wanted, *, scope: str = "", page: int = 1
    ) -> EntryPage:
        by = await self._by(who, chat)
        scopes = self._looked_into(by, scope)
        kinds, states = _KINDS.get(wanted, ()), _STATES.get(wanted, (EntryState.ACTIVE,))
        total = await self.entries.count(scopes, kinds=kinds, states=states)
        page = max(1, min(page, 1 + max(0, total - 1) // A_PAGE))
        found = await self.entries.list(
            scopes, kinds=kinds, states=states, limit=A_PAGE, offset=(page - 1) * A_PAGE
        )
        return EntryPage(
            entries=found,
            scopes=scopes,
            total=total,
            page=page,
            more=page * A_PAGE < total,
            others=await self._others(scopes),
        )

    async def search(
        self, who: Person, chat: Chat, query: str, *, limit: int = 10
    ) -> Sequence[FoundEntry]:
        found = await self.recall.search(_reader(who, chat), query, limit)
        return marked(found, query, now=self.now(), zone=self.zone)

    async def show(self, who: Person, chat: Chat, entry_id: str) -> ShownEntry:
        by = await self._by(who, chat)
        entry = await self._found(by, entry_id)
        left = strength(entry, self.now())
        return ShownEntry(entry=entry, strength=left, mine=by.may_write(entry.scope))

    async def add(
        self, who: Person, chat: Chat, text: str, *, scope: str = "", source: str = ""
    ) -> Entry:
        by = await self._by(who, chat)
        wanted = ByHand(
            text=text,
            scope=self._named(by, scope) if scope else None,
            source=f"hand:{source}" if source else None,
        )
        with _explained():
            return await self.writer.add(wanted, by)

    async def edit(
        self, who: Person, chat: Chat, entry_id: str, text: str, *, revision: int = 0
    ) -> Entry:
        by = await self._by(who, chat)
        entry = await self._found(by, entry_id)
        # The same once more is no change: its first order may have died before the answer.
        if revision and revision != entry.revision and entry.text != text.strip():
            raise MemoryRefused("changed", entry.id)
        with _explained(entry.id):
            return await self.writer.edit(entry, text, by)

    async def forget(
        self, who: Person, chat: Chat, entry_id: str, *, source: str = "", revision: int = 0
    ) -> Entry:
        by = await self._by(who, chat)
        try:
            entry = await self._found(by, entry_id)
        except MemoryRefused as error:
            if source and await self.forgotten.was(source):
                raise MemoryRefused("forgotten", entry_id) from error
            raise
        if revision and revision != entry.revision:
            raise MemoryRefused("changed", entry.id)
        with _explained(entry.id):
            await self.writer.forget(
                entry, by, also=partial(self.forgotten.note, source=source) if source else None
            )
        return entry

    async def pin(self, who: Person, chat: Chat, entry_id: str, *, pinned: bool) -> Entry:
        by = await self._by(who, chat)
        entry = await self._found(by, entry_id)
        with _explained(entry.id):
            return await self.writer.pin(entry, by, pinned=pinned)

    async def move(self, who: Person, chat: Chat, entry_id: str, scope: str) -> Entry:
        by = await self._by(who, chat)
        entry = await self._found(by, entry_id)
        with _explained(entry.id):
            return await self.writer.move(entry, self._named(by, scope), by)

    async def decide(
        self, who: Person, chat: Chat, entry_id: str, *, keep: bool, wording: str = ""
    ) -> Entry:
        by = await self._by(who, chat)
        entry = await self._found(by, entry_id)
        if _is_decided(entry, keep=keep):
            return entry
        if wording and wording != wording_of(entry):
            raise MemoryRefused("changed", entry.id)
        with _explained(entry.id):
            decide = self.writer.confirm if keep else self.writer.reject
            return await decide(entry, by)

    async def why(self, who: Person, chat: Chat, *, session: str = "", turn: int = 0) -> Behind:
        scopes = (await self._by(who, chat)).scopes or ()
        if session:
            return await self.uses.of_answer(chat.id, session, turn, scopes)
        return await self.uses.last(chat.id, scopes)

    async def why_task(self, who: Person, chat: Chat, task: Task) -> Behind:
        return await self.uses.of_task(task.id, (await self._by(who, chat)).scopes or ())

    async def helped(self, who: Person, chat: Chat, *, session: str = "", turn: int = 0) -> Behind:
        by = await self._by(who, chat)
        told = await self.why(who, chat, session=session, turn=turn)
        await self.uses.confirm(chat.id, told.session, told.turn, by.scopes or ())
        return await self.why(who, chat, session=told.session, turn=told.turn)

    async def handbook(self, who: Person, chat: Chat) -> Sequence[Entry]:
        found = await self.entries.list([GLOBAL], kinds=[MemoryKind.HANDBOOK], limit=_CHAPTERS)
        return sorted(found, key=lambda each: (place_of(each.key), each.number))

    async def write_chapter(self, who: Person, chat: Chat, name: str, text: str) -> Entry:
        chapters, words = await self.handbook(who, chat), _words(who)
        known = next((each for each in chapters if is_chapter(each, name)), None)
        ours = named(name) if known is None else chapter_of(known.key)
        if known is None and not ours:
            titles = [words(f"mirror.chapter.{each}") for each in CHAPTERS]
            own = [each.label for each in chapters if chapter_of(each.key) not in CHAPTERS]
            raise MemoryRefused("unknown_chapter", ", ".join((*titles, *own)))
        by = await self._by(who, chat)
        wanted = chapter(ours or name, text, words)
        with _explained(ours):
            return await self.writer.add(
                replace(wanted, label=known.label) if known else wanted, by
            )

    async def stats(self, who: Person, chat: Chat) -> MemoryStats:
        """What is of everybody is told to owners in private."""
        scopes = (await self._by(who, chat)).scopes or ()
        counted = MemoryStats(
            by_kind=await self.figures.by_kind(scopes),
            by_state=await self.figures.by_state(scopes),
            by_scope=await self.figures.by_scope(scopes),
        )
        if who.role is not Role.OWNER or not _reader(who, chat).is_private:
            return counted
        return replace(
            counted,
            jobs_waiting=await self.figures.jobs("waiting"),
            jobs_failed=await self.figures.jobs("failed"),
            vectors=await self.vectors.count(self.embedder),
            model=self.embedder,
            quality=await self.quality(),
        )

    async def clean(self, who: Person, chat: Chat, *, dry: bool, source: str = "") -> CleanReport:
        return await self.cleaning.run(await self._by(who, chat), dry, source=source)

    async def export(self, who: Person, chat: Chat) -> ExportedEntries:
        scopes = (await self._by(who, chat)).scopes or ()
        return await self.carrying.out(scopes, name=f"memory-{who.id}-{chat.id}")

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
        by = await self._by(who, chat)
        target = self._named(by, scope) if scope else _reader(who, chat).keeps_in
        if target is None or not by.may_write(target):
            raise MemoryRefused("not_yours", scope)
        return await self.carrying.bring(path, by, target, tell or unheard, source=source)

    async def restore(self, who: Person, chat: Chat, path: str, *, source: str = "") -> Brought:
        if who.role is not Role.OWNER or not _reader(who, chat).is_private:
            raise MemoryRefused("not_yours")
        return await self.restoring.run(path, source=source)

    async def _by(self, who: Person, chat: Chat) -> By:
        """An owner in private also sees what belongs to projects, skills and personas."""
        reader = _reader(who, chat)
        besides: Sequence[Scope] = ()
        if reader.is_private and who.role is Role.OWNER:
            known = await self.figures.scopes()
            besides = [s for s in known if s.kind in _NOBODYS and s not in reader.scopes]
        return By(person=who, reader=reader, besides=besides)

    async def _found(self, by: By, entry_id: str) -> Entry:
        try:
            return await self.entries.find(entry_id.strip().lower()[:_LONGEST_ID], by.scopes)
        except NotFound as error:
            raise MemoryRefused("unknown", entry_id) from error
        except AmbiguousId as error:
            raise MemoryRefused("ambiguous", ", ".join(error.candidates)) from error

    async def _others(self, scopes: Sequence[Scope]) -> Mapping[Wanted, int]:
        kinds = await self.figures.by_kind(scopes, state=EntryState.ACTIVE)
        states = await self.figures.by_state(scopes)
        return {
            wanted: sum(kinds.get(each, 0) for each in _KINDS.get(wanted, ()))
            + sum(states.get(each, 0) for each in _STATES.get(wanted, ()))
            for wanted in _OFFERED
        }

    def _looked_into(self, by: By, scope: str) -> Sequence[Scope]:
        seen = by.scopes or ()
        if not scope:
            return seen
        wanted = self._named(by, scope)
        return [each for each in seen if each == wanted]

    def _named(self, by: By, name: str) -> Scope:
        """Raises MemoryRefused for what names no scope here."""
        assert by.reader is not None
        assert by.person is not None
        chat, short = by.reader.chat, name.strip()
        near: Mapping[str, Scope | None] = {
            "me": Scope(ScopeKind.PERSON, by.person.id),
            "chat": Scope(ScopeKind.CHAT, chat.id) if chat else None,
            "project": (Scope(ScopeKind.PROJECT, by.reader.project) if by.reader.project else None),
        }
        words = {"我": "me", "本聊天": "chat", "项目": "project", "所有人": "global"}
        short = words.get(short, short)
        if (found := near.get(short.casefold())) is not None:
            return found
        try:
            return Scope.of(short)
        except ValueError as error:
            raise MemoryRefused("unknown_scope", name) from error


def _reader(who: Person, chat: Chat) -> Reader:
    return Reader(chat=chat, person=who.id, project=chat.settings.project)


def _is_decided(entry: Entry, *, keep: bool) -> bool:
    """Just so, maybe by the same order, which died before its answer."""
    if not keep:
        return entry.state is EntryState.REJECTED
    if entry.state is not EntryState.ACTIVE:
        return False
    by_hand = entry.kind is MemoryKind.LONGTERM and entry.origin is Origin.MANUAL
    return by_hand or was_offered(entry)


def _words(who: Person) -> Words:
    return words_for(who.language or Language.ENGLISH)


@contextmanager
def _explained(entry_id: str = "") -> Iterator[None]:
    try:
        yield
    except NotAllowed as error:
        raise MemoryRefused("not_yours", entry_id) from error
    except NotFound as error:
        raise MemoryRefused("unknown", entry_id) from error
    except Overtaken as error:
        raise MemoryRefused("changed", entry_id) from error
    except WrongState as error:
        raise MemoryRefused("wrong_state", entry_id) from error
    except NotKept as error:
        detail = str(MOST_TEXT) if error.why is WhyNotKept.TOO_LONG else entry_id
        raise MemoryRefused(_KEPT[error.why], detail) from error
