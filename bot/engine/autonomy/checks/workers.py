"""Checks what workers need: working models and coding CLIs, budget, and a sandbox."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass

from bot.engine.sandbox.spec import LimitEnforcement, Sandbox
from storage.records.autonomy import HealthFinding
from storage.records.system import BackendHealth, BackendReport
from storage.records.usage import BudgetScope, CapUsage, CostReport


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelHealthCheck:
    """Checks the backends in use. `report` has the state of all backends; `in_use` are those that
    settings name, the default first."""

    name = "models"

    report: Callable[[], Awaitable[BackendReport]]
    in_use: Callable[[], Collection[str]]

    async def find(self) -> Sequence[HealthFinding]:
        known = {each.name: each for each in (await self.report()).backends}
        return [
            _finding(known[name], is_default=at == 0)
            for at, name in enumerate(dict.fromkeys(self.in_use()))
            if name in known and known[name].problem
        ]


def _finding(health: BackendHealth, *, is_default: bool) -> HealthFinding:
    facts = {**health.facts, "model": health.name, "reason_key": health.problem}
    if not is_default:
        return HealthFinding(text="model_down", subject=health.name, points=10, facts=facts)
    if health.fallback:
        facts["fallback"] = health.fallback
        return HealthFinding(text="model_replaced", subject=health.name, points=15, facts=facts)
    return HealthFinding(text="default_model_down", subject=health.name, points=40, facts=facts)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxHealthCheck:
    """Checks the sandbox. `is_root` tells whether Shiftboss runs as root."""

    name = "sandbox"

    detect: Callable[[], Awaitable[Sandbox]]
    is_root: bool

    async def find(self) -> Sequence[HealthFinding]:
        sandbox = await self.detect()
        found: list[HealthFinding] = []
        if not sandbox.kind.confines:
            found.append(HealthFinding(text="sandbox_none", points=15))
        if self.is_root and not sandbox.limits.drops_root:
            found.append(HealthFinding(text="commands_as_root", points=15))
        elif sandbox.limits.enforcement is LimitEnforcement.NONE:
            found.append(HealthFinding(text="limits_watched", points=5))
        return found
