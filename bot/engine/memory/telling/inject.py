"""What a worker is told of what is remembered: fixed places, fixed budgets, nothing twice."""

from __future__ import annotations

import re
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from types import MappingProxyType

from bot.engine.memory.episodes.finding import EpisodeFinder
from bot.engine.memory.recall import Recall, is_recalled
from bot.engine.memory.scopes import Reader
from bot.engine.memory.telling.gate import is_worth_looking
from bot.engine.memory.telling.told import (
    MOST,
    SHARES,
    aside_text,
    fitted,
    is_order,
    standing_text,
)
from bot.engine.memory.uses import Block, Shown
from storage.memory.entries import EntryRepo
from storage.records.memory.entries import Entry, EntryId, MemoryKind, Origin, ScopeKind
from storage.records.memory.shown import FoundEntry
from storage.records.people import ChatId

BUDGET = 4000
"""Tokens of all that is told of memories."""

MOST_SIMILAR = 6
_MOST_RECENT = 3
_MOST_STANDING = 100
"""Entries of each kind and scope."""
_LONGEST_QUERY = 2000
_HEARD_TURNS = 8
_RECENT = timedelta(days=2)
_CUT = 0.4
"""Of what is looked for unasked, only what has this share of the best."""
_BOUND = 0.2
_LOOKED_FOR = (
    MemoryKind.CELL,
    MemoryKind.FACT,
    MemoryKind.PROFILE,
    MemoryKind.LONGTERM,
    MemoryKind.EPISODE,
)
_ORDER = tuple(Block)
_NO_PARTS: Mapping[str, float] = MappingProxyType({})
_END = re.compile(r"[.!?。！？；;\n]+")
_NO_LETTERS = re.compile(r"[\W_]+")
_STANDING = sum(share for block, share in SHARES.items() if block.stands)
_BLOCK_OF = {
    MemoryKind.HANDBOOK: Block.HANDBOOK,
    MemoryKind.PROFILE: Block.PROFILE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A text, and what it tells of."""

    text: str = ""
    shown: tuple[Shown, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sitting:
    """A session as far as memories matter: what it has heard in this chat since it `started_at`
    is not told to it again."""

    id: str
    turns: int
    started_at: datetime
    chat: ChatId | None = None


class _Known:
    """What is told already, sentence by sentence: a part of one may say the opposite."""

    def __init__(self, text: str = "") -> None:
        self._said = set(_sentences(text))

    def takes(self, entry: Entry) -> bool:
        """Whether it is new; if so it is known from now on."""
        sentences = set(_sentences(entry.text)) or {entry.text}
        if sentences <= self._said:
            return False
        self._said |= sentences
        return True


class Injection:
    """`heard` says what a session has been told beside its turns, from a turn on; in `zone` days
    begin and end."""

    def __init__(
        self,
        *,
        entries: EntryRepo,
        recall: Recall,
        heard: Callable[[str, int], Awaitable[Collection[EntryId]]],
        now: Callable[[], datetime],
        budget: int = BUDGET,
        episodes: EpisodeFinder | None = None,
        zone: tzinfo = UTC,
    ) -> None:
        self._entries = entries
        self._recall = recall
        self._heard = heard
        self._now = now
        self._budget = budget
        self._episodes = episodes
        self._zone = zone

    async def standing(self, reader: Reader, told: str = "") -> Told:
        """What stands at the front: the same from turn to turn for as long as nobody changes it,
        so that models cache it. `told` is what the worker is told anyway."""
        scopes, now = reader.scopes, self._now()
        if not scopes:
            return Told()
        kinds = (MemoryKind.HANDBOOK, MemoryKind.PROFILE, MemoryKind.LONGTERM)
        found = await self._entries.standing(scopes, kinds, each=_MOST_STANDING)
        known = _Known(told)
        wanted = sorted((each for each in found if is_recalled(each, now)), key=_importance)
        fresh = [each for each in wanted if known.takes(each)]
        shown = self._in_blocks(fresh)
        return Told(text=standing_text(shown), shown=tuple(shown))

    async def aside(
        self, reader: Reader, query: str, sitting: Sitting, standing: Told, told: str = ""
    ) -> Told:
        """What belongs to this message: told beside it."""
        scopes = reader.scopes
        if not scopes:
            return Told()
        out = {each.entry.id for each in standing.shown}
        out |= set(await self._heard(sitting.id, sitting.turns + 1 - _HEARD_TURNS))
        known = _Known("\n".join([told, *(each.entry.text for each in standing.shown)]))

        def is_fresh(entry: Entry) -> bool:
            return entry.id not in out and not _is_of(entry, sitting) and known.takes(entry)

        found = await self._similar(reader, query)
        similar = [
            self._shown(each.entry, Block.SIMILAR, each.score, each.parts)
            for each in [*await self._referred_to(reader, query, found), *found]
            if _is_near(each) and self._is_awake(each.entry) and is_fresh(each.entry)
        ][:MOST_SIMILAR]
        recent = [
            self._shown(each, Block.RECENT)
            for each in await self._recent(reader, sitting)
            if is_fresh(each)
        ][:_MOST_RECENT]
        shown = fitted([similar, recent], self._budget * (1 - _STANDING))
        return Told(text=aside_text(shown), shown=tuple(shown))

    async def _similar(self, reader: Reader, query: str) -> Sequence[FoundEntry]:
        asked = query[:_LONGEST_QUERY]
        if not is_worth_looking(asked):
            return ()
        limit = 2 * MOST_SIMILAR
        return await self._recall.search(reader, asked, limit, kinds=_LOOKED_FOR, cut=_CUT)

    async def _referred_to(
        self, reader: Reader, query: str, found: Sequence[FoundEntry]
    ) -> Sequence[FoundEntry]:
        """Conversations that are meant where somebody refers back to one."""
        if self._episodes is None:
            return ()
        known = {each.entry.id for each in found}
        meant = await self._episodes.referred_to(reader, query[:_LONGEST_QUERY], known)
        return [
            FoundEntry(entry=entry, score=score, parts={"episode": score}) for entry, score in meant
        ]

    async def _recent(self, reader: Reader, sitting: Sitting) -> Sequence[Entry]:
        """What was said last, where a conversation begins anew."""
        if sitting.turns or reader.keeps_in is None:
            return ()
        found = await self._entries.list(
            (reader.keeps_in,), kinds=(MemoryKind.CELL,), limit=2 * _HEARD_TURNS
        )
        since = self._now() - _RECENT
        return [each for each in found if each.said_at >= since]

    def _shown(
        self, entry: Entry, block: Block, score: float = 0.0, parts: Mapping[str, float] = _NO_PARTS
    ) -> Shown:
        day = entry.said_at.astimezone(self._zone).date()
        return Shown(entry=entry, block=block, on=day, room=MOST[block], score=score, parts=parts)

    def _is_awake(self, entry: Entry) -> bool:
        return entry.suppressed_until is None or entry.suppressed_until <= self._now()

    def _in_blocks(self, entries: Iterable[Entry]) -> list[Shown]:
        """Of each kind of scope what fits, in the order in which it was written: what is added
        later stands behind, and what stands before it stays as it was."""
        groups: dict[tuple[int, ScopeKind], list[Shown]] = {}
        for entry in entries:
            block = _BLOCK_OF.get(entry.kind, Block.LONGTERM)
            key = (_ORDER.index(block), entry.scope.kind)
            groups.setdefault(key, []).append(self._shown(entry, block))
        shown = fitted(list(groups.values()), self._budget * _STANDING)
        return sorted(shown, key=_place)


def _place(shown: Shown) -> tuple[bool, int, int]:
    return not is_order(shown.entry), _ORDER.index(shown.block), shown.entry.number


def _importance(entry: Entry) -> tuple[bool, bool, float, float]:
    """What comes first where not all of it fits."""
    by_hand = entry.origin is Origin.MANUAL
    worth = entry.importance * entry.confidence
    return not entry.pinned, not by_hand, -worth, -entry.said_at.timestamp()


def _is_near(found: FoundEntry) -> bool:
    """What was said on the same day is no reason to be told unasked."""
    return found.parts.get("link", 1.0) >= _BOUND


def _is_of(entry: Entry, sitting: Sitting) -> bool:
    """Whether this very session has heard it said."""
    here = entry.chat is not None and entry.chat == sitting.chat
    return (
        entry.kind in {MemoryKind.CELL, MemoryKind.EPISODE}
        and here
        and entry.said_at >= sitting.started_at
    )


def _sentences(text: str) -> Iterator[str]:
    for piece in _END.split(text.lower()):
        if letters := _NO_LETTERS.sub("", piece):
            yield letters
