"""Who may choose for a whole group: its model, its persona and the like are for everybody in it."""

from __future__ import annotations

from cards import formats
from handlers.errors import UserError
from handlers.request import Request
from storage.records.people import ChatKind, Role

_NAMED = 3
_NAME = 40


async def check_choice(request: Request) -> None:
    """In private everybody chooses for their own chat, in a group an owner does for all. Raises
    UserError, which names the owners, for anybody else."""
    if request.chat.kind is ChatKind.PRIVATE or request.person.role.allows(Role.OWNER):
        return
    members = await request.services.people.members()
    owners = [each for each in members if each.person.role is Role.OWNER]
    names = [formats.verbatim(each.person.name, _NAME) for each in owners if not each.local]
    raise UserError("group_choice", names=" · ".join(names[:_NAMED]) or request.words("people.one"))
