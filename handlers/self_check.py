"""Handles /self, /doctor and /reload: the state of Shiftboss, its self-check and its drive, and
missing prerequisites."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

from cards import actions
from cards.views.self_checks import (
    buttons_proven_text,
    doctor_card,
    drive_card,
    drive_data,
    drive_line,
    health_report_card,
    incident_data,
    incident_history_card,
    repair_started_card,
    report_data,
    self_card,
)
from cards.views.system import settings_card
from handlers.errors import UsageError, UserError
from handlers.prompts import evolve
from handlers.request import CommandRegistry, Reply, Request
from storage.records.autonomy import DriveStatus, GoalName, GoalState

# --- /self

commands = CommandRegistry("system")

_SHOWN_INCIDENTS = 15
_MAX_ID_DIGITS = 18


@commands("self", aliases=("自检", "自己"), immediate=True)
async def show_self(request: Request) -> Reply:
    request.require_owner()
    if not request.in_private:
        raise UserError("only_in_private", command="self")
    word, _, rest = request.args.strip().partition(" ")
    if not word:
        return await _overview(request)
    subcommand = _SUBCOMMANDS.get(word.casefold())
    if subcommand is None:
        raise UsageError("self")
    return await subcommand(request, rest.strip())


async def handle_self_press(
    request: Request, action: actions.StartRepairTask | actions.ProveButtons
) -> Reply:
    if isinstance(action, actions.ProveButtons):
        return await prove_buttons(request)
    return await start_repair(request, action.incident_id)


async def start_repair(request: Request, incident_id: int) -> Reply:
    """Create the proposed task: an owner has approved exactly what the card shows."""
    request.require_owner()
    incident, task = await request.services.self_check.start_repair(
        incident_id,
        by=request.person,
        chat=request.chat.id,
        reply_to=request.message_id,
        words=request.words,
    )
    card = repair_started_card(incident, task, request.words)
    return Reply(card=card, data={"task": None if task is None else task.id})


async def _overview(request: Request) -> Reply:
    reports = await request.services.self_check.list_reports(1)
    open_ = await request.services.self_check.list_open()
    drive = await request.services.drive.get_status()
    report = reports[0] if reports else None
    card = self_card(report, open_, drive_line(drive, request.words), request.words)
    data = {
        "health": None if report is None else report_data(report, request.words),
        "problems": [incident_data(each, request.words) for each in open_],
        "drive": drive_data(drive),
    }
    return Reply(card=card, data=data)


async def _check(request: Request, _rest: str) -> Reply:
    report = await request.services.self_check.check()
    card = health_report_card(report, request.words, zone=request.zone)
    return Reply(card=card, data=report_data(report, request.words))


async def _history(request: Request, _rest: str) -> Reply:
    incidents = await request.services.self_check.list_incidents(_SHOWN_INCIDENTS)
    data = {"problems": [incident_data(each, request.words) for each in incidents]}
    return Reply(card=incident_history_card(incidents, request.words, zone=request.zone), data=data)


async def _repair(request: Request, rest: str) -> Reply:
    if not (rest.isascii() and rest.isdecimal()) or len(rest) > _MAX_ID_DIGITS:
        raise UsageError("self")
    return await start_repair(request, int(rest))


async def _drive(request: Request, rest: str) -> Reply:
    word, _, name = rest.partition(" ")
    drive = request.services.drive
    match _DRIVE_WORDS.get(word.casefold()):
        case "status":
            return _drive_reply(request, await drive.get_status(), "")
        case "start":
            return _drive_reply(request, await drive.start(), "self.drive_started")
        case "stop":
            return _drive_reply(request, await drive.stop(), "self.drive_stopped")
        case "enable":
            status = await _change_goal(request, name, drive.enable)
            return _drive_reply(request, status, "self.drive_enabled")
        case "disable":
            status = await _change_goal(request, name, drive.disable)
            return _drive_reply(request, status, "self.drive_disabled")
        case _:
            raise UsageError("self")


async def _change_goal(
    request: Request, word: str, change: Callable[[GoalName], Awaitable[DriveStatus]]
) -> DriveStatus:
    name = GoalName.parse(word)
    if name is None:
        raise UserError("no_such_goal", names=", ".join(each.value for each in GoalName))
    goals = (await request.services.drive.get_status()).goals
    if any(each.name is name and each.state is GoalState.UNAVAILABLE for each in goals):
        raise UserError("goal_unavailable", name=name.value)
    return await change(name)


def _drive_reply(request: Request, status: DriveStatus, news: str) -> Reply:
    card = drive_card(status, request.words, now=request.now, zone=request.zone, news=news)
    return Reply(card=card, data=drive_data(status))


_DRIVE_WORDS = {
    **dict.fromkeys(("", "status", "状态"), "status"),
    **dict.fromkeys(("start", "启动", "开始"), "start"),
    **dict.fromkeys(("stop", "停止"), "stop"),
    **dict.fromkeys(("enable", "启用"), "enable"),
    **dict.fromkeys(("disable", "停用", "禁用"), "disable"),
}


async def _evolve(request: Request, rest: str) -> Reply:
    return await evolve(replace(request, args=rest))


_SUBCOMMANDS: dict[str, Callable[[Request, str], Awaitable[Reply]]] = {
    "check": _check,
    "检查": _check,
    "history": _history,
    "历史": _history,
    "repair": _repair,
    "修复": _repair,
    "drive": _drive,
    "自驱": _drive,
    "evolve": _evolve,
    "进化": _evolve,
}


# --- /doctor and /reload

_FIX = frozenset({"fix", "修复"})


@commands("doctor", aliases=("体检", "诊断"), immediate=True)
async def examine(request: Request) -> Reply:
    request.require_owner()
    if not request.in_private:
        raise UserError("only_in_private", command="doctor")
    word = request.args.strip().casefold()
    if word and word not in _FIX:
        raise UsageError("doctor")
    report = await request.services.doctor.examine(by=request.person, fix=bool(word))
    card = doctor_card(report, request.words, zone=request.zone)
    return Reply(card=card, data=report_data(report, request.words))


@commands("reload", aliases=("重新加载", "重载"), immediate=True)
async def reload_settings(request: Request) -> Reply:
    request.require_owner()
    if not request.in_private:
        raise UserError("only_in_private", command="reload")
    if request.args.strip():
        raise UsageError("reload")
    reading = await request.services.settings.reload()
    if reading.retry_seconds:
        raise UserError("reload_soon", seconds=reading.retry_seconds)
    data = {
        "applied": list(reading.applied),
        "waiting": list(reading.waiting),
        "faults": list(reading.faults),
    }
    card = settings_card(reading, request.words)
    return Reply(card=card, data=data, good=not reading.faults)


async def prove_buttons(request: Request) -> Reply:
    """Record that buttons work: the press on the card is itself the proof."""
    arrived = request.heard_at or request.now
    milliseconds = max(0, (request.now - arrived) // timedelta(milliseconds=1))
    await request.services.doctor.record_press(request.chat.channel, milliseconds)
    return Reply(toast=buttons_proven_text(milliseconds, request.words))
