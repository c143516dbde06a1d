"""What stood behind an answer or a task, and that it helped."""

from __future__ import annotations

from typing import Any

from cards.memory_actions import MemoriesHelped
from cards.views.memory.behind import why_card, why_task_card
from cards.views.memory.data import used_data
from handlers.errors import UserError
from handlers.request import Reply, Request
from handlers.work.naming import found_task, number_of
from storage.records.memory.shown import Behind


async def why(request: Request, rest: str = "") -> Reply:
    """Of the last answer here, or of the task that is named."""
    if rest:
        return await _of_task(request, rest.split(maxsplit=1)[0])
    behind = await request.services.memory.why(request.person, request.chat)
    card = why_card(behind, request.words, zone=request.zone)
    return Reply(card=card, data=_data(behind))


async def helped(request: Request, rest: str = "") -> Reply:
    """The last answer here, or the one that is named by its session and turn."""
    session, *turn = rest.split() or [""]
    if session and len(turn) != 1:
        raise UserError("memory_how_helped")
    return await said(request, session, number_of(turn[0]) if turn else 0)


async def pressed(request: Request, action: MemoriesHelped) -> Reply:
    return await said(request, action.session, action.turn)


async def said(request: Request, session: str, turn: int) -> Reply:
    behind = await request.services.memory.helped(
        request.person, request.chat, session=session, turn=turn
    )
    thanked = any(each.confirmed for each in behind.used)
    card = why_card(behind, request.words, zone=request.zone, thanked=thanked)
    return Reply(card=card, data=_data(behind))


async def _of_task(request: Request, prefix: str) -> Reply:
    task = await found_task(request, prefix)
    behind = await request.services.memory.why_task(request.person, request.chat, task)
    card = why_task_card(behind, f"{task.id} · {task.title}", request.words, zone=request.zone)
    return Reply(card=card, data={**_data(behind), "task": task.id})


def _data(behind: Behind) -> dict[str, Any]:
    return {
        "used": [used_data(each) for each in behind.used],
        "hidden": behind.hidden,
        "session": behind.session,
        "turn": behind.turn,
        "at": behind.at.isoformat() if behind.at else None,
        "backend": behind.by,
    }
