"""Whether a fact is worth a place at all, by a score of five features; off unless it is chosen."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from bot.engine.memory.writing.drawing.alike import jaccard
from bot.engine.memory.writing.drawing.verdicts import Case
from storage.records.memory.entries import Category, Entry

_TOKEN = re.compile(r"[\u3400-\u9fff]|[^\W_\u3400-\u9fff]+")
_SENTENCE = re.compile(r"[。！？!?]|(?<=\.)\s")
_MOST_TOKENS = 400
_MOST_SPANS = 200
_LEAST_SPAN = 4
_UNKNOWN = 0.5
VETO = 0.25
"""Of use as little as that, and nothing else counts."""
AUDIT = "admission"
"""Of an entry's `extra`: how it was judged."""
_NEW = 0.55
_DAY = timedelta(days=1)


class Preset(StrEnum):
    OFF = "off"
    BALANCED = "balanced"
    CONSERVATIVE = "conservative"
    HIGH_RECALL = "high-recall"


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    utility: float
    confidence: float
    novelty: float
    recency: float
    prior: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Below `reject` nothing is kept; from `admit` on it is surely new. `half_life` in days."""

    weights: Weights
    priors: Mapping[Category, float]
    reject: float
    admit: float
    pool: int
    half_life: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """Each from 0 to 1."""

    utility: float
    confidence: float
    novelty: float
    recency: float
    prior: float

    def score(self, weights: Weights) -> float:
        return (
            weights.utility * self.utility
            + weights.confidence * self.confidence
            + weights.novelty * self.novelty
            + weights.recency * self.recency
            + weights.prior * self.prior
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """`why` says by what it was refused, and is empty where it was not: a veto by `utility`, or
    the `score`. `is_new` says that nothing there is like it."""

    preset: Preset
    features: Features
    score: float
    why: str
    is_new: bool
    compared: tuple[str, ...]

    @property
    def admitted(self) -> bool:
        return not self.why

    def written(self, now: datetime) -> Mapping[str, object]:
        """As it stands in an entry's `extra`: what a person sees of it. No words of anybody."""
        rounded = {name: round(value, 3) for name, value in asdict(self.features).items()}
        return {
            AUDIT: {
                "preset": self.preset.value,
                "admitted": self.admitted,
                "why": self.why,
                "hint": "add" if self.is_new else "update_or_merge",
                "score": round(self.score, 3),
                "features": rounded,
                "compared": list(self.compared),
                "at": now.isoformat(),
            }
        }


def judged(preset: Preset, case: Case, talk: str, now: datetime) -> Judgement | None:
    """None where nothing is asked of facts. `talk` is what the fact was drawn from."""
    rule = RULES.get(preset)
    if rule is None:
        return None
    seen = features(rule, case, talk, now)
    score = seen.score(rule.weights)
    closest = 1.0 - seen.novelty
    why = "utility" if seen.utility <= VETO else "score" if score < rule.reject else ""
    return Judgement(
        preset=preset,
        features=seen,
        score=score,
        why=why,
        is_new=not why and score >= rule.admit and closest < _NEW,
        compared=tuple(each.id for each in case.matches[: rule.pool]),
    )


def features(rule: Rule, case: Case, talk: str, now: datetime) -> Features:
    fact = case.fact
    near = case.matches[: rule.pool]
    own = [each for each in near if each.category is fact.category] or near
    closest = max((_likeness(case, each) for each in own), default=0.0)
    newest = max((each.said_at for each in own), default=None)
    days = None if newest is None else max(0.0, (now - newest) / _DAY)
    return Features(
        utility=fact.utility,
        confidence=grounded(f"{fact.text}\n{fact.detail}", talk),
        novelty=1.0 - max(0.0, closest),
        recency=1.0 if days is None else 1.0 - math.exp(-math.log(2) * days / rule.half_life),
        prior=rule.priors.get(fact.category, _UNKNOWN),
    )


def _likeness(case: Case, entry: Entry) -> float:
    """By meaning where that is known, and by words."""
    return max(case.shares.get(entry.number, 0.0), jaccard(entry.text, case.fact.text))


def grounded(text: str, talk: str) -> float:
    """How much of it was really said: its best span, and the share of its words that occur."""
    tokens = _tokens(text)
    if not tokens:
        return 0.0
    spans = [line for line in talk.splitlines() if line.strip()]
    spans += [each for each in _SENTENCE.split(talk) if len(each.strip()) >= _LEAST_SPAN]
    best = max((_rouge(tokens, _tokens(span)) for span in spans[:_MOST_SPANS]), default=0.0)
    said = set(_tokens(talk, most=20 * _MOST_TOKENS))
    unique = set(tokens)
    coverage = len(unique & said) / len(unique)
    return min(1.0, max(0.0, 0.7 * best + 0.3 * coverage - 0.25 * (1.0 - coverage)))


def _tokens(text: str, *, most: int = _MOST_TOKENS) -> list[str]:
    return _TOKEN.findall(text.casefold())[:most]


def _rouge(one: Sequence[str], other: Sequence[str]) -> float:
    """F1 of the longest common subsequence."""
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


def _priors(*values: float) -> Mapping[Category, float]:
    named = ("PROFILE", "PREFERENCES", "ENTITIES", "EVENTS", "CASES", "PATTERNS")
    priors = {Category[name]: value for name, value in zip(named, values, strict=True)}
    of_work = (Category.LESSONS, Category.PITFALLS, Category.TOOLS)
    return priors | dict.fromkeys(of_work, priors[Category.CASES])


RULES: Mapping[Preset, Rule] = {
    Preset.BALANCED: Rule(
        weights=Weights(utility=0.1, confidence=0.1, novelty=0.1, recency=0.1, prior=0.6),
        priors=_priors(0.95, 0.9, 0.75, 0.45, 0.8, 0.85),
        reject=0.45,
        admit=0.60,
        pool=8,
        half_life=14,
    ),
    Preset.CONSERVATIVE: Rule(
        weights=Weights(utility=0.16, confidence=0.16, novelty=0.18, recency=0.08, prior=0.42),
        priors=_priors(0.98, 0.94, 0.78, 0.28, 0.78, 0.80),
        reject=0.52,
        admit=0.68,
        pool=10,
        half_life=10,
    ),
    Preset.HIGH_RECALL: Rule(
        weights=Weights(utility=0.08, confidence=0.1, novelty=0.08, recency=0.14, prior=0.6),
        priors=_priors(0.96, 0.92, 0.8, 0.58, 0.84, 0.88),
        reject=0.34,
        admit=0.52,
        pool=6,
        half_life=21,
    ),
}
