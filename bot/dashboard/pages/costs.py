"""Costs: figures by day, model, purpose, task, person and chat, and what is left of the caps."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

from starlette.responses import Response

from bot.dashboard.pages.layout import render_page
from bot.dashboard.request import DashboardRequest
from cards import formats
from cards.catalog import TextCatalog
from cards.views.costs import (
    cap_left_text,
    cost_amounts,
    cost_line_name,
    cost_notes,
    cost_share,
)
from storage.records.tasks import UsageTotals
from storage.records.usage import CapUsage, CostLine, CostPeriod, CostQuery, CostReport

_QUARTER = 90
"""Days."""
_PERIODS = {
    **{each.value: CostQuery(period=each) for each in CostPeriod if each is not CostPeriod.DAYS},
    "quarter": CostQuery(period=CostPeriod.DAYS, days=_QUARTER),
}
_ORDER = ("today", "week", "month", "quarter", "all")
_MAX_DAYS = 100
"""More are summed by month."""
_MAX_MONTHS = 60
_MAX_LINES = 12
_BAR_WIDTH, _BAR_GAP, _HEIGHT = 10, 2, 100
"""Units of the picture."""


async def show_costs(request: DashboardRequest) -> Response:
    chosen = request.http.query_params.get("period", "")
    shown = chosen if chosen in _PERIODS else CostPeriod.MONTH.value
    query = _PERIODS[shown]
    report = await request.services.costs.report(
        by=request.person,
        chat=request.chat.id,
        query=CostQuery(
            period=query.period,
            days=query.days,
            lists_chats_and_people=True,
            lists_days_and_tasks=True,
        ),
    )
    words = request.words
    today = request.now.astimezone(request.deps.zone).date()
    sums = (("today", report.today), ("week", report.week), ("month", report.month))
    return render_page(
        request,
        "costs",
        shown=shown,
        periods=[(each, _period_label(each, words)) for each in _ORDER],
        sums=[
            (words(f"cost.{name}"), formats.spent_cost(each, words), each.tokens)
            for name, each in sums
        ],
        total=formats.spent_cost(report.total, words),
        chart=_chart(report, today, words),
        breakdowns=_breakdowns(report, words),
        caps=[_cap(each, words) for each in report.caps],
        notes=[each.markdown for each in cost_notes(report, words)],
        height=_HEIGHT,
        tokens=formats.compact_number,
    )


def _period_label(name: str, words: TextCatalog) -> str:
    return words("cost.days", n=_QUARTER) if name == "quarter" else words(f"cost.{name}")


def _chart(report: CostReport, today: date, words: TextCatalog) -> dict[str, Any]:
    """A bar for each day or month; tokens, if no cost is known."""
    spans = _spans(report.days, today)
    money = any(each.cost_micros for _, each in spans)
    amounts = [each.cost_micros if money else each.tokens for _, each in spans]
    highest = max(amounts, default=0) or 1
    bars = [
        {
            "x": place * (_BAR_WIDTH + _BAR_GAP),
            "height": max(1, round(amount / highest * _HEIGHT)) if amount else 0,
            "label": label,
            "cells": cost_amounts(spent, words),
        }
        for place, ((label, spent), amount) in enumerate(zip(spans, amounts, strict=True))
    ]
    return {
        "bars": bars,
        "bar_width": _BAR_WIDTH,
        "width": max(1, len(bars) * (_BAR_WIDTH + _BAR_GAP) - _BAR_GAP),
        "highest": formats.money(highest) if money else formats.compact_number(highest),
        "money": money,
    }


def _spans(
    days: Sequence[tuple[date, UsageTotals]], today: date
) -> Sequence[tuple[str, UsageTotals]]:
    """Every day from the first with usage until today, or else every month with usage."""
    if not days:
        return ()
    first, last = days[0][0], max(today, days[-1][0])
    if (last - first).days < _MAX_DAYS:
        known = dict(days)
        every = [first + timedelta(days=n) for n in range((last - first).days + 1)]
        return [(each.isoformat(), known.get(each, UsageTotals())) for each in every]
    months: dict[str, UsageTotals] = {}
    for day, spent in days:
        month = f"{day:%Y-%m}"
        months[month] = months.get(month, UsageTotals()) + spent
    return list(months.items())[-_MAX_MONTHS:]


def _breakdowns(report: CostReport, words: TextCatalog) -> Sequence[dict[str, Any]]:
    lines = {
        "model": report.models,
        "purpose": report.purposes,
        "task": report.tasks,
        "person": report.people,
        "chat": report.chats,
    }
    return [
        {"key": key, "lines": [_line(key, each, report.total, words) for each in listed]}
        | {"left_out": len(found) - len(listed)}
        for key, found in lines.items()
        if (listed := found[:_MAX_LINES])
    ]


def _line(key: str, line: CostLine, whole: UsageTotals, words: TextCatalog) -> dict[str, Any]:
    """The bar shows the share of the cost, or of the tokens if no cost is known."""
    part, all_of_it = line.spent.cost_micros, whole.cost_micros
    if not all_of_it:
        part, all_of_it = line.spent.tokens, whole.tokens
    return {
        "name": cost_line_name(key, line, words),
        "task_id": line.task_id,
        "share": cost_share(line.spent, whole),
        "bar": round(part / max(1, all_of_it) * 100),
        "cells": cost_amounts(line.spent, words),
    }


def _cap(cap: CapUsage, words: TextCatalog) -> dict[str, Any]:
    by_money = bool(cap.allowed.micros)
    used, allowed = (
        (cap.used.micros, cap.allowed.micros) if by_money else (cap.used.tokens, cap.allowed.tokens)
    )
    return {
        "name": words(f"cost.cap.{cap.scope}"),
        "left": cap_left_text(cap, words),
        "percent": min(100, round(used / max(1, allowed) * 100)),
        "stopped": cap.is_stopped,
    }
