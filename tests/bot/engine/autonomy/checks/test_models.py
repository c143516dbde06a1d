"""The check of models: only those in use count."""

from __future__ import annotations

from bot.engine.autonomy.checks.workers import ModelHealthCheck
from storage.records.system import BackendHealth, BackendReport
from tests.bot.engine.autonomy.checks.health_world import found_by


def check_of(*healths: BackendHealth, in_use: tuple[str, ...]) -> ModelHealthCheck:
    async def report() -> BackendReport:
        return BackendReport(backends=healths, default=in_use[0])

    return ModelHealthCheck(report=report, in_use=lambda: in_use)


async def test_a_refused_key_of_the_default_fails() -> None:
    refused = BackendHealth(name="anthropic", problem="backend.bad_key")
    unused = BackendHealth(name="openai", problem="backend.no_key")

    found = await found_by(check_of(refused, unused, in_use=("anthropic",)))

    assert found["default_model_down"].points >= 40
    assert found["default_model_down"].facts["reason_key"] == "backend.bad_key"
    assert len(found) == 1


async def test_a_default_that_is_replaced_and_a_lost_fallback_are_lesser_problems() -> None:
    refused = BackendHealth(name="anthropic", problem="backend.bad_key", fallback="openai")
    codex = BackendHealth(name="codex", problem="acp.missing", is_cli=True)
    good = BackendHealth(name="openai")

    found = await found_by(check_of(refused, codex, good, in_use=("anthropic", "openai", "codex")))

    assert {name: each.subject for name, each in found.items()} == {
        "model_replaced": "anthropic",
        "model_down": "codex",
    }
