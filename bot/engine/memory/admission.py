"""Admission control: scores a new fact by five features and records why it was admitted or refused.
Off by default. Refused facts are stored as rejected entries, visible in the audit only, for two
weeks."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from bot.engine.memory.extraction import MemoryFact
from bot.engine.memory.fact_matching import FactComparison
from bot.engine.memory.similarity import term_jaccard
from storage.db import Transaction
from storage.memory.cells import DERIVED_FROM, CellRepo
from storage.memory.entries import MemoryEntryRepo
from storage.records.memory import MemoryCategory, MemoryEntry, MemoryKind, MemoryState, MemoryTier
from storage.search.chinese import HAN

_TOKEN = re.compile(rf"[{HAN}]|[^\W_{HAN}]+")
_SENTENCE = re.compile(r"[。！？!?]|(?<=\.)\s")
_MAX_TOKENS = 400
_MAX_SPANS = 200
_MIN_SPAN = 4
_DEFAULT_PRIOR = 0.5
UTILITY_VETO = 0.25
"""Utility below this refuses a fact whatever its other features."""
AUDIT_KEY = "admission"
"""Key of the judgement in an entry's `extra`."""
_NOVEL_BELOW = 0.55
_DAY = timedelta(days=1)


class AdmissionPreset(StrEnum):
    OFF = "off"
    BALANCED = "balanced"
    CONSERVATIVE = "conservative"
    HIGH_RECALL = "high-recall"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionWeights:
    utility: float
    confidence: float
    novelty: float
    recency: float
    prior: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRule:
    """Scores below `reject` are refused; scores from `admit` on count as new. `half_life` is in
    days."""

    weights: AdmissionWeights
    priors: Mapping[MemoryCategory, float]
    reject: float
    admit: float
    pool: int
    half_life: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionFeatures:
    """Feature values, each from 0 to 1."""

    utility: float
    confidence: float
    novelty: float
    recency: float
    prior: float

    def score(self, weights: AdmissionWeights) -> float:
        return (
            weights.utility * self.utility
            + weights.confidence * self.confidence
            + weights.novelty * self.novelty
            + weights.recency * self.recency
            + weights.prior * self.prior
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionJudgement:
    """Result of one admission. `reason` is empty if admitted, otherwise `utility` or `score`.
    `is_new` means that no existing entry is similar."""

    preset: AdmissionPreset
    features: AdmissionFeatures
    score: float
    reason: str
    is_new: bool
    compared_ids: tuple[str, ...]

    @property
    def admitted(self) -> bool:
        return not self.reason

    def to_audit_record(self, now: datetime) -> Mapping[str, object]:
        """Value for an entry's `extra`, without any quoted text."""
        rounded = {name: round(value, 3) for name, value in asdict(self.features).items()}
        return {
            AUDIT_KEY: {
                "preset": self.preset.value,
                "admitted": self.admitted,
                "why": self.reason,
                "hint": "add" if self.is_new else "update_or_merge",
                "score": round(self.score, 3),
                "features": rounded,
                "compared": list(self.compared_ids),
                "at": now.isoformat(),
            }
        }


def judge_admission(
    preset: AdmissionPreset, comparison: FactComparison, conversation: str, now: datetime
) -> AdmissionJudgement | None:
    """Judge a fact drawn from `conversation`; None if admission is off."""
    rule = PRESET_RULES.get(preset)
    if rule is None:
        return None
    seen = compute_features(rule, comparison, conversation, now)
    score = seen.score(rule.weights)
    closest = 1.0 - seen.novelty
    why = "utility" if seen.utility <= UTILITY_VETO else "score" if score < rule.reject else ""
    return AdmissionJudgement(
        preset=preset,
        features=seen,
        score=score,
        reason=why,
        is_new=not why and score >= rule.admit and closest < _NOVEL_BELOW,
        compared_ids=tuple(each.id for each in comparison.matches[: rule.pool]),
    )


def compute_features(
    rule: AdmissionRule, comparison: FactComparison, conversation: str, now: datetime
) -> AdmissionFeatures:
    fact = comparison.fact
    near = comparison.matches[: rule.pool]
    own = [each for each in near if each.category is fact.category] or near
    closest = max((_similarity(comparison, each) for each in own), default=0.0)
    newest = max((each.said_at for each in own), default=None)
    days = None if newest is None else max(0.0, (now - newest) / _DAY)
    return AdmissionFeatures(
        utility=fact.utility,
        confidence=grounding_score(f"{fact.text}\n{fact.detail}", conversation),
        novelty=1.0 - max(0.0, closest),
        recency=1.0 if days is None else 1.0 - math.exp(-math.log(2) * days / rule.half_life),
        prior=rule.priors.get(fact.category, _DEFAULT_PRIOR),
    )


def _similarity(comparison: FactComparison, entry: MemoryEntry) -> float:
    """Similarity by embeddings where known, otherwise by words."""
    return max(
        comparison.similarities.get(entry.number, 0.0),
        term_jaccard(entry.text, comparison.fact.text),
    )


def grounding_score(text: str, conversation: str) -> float:
    """How much of `text` was really said: best matching span and share of its words that occur."""
    tokens = _tokens(text)
    if not tokens:
        return 0.0
    spans = [line for line in conversation.splitlines() if line.strip()]
    spans += [each for each in _SENTENCE.split(conversation) if len(each.strip()) >= _MIN_SPAN]
    best = max((_rouge_l_f1(tokens, _tokens(span)) for span in spans[:_MAX_SPANS]), default=0.0)
    said = set(_tokens(conversation, most=20 * _MAX_TOKENS))
    unique = set(tokens)
    coverage = len(unique & said) / len(unique)
    return min(1.0, max(0.0, 0.7 * best + 0.3 * coverage - 0.25 * (1.0 - coverage)))


def _tokens(text: str, *, most: int = _MAX_TOKENS) -> list[str]:
    return _TOKEN.findall(text.casefold())[:most]


def _rouge_l_f1(one: Sequence[str], other: Sequence[str]) -> float:
    """ROUGE-L: F1 of the longest common subsequence."""
    if not other:
        return 0.0
    row = [0] * (len(other) + 1)
    for token in one:
        before = 0
        for at, each in enumerate(other, start=1):
            kept = row[at]
            row[at] = before + 1 if token == each else max(row[at], row[at - 1])
            before = kept
    shared = row[-1]
    if not shared:
        return 0.0
    precision, recall = shared / len(one), shared / len(other)
    return 2 * precision * recall / (precision + recall)


def _priors(*values: float) -> Mapping[MemoryCategory, float]:
    named = ("PROFILE", "PREFERENCES", "ENTITIES", "EVENTS", "CASES", "PATTERNS")
    priors = {MemoryCategory[name]: value for name, value in zip(named, values, strict=True)}
    of_work = (MemoryCategory.LESSONS, MemoryCategory.PITFALLS, MemoryCategory.TOOLS)
    return priors | dict.fromkeys(of_work, priors[MemoryCategory.CASES])


PRESET_RULES: Mapping[AdmissionPreset, AdmissionRule] = {
    AdmissionPreset.BALANCED: AdmissionRule(
        weights=AdmissionWeights(utility=0.1, confidence=0.1, novelty=0.1, recency=0.1, prior=0.6),
        priors=_priors(0.95, 0.9, 0.75, 0.45, 0.8, 0.85),
        reject=0.45,
        admit=0.60,
        pool=8,
        half_life=14,
    ),
    AdmissionPreset.CONSERVATIVE: AdmissionRule(
        weights=AdmissionWeights(
            utility=0.16, confidence=0.16, novelty=0.18, recency=0.08, prior=0.42
        ),
        priors=_priors(0.98, 0.94, 0.78, 0.28, 0.78, 0.80),
        reject=0.52,
        admit=0.68,
        pool=10,
        half_life=10,
    ),
    AdmissionPreset.HIGH_RECALL: AdmissionRule(
        weights=AdmissionWeights(
            utility=0.08, confidence=0.1, novelty=0.08, recency=0.14, prior=0.6
        ),
        priors=_priors(0.96, 0.92, 0.8, 0.58, 0.84, 0.88),
        reject=0.34,
        admit=0.52,
        pool=6,
        half_life=21,
    ),
}


AUDIT_RETENTION = timedelta(days=14)
MAX_AUDITED = 200
_PRUNE_BATCH = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedFact:
    fact: MemoryFact
    judgement: AdmissionJudgement


class AdmissionAuditor:
    """Stores judgements; every method runs in the transaction that stores the admitted facts."""

    def __init__(self, entries: MemoryEntryRepo, cells: CellRepo) -> None:
        self._entries = entries
        self._cells = cells

    async def record_admitted(
        self, tx: Transaction, entry: MemoryEntry, judgement: AdmissionJudgement, *, now: datetime
    ) -> None:
        """Attach the judgement to the entry that the fact created or supports."""
        held = await self._entries.get(entry.id, (entry.scope,), tx=tx)
        extra = {**held.extra, **judgement.to_audit_record(now)}
        await self._entries.update(tx, replace(held, extra=extra), now=now)

    async def record_refused(self, tx: Transaction, audited: AuditedFact, *, now: datetime) -> None:
        """Store a refused fact, once per text, unless this text was forgotten."""
        fact, written = audited.fact, audited.judgement.to_audit_record(now)
        for each in await self._entries.list_with_same_text(fact.scope, fact.text, tx=tx):
            if each.state is MemoryState.REJECTED and AUDIT_KEY in each.extra:
                extra = {**each.extra, **written}
                await self._entries.update(tx, replace(each, extra=extra), now=now)
                return
        refused = replace(
            fact.to_entry(),
            kind=MemoryKind.FACT,
            overview="",
            keywords=(),
            importance=0.0,
            tier=MemoryTier.PERIPHERAL,
            state=MemoryState.REJECTED,
            dynamic=False,
            key="",
            valid_until=None,
            extra=written,
        )
        made = await self._entries.add(tx, refused, now=now)
        if made is not None:
            # Forgetting the turn then also forgets this entry.
            for cell in fact.cells:
                await self._cells.link(tx, made, cell, DERIVED_FROM)

    async def prune(self, tx: Transaction, *, now: datetime) -> None:
        """Delete records that exceed `AUDIT_RETENTION` or `MAX_AUDITED`."""
        refused = await self._entries.list(
            None,
            kinds=(MemoryKind.FACT,),
            states=(MemoryState.REJECTED,),
            limit=MAX_AUDITED + _PRUNE_BATCH,
            tx=tx,
        )
        for at, each in enumerate(each for each in refused if AUDIT_KEY in each.extra):
            if at >= MAX_AUDITED or each.updated_at < now - AUDIT_RETENTION:
                await self._entries.delete(tx, each)
