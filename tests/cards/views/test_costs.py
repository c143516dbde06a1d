"""A request for more money says which cap, how much is used, and what a press allows."""

from __future__ import annotations

from typing import Any

import pytest

from cards.catalog import catalog_for
from cards.views.costs import budget_lines, extend_label, task_cost_card
from storage.records.people import Language
from storage.records.tasks import UsageTotals
from storage.records.usage import CostLine, TaskCost
from tests.builders import make_task
from tests.handlers.router_harness import text_of

EN = catalog_for(Language.ENGLISH)


def payload(**changes: Any) -> dict[str, Any]:
    facts = {
        "scope": "task",
        "subject": "k3m9qa",
        "day": "",
        "cap_micros": 5_000_000,
        "cap_tokens": 0,
        "spent_micros": 4_980_000,
        "spent_tokens": 123_456,
        "more_micros": 5_000_000,
        "more_tokens": 0,
        "until": "",
    }
    return facts | changes


def test_money_is_told_where_the_cap_is_on_money() -> None:
    lines = "\n".join(budget_lines(payload(), EN))

    assert "$4.98 of its $5.00" in lines
    assert "Extend to allow $5.00 more" in lines
    assert "123" not in lines
    assert extend_label(payload(), EN) == "💰 Extend by $5.00"


def test_both_are_told_where_there_are_both() -> None:
    both = payload(cap_tokens=200_000, more_tokens=200_000)

    assert "$4.98 · 123.5k tokens of its $5.00 · 200.0k tokens" in budget_lines(both, EN)[0]


def test_a_cap_for_a_day_opens_by_itself_and_one_for_a_task_does_not() -> None:
    until = payload(scope="day", until="2026-01-06T00:00:00+08:00")

    assert "continues automatically" in budget_lines(until, EN)[-1]
    assert "waits" in budget_lines(payload(), EN)[-1]


@pytest.mark.parametrize("language", list(Language))
@pytest.mark.parametrize("scope", ["task", "person", "chat", "day"])
def test_every_scope_has_its_words(language: Language, scope: str) -> None:
    lines = budget_lines(payload(scope=scope), catalog_for(language))

    assert "$4.98" in lines[0]
    assert "$5.00" in lines[0]


def test_a_purpose_without_words_of_its_own_is_called_what_it_is() -> None:
    spent = UsageTotals(calls=1, cost_micros=1)
    cost = TaskCost(
        task=make_task("k3m9qa"),
        total=spent,
        purposes=(CostLine(name="daydreams", spent=spent), CostLine(name="", spent=spent)),
    )

    assert "daydreams" in text_of(task_cost_card(cost, EN))
