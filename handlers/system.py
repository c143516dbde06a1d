"""Handles /status."""

from __future__ import annotations

from dataclasses import replace

from cards.json_data import status_data
from cards.views.system import status_card
from handlers.registry import CommandRegistry
from handlers.request import Reply, Request

commands = CommandRegistry("system")


@commands("status", aliases=("状态",), immediate=True)
async def show_status(request: Request) -> Reply:
    facts = await request.services.system.status(by=request.person)
    owner = request.by_owner
    if not request.in_private or not owner:
        # Machine details and titles of private tasks must not be shown where others read along.
        facts = replace(facts, recent=(), pid=0, memory_bytes=0, unlisted_owner="")
    card = status_card(facts, request.words, now=request.now, zone=request.zone)
    return Reply(card=card, data=status_data(facts))
