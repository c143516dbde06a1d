"""Handles /tools: standing permissions and the calls of a task."""

from __future__ import annotations

from collections.abc import Sequence

from cards import formats
from cards.model import notice_card
from cards.views.tools import calls_card, calls_data, grants_card, grants_data
from handlers.errors import UsageError, UserError
from handlers.parsing import find_task, parse_number
from handlers.request import CommandRegistry, Reply, Request
from storage.records.approvals import (
    StandingPermission,
    StandingPermissionScope,
)

commands = CommandRegistry("approvals")

_REVOKE_WORDS = {"revoke", "收回", "撤销"}
_LOG_WORDS = {"log", "记录"}
_MAX_CALLS_LISTED = 40
_MAX_TYPED = 12


@commands("tools", aliases=("工具", "权限"), immediate=True)
async def manage_tools(request: Request) -> Reply:
    word, rest = [*request.args.split(maxsplit=1), "", ""][:2]
    if word.casefold() in _REVOKE_WORDS:
        if not rest:
            raise UsageError("tools")
        return await _revoke_grant(request, parse_number(rest), rest)
    if word.casefold() in _LOG_WORDS:
        return await _show_calls(request, rest)
    if word:
        raise UsageError("tools")
    grants = await _visible_grants(request)
    people = request.services.people
    names = {each.granted_by: (await people.get(each.granted_by)).name for each in grants}
    card = grants_card(grants, names, request.words, zone=request.zone)
    return Reply(card=card, data=grants_data(grants))


async def _revoke_grant(request: Request, number: int, word: str) -> Reply:
    request.require_owner()
    numbers = {each.id for each in await _visible_grants(request)}
    if number not in numbers or not await request.services.tools.revoke(number):
        raise UserError("unknown_leave", n=formats.single_line(word, _MAX_TYPED))
    text = request.words("tools.list.revoked")
    return Reply(card=notice_card("", text), data={"revoked": number})


async def _show_calls(request: Request, prefix: str) -> Reply:
    if not prefix:
        raise UsageError("tools")
    task = await find_task(request, prefix)
    calls = await request.services.tools.list_calls(task.id, _MAX_CALLS_LISTED)
    card = calls_card(task.id, calls, request.words, zone=request.zone)
    return Reply(card=card, data=calls_data(task.id, calls, request.words))


async def _visible_grants(request: Request) -> Sequence[StandingPermission]:
    """An owner sees all in private; elsewhere only those granted in that chat."""
    grants = await request.services.tools.list_grants()
    if request.by_owner and request.in_private:
        return grants
    subject = (StandingPermissionScope.CHAT, str(request.chat.id))
    return [each for each in grants if (each.scope, each.subject) == subject]
