"""The check of channels: short problems pass, long ones are found."""

from __future__ import annotations

from datetime import datetime, timedelta

from bot.engine.autonomy.checks.delivery import ChannelHealthCheck
from bot.transports.alerts import ChannelAlerts
from storage.records.people import Channel
from tests.bot.engine.autonomy.checks.health_world import NOW


async def test_a_channel_with_a_problem_for_long_is_found() -> None:
    time = NOW

    def now() -> datetime:
        return time

    alerts = ChannelAlerts((Channel.TELEGRAM, Channel.WEB))
    check = ChannelHealthCheck(health=alerts.health, now=now)
    alerts.report(Channel.TELEGRAM, "unreachable", {"error": "no route"})
    at_once = await check.find()

    time += timedelta(minutes=30)
    (later,) = await check.find()
    alerts.report(Channel.TELEGRAM, "")
    over = await check.find()
    alerts.report(Channel.TELEGRAM, "unreachable")
    new = await check.find()

    assert at_once == over == new == []
    assert (later.text, later.subject) == ("channel_down", "telegram")
    assert later.facts["reason_key"] == "alert.telegram.unreachable"
    assert later.facts["error"] == "no route"
