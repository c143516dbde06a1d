"""Working days of countries, and of China with its working weekends."""

from __future__ import annotations

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest

from bot.engine.timing.recurrence import upcoming
from bot.engine.timing.working_days import working_calendar
from storage.records.schedules import CronTiming, DayFilter


@pytest.mark.parametrize(
    ("region", "day", "is_working"),
    [
        # A Monday and a Sunday.
        ("", "2026-11-30", True),
        ("", "2026-11-29", False),
        ("", "2026-10-01", True),
        # The national holiday, and a Saturday worked in exchange.
        ("CN", "2026-10-01", False),
        ("CN", "2026-10-10", True),
        ("CN", "2026-10-11", False),
        ("CN", "2026-02-14", True),
        ("US", "2026-11-26", False),
        ("DE", "2026-01-06", True),
        ("DE-BY", "2026-01-06", False),
        # The week ends on Friday.
        ("EG", "2026-11-27", False),
        ("EG", "2026-11-29", True),
    ],
)
def test_working_days_of_a_region(region: str, day: str, is_working: bool) -> None:
    assert working_calendar(region).is_working(date.fromisoformat(day)) is is_working


def test_work_resumes_after_the_national_holiday() -> None:
    found = upcoming(
        CronTiming(expression="0 9 * * *", days=DayFilter.WORKING),
        after=datetime(2026, 9, 30, 2, tzinfo=UTC),
        zone=ZoneInfo("Asia/Shanghai"),
        calendar=working_calendar("CN"),
        count=4,
    )

    assert [each.strftime("%m-%d") for each in found] == ["10-08", "10-09", "10-10", "10-12"]
