"""The check of money: caps that are near, prices that nobody knows."""

from __future__ import annotations

from bot.engine.autonomy.checks.workers import MoneyHealthCheck
from storage.records.tasks import UsageTotals
from storage.records.usage import BudgetScope, CapUsage, CostQuery, CostReport, SpendingCap
from tests.bot.engine.autonomy.checks.health_world import found_by


def check_of(*caps: CapUsage, unpriced: tuple[str, ...] = ()) -> MoneyHealthCheck:
    none = UsageTotals()

    async def report() -> CostReport:
        return CostReport(
            query=CostQuery(),
            total=none,
            today=none,
            week=none,
            month=none,
            caps=caps,
            unpriced_models=unpriced,
        )

    return MoneyHealthCheck(report=report)


def cap(used: SpendingCap, scope: BudgetScope = BudgetScope.DAY) -> CapUsage:
    allowed = SpendingCap(micros=100, tokens=1_000)
    return CapUsage(scope=scope, allowed=allowed, granted=SpendingCap(), used=used)


async def test_spending_near_its_cap_is_found() -> None:
    far = await found_by(check_of(cap(SpendingCap(micros=89, tokens=10))))
    near = await found_by(check_of(cap(SpendingCap(micros=10, tokens=930))))
    reached = await found_by(check_of(cap(SpendingCap(micros=100))))
    other = await found_by(check_of(cap(SpendingCap(micros=100), BudgetScope.CHAT)))

    assert far == other == {}
    assert near["cap_near"].facts["percent"] == 93
    assert reached["cap_reached"].points > near["cap_near"].points


async def test_a_model_without_a_price_is_found() -> None:
    found = await found_by(check_of(unpriced=("local-7b",)))

    assert found["model_unpriced"].subject == "local-7b"
