"""How well memory is written: what is counted of it, and when it has to ask first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import date, timedelta

from storage.db import Transaction
from storage.marks import Marks

DAYS = 7
"""What is looked at to tell whether memory is polluted."""
LIMIT = 0.2
AUTO = "auto"
"""Of an entry's `extra`: it was kept for long without a person's word."""
_LEAST = 20
_KEPT = 60
_MARK = "memory:quality"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of some days. `facts` are all that were drawn, `filtered` those of them that were noise,
    `suspicious` those that would have polluted, `refused` those that admission let not pass;
    `rejected` candidates and long-term entries that were `undone` by hand are mistakes of ours as
    well."""

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
        """Whether nothing may be kept for long without a person's word. Of little nothing is
        concluded."""
        seen = self.facts + self.confirmed + self.rejected + self.undone
        return seen >= _LEAST and self.suspicious_rate > LIMIT

    def __add__(self, other: Figures) -> Figures:
        mine, theirs = asdict(self), asdict(other)
        return Figures(**{name: mine[name] + theirs[name] for name in mine})


class Quality:
    """Counted by the day, for the last sixty."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks

    async def count(self, tx: Transaction, more: Figures, *, today: date) -> None:
        """In the transaction that makes it so."""
        days = {
            day: counts
            for day, counts in _days(await self._marks.read(tx, _MARK)).items()
            if day > (today - timedelta(days=_KEPT)).isoformat()
        }
        counted = _figures(days.get(today.isoformat(), {})) + more
        days[today.isoformat()] = {name: n for name, n in asdict(counted).items() if n}
        await self._marks.write(tx, _MARK, days)

    async def of(self, *, today: date, days: int = DAYS, tx: Transaction | None = None) -> Figures:
        """All of the last days together, today among them."""
        value = await (self._marks.get(_MARK) if tx is None else self._marks.read(tx, _MARK))
        since = (today - timedelta(days=days)).isoformat()
        total = Figures()
        for day, counts in _days(value).items():
            if day > since:
                total += _figures(counts)
        return total


def _days(value: object) -> dict[str, Mapping[str, int]]:
    return {str(day): counts for day, counts in value.items()} if isinstance(value, dict) else {}


def _figures(counts: Mapping[str, int]) -> Figures:
    known = {each.name for each in fields(Figures)}
    return Figures(**{name: n for name, n in counts.items() if name in known})
