"""/cost: periods, models, tasks, and who sees what."""

from __future__ import annotations

import json

import pytest

from storage.records.people import Language
from storage.records.usage import CostPeriod
from tests.builders import make_task
from tests.handlers.router_harness import RouterHarness, text_of


@pytest.mark.parametrize(
    ("text", "period", "days", "model"),
    [
        ("/cost", CostPeriod.MONTH, 0, ""),
        ("/cost today", CostPeriod.TODAY, 0, ""),
        ("/费用 今天", CostPeriod.TODAY, 0, ""),
        ("/cost WEEK opus", CostPeriod.WEEK, 0, "opus"),
        ("/花费 本周", CostPeriod.WEEK, 0, ""),
        ("/cost month", CostPeriod.MONTH, 0, ""),
        ("/费用 本月 opus", CostPeriod.MONTH, 0, "opus"),
        ("/cost all", CostPeriod.ALL, 0, ""),
        ("/费用 全部", CostPeriod.ALL, 0, ""),
        ("/cost 7d", CostPeriod.DAYS, 7, ""),
        ("/费用 30天 opus", CostPeriod.DAYS, 30, "opus"),
        ("/cost 0d", CostPeriod.DAYS, 1, ""),
        ("/cost 9999d", CostPeriod.DAYS, 3650, ""),
        ("/cost opus", CostPeriod.MONTH, 0, "opus"),
    ],
)
async def test_periods_and_models_are_understood(
    text: str, period: CostPeriod, days: int, model: str
) -> None:
    desk = RouterHarness()

    reply = await desk.send_message(text)

    asked = desk.world.costs.queries[-1]
    assert (asked.period, asked.days, asked.model) == (period, days, model)
    assert "$0.0042" in text_of(reply)


async def test_all_that_is_asked_for_is_on_the_card() -> None:
    desk = RouterHarness()

    shown = text_of(await desk.send_message("/cost"))

    for part in ("Today", "This week", "This month by model", "Planning", "900", "60%"):
        assert part in shown
    assert "$30.00 left of $30.00" in shown
    assert "$5.00" in shown
    assert "prices.yaml" in shown
    assert "unknown" in shown


async def test_a_task_is_told_apart_from_a_model() -> None:
    task = make_task("k3m9qa")
    desk = RouterHarness(task)

    reply = await desk.send_message("/cost k3m9")

    assert "k3m9qa" in text_of(reply)
    assert reply.data is not None
    assert reply.data["task"] == "k3m9qa"


async def test_what_is_neither_period_nor_model_nor_task_is_refused() -> None:
    desk = RouterHarness()

    shown = text_of(await desk.send_message("/cost nothing-like-that"))

    assert "nothing-like-that" in shown


@pytest.mark.parametrize("text", ["/cost", "/cost today", "/cost k3m9qa"])
async def test_programs_get_plain_json(text: str) -> None:
    desk = RouterHarness(make_task("k3m9qa"))

    reply = await desk.send_message(text)

    assert reply.data is not None
    data = json.loads(json.dumps(reply.data))
    assert data["whole"]["cost_micros"] == 4200
    assert data["whole"]["cache_read_tokens"] == 900
    assert data["models"][0]["name"] == "opus"


async def test_in_a_group_nobody_is_named() -> None:
    desk = RouterHarness()

    in_group = text_of(await desk.send_message("/cost", who="x-olga", chat="g1"))
    in_private = text_of(await desk.send_message("/cost", who="x-olga", chat="c0"))

    assert "by person" not in in_group
    assert "by person" in in_private


async def test_it_is_told_in_chinese() -> None:
    desk = RouterHarness()
    await desk.world.people.set_language(desk.world.ann, Language.CHINESE)

    shown = text_of(await desk.send_message("/费用 7天"))

    for part in ("最近 7 天", "按模型", "按用途", "规划", "缓存", "还剩"):
        assert part in shown
