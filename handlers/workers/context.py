"""What a worker here is told before its work."""

from __future__ import annotations

from cards.views.workers.context import context_card
from handlers.registry import Commands
from handlers.request import Reply, Request

commands = Commands("talk")


@commands("context", aliases=("上下文",), immediate=True)
async def show_context(request: Request) -> Reply:
    """Show what a worker here is told first, with sizes."""
    parts = await request.services.contexts.parts(request.chat, request.person)
    data = {
        "parts": [
            {"name": each.name, "state": each.state.value, "size": each.size, "used": each.used}
            for each in parts
        ]
    }
    return Reply(card=context_card(parts, request.words), data=data)
