"""How the program is doing and what it costs."""

from __future__ import annotations

from cards.views.system import cost_card, status_card
from handlers.registry import Commands
from handlers.request import Reply, Request

commands = Commands("system")


@commands("status", aliases=("状态",), immediate=True)
async def status(request: Request) -> Reply:
    """Show how the program, its channels and its tasks are doing."""
    facts = await request.services.system.status(by=request.person)
    return Reply(card=status_card(facts, request.words, now=request.now, zone=request.zone))


@commands("cost", aliases=("费用", "花费"), immediate=True)
async def cost(request: Request) -> Reply:
    """Show what was spent today, this week and this month."""
    report = await request.services.costs.report(by=request.person, chat=request.chat.id)
    return Reply(card=cost_card(report, request.words))
