"""Memory decay by Ebbinghaus' forgetting curve, and what slows it: uses of memories in answers."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from math import exp

from storage.db import Database, Transaction
from storage.memory.access_stats import MemoryUse, MemoryUseRepo
from storage.memory.entries import MemoryEntryRepo
from storage.records.memory import (
    AnswerMemories,
    EntryId,
    MemoryCategory,
    MemoryEntry,
    MemoryKind,
    MemoryScope,
    MemoryState,
    MemoryStrength,
    MemoryTier,
    UsedMemory,
)
from storage.records.people import ChatId
from storage.records.tasks import TaskId
from storage.search.chinese import HAN, contains_han

# --- the forgetting curve, reinforcement and tiers

FULL_STRENGTH = 100.0
ARCHIVE_BELOW = 10.0
DELETE_BELOW = 5.0
MAX_STABILITY_HOURS = 8760.0
"""Upper limit of stability: one year."""
MIN_DECAY_RATE = 0.5

_USES_TO_RISE = 3
"""Uses that qualify an entry for a higher tier."""
_DEMOTION_AGE = timedelta(days=60)
_RISES_FROM = 0.4
_FALLS_BELOW = 0.15

_HIGH_CONFIDENCE = 0.8
_FREQUENT_REINFORCEMENT = 5


class ReinforcementKind(StrEnum):
    """Events that reinforce or weaken an entry. Being found does not count, only use."""

    USED = "used"
    SUCCEEDED = "succeeded"
    FAILED = "failed"

    @property
    def stability_factor(self) -> float:
        """Factor applied to the entry's stability."""
        return _STABILITY_FACTORS[self]


_STABILITY_FACTORS = {
    ReinforcementKind.USED: 1.2,
    ReinforcementKind.SUCCEEDED: 2.0,
    ReinforcementKind.FAILED: 0.8,
}


class DecayOutcome(StrEnum):
    """Action due for an unused entry."""

    ACTIVE = "lives"
    ARCHIVED = "archived"
    DELETED = "deleted"


def retention(alive: MemoryStrength, since: datetime, now: datetime) -> float:
    """Ebbinghaus: remaining strength, out of 100."""
    hours = max(0.0, (now - since).total_seconds() / 3600)
    return alive.value * exp(-hours * alive.decay / max(alive.stability, 1e-6))


def current_strength(entry: MemoryEntry, now: datetime) -> float:
    """Remaining strength out of 100; always full for entries that do not decay."""
    if not can_decay(entry):
        return FULL_STRENGTH
    alive = entry.strength
    kept = replace(
        alive,
        stability=max(alive.stability, base_stability_hours(entry.confidence, entry.used)),
        decay=min(alive.decay, decay_rate(entry.confidence, alive.reinforced, entry.category)),
    )
    return retention(kept, alive.reinforced_at or entry.created_at, now)


def can_decay(entry: MemoryEntry) -> bool:
    """True for automatically extracted facts; only these decay."""
    return (
        entry.kind is MemoryKind.FACT
        and entry.tier is not MemoryTier.CORE
        and not entry.is_protected
    )


def base_stability_hours(confidence: float, used: int) -> float:
    """Initial stability of a fact: it outlasts a weekend."""
    return 72 + 96 * confidence + min(2.0 * used, 24.0)


def decay_rate(confidence: float, reinforced: int, category: MemoryCategory) -> float:
    """Relative decay rate: lower for confident, often used and warning entries."""
    rate = 1.0
    if confidence >= _HIGH_CONFIDENCE:
        rate *= 0.7
    if reinforced >= _FREQUENT_REINFORCEMENT:
        rate *= 0.8
    if category is MemoryCategory.PITFALLS:
        rate *= 0.9
    return max(MIN_DECAY_RATE, rate)


def reinforce(entry: MemoryEntry, kind: ReinforcementKind, now: datetime) -> MemoryStrength:
    """Strength after the event, with decay restarting now."""
    alive = entry.strength
    times = alive.reinforced + 1
    return replace(
        alive,
        value=FULL_STRENGTH,
        stability=min(MAX_STABILITY_HOURS, alive.stability * kind.stability_factor),
        decay=decay_rate(entry.confidence, times, entry.category),
        reinforced=times,
        reinforced_at=now,
    )


def decay_outcome(entry: MemoryEntry, now: datetime) -> DecayOutcome:
    """Entries are archived before they are deleted."""
    strong = current_strength(entry, now)
    if strong >= ARCHIVE_BELOW:
        return DecayOutcome.ACTIVE
    if entry.state is MemoryState.ARCHIVED:
        return DecayOutcome.DELETED if strong < DELETE_BELOW else DecayOutcome.ACTIVE
    return DecayOutcome.ARCHIVED


def target_tier(entry: MemoryEntry, now: datetime) -> MemoryTier:
    """Tier by use and age. Use alone never leads to the core tier; promotion does."""
    composite = decay_components(entry, now).composite
    seldom, is_old = entry.used < _USES_TO_RISE, now - entry.said_at > _DEMOTION_AGE
    match entry.tier:
        case MemoryTier.PERIPHERAL:
            rises = not seldom and composite >= _RISES_FROM
            return MemoryTier.WORKING if rises else MemoryTier.PERIPHERAL
        case MemoryTier.WORKING:
            falls = composite < _FALLS_BELOW or (is_old and seldom)
            return MemoryTier.PERIPHERAL if falls else MemoryTier.WORKING
        case MemoryTier.CORE:
            return MemoryTier.WORKING if composite < _FALLS_BELOW and seldom else MemoryTier.CORE


_DAY_SECONDS = 86_400.0
_BASE_HALF_LIFE = 30.0
_DYNAMIC_HALF_LIFE = 10.0
_MIN_BOOST = 0.3
_WEIBULL_BETAS = {MemoryTier.CORE: 0.8, MemoryTier.WORKING: 1.0, MemoryTier.PERIPHERAL: 1.3}
_TIER_FLOORS = {MemoryTier.CORE: 0.9, MemoryTier.WORKING: 0.7, MemoryTier.PERIPHERAL: 0.5}


@dataclass(frozen=True, slots=True, kw_only=True)
class DecayComponents:
    """Normalised age and use, each from 0 to 1; `composite` is their weighted sum."""

    recency: float
    frequency: float
    intrinsic: float

    @property
    def composite(self) -> float:
        return 0.4 * self.recency + 0.3 * self.frequency + 0.3 * self.intrinsic


def decay_components(entry: MemoryEntry, now: datetime) -> DecayComponents:
    return DecayComponents(
        recency=recency_score(
            _days_between(
                entry.last_used_at if entry.used and entry.last_used_at else entry.said_at, now
            ),
            importance=entry.importance,
            tier=entry.tier,
            dynamic=entry.dynamic,
        ),
        frequency=frequency_score(
            entry.used, _days_between(entry.said_at, entry.last_used_at or entry.said_at)
        ),
        intrinsic=entry.importance * entry.confidence,
    )


def half_life_days(importance: float, *, dynamic: bool) -> float:
    return (_DYNAMIC_HALF_LIFE if dynamic else _BASE_HALF_LIFE) * math.exp(1.5 * importance)


def recency_score(days: float, *, importance: float, tier: MemoryTier, dynamic: bool) -> float:
    """Weibull decay; the tier sets whether age matters less or more over time."""
    rate = math.log(2) / half_life_days(importance, dynamic=dynamic)
    return math.exp(-rate * max(0.0, days) ** _WEIBULL_BETAS[tier])


def frequency_score(used: int, days: float) -> float:
    """`days` span first to last use: frequent use in a short time scores higher."""
    base = 1 - math.exp(-used / 5)
    if used <= 1:
        return base
    gap = max(1.0, days) / (used - 1)
    return base * (0.5 + 0.5 * math.exp(-gap / 30))


def decay_boost(components: DecayComponents, tier: MemoryTier) -> float:
    """Factor for a search score: reorders close matches, hides none."""
    best = max(_TIER_FLOORS[tier], components.composite, components.recency)
    return min(1.0, max(_MIN_BOOST, _MIN_BOOST + (1 - _MIN_BOOST) * best))


def _days_between(since: datetime, until: datetime) -> float:
    return max(0.0, (until - since).total_seconds() / _DAY_SECONDS)


# --- which memories a model saw, and which its answer used

_RUN = re.compile(rf"[{HAN}]+|[^\W_]+(?:[-'’.][^\W_]+)*")
_MAX_CHARS = 8_000
_HAN_RUN_LENGTH = 4
"""Chinese characters in a row that are unlikely by chance."""
_MIN_RARE_LETTERS = 2
_RARE_LENGTH = 7
"""Words this long, or with a digit, count as rare."""
_KEYWORD_SHARE = 0.5

_COMMON_WORDS = """\
    a about after again all also always am an and any are as at back be because been before being
    but by can could did do does done each even every for from get go had has have he her here him
    his how i if in into is it its just know let like made make many may me more most much must my
    need never new no not now of off on once one only or other our out over own please same say see
    she should so some such take than that the their them then there these they this those through
    to too under up us use very want was way we well were what when where which while who will with
    without would yes yet you your answer nothing something anything everything remember
    information question understand"""
_STOP_WORDS = frozenset(_COMMON_WORDS.split())


def is_cited(entry: MemoryEntry, answer: str, question: str = "") -> bool:
    """Whether the answer shares with the entry, but not with the question, two uncommon words in a
    row, a rare word, four Chinese characters, or half of the keywords."""
    said = _normalised(answer)
    known = _normalised(question)
    if not said:
        return False
    pieces = [piece for piece in _distinctive_pieces(_normalised(entry.text)) if piece not in known]
    if any(piece in said for piece in pieces):
        return True
    keywords = [
        each for each in map(_normalised, entry.keywords) if each.strip() and each not in known
    ]
    hits = sum(each in said for each in keywords)
    return bool(hits) and hits >= _KEYWORD_SHARE * len(keywords)


def _distinctive_pieces(text: str) -> list[str]:
    """Distinctive words and phrases."""
    runs = text.split()
    found: list[str] = []
    for run in runs:
        if contains_han(run):
            found += [
                run[at : at + _HAN_RUN_LENGTH] for at in range(len(run) - _HAN_RUN_LENGTH + 1)
            ]
        elif _is_rare(run):
            found.append(f" {run} ")
    return found + _word_pairs(runs)


def _word_pairs(runs: Sequence[str]) -> list[str]:
    words = [
        (at, run) for at, run in enumerate(runs) if run not in _STOP_WORDS and not contains_han(run)
    ]
    return [
        f" {one} {other} " for (at, one), (next_at, other) in pairwise(words) if next_at == at + 1
    ]


def _is_rare(word: str) -> bool:
    if word in _STOP_WORDS:
        return False
    return len(word) >= _RARE_LENGTH or (
        len(word) > _MIN_RARE_LETTERS and any(map(str.isdigit, word))
    )


def _normalised(text: str) -> str:
    """Words with single spaces around each, so that only whole words match."""
    runs = _RUN.findall(unicodedata.normalize("NFKC", text[:_MAX_CHARS]).lower())
    return f" {' '.join(runs)} "


_MAX_PENDING = 256
"""Pending answers; older ones are not recorded."""


class ContextBlock(StrEnum):
    """Position in the context. The first three form the stable part; the others accompany one
    message."""

    HANDBOOK = "handbook"
    PROFILE = "profile"
    LONGTERM = "longterm"
    SIMILAR = "similar"
    RECENT = "recent"

    @property
    def is_standing(self) -> bool:
        return self in {ContextBlock.HANDBOOK, ContextBlock.PROFILE, ContextBlock.LONGTERM}


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextEntry:
    """An entry in the context. `score` and `parts` explain a search match; `said_on` is a date in
    the reader's time zone."""

    entry: MemoryEntry
    block: ContextBlock
    said_on: date
    max_tokens: int
    score: float = 0.0
    parts: Mapping[str, float] = field(default_factory=dict)
    validity: str = ""
    """Since or until when it is so, where that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedAnswer:
    """A model's answer. `is_continuation` means that there was no new message, so no memory was
    injected."""

    session: str
    turn: int
    chat: ChatId | None
    task: TaskId | None
    text: str
    at: datetime
    is_continuation: bool = False


@dataclass(slots=True, kw_only=True)
class _PendingContext:
    """Context of the next answer; `turn` is the first turn it was recorded with."""

    question: str = ""
    entries: Sequence[ContextEntry] = ()
    turn: int = 0


@dataclass(slots=True, kw_only=True)
class UsageTracker:
    db: Database
    entries: MemoryEntryRepo
    repo: MemoryUseRepo
    now: Callable[[], datetime]
    _pending: OrderedDict[str, _PendingContext] = field(default_factory=OrderedDict, init=False)

    def set_context(self, session: str, question: str, entries: Sequence[ContextEntry]) -> None:
        """Set the memories before the session's next answer, replacing earlier ones. Words of the
        `question` do not prove use."""
        self._pending[session] = _PendingContext(question=question, entries=entries)
        self._pending.move_to_end(session)
        while len(self._pending) > _MAX_PENDING:
            self._pending.popitem(last=False)

    async def list_injected(self, session: str, since: int) -> Collection[EntryId]:
        """Entries injected with messages since this turn."""
        known = await self.repo.blocks_shown_since(session, since)
        return {entry for entry, block in known.items() if not ContextBlock(block).is_standing}

    async def record_answer(self, tx: Transaction, answer: TrackedAnswer) -> None:
        """Record the memories behind an answer and mark the cited ones. Safe to repeat after a
        failed transaction."""
        stood = self._pending.get(answer.session, _PendingContext())
        stood.turn = stood.turn or answer.turn
        if stood.turn != answer.turn:
            return
        asked = stood.question
        shown = [
            each for each in stood.entries if each.block.is_standing or not answer.is_continuation
        ]
        if not shown:
            return
        await self.repo.add(tx, [_to_use(each, answer) for each in shown])
        aside = [each.entry.id for each in shown if not each.block.is_standing]
        await self.repo.record_shown(tx, aside, answer.at)
        used = [each.entry for each in shown if is_cited(each.entry, answer.text, asked)]
        await self._confirm_entries(tx, answer.session, answer.turn, used, ReinforcementKind.USED)

    async def explain_last_answer(
        self, chat: ChatId, scopes: Sequence[MemoryScope] | None = None
    ) -> AnswerMemories:
        """Memories behind the chat's last answer, for a reader of these scopes (None: all)."""
        turn = await self.repo.find_last_answer(chat)
        if turn is None:
            return AnswerMemories()
        behind = await self.explain_answer(chat, turn.session, turn.number, scopes)
        return replace(behind, at=turn.at, backend=turn.backend)

    async def explain_answer(
        self, chat: ChatId, session: str, turn: int, scopes: Sequence[MemoryScope] | None = None
    ) -> AnswerMemories:
        """Memories behind one answer in this chat."""
        behind = await self._explain(await self.repo.list_by_turn(chat, session, turn), scopes)
        return replace(behind, session=session, turn=turn)

    async def explain_task(
        self, task: TaskId, scopes: Sequence[MemoryScope] | None = None
    ) -> AnswerMemories:
        """Memories behind a task's steps, each once."""
        uses = await self.repo.list_by_task(task)
        used = {each.entry for each in uses if each.confirmed_at}
        once = {each.entry: each for each in uses if each.confirmed_at or each.entry not in used}
        return await self._explain(list(once.values()), scopes)

    async def confirm_used(
        self, chat: ChatId, session: str, turn: int, scopes: Sequence[MemoryScope] | None = None
    ) -> int:
        """Mark the visible retrieved memories of an answer as helpful; returns how many were not
        marked before."""
        async with self.db.write() as tx:
            uses = await self.repo.list_by_turn(chat, session, turn, tx=tx)
            wanted = [each for each in uses if each.block == ContextBlock.SIMILAR]
            entries = await self._load_entries(wanted, scopes, tx)
            return await self._confirm_entries(
                tx, session, turn, list(entries.values()), ReinforcementKind.USED
            )

    async def record_task_outcome(self, tx: Transaction, task: TaskId, succeeded: bool) -> None:
        """Reinforce the memories that a task used if it succeeded, weaken them if not."""
        by = ReinforcementKind.SUCCEEDED if succeeded else ReinforcementKind.FAILED
        uses = [each for each in await self.repo.list_by_task(task, tx=tx) if each.confirmed_at]
        for entry in (await self._load_entries(uses, None, tx)).values():
            await self.repo.record_used(tx, entry, reinforce(entry, by, self.now()), self.now())

    async def _confirm_entries(
        self,
        tx: Transaction,
        session: str,
        turn: int,
        entries: Sequence[MemoryEntry],
        by: ReinforcementKind,
    ) -> int:
        if not entries:
            return 0
        now = self.now()
        fresh = await self.repo.confirm(tx, session, turn, [each.id for each in entries], now)
        for entry in entries:
            if entry.id in fresh:
                await self.repo.record_used(tx, entry, reinforce(entry, by, now), now)
        return len(fresh)

    async def _explain(
        self, uses: Sequence[MemoryUse], scopes: Sequence[MemoryScope] | None
    ) -> AnswerMemories:
        seen = await self._load_entries(uses, scopes)
        others = [each for each in uses if each.entry not in seen]
        hidden = set() if scopes is None else set(await self._load_entries(others, None))
        told = [_to_used_entry(each, seen) for each in uses if each.entry not in hidden]
        at = max((each.at for each in uses), default=None)
        return AnswerMemories(used=told, hidden_count=len(hidden), at=at)

    async def _load_entries(
        self,
        uses: Sequence[MemoryUse],
        scopes: Sequence[MemoryScope] | None,
        tx: Transaction | None = None,
    ) -> Mapping[EntryId, MemoryEntry]:
        ids = {each.entry for each in uses}
        found = await self.entries.list_by_ids(ids, scopes, tx=tx) if ids else ()
        return {each.id: each for each in found}


def _to_used_entry(use: MemoryUse, seen: Mapping[EntryId, MemoryEntry]) -> UsedMemory:
    return UsedMemory(
        entry=seen.get(use.entry),
        id=use.entry,
        block=use.block,
        score=use.score,
        parts=use.parts,
        at=use.at,
        confirmed=use.confirmed_at is not None,
    )


def _to_use(shown: ContextEntry, answer: TrackedAnswer) -> MemoryUse:
    return MemoryUse(
        session=answer.session,
        turn=answer.turn,
        chat=answer.chat,
        task=answer.task,
        entry=shown.entry.id,
        block=shown.block.value,
        score=shown.score,
        parts=shown.parts,
        at=answer.at,
    )
