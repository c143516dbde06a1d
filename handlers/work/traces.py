"""What a task's run was made of, or an answer, and what each piece took and cost."""

from __future__ import annotations

from cards.model import Card
from cards.views.errors import notice_card
from cards.views.work.trace_data import trace_data
from cards.views.work.traces import TraceMode, trace_card
from handlers.errors import Usage
from handlers.registry import Commands
from handlers.request import Reply, Request
from handlers.work.naming import found_task
from storage.records.tasks import Task
from storage.records.workers.spans import Trace

commands = Commands("system")

_MODES = {
    **dict.fromkeys(("tree", "树"), TraceMode.TREE),
    **dict.fromkeys(("slow", "慢", "耗时"), TraceMode.SLOW),
    **dict.fromkeys(("errors", "error", "错误", "出错"), TraceMode.ERRORS),
    **dict.fromkeys(("cost", "费用", "花费"), TraceMode.COST),
}
_TALK = {"talk", "chat", "answer", "聊天", "对话", "回答"}
_MOST_WORDS = 2


@commands("trace", usage="[id|talk] [slow|errors|cost]", aliases=("追踪", "轨迹"), immediate=True)
async def trace(request: Request) -> Reply:
    """Show what a task, or with `talk` the last answer, is doing and did, with time and cost."""
    said = request.args.split()
    modes = [_MODES[word.casefold()] for word in said if word.casefold() in _MODES]
    names = [word for word in said if word.casefold() not in _MODES]
    if len(said) > _MOST_WORDS or len(modes) > 1 or len(names) > 1:
        raise Usage("trace")
    mode = modes[0] if modes else TraceMode.TREE
    of_talk = any(name.casefold() in _TALK for name in names)
    task = None
    if not of_talk:
        task = await found_task(request, names[0]) if names else await _newest(request)
    if task is None:
        return await _talk(request, mode)
    found = await request.services.traces.trace_of(task.id)
    key = f"trace:{request.source}"

    def drawn(trace: Trace) -> Card:
        return trace_card(trace, mode, request.words, zone=request.zone, title=task.title)

    if found.whole.state.is_open:
        request.services.traces.follow(request.chat.id, key, task.id, drawn)
    return Reply(card=drawn(found), key=key, data=trace_data(found))


async def _talk(request: Request, mode: TraceMode) -> Reply:
    """The last answer that was given here, or that nothing was done yet."""
    found = await request.services.traces.talk_of(request.chat.id)
    if found is None:
        title = request.words("trace.none")
        return Reply(card=notice_card("", title), data={"spans": []})
    card = trace_card(found, mode, request.words, zone=request.zone)
    return Reply(card=card, key=f"trace:{request.source}", data=trace_data(found))


async def _newest(request: Request) -> Task | None:
    """The one under way, else the last."""
    page = await request.services.tasks.page(
        by=request.person, chat=request.chat.id, status=None, page=1, size=1
    )
    return page.tasks[0] if page.tasks else None
