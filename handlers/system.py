"""Handles /status, /inbox, /cost and /trace: the state of Shiftboss, how messages ended, costs, and
where time goes."""

from __future__ import annotations

import re
from dataclasses import replace

from cards.json_data import cost_report_data, received_data, status_data, task_cost_data
from cards.model import Card, notice_card
from cards.views.costs import cost_card, task_cost_card
from cards.views.system import received_card, status_card
from cards.views.traces import TraceMode, trace_card, trace_data
from handlers.errors import UsageError, UserError
from handlers.parsing import find_task
from handlers.request import CommandRegistry, Reply, Request
from storage.records.tasks import Task
from storage.records.traces import Trace
from storage.records.usage import CostPeriod, CostQuery, CostReport

commands = CommandRegistry("system")


@commands("status", aliases=("状态",), immediate=True)
async def show_status(request: Request) -> Reply:
    facts = await request.services.system.status(by=request.person)
    owner = request.by_owner
    if not request.in_private or not owner:
        # Machine details and titles of private tasks must not be shown where others read along.
        facts = replace(
            facts,
            recent=(),
            pid=0,
            memory_bytes=0,
            unlisted_owner="",
            backup=None,
            disk=(),
            processes=(),
        )
    memory = request.chat.settings.memory
    card = status_card(facts, request.words, now=request.now, zone=request.zone, memory=memory)
    return Reply(card=card, data=status_data(facts, memory))


_RECEIVED_SHOWN, _MAX_RECEIVED = 10, 50


@commands("inbox", aliases=("收件箱",), immediate=True)
async def show_received(request: Request) -> Reply:
    """How the newest messages and presses of all chats ended."""
    request.require_owner()
    if not request.in_private:
        raise UserError("only_in_private", command="inbox")
    word = request.args.strip() or str(_RECEIVED_SHOWN)
    if not (word.isascii() and word.isdecimal()) or int(word[:4]) < 1:
        raise UsageError("inbox")
    limit = min(_MAX_RECEIVED, int(word[:4]))
    events = await request.services.inbox_log.list_recent(limit + 1)
    others = [each for each in events if each.row.source != request.source][:limit]
    card = received_card(others, request.words, zone=request.zone)
    return Reply(card=card, data=received_data(others))


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
    with_names = request.in_private
    first, _, rest = request.args.partition(" ")
    query = _parse_period(first, with_names=with_names)
    if query is None:
        return await _model_or_task_report(request, request.args, with_names=with_names)
    return await _period_report(request, replace(query, model=rest.strip()))


def _parse_period(word: str, *, with_names: bool) -> CostQuery | None:
    if not word:
        return CostQuery(lists_chats_and_people=with_names)
    if period := _PERIOD_WORDS.get(word.casefold()):
        return CostQuery(period=period, lists_chats_and_people=with_names)
    if days_match := _DAYS_WORD.fullmatch(word.casefold()):
        days = min(_MAX_DAYS, max(1, int(days_match[1])))
        return CostQuery(period=CostPeriod.DAYS, days=days, lists_chats_and_people=with_names)
    return None


async def _model_or_task_report(request: Request, word: str, *, with_names: bool) -> Reply:
    """A model with costs this month, else a task."""
    by, chat = request.person, request.chat.id
    query = CostQuery(model=word, lists_chats_and_people=with_names)
    report = await request.services.costs.report(by=by, chat=chat, query=query)
    if report.models:
        return _cost_reply(request, report)
    task = await find_task(request, word)
    costs = await request.services.costs.report_task(task)
    return Reply(card=task_cost_card(costs, request.words), data=task_cost_data(costs))


async def _period_report(request: Request, query: CostQuery) -> Reply:
    report = await request.services.costs.report(
        by=request.person, chat=request.chat.id, query=query
    )
    return _cost_reply(request, report)


def _cost_reply(request: Request, report: CostReport) -> Reply:
    offer_charts = request.by_owner and request.in_private
    card = cost_card(report, request.words, offer_charts=offer_charts)
    return Reply(card=card, data=cost_report_data(report))


_MODE_WORDS = {
    **dict.fromkeys(("tree", "树"), TraceMode.TREE),
    **dict.fromkeys(("slow", "慢", "耗时"), TraceMode.SLOW),
    **dict.fromkeys(("errors", "error", "错误", "出错"), TraceMode.ERRORS),
    **dict.fromkeys(("cost", "费用", "花费"), TraceMode.COST),
}
_CHAT_WORDS = {"talk", "chat", "answer", "聊天", "对话", "回答"}
_MAX_WORDS = 2


@commands("trace", aliases=("追踪", "轨迹"), immediate=True)
async def show_trace(request: Request) -> Reply:
    args_words = request.args.split()
    modes = [_MODE_WORDS[word.casefold()] for word in args_words if word.casefold() in _MODE_WORDS]
    names = [word for word in args_words if word.casefold() not in _MODE_WORDS]
    if len(args_words) > _MAX_WORDS or len(modes) > 1 or len(names) > 1:
        raise UsageError("trace")
    mode = modes[0] if modes else TraceMode.TREE
    of_talk = any(name.casefold() in _CHAT_WORDS for name in names)
    task = None
    if not of_talk:
        task = await find_task(request, names[0]) if names else await _newest_task(request)
    if task is None:
        return await _chat_trace(request, mode)
    trace = await request.services.traces.get_task_trace(task.id)
    key = f"trace:{request.source}"

    def drawn(trace: Trace) -> Card:
        return trace_card(trace, mode, request.words, zone=request.zone, title=task.title)

    if trace.root.state.is_open:
        request.services.traces.follow(request.chat.id, key, task.id, drawn)
    return Reply(card=drawn(trace), key=key, data=trace_data(trace))


async def _chat_trace(request: Request, mode: TraceMode) -> Reply:
    """The chat's last answer, or a note that there is none."""
    trace = await request.services.traces.get_chat_trace(request.chat.id)
    if trace is None:
        title = request.words("trace.none")
        return Reply(card=notice_card("", title), data={"spans": []})
    card = trace_card(trace, mode, request.words, zone=request.zone)
    return Reply(card=card, key=f"trace:{request.source}", data=trace_data(trace))


async def _newest_task(request: Request) -> Task | None:
    """The running task, else the newest."""
    page = await request.services.tasks.page(
        by=request.person, chat=request.chat.id, status=None, page=1, size=1
    )
    return page.tasks[0] if page.tasks else None
