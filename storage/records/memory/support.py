"""How often something was said again, and how often the contrary, under which circumstances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from storage.records.memory.entries import Entry

GENERAL = "general"
MOST_SLICES = 8
UNKNOWN = 0.5
_SLICES, _ALL, _UNDER = "support", "support_all", "context"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Of one circumstance: mornings, weekends, work."""

    confirmed: int = 0
    contradicted: int = 0
    observed_at: str = ""

    @property
    def strength(self) -> float:
        return _share(self.confirmed, self.contradicted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """`slices` by their circumstance, the one that was observed last at the end; what older ones
    counted that were dropped is in the sums."""

    slices: Mapping[str, Slice] = field(default_factory=dict)
    confirmed: int = 0
    contradicted: int = 0
    context: str = ""
    """Under which it holds at all; empty where it holds in general."""

    @property
    def strength(self) -> float:
        return _share(self.confirmed, self.contradicted)

    def observed(self, context: str, *, holds: bool, at: datetime) -> Support:
        """Once more, the one or the other."""
        held = self.slices.get(context, Slice())
        seen = Slice(
            confirmed=held.confirmed + holds,
            contradicted=held.contradicted + (not holds),
            observed_at=at.isoformat(),
        )
        others = {name: each for name, each in self.slices.items() if name != context}
        newest = list({**others, context: seen}.items())[-MOST_SLICES:]
        return Support(
            slices=dict(newest),
            confirmed=self.confirmed + holds,
            contradicted=self.contradicted + (not holds),
            context=self.context,
        )

    def written(self) -> Mapping[str, object]:
        """As it stands in an entry's `extra`."""
        slices = {
            name: [each.confirmed, each.contradicted, each.observed_at]
            for name, each in self.slices.items()
        }
        told: dict[str, object] = {_SLICES: slices, _ALL: [self.confirmed, self.contradicted]}
        return {**told, _UNDER: self.context} if self.context else told


def support_of(entry: Entry) -> Support:
    """What is not of this form counts nothing."""
    held = entry.extra.get(_SLICES)
    slices = {
        str(name): Slice(
            confirmed=_count(each, 0),
            contradicted=_count(each, 1),
            observed_at="".join(part for part in each if isinstance(part, str)),
        )
        for name, each in (held.items() if isinstance(held, dict) else ())
        if isinstance(each, list)
    }
    total = entry.extra.get(_ALL)
    context = entry.extra.get(_UNDER)
    return Support(
        slices=slices,
        confirmed=max(_count(total, 0), sum(each.confirmed for each in slices.values())),
        contradicted=max(_count(total, 1), sum(each.contradicted for each in slices.values())),
        context=context if isinstance(context, str) else "",
    )


def _share(confirmed: int, contradicted: int) -> float:
    seen = confirmed + contradicted
    return confirmed / seen if seen else UNKNOWN


def _count(value: object, at: int) -> int:
    if not isinstance(value, (list, tuple)) or len(value) <= at:
        return 0
    n = value[at]
    return n if isinstance(n, int) and n > 0 else 0
