"""Handles /heartbeat: shows its state, switches it, runs it, and adds lines to its list."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from cards.views.heartbeat import (
    heartbeat_log_card,
    heartbeat_run_data,
    heartbeat_status_card,
    heartbeat_status_data,
)
from handlers.errors import UsageError, UserError
from handlers.request import CommandRegistry, Reply, Request
from storage.records.autonomy import HeartbeatStatus

commands = CommandRegistry("system")

_LOGGED = 15
_MAX_TASK = 500


@commands("heartbeat", aliases=("心跳",), verbatim=True)
async def manage_heartbeat(request: Request) -> Reply:
    request.require_owner()
    if not request.in_private:
        raise UserError("only_in_private", command="heartbeat")
    word, _, rest = request.args.strip().partition(" ")
    if not word:
        return _show(request, await request.services.heartbeat.status(), "")
    subcommand = _SUBCOMMANDS.get(word.casefold())
    if subcommand is None:
        raise UsageError("heartbeat")
    return await subcommand(request, rest.strip())


async def _switch_on(request: Request, _rest: str) -> Reply:
    status = await request.services.heartbeat.switch(on=True)
    return _show(request, status, "heartbeat.switched_on")


async def _switch_off(request: Request, _rest: str) -> Reply:
    status = await request.services.heartbeat.switch(on=False)
    return _show(request, status, "heartbeat.switched_off")


async def _run_now(request: Request, _rest: str) -> Reply:
    started = await request.services.heartbeat.run_now(at=request.heard_at or request.now)
    key = "heartbeat.started" if started else "heartbeat.queued"
    return _show(request, await request.services.heartbeat.status(), key)


async def _add(request: Request, rest: str) -> Reply:
    if not rest or len(rest) > _MAX_TASK:
        raise UsageError("heartbeat")
    return _show(request, await request.services.heartbeat.add(rest), "heartbeat.added")


async def _log(request: Request, _rest: str) -> Reply:
    runs = await request.services.heartbeat.log(_LOGGED)
    card = heartbeat_log_card(runs, request.words, zone=request.zone)
    return Reply(card=card, data={"runs": [heartbeat_run_data(each) for each in runs]})


def _show(request: Request, status: HeartbeatStatus, news: str) -> Reply:
    card = heartbeat_status_card(status, request.words, zone=request.zone, news=news)
    return Reply(card=card, data=heartbeat_status_data(status))


_SUBCOMMANDS: dict[str, Callable[[Request, str], Awaitable[Reply]]] = {
    **dict.fromkeys(("on", "开", "打开"), _switch_on),
    **dict.fromkeys(("off", "关", "关闭"), _switch_off),
    **dict.fromkeys(("now", "run", "现在"), _run_now),
    **dict.fromkeys(("add", "添加", "加"), _add),
    **dict.fromkeys(("log", "日志", "记录"), _log),
}
