"""The time stands at the end of a prompt, in the Boss's zone, and is no part of what was said."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from bot.engine.llm.stored_messages import with_present_time, without_present_time

NOW = datetime(2026, 12, 31, 18, 5, 59, tzinfo=UTC)


@pytest.mark.parametrize(
    ("zone", "told"),
    [
        ("UTC", "[now: 2026-12-31 Thu 18:05, UTC, UTC+00:00]"),
        ("Asia/Shanghai", "[now: 2027-01-01 Fri 02:05, Asia/Shanghai, UTC+08:00]"),
        ("America/St_Johns", "[now: 2026-12-31 Thu 14:35, America/St_Johns, UTC-03:30]"),
    ],
)
def test_the_time_is_that_of_the_bosss_zone_to_the_minute(zone: str, told: str) -> None:
    assert with_present_time("Hi", NOW, ZoneInfo(zone)) == f"Hi\n\n{told}"


def test_a_prompt_that_says_nothing_stays_empty() -> None:
    assert with_present_time("", NOW, UTC) == ""


@pytest.mark.parametrize(
    "text", ["Hi", "你好\n\n[注] 看这里", "a [now: soon] b", "[now: " * 50_000]
)
def test_what_was_said_is_read_back_without_the_time(text: str) -> None:
    told = with_present_time(text, NOW, ZoneInfo("Asia/Shanghai"))

    assert without_present_time(told) == text
