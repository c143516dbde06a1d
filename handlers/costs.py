"""Handles /cost: spending by period, model or task."""

from __future__ import annotations

import re
from dataclasses import replace

from cards.json_data import cost_report_data, task_cost_data
from cards.views.costs import cost_card, task_cost_card
from handlers.parsing import find_task
from handlers.registry import CommandRegistry
from handlers.request import Reply, Request
from storage.records.usage import CostPeriod, CostQuery

commands = CommandRegistry("system")

_MAX_DAYS = 3650
_DAYS_WORD = re.compile(r"([0-9]{1,4})\s*(?:d|days?|天|日)")
_PERIOD_WORDS = {
    **dict.fromkeys(("today", "day", "今天", "今日"), CostPeriod.TODAY),
    **dict.fromkeys(("week", "本周", "这周"), CostPeriod.WEEK),
    **dict.fromkeys(("month", "本月", "这个月"), CostPeriod.MONTH),
    **dict.fromkeys(("all", "全部", "所有"), CostPeriod.ALL),
}


@commands("cost", aliases=("费用", "花费"), immediate=True)
async def show_costs(request: Request) -> Reply:
    # Others read along in a group; spending by person is for owners in private.
    named = request.in_private
    first, _, rest = request.args.partition(" ")
    query = _parse_period(first, named=named)
    if query is None:
        return await _model_or_task_report(request, request.args, named=named)
    return await _period_report(request, replace(query, model=rest.strip()))


def _parse_period(word: str, *, named: bool) -> CostQuery | None:
    if not word:
        return CostQuery(lists_chats_and_people=named)
    if period := _PERIOD_WORDS.get(word.casefold()):
        return CostQuery(period=period, lists_chats_and_people=named)
    if found := _DAYS_WORD.fullmatch(word.casefold()):
        days = min(_MAX_DAYS, max(1, int(found[1])))
        return CostQuery(period=CostPeriod.DAYS, days=days, lists_chats_and_people=named)
    return None


async def _model_or_task_report(request: Request, word: str, *, named: bool) -> Reply:
    """A model with costs this month, else a task."""
    by, chat = request.person, request.chat.id
    query = CostQuery(model=word, lists_chats_and_people=named)
    report = await request.services.costs.report(by=by, chat=chat, query=query)
    if report.models:
        return Reply(card=cost_card(report, request.words), data=cost_report_data(report))
    task = await find_task(request, word)
    spent = await request.services.costs.report_task(task)
    return Reply(card=task_cost_card(spent, request.words), data=task_cost_data(spent))


async def _period_report(request: Request, query: CostQuery) -> Reply:
    report = await request.services.costs.report(
        by=request.person, chat=request.chat.id, query=query
    )
    return Reply(card=cost_card(report, request.words), data=cost_report_data(report))
