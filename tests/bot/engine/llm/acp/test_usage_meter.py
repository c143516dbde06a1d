"""Tokens and money of coding CLIs: as reported, summed over requests, else estimated."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from bot.engine.llm.acp.updates import AcpUsageMeter
from bot.engine.llm.backend import TokenUsage


def test_money_of_earlier_runs_is_not_counted_again() -> None:
    meter = AcpUsageMeter()
    meter.record_update({"used": 10, "cost": {"amount": 1.5, "currency": "USD"}})
    meter.start_run()
    assert meter.usage.cost is None

    meter.record_update({"cost": {"amount": 2.0, "currency": "USD"}})
    meter.record_update({"cost": {"amount": "much", "currency": "USD"}})
    meter.record_update({"cost": {"amount": 9, "currency": "CNY"}})

    assert meter.usage.cost == Decimal("0.5")
    assert meter.context_tokens == 10


def test_what_was_cached_is_part_of_the_input_however_it_is_told() -> None:
    beside, within = AcpUsageMeter(), AcpUsageMeter()
    tokens = {"inputTokens": 5, "outputTokens": 1, "cachedReadTokens": 4}

    beside.record_turn({**tokens, "totalTokens": 10})
    within.record_turn({**tokens, "totalTokens": 6})
    within.record_turn({"inputTokens": -3, "outputTokens": "x"})

    assert beside.usage.input_tokens == 9
    assert within.usage.input_tokens == 5


def test_tokens_told_by_request_are_counted_once_each_and_the_past_is_not() -> None:
    def told(number: str, read: int) -> dict[str, Any]:
        usage = {"prompt_tokens": read, "completion_tokens": 2}
        usage |= {"prompt_tokens_details": {"cached_tokens": 3}}  # type: ignore[dict-item] # JSON
        return {"_meta": {"some.ai/requestId": "7", "some.ai/messageId": number, "usage": usage}}

    meter = AcpUsageMeter()
    meter.record_update(told("before", 90))
    meter.start_run()
    meter.count_prompt("")
    for update in (told("one", 5), told("one", 5), told("two", 6), {"_meta": {"usage": 3}}):
        meter.record_update(update)

    spent = meter.usage
    assert (spent.input_tokens, spent.output_tokens, spent.cache_read_tokens) == (11, 4, 6)
    assert spent.requests == 1

    meter.record_turn({"inputTokens": 20, "outputTokens": 1})
    assert meter.usage.input_tokens == 20


def say(text: str) -> dict[str, Any]:
    return {
        "sessionUpdate": "agent_message_chunk",
        "content": {"type": "text", "text": text},
    }


def tool(number: int, *, wrote: int, read: int) -> list[dict[str, Any]]:
    """A call whose arguments and result have so many tokens."""
    name = {"toolCallId": str(number)}
    result = [{"type": "content", "content": {"type": "text", "text": "y" * 4 * read}}]
    return [
        {**name, "sessionUpdate": "tool_call", "rawInput": {"a": "x" * 4 * wrote}},
        {**name, "sessionUpdate": "tool_call_update", "status": "completed", "content": result},
    ]


def run_two_requests(meter: AcpUsageMeter) -> None:
    """The prompt, a call and its result, the answer: 100, 10, 50 and 5 tokens."""
    meter.start_run()
    meter.count_prompt("p" * 400)
    for update in (*tool(1, wrote=10, read=50), say("z" * 20)):
        meter.record_content(update)


def test_what_a_silent_cli_has_used_is_estimated_over_all_requests() -> None:
    meter = AcpUsageMeter()

    run_two_requests(meter)
    while_it_runs = meter.usage
    meter.record_turn(None)

    read = 100 + (100 + 10 + 50)
    assert while_it_runs == meter.usage
    assert meter.usage == TokenUsage(
        requests=1,
        input_tokens=read,
        output_tokens=15,
        estimated_input=read,
        estimated_output=15,
    )


def test_the_next_prompt_of_a_silent_cli_reads_all_that_came_before() -> None:
    meter = AcpUsageMeter()
    run_two_requests(meter)
    meter.record_turn(None)
    before = meter.usage

    meter.count_prompt("q" * 40)
    meter.record_turn(None)

    assert (meter.usage - before).input_tokens == 100 + 10 + 50 + 5 + 10


def test_a_report_of_the_last_request_only_is_completed_by_an_estimate() -> None:
    meter = AcpUsageMeter()
    run_two_requests(meter)
    # 8,000 tokens of instructions were never seen.
    meter.record_update({"used": 8_165})

    meter.record_turn({"inputTokens": 8_160, "outputTokens": 5})

    first = 8_000 + 100 + 10
    assert meter.usage == TokenUsage(
        requests=1, input_tokens=8_160 + first, output_tokens=5, estimated_input=first
    )


@pytest.mark.parametrize("told", [{"used": 8_165}, {}])
def test_a_report_of_all_requests_is_taken_as_it_is(told: dict[str, int]) -> None:
    meter = AcpUsageMeter()
    run_two_requests(meter)
    meter.record_update(told)

    meter.record_turn({"inputTokens": 16_260, "outputTokens": 15})

    assert meter.usage == TokenUsage(requests=1, input_tokens=16_260, output_tokens=15)


def test_several_calls_of_one_reply_are_one_request() -> None:
    meter = AcpUsageMeter()
    meter.count_prompt("p" * 400)
    (first, first_ends), (second, second_ends) = (tool(n, wrote=10, read=0) for n in (1, 2))

    for update in (first, second, first_ends, second_ends):
        meter.record_content(update)

    assert (meter.usage.input_tokens, meter.usage.output_tokens) == (100, 20)


def test_hostile_reports_stay_within_what_can_be_stored() -> None:
    meter = AcpUsageMeter()
    run_two_requests(meter)
    deep: Any = "x"
    for _ in range(500):
        deep = [deep]

    meter.record_content({"sessionUpdate": "agent_message_chunk", "content": deep})
    meter.record_content({"sessionUpdate": [], "status": {}, "content": 5})
    meter.record_update({"used": 10**40})
    meter.record_turn({"inputTokens": 10**40, "outputTokens": 10**40})

    assert meter.usage.input_tokens + meter.usage.output_tokens < 2**62
