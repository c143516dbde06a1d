"""Handles /bitable: the Feishu Bitable in which tasks, logs and memories can be seen and edited."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from cards.views.bitable import (
    bitable_off_card,
    bitable_rebuild_card,
    bitable_report_card,
    bitable_report_data,
    bitable_status_card,
    bitable_status_data,
)
from handlers.errors import UsageError
from handlers.request import CommandRegistry, Reply, Request
from storage.records.bitable import BitableReport

commands = CommandRegistry("system")


@commands("bitable", aliases=("多维表格", "表格"), verbatim=True)
async def manage_bitable(request: Request) -> Reply:
    word, _, rest = request.args.strip().partition(" ")
    if not word:
        status = await request.services.bitable.status()
        card = bitable_status_card(status, request.words, by_owner=request.by_owner)
        return Reply(card=card, data=bitable_status_data(status))
    request.require_owner()
    subcommand = _SUBCOMMANDS.get(word.casefold())
    if subcommand is None:
        raise UsageError("bitable")
    return await subcommand(request, rest.strip())


async def _set_up(request: Request, token: str) -> Reply:
    report = await request.services.bitable.set_up(
        token, by=request.person, chat=request.chat, language=request.words.language
    )
    return _show(request, report)


async def _check(request: Request, _rest: str) -> Reply:
    return _show(request, await request.services.bitable.check())


async def _repair(request: Request, _rest: str) -> Reply:
    return _show(request, await request.services.bitable.repair())


async def _rebuild(request: Request, _rest: str) -> Reply:
    base = await request.services.bitable.rebuild()
    return Reply(card=bitable_rebuild_card(base, request.words), data={"base": base.base})


async def _switch_off(request: Request, _rest: str) -> Reply:
    left = await request.services.bitable.disconnect()
    return Reply(card=bitable_off_card(left, request.words), data={"base": left and left.base})


def _show(request: Request, report: BitableReport) -> Reply:
    card = bitable_report_card(report, request.words)
    return Reply(card=card, data=bitable_report_data(report))


_SUBCOMMANDS: dict[str, Callable[[Request, str], Awaitable[Reply]]] = {
    **dict.fromkeys(("setup", "设置", "创建"), _set_up),
    **dict.fromkeys(("check", "检查"), _check),
    **dict.fromkeys(("repair", "修复"), _repair),
    **dict.fromkeys(("rebuild", "重建"), _rebuild),
    **dict.fromkeys(("off", "关", "关闭", "停用"), _switch_off),
}
