"""How the program is doing."""

from __future__ import annotations

from dataclasses import replace

from cards.plain import status_data
from cards.views.system import status_card
from handlers.registry import Commands
from handlers.request import Reply, Request
from storage.records.people import ChatKind, Role

commands = Commands("system")


@commands("status", aliases=("状态",), immediate=True)
async def status(request: Request) -> Reply:
    """Show how the program, its channels and its tasks are doing."""
    facts = await request.services.system.status(by=request.person)
    owner = request.person.role.allows(Role.OWNER)
    if request.chat.kind is ChatKind.GROUP or not owner:
        # What an owner needs to know of the machine, and titles of what was asked for in private,
        # do not belong where others read along.
        facts = replace(facts, recent=(), pid=0, memory_bytes=0, unnamed_owner="")
    card = status_card(facts, request.words, now=request.now, zone=request.zone)
    return Reply(card=card, data=status_data(facts))
