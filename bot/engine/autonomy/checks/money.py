"""Checks for spending that nears its cap, and for models whose price is unknown."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from storage.records.autonomy import HealthFinding
from storage.records.usage import BudgetScope, CapUsage, CostReport

_PERCENT = 100
_NEAR = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class MoneyHealthCheck:
    """`report` has the costs of this week and today's caps."""

    name = "money"

    report: Callable[[], Awaitable[CostReport]]

    async def find(self) -> Sequence[HealthFinding]:
        report = await self.report()
        day = [each for each in report.caps if each.scope is BudgetScope.DAY]
        found = [each for cap in day if (each := _near(cap))]
        found += [
            HealthFinding(text="model_unpriced", subject=name, points=10, facts={"model": name})
            for name in report.unpriced_models
        ]
        return found


def _near(cap: CapUsage) -> HealthFinding | None:
    used = max(
        cap.used.micros * _PERCENT // cap.allowed.micros if cap.allowed.micros else 0,
        cap.used.tokens * _PERCENT // cap.allowed.tokens if cap.allowed.tokens else 0,
    )
    if used < _NEAR:
        return None
    is_reached = used >= _PERCENT
    return HealthFinding(
        text="cap_reached" if is_reached else "cap_near",
        subject=cap.scope.value,
        points=25 if is_reached else 10,
        facts={"scope_key": f"cost.cap.{cap.scope}", "percent": used},
    )
