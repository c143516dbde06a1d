"""What was spent: in a period, on a model, on one task."""

from __future__ import annotations

import re

from cards.plain import cost_data, task_cost_data
from cards.views.work.costs import cost_card, task_cost_card
from handlers.registry import Commands
from handlers.request import Reply, Request
from handlers.work.naming import found_task
from storage.records.people import ChatKind
from storage.records.status import CostQuery, Period

commands = Commands("system")

_MOST_DAYS = 3650
_DAYS = re.compile(r"([0-9]{1,4})\s*(?:d|days?|天|日)")
_PERIODS = {
    **dict.fromkeys(("today", "day", "今天", "今日"), Period.TODAY),
    **dict.fromkeys(("week", "本周", "这周"), Period.WEEK),
    **dict.fromkeys(("month", "本月", "这个月"), Period.MONTH),
    **dict.fromkeys(("all", "全部", "所有"), Period.ALL),
}


@commands(
    "cost", usage="[today|week|month|all|Nd|id] [model]", aliases=("费用", "花费"), immediate=True
)
async def cost(request: Request) -> Reply:
    """Show what was spent, by period, model or task, and what the caps still allow."""
    # In a group others read along: who spends where is for the owner's private chat.
    named = request.chat.kind is ChatKind.PRIVATE
    first, _, rest = request.args.partition(" ")
    query = _period(first, named=named)
    if query is None:
        return await _of_word(request, request.args, named=named)
    return await _report(request, query, rest.strip())


def _period(word: str, *, named: bool) -> CostQuery | None:
    if not word:
        return CostQuery(named=named)
    if period := _PERIODS.get(word.casefold()):
        return CostQuery(period=period, named=named)
    if found := _DAYS.fullmatch(word.casefold()):
        days = min(_MOST_DAYS, max(1, int(found[1])))
        return CostQuery(period=Period.DAYS, days=days, named=named)
    return None


async def _of_word(request: Request, word: str, *, named: bool) -> Reply:
    """A model that has cost something this month, else a task."""
    by, chat = request.person, request.chat.id
    query = CostQuery(model=word, named=named)
    report = await request.services.costs.report(by=by, chat=chat, query=query)
    if report.models:
        return Reply(card=cost_card(report, request.words), data=cost_data(report))
    task = await found_task(request, word)
    spent = await request.services.costs.of_task(task)
    return Reply(card=task_cost_card(spent, request.words), data=task_cost_data(spent))


async def _report(request: Request, query: CostQuery, model: str) -> Reply:
    wanted = CostQuery(period=query.period, days=query.days, model=model, named=query.named)
    report = await request.services.costs.report(
        by=request.person, chat=request.chat.id, query=wanted
    )
    return Reply(card=cost_card(report, request.words), data=cost_data(report))
