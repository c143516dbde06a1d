from __future__ import annotations

import logging
from typing import Any

import pytest

from bot.transports.alerts import AlertSource, ChannelAlerts
from cards.catalog import catalog_for
from storage.records.people import Channel, Language

FACTS: dict[str, Any] = {"letter": "reply:1", "reason": "too odd"}


def test_an_alert_is_logged_once_and_kept(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    alerts = ChannelAlerts([Channel.TELEGRAM])

    for _ in range(3):
        alerts.report(Channel.TELEGRAM, "letter_refused", FACTS)

    (health,) = alerts.health()
    assert (health.alert, health.facts) == ("letter_refused", FACTS)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "too odd" in caplog.text


def test_an_empty_key_says_that_all_is_well_again_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    alerts = ChannelAlerts([Channel.TELEGRAM])
    alerts.report(Channel.TELEGRAM, "letter_refused", FACTS)

    alerts.report(Channel.TELEGRAM, "")
    alerts.report(Channel.TELEGRAM, "")

    assert [health.alert for health in alerts.health()] == [""]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_a_transport_that_recovers_does_not_take_back_what_the_mail_room_said() -> None:
    alerts = ChannelAlerts([Channel.TELEGRAM])
    alerts.report(Channel.TELEGRAM, "letter_refused", FACTS, source=AlertSource.OUTBOX)
    alerts.report(Channel.TELEGRAM, "network", {"address": "x", "reason": "y"})

    assert [health.alert for health in alerts.health()] == ["network"]
    alerts.report(Channel.TELEGRAM, "")
    assert [health.alert for health in alerts.health()] == ["letter_refused"]


def test_every_change_is_announced() -> None:
    changes: list[int] = []
    alerts = ChannelAlerts([Channel.WEB], lambda: changes.append(1))

    alerts.report(Channel.WEB, "letter_refused", FACTS)
    alerts.report(Channel.WEB, "letter_refused", FACTS)
    alerts.report(Channel.WEB, "")

    assert len(changes) == 2


def test_lines_are_in_the_readers_language_even_where_the_text_is_missing() -> None:
    alerts = ChannelAlerts([Channel.WEB, Channel.FEISHU])
    alerts.report(Channel.WEB, "letter_refused", FACTS)
    alerts.report(Channel.FEISHU, "never_written", {"code": 7})

    lines = alerts.describe(catalog_for(Language.CHINESE))

    assert "网页聊天" in lines[0]
    assert lines[1] == "alert.feishu.never_written {'code': 7}"
