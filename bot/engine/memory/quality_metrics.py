"""Daily quality counts of memory extraction, and the pollution check that stops automatic
promotion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import date, timedelta

from storage.db import Transaction
from storage.key_value import KeyValueStore

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
