"""The Boss's own prices go before the published ones, and what is wrong with them is told."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from bot.engine.agent.pricing import PriceTable, load_prices, published_context_window
from bot.engine.llm.backend import TokenUsage

USED = TokenUsage(
    requests=1,
    input_tokens=1_000_000,
    output_tokens=100_000,
    cache_read_tokens=400_000,
    cache_write_tokens=100_000,
    cost=Decimal(9),
)
TABLE = """
local-small: {input: 1, output: 10, cache_read: 0.1, cache_write: 2}
local-*: {input: 3, output: 30}
"anthropic:claude-sonnet-*": {input: 100, output: 200}
"""


def prices(folder: Path, text: str, **urls: str) -> PriceTable:
    path = folder / "prices.yaml"
    path.write_text(text, encoding="utf-8")
    return load_prices(path, urls)


def test_own_prices_are_for_a_million_tokens_of_each_sort(tmp_path: Path) -> None:
    own = prices(tmp_path, TABLE)

    assert own.errors == ()
    assert own.cost("openai", "local-small", USED) == Decimal("0.5") + Decimal("0.04") + Decimal(
        "0.2"
    ) + Decimal(1)


def test_an_exact_name_goes_before_a_pattern_and_the_cache_costs_like_the_rest(
    tmp_path: Path,
) -> None:
    own = prices(tmp_path, TABLE)

    assert own.cost("openai", "Local-Large", USED) == Decimal(3) + Decimal(3)
    assert own.cost("anthropic", "claude-sonnet-5-5", USED) == Decimal(120)


def test_without_a_price_of_ones_own_what_the_library_says_counts(tmp_path: Path) -> None:
    own = prices(tmp_path, TABLE)

    assert own.cost("openai", "gpt-5.2", USED) == Decimal(9)
    assert own.cost("openai", "gpt-5.2", TokenUsage(requests=1)) is None


def test_the_most_that_a_call_can_cost_supposes_that_nothing_is_cached_yet(tmp_path: Path) -> None:
    own = prices(tmp_path, TABLE)

    assert own.max_cost("openai", "local-small", 1_000_000, 100_000) == Decimal(3)


@pytest.mark.parametrize(
    ("backend", "model"), [("anthropic", "claude-sonnet-5-5"), ("openai", "gpt-5.2")]
)
def test_the_most_that_a_published_price_comes_to_is_never_less_than_the_price(
    backend: str, model: str
) -> None:
    from genai_prices import Usage as Priced
    from genai_prices import calc_price

    for cached in (0, 300, 1_000):
        usage = Priced(input_tokens=1_000, cache_write_tokens=cached, output_tokens=50)
        real = calc_price(usage, model, provider_id=backend).total_price
        most = PriceTable().max_cost(backend, model, 1_000, 50)
        assert most is not None
        assert most >= real > 0


def test_a_model_nobody_knows_has_no_price() -> None:
    urls = {"openai": "http://127.0.0.1:8000/v1"}

    assert PriceTable(base_urls=urls).max_cost("openai", "local-model", 1_000, 50) is None


def test_no_table_is_no_fault(tmp_path: Path) -> None:
    assert load_prices(tmp_path / "prices.yaml", {}) == PriceTable()
    assert prices(tmp_path, "") == PriceTable()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a: {input: 1}", "prices.yaml: a: output is missing"),
        ("a: {input: -1, output: 2}", "prices.yaml: a: input must be US dollars"),
        ("a: {input: true, output: 2}", "prices.yaml: a: input must be US dollars"),
        ("a: {input: .nan, output: 2}", "prices.yaml: a: input must be US dollars"),
        ("a: {input: cheap, output: 2}", "prices.yaml: a: input must be US dollars"),
        ("a: {input: 1, output: 2, cached: 3}", "prices.yaml: a: cached is unknown"),
        ("a: 5", "prices.yaml: a: must hold input and output"),
        ("- a", "prices.yaml: must hold prices by model"),
        ("a: {input", "prices.yaml: cannot be read as YAML at line 1"),
    ],
)
def test_a_fault_names_the_entry_and_the_field(tmp_path: Path, text: str, fault: str) -> None:
    own = prices(tmp_path, text)

    assert [each for each in own.errors if each.startswith(fault)] == list(own.errors) != []


def test_one_bad_entry_spoils_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    own = prices(tmp_path, "bad: {input: 1}\ngood: {input: 1, output: 1}")

    assert own.cost("openai", "good", USED) == Decimal("1.1")
    assert own.cost("openai", "bad", USED) == Decimal(9)
    assert "prices.yaml: bad: output is missing" in caplog.text


def test_tokens_that_nobody_reported_cost_the_most_they_can() -> None:
    reported = TokenUsage(requests=1, input_tokens=100, cost=Decimal("0.5"))
    broken = replace(reported, output_tokens=1_000, estimated_output=1_000)

    prices = PriceTable()

    more = prices.max_cost("anthropic", "claude-sonnet-4-5", 0, 1_000)
    assert more
    assert prices.cost("anthropic", "claude-sonnet-4-5", broken) == Decimal("0.5") + more
    assert prices.cost("anthropic", "claude-sonnet-4-5", reported) == Decimal("0.5")


def test_windows_are_known_of_who_serves_its_own_models() -> None:
    assert published_context_window("anthropic", "claude-sonnet-4-5", "") >= 200_000
    assert published_context_window("openai", "deepseek-chat", "https://api.deepseek.com/v1") > 0
    assert published_context_window("openai", "gpt-4o", "http://127.0.0.1:11434/v1") == 0
    assert published_context_window("openai", "no-such-model", "") == 0
    assert published_context_window("openai", "", "") == 0
