"""What workers may do with tools, and what they did."""

from __future__ import annotations

from collections.abc import Sequence

from cards import formats
from cards.views.errors import notice_card
from cards.views.workers.tools import calls_card, calls_data, grants_card, grants_data
from handlers.errors import Usage, UserError
from handlers.ports import Forbidden
from handlers.registry import Commands
from handlers.request import Reply, Request
from handlers.work.naming import found_task, number_of
from storage.records.people import ChatKind, Role
from storage.records.tools import GrantRecord, GrantScope

commands = Commands("approvals")

_REVOKE = {"revoke", "收回", "撤销"}
_LOG = {"log", "记录"}
_LISTED = 40
_TYPED = 12


@commands("tools", usage="[revoke n | log id]", aliases=("工具", "权限"), immediate=True)
async def tools(request: Request) -> Reply:
    """Show what workers may do without asking, take it back, or see what a task did."""
    word, rest = [*request.args.split(maxsplit=1), "", ""][:2]
    if word.casefold() in _REVOKE:
        if not rest:
            raise Usage("tools")
        return await _revoke(request, number_of(rest), rest)
    if word.casefold() in _LOG:
        return await _log(request, rest)
    if word:
        raise Usage("tools")
    held = await _seen(request)
    names = {each.granted_by: await _name(request, each) for each in held}
    card = grants_card(held, names, request.words, zone=request.zone)
    return Reply(card=card, data=grants_data(held))


async def _revoke(request: Request, number: int, typed: str) -> Reply:
    if request.person.role is not Role.OWNER:
        raise Forbidden
    seen = {each.id for each in await _seen(request)}
    if number not in seen or not await request.services.toolbook.revoke(number):
        raise UserError("unknown_leave", n=formats.line(typed, _TYPED))
    text = request.words("tools.list.revoked")
    return Reply(card=notice_card("", text), data={"revoked": number})


async def _log(request: Request, prefix: str) -> Reply:
    if not prefix:
        raise Usage("tools")
    task = await found_task(request, prefix)
    calls = await request.services.toolbook.calls(task.id, _LISTED)
    card = calls_card(task.id, calls, request.words, zone=request.zone)
    return Reply(card=card, data=calls_data(task.id, calls, request.words))


async def _seen(request: Request) -> Sequence[GrantRecord]:
    """An owner sees all in private; elsewhere there is what was allowed in that chat."""
    held = await request.services.toolbook.grants()
    if request.person.role is Role.OWNER and request.chat.kind is not ChatKind.GROUP:
        return held
    here = (GrantScope.CHAT, str(request.chat.id))
    return [each for each in held if (each.scope, each.subject) == here]


async def _name(request: Request, grant: GrantRecord) -> str:
    return (await request.services.people.get(grant.granted_by)).name
