"""Checks whether the models and coding CLIs in use can work, without calling them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass

from storage.records.autonomy import HealthFinding
from storage.records.system import BackendHealth, BackendReport


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelHealthCheck:
    """`report` is what is known of all backends; `in_use` are those that settings name, the default
    first."""

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
