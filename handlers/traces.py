"""Handles /trace: the steps of a task or an answer, with time and cost."""

from __future__ import annotations

from cards.model import Card
from cards.views.notices import notice_card
from cards.views.traces import TraceMode, trace_card, trace_data
from handlers.errors import UsageError
from handlers.parsing import find_task
from handlers.registry import CommandRegistry
from handlers.request import Reply, Request
from storage.records.tasks import Task
from storage.records.traces import Trace

commands = CommandRegistry("system")

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
    said = request.args.split()
    modes = [_MODE_WORDS[word.casefold()] for word in said if word.casefold() in _MODE_WORDS]
    names = [word for word in said if word.casefold() not in _MODE_WORDS]
    if len(said) > _MAX_WORDS or len(modes) > 1 or len(names) > 1:
        raise UsageError("trace")
    mode = modes[0] if modes else TraceMode.TREE
    of_talk = any(name.casefold() in _CHAT_WORDS for name in names)
    task = None
    if not of_talk:
        task = await find_task(request, names[0]) if names else await _newest_task(request)
    if task is None:
        return await _chat_trace(request, mode)
    found = await request.services.traces.get_task_trace(task.id)
    key = f"trace:{request.source}"

    def drawn(trace: Trace) -> Card:
        return trace_card(trace, mode, request.words, zone=request.zone, title=task.title)

    if found.root.state.is_open:
        request.services.traces.follow(request.chat.id, key, task.id, drawn)
    return Reply(card=drawn(found), key=key, data=trace_data(found))


async def _chat_trace(request: Request, mode: TraceMode) -> Reply:
    """The chat's last answer, or a note that there is none."""
    found = await request.services.traces.get_chat_trace(request.chat.id)
    if found is None:
        title = request.words("trace.none")
        return Reply(card=notice_card("", title), data={"spans": []})
    card = trace_card(found, mode, request.words, zone=request.zone)
    return Reply(card=card, key=f"trace:{request.source}", data=trace_data(found))


async def _newest_task(request: Request) -> Task | None:
    """The running task, else the newest."""
    page = await request.services.tasks.page(
        by=request.person, chat=request.chat.id, status=None, page=1, size=1
    )
    return page.tasks[0] if page.tasks else None
