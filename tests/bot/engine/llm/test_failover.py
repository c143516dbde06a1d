"""Which backend works when another one can't: the chain, and for how long."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from bot.engine.llm.backend import (
    BackendDenied,
    BackendError,
    BackendUnavailable,
    ContextTooLong,
    InvalidAnswer,
    OutageKind,
    RunLimitReached,
    SelectedBackend,
)
from bot.engine.llm.backend_registry import (
    DENIAL_SECONDS,
    MAX_COOLDOWN_SECONDS,
    OUTAGE_SECONDS,
    BackendRegistry,
)
from tests.bot.engine.llm.test_backend_registry import BOTH, registry

CHAIN = ("anthropic:opus", "openai:gpt-5.2", "offline")


@dataclass
class Seconds:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def outage(kind: OutageKind, retry_after: float | None = None) -> BackendUnavailable:
    return BackendUnavailable("away", outage=kind, retry_after=retry_after)


def denied(hint: str) -> BackendDenied:
    return BackendDenied("no", hint=hint)


def chained(clock: Seconds, *names: str) -> BackendRegistry:
    return registry(**BOTH, fallbacks=names or CHAIN, clock=clock)


def fail(found: BackendRegistry, chosen: SelectedBackend, error: BackendError) -> str:
    """Let it fail, and return who goes on; empty for nobody."""
    found.record_failure(chosen, error)
    instead = found.select_next(chosen, error)
    return "" if instead is None else instead.name


@pytest.mark.parametrize(
    ("error", "goes_on"),
    [
        (denied("backend.bad_key"), "openai:gpt-5.2"),
        (denied("backend.no_credit"), "openai:gpt-5.2"),
        (denied("backend.no_model"), "anthropic:claude-opus-5-5"),
        (denied("backend.denied"), "anthropic:claude-opus-5-5"),
        (outage(OutageKind.OVERLOADED), "anthropic:claude-opus-5-5"),
        (outage(OutageKind.RATE_LIMITED), "anthropic:claude-opus-5-5"),
        (outage(OutageKind.UNREACHABLE), "openai:gpt-5.2"),
        (outage(OutageKind.SERVER_ERROR), "openai:gpt-5.2"),
        (ContextTooLong("too long"), "anthropic:claude-opus-5-5"),
        (InvalidAnswer("empty"), ""),
        (RunLimitReached("late"), ""),
    ],
)
def test_the_kind_of_error_decides_who_goes_on(error: BackendError, goes_on: str) -> None:
    found = chained(Seconds())

    assert fail(found, found.select_backend("sonnet", ""), error) == goes_on


def test_work_goes_forward_along_the_chain_and_ends() -> None:
    found, error = chained(Seconds()), denied("backend.bad_key")
    first = found.select_backend("", "")
    found.record_failure(first, error)
    second = found.select_next(first, error)
    assert second is not None
    assert (second.name, second.instead_of) == ("openai:gpt-5.2", first.name)
    assert second.fallback_reason == "backend.bad_key"
    found.record_failure(second, error)
    third = found.select_next(second, error)
    assert third is not None
    assert (third.backend.name, third.instead_of) == ("offline", first.name)
    assert found.select_next(third, error) is None


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (denied("backend.bad_key"), DENIAL_SECONDS),
        (outage(OutageKind.UNREACHABLE), OUTAGE_SECONDS),
        (outage(OutageKind.RATE_LIMITED, 200.0), 200.0),
        (outage(OutageKind.RATE_LIMITED, 1e9), MAX_COOLDOWN_SECONDS),
        (outage(OutageKind.OVERLOADED, 0.5), OUTAGE_SECONDS),
    ],
)
def test_the_first_of_the_chain_works_again_after_a_while(
    error: BackendError, seconds: float
) -> None:
    clock = Seconds()
    found = chained(clock, "openai:gpt-5.2")
    found.record_failure(found.select_backend("", ""), error)

    clock.now = seconds - 0.001
    assert found.select_backend("", "").backend.name == "openai"
    clock.now = seconds
    assert found.select_backend("", "").backend.name == "anthropic"


def test_a_success_ends_the_wait_at_once() -> None:
    found = chained(Seconds())
    first = found.select_backend("", "")
    found.record_failure(first, outage(OutageKind.UNREACHABLE))
    found.record_success(first)

    assert found.select_backend("", "").name == first.name


def test_where_nobody_is_well_the_first_is_asked() -> None:
    found = chained(Seconds(), "openai:gpt-5.2")
    for name in ("anthropic", "openai"):
        found.record_failure(found.select_backend("", name), denied("backend.bad_key"))

    chosen = found.select_backend("", "")
    assert (chosen.backend.name, chosen.instead_of) == ("anthropic", "")


def test_a_persona_has_a_chain_of_its_own() -> None:
    found = chained(Seconds())
    chosen = found.select_backend("sonnet", "", ("offline",))

    assert fail(found, chosen, denied("backend.bad_key")) == "offline"


def test_names_in_a_chain_that_lead_nowhere_are_passed_over() -> None:
    found = chained(Seconds(), "nobody", "acp:gone", "openai:gpt-5.2")

    assert fail(found, found.select_backend("", ""), denied("backend.bad_key")) == "openai:gpt-5.2"


def test_an_api_without_a_key_is_replaced_from_the_start() -> None:
    found = registry(openai_key="o", model="anthropic:sonnet", fallbacks=("openai:gpt-5.2",))
    chosen = found.select_backend("", "")

    assert (chosen.backend.name, chosen.fallback_reason) == ("openai", "backend.no_anthropic_key")


async def test_the_list_says_who_is_left_alone_and_who_does_its_work() -> None:
    found = chained(Seconds(), "openai:gpt-5.2")
    found.record_failure(found.select_backend("", ""), denied("backend.no_credit"))

    report = await found.report()
    assert report is not None
    health = {each.name: each for each in report.backends}
    assert health["anthropic"].problem == "backend.no_credit"
    assert health["anthropic"].fallback == "openai:gpt-5.2"
    assert health["openai"].problem == ""
