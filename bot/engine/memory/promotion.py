"""Promotion of extracted facts (L0) and profile entries (L1) to long-term memory (L2), at once or
by a candidate for review, and offers of lessons to other scopes; what a successor and a change do
to these proposals; and the quality counts that stop automatic promotion."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import date, datetime, timedelta
from enum import StrEnum

from bot.engine.memory.noise_filter import classify_fact_noise, is_time_bound
from storage.db import Transaction
from storage.key_value import KeyValueStore
from storage.memory.cells import CellRepo
from storage.memory.entries import MemoryEntryRepo
from storage.records.memory import (
    OFFERED_TO_KEY,
    PERSONAL_CATEGORIES,
    UNKNOWN_STRENGTH,
    MemoryCategory,
    MemoryEntry,
    MemoryKind,
    MemoryScope,
    MemoryScopeKind,
    MemoryState,
    MemoryTier,
    NewMemoryEntry,
    candidate_source,
    offer_source,
    offered_scope,
    support_from_extra,
)

# --- quality counts, and the pollution check that stops automatic promotion

WINDOW_DAYS = 7
"""Days considered for the pollution check."""
POLLUTION_LIMIT = 0.2
AUTO_PROMOTED_KEY = "auto"
"""Key in an entry's `extra`: promoted without a person's decision."""
_MIN_SAMPLE = 20
_RETENTION_DAYS = 60
_MARK = "memory:quality"


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityCounts:
    """Counts over some days. `facts` are all extracted ones; `filtered` includes `suspicious` and
    `refused` ones. `rejected` candidates and `undone` promotions count as errors too."""

    facts: int = 0
    filtered: int = 0
    suspicious: int = 0
    refused: int = 0
    created: int = 0
    supported: int = 0
    merged: int = 0
    superseded: int = 0
    skipped: int = 0
    from_talk: int = 0
    from_tasks: int = 0
    long_term: int = 0
    candidates: int = 0
    confirmed: int = 0
    rejected: int = 0
    undone: int = 0
    demoted: int = 0

    @property
    def suspicious_rate(self) -> float:
        seen = self.facts + self.confirmed + self.rejected + self.undone
        return (self.suspicious + self.rejected + self.undone) / seen if seen else 0.0

    @property
    def is_polluted(self) -> bool:
        """Whether promotions need a person's approval; never true for small samples."""
        seen = self.facts + self.confirmed + self.rejected + self.undone
        return seen >= _MIN_SAMPLE and self.suspicious_rate > POLLUTION_LIMIT

    def to_report(self) -> Mapping[str, float]:
        """The figures of `/memory stats`."""
        return {
            "facts": self.facts,
            "filtered": self.filtered,
            "refused": self.refused,
            "auto": self.long_term,
            "candidates": self.candidates,
            "confirmed": self.confirmed,
            "rejected": self.rejected,
            "undone": self.undone,
            "demoted": self.demoted,
            "suspicious": self.suspicious_rate,
        }

    def __add__(self, other: QualityCounts) -> QualityCounts:
        mine, theirs = asdict(self), asdict(other)
        return QualityCounts(**{name: mine[name] + theirs[name] for name in mine})


class QualityMetrics:
    """Counts per day, kept for 60 days."""

    def __init__(self, key_values: KeyValueStore) -> None:
        self._key_values = key_values

    async def add(self, tx: Transaction, added: QualityCounts, *, today: date) -> None:
        days = {
            day: counts
            for day, counts in _parse_days(await self._key_values.read(tx, _MARK)).items()
            if day > (today - timedelta(days=_RETENTION_DAYS)).isoformat()
        }
        counted = _parse_counts(days.get(today.isoformat(), {})) + added
        days[today.isoformat()] = {name: n for name, n in asdict(counted).items() if n}
        await self._key_values.write(tx, _MARK, days)

    async def totals(self, *, today: date, tx: Transaction | None = None) -> QualityCounts:
        """Sum over the days of the pollution check, including today."""
        value = await (
            self._key_values.get(_MARK) if tx is None else self._key_values.read(tx, _MARK)
        )
        since = (today - timedelta(days=WINDOW_DAYS)).isoformat()
        total = QualityCounts()
        for day, counts in _parse_days(value).items():
            if day > since:
                total += _parse_counts(counts)
        return total


def _parse_days(value: object) -> dict[str, Mapping[str, int]]:
    return {str(day): counts for day, counts in value.items()} if isinstance(value, dict) else {}


def _parse_counts(counts: Mapping[str, int]) -> QualityCounts:
    known = {each.name for each in fields(QualityCounts)}
    return QualityCounts(**{name: n for name, n in counts.items() if name in known})


# --- promotion
# Extracted facts (L0) and profile entries (L1) become long-term memories (L2), at once or by a
# candidate for review; lessons are offered to other scopes. A successor and a change act on these
# proposals.

log = logging.getLogger(__name__)

CANDIDATE_MIN_CONFIDENCE, CANDIDATE_MIN_EVIDENCE = 0.8, 2
NARROW_MIN_CONFIDENCE, NARROW_MIN_EVIDENCE, NARROW_MAX_CHARS = 0.90, 3, 220
WIDE_MIN_CONFIDENCE, WIDE_MIN_EVIDENCE, WIDE_MAX_CHARS = 0.92, 4, 200

_NARROW_SCOPES = frozenset({MemoryScopeKind.SKILL, MemoryScopeKind.PROJECT, MemoryScopeKind.AGENT})


class PromotionDecision(StrEnum):
    """Action for an entry: none, ask a person, or promote it at once."""

    STAY = "stay"
    PROPOSE = "ask"
    PROMOTE = "keep"


def decide_promotion(entry: MemoryEntry) -> PromotionDecision:
    """Decide by confidence and number of sources. Temporary facts and manual entries are never
    promoted."""
    risen = entry.kind not in {MemoryKind.FACT, MemoryKind.PROFILE}
    if risen or entry.state is not MemoryState.ACTIVE or entry.is_protected:
        return PromotionDecision.STAY
    passing = entry.dynamic or entry.valid_until is not None or is_time_bound(entry.text)
    if (
        passing
        or entry.category is MemoryCategory.EVENTS
        or classify_fact_noise(entry.text) is not None
    ):
        return PromotionDecision.STAY
    if support_from_extra(entry).strength < UNKNOWN_STRENGTH:
        # Contradicted more often than confirmed.
        return PromotionDecision.STAY
    said = len(set(entry.evidence))
    narrow = entry.scope.kind in _NARROW_SCOPES
    sure, often = (
        (NARROW_MIN_CONFIDENCE, NARROW_MIN_EVIDENCE)
        if narrow
        else (WIDE_MIN_CONFIDENCE, WIDE_MIN_EVIDENCE)
    )
    longest = NARROW_MAX_CHARS if narrow else WIDE_MAX_CHARS
    # Only rules and traits are shown to a whole person or group.
    fits = narrow or entry.category in PERSONAL_CATEGORIES
    if entry.confidence >= sure and said >= often and len(entry.text) <= longest and fits:
        return PromotionDecision.PROMOTE
    if entry.confidence >= CANDIDATE_MIN_CONFIDENCE and said >= CANDIDATE_MIN_EVIDENCE:
        return PromotionDecision.PROPOSE
    return PromotionDecision.STAY


MAX_SHARED_CHARS = 260
"""Longer texts would be truncated on the approval card."""


async def propose_sharing(
    entries: MemoryEntryRepo, tx: Transaction, entry: MemoryEntry, to: MemoryScope, *, now: datetime
) -> bool:
    """Propose a copy of `entry` for the scope `to`, once, and return whether it was proposed. The
    candidate stays with its person and carries only the text that they will review."""
    if not _is_shareable(entry) or await _is_known_or_proposed(entries, tx, entry, to):
        return False
    copy = NewMemoryEntry(
        kind=MemoryKind.FACT,
        scope=entry.scope,
        text=entry.text,
        category=entry.category,
        importance=entry.importance,
        confidence=entry.confidence,
        tier=MemoryTier.WORKING,
        state=MemoryState.CANDIDATE,
        origin=entry.origin,
        source=offer_source(entry),
        evidence=entry.evidence,
        person=entry.person,
        chat=entry.chat,
        said_at=entry.said_at,
        extra={OFFERED_TO_KEY: str(to)},
    )
    return await entries.add(tx, copy, now=now) is not None


def _is_shareable(entry: MemoryEntry) -> bool:
    sound = classify_fact_noise(entry.text) is None and not is_time_bound(entry.text)
    sure = entry.confidence >= CANDIDATE_MIN_CONFIDENCE and len(entry.text) <= MAX_SHARED_CHARS
    return sure and sound and entry.valid_until is None and not entry.is_protected


async def _is_known_or_proposed(
    entries: MemoryEntryRepo, tx: Transaction, entry: MemoryEntry, to: MemoryScope
) -> bool:
    there = await entries.list_with_same_text(to, entry.text, tx=tx)
    here = await entries.list_with_same_text(entry.scope, entry.text, tx=tx)
    offered = any(offered_scope(each) == to for each in here)
    return offered or any(each.kind is not MemoryKind.CELL for each in there)


_PROMOTED_AT = "risen_at"
_PROMOTION_KEYS = frozenset({AUTO_PROMOTED_KEY, _PROMOTED_AT})


@dataclass(slots=True, kw_only=True)
class FactPromoter:
    entries: MemoryEntryRepo
    cells: CellRepo
    quality: QualityMetrics

    async def promote(self, tx: Transaction, entry: MemoryEntry, *, now: datetime) -> str:
        """Promote the entry or propose its promotion, as the rules allow. Returns the name of the
        count that this belongs to, empty if nothing was done."""
        decision = decide_promotion(entry)
        if decision is PromotionDecision.STAY:
            return ""
        polluted = (await self.quality.totals(today=now.date(), tx=tx)).is_polluted
        if decision is PromotionDecision.PROPOSE or polluted:
            return "candidates" if await self._propose_candidate(tx, entry, now=now) else ""
        promoted = replace(
            entry,
            kind=MemoryKind.LONGTERM,
            tier=MemoryTier.CORE,
            extra={
                **entry.extra,
                AUTO_PROMOTED_KEY: entry.kind.value,
                _PROMOTED_AT: now.isoformat(),
            },
        )
        await self.entries.update(tx, promoted, now=now)
        return "long_term"

    async def count_quality(self, tx: Transaction, counts: QualityCounts, *, now: datetime) -> None:
        """Count an extraction's results, and revert recent promotions if memory is polluted."""
        await self.quality.add(tx, counts, today=now.date())
        if not (await self.quality.totals(today=now.date(), tx=tx)).is_polluted:
            return
        if demoted := await self.demote(tx, now=now, since=now - timedelta(days=WINDOW_DAYS)):
            log.warning("memory is polluted: %d long-term entries are demoted", demoted)
            await self.quality.add(tx, QualityCounts(demoted=demoted), today=now.date())

    async def demote(self, tx: Transaction, *, now: datetime, since: datetime) -> int:
        """Revert automatic promotions made since `since`; returns their number."""
        found = await self.cells.list_extracted_longterm(tx)
        auto = [
            each
            for each in found
            if AUTO_PROMOTED_KEY in each.extra and _promoted_at(each) >= since
        ]
        for each in auto:
            was = MemoryKind(str(each.extra[AUTO_PROMOTED_KEY]))
            extra = {name: told for name, told in each.extra.items() if name not in _PROMOTION_KEYS}
            back = replace(each, kind=was, tier=MemoryTier.WORKING, extra=extra)
            await self.entries.update(tx, back, now=now)
        return len(auto)

    async def _propose_candidate(
        self, tx: Transaction, entry: MemoryEntry, *, now: datetime
    ) -> bool:
        """Add a candidate beside its source entry, once; the source stays until the decision."""
        candidate = NewMemoryEntry(
            kind=MemoryKind.LONGTERM,
            scope=entry.scope,
            text=entry.text,
            category=entry.category,
            label=entry.label,
            overview=entry.overview,
            keywords=entry.keywords,
            importance=entry.importance,
            confidence=entry.confidence,
            tier=MemoryTier.CORE,
            state=MemoryState.CANDIDATE,
            key=entry.key,
            origin=entry.origin,
            source=candidate_source(entry),
            evidence=entry.evidence,
            sender=entry.sender,
            thread=entry.thread,
            person=entry.person,
            chat=entry.chat,
            task=entry.task,
            said_at=entry.said_at,
        )
        made = await self.entries.add(tx, candidate, now=now)
        if made is None:
            return False
        await self.entries.update(tx, replace(made, supersedes=entry.id), now=now)
        return True


def _promoted_at(entry: MemoryEntry) -> datetime:
    at = entry.extra.get(_PROMOTED_AT)
    return datetime.fromisoformat(at) if isinstance(at, str) else entry.updated_at


async def supersede(
    entries: MemoryEntryRepo,
    tx: Transaction,
    old: MemoryEntry,
    successor: MemoryEntry,
    *,
    now: datetime,
) -> MemoryEntry:
    """Mark `old` as superseded by an existing entry, from when that is valid. Until then it stays:
    who will move still lives there."""
    until = successor.valid_from
    gone = replace(old, superseded_by=successor.id, valid_until=until, pinned=False)
    if until <= now:
        gone = replace(
            gone,
            state=MemoryState.SUPERSEDED,
            invalidated_at=now,
            # Of what has no date of its own it is only known when it was said.
            valid_from=min(old.valid_from, until),
        )
    await entries.update(tx, gone, now=now)
    await retract_proposals(entries, tx, old)
    return await entries.update(tx, replace(successor, supersedes=old.id), now=now)


async def retract_proposals(entries: MemoryEntryRepo, tx: Transaction, entry: MemoryEntry) -> None:
    """Withdraw proposals based on this entry, which has changed; it may be proposed again."""
    for source in (candidate_source(entry), offer_source(entry)):
        proposed = await entries.find_by_source(source, tx=tx)
        if proposed is not None and proposed.state is MemoryState.CANDIDATE:
            await entries.delete(tx, proposed)
