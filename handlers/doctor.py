"""Handles /doctor and /reload: looks at everything that Shiftboss needs, proves that buttons
arrive, and reads the settings again."""

from __future__ import annotations

from datetime import timedelta

from cards.views.doctor import buttons_proven_text, doctor_card
from cards.views.self_checks import report_data
from cards.views.system import settings_card
from handlers.errors import UsageError, UserError
from handlers.request import CommandRegistry, Reply, Request

commands = CommandRegistry("system")

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
    """Called by a press on the card itself, which is the proof."""
    arrived = request.heard_at or request.now
    milliseconds = max(0, (request.now - arrived) // timedelta(milliseconds=1))
    await request.services.doctor.record_press(request.chat.channel, milliseconds)
    return Reply(toast=buttons_proven_text(milliseconds, request.words))
