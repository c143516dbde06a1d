"""Checks how much of what was learnt turned out wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date

from bot.engine.memory.promotion import WINDOW_DAYS, QualityMetrics
from storage.records.autonomy import HealthFinding

_PERCENT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHealthCheck:
    """`today` is the day in the Boss's zone."""

    name = "memory"

    quality: QualityMetrics
    today: Callable[[], date]

    async def find(self) -> Sequence[HealthFinding]:
        counts = await self.quality.totals(today=self.today())
        if not counts.is_polluted:
            return ()
        facts = {"percent": round(counts.suspicious_rate * _PERCENT), "days": WINDOW_DAYS}
        return (HealthFinding(text="memory_polluted", points=25, facts=facts),)
