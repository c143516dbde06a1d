"""Tests which days are read in the forms of several calendars, and which are refused."""

from __future__ import annotations

from datetime import date
from zoneinfo import ZoneInfo

from bot.engine.memory.said_dates import find_spans, writes_month_first
from tests.case_tables import all_cases

TODAY = date(2026, 11, 26)

READ = [
    ("since 2025-03-14", "2025-03-14", "2025-03-14"),
    ("in May 2025", "2025-05-01", "2025-05-31"),
    ("since March 3rd, 2024", "2024-03-03", "2024-03-03"),
    ("on 3 May 2024", "2024-05-03", "2024-05-03"),
    ("in 2019", "2019-01-01", "2019-12-31"),
    ("in March", "2026-03-01", "2026-03-31"),
    ("in December", "2025-12-01", "2025-12-31"),
    ("last year", "2025-01-01", "2025-12-31"),
    ("last month", "2026-10-01", "2026-10-31"),
    ("last spring", "2026-03-01", "2026-05-31"),
    ("last autumn", "2025-09-01", "2025-11-30"),
    ("in the summer of 2023", "2023-06-01", "2023-08-31"),
    ("two years ago", "2024-01-01", "2024-12-31"),
    ("on 3/4/2025", "2025-04-03", "2025-04-03"),
    ("on 25/12/2024", "2024-12-25", "2024-12-25"),
    ("on 12/25/2024", "2024-12-25", "2024-12-25"),
    ("am 14.03.2025", "2025-03-14", "2025-03-14"),
    ("去年三月", "2025-03-01", "2025-03-31"),
    ("前年", "2024-01-01", "2024-12-31"),
    ("2025年5月", "2025-05-01", "2025-05-31"),
    ("从2024年10月1日起", "2024-10-01", "2024-10-01"),
    ("去年夏天", "2025-06-01", "2025-08-31"),
    ("上个月", "2026-10-01", "2026-10-31"),
    ("民国115年", "2026-01-01", "2026-12-31"),
    ("民國一百一十四年三月", "2025-03-01", "2025-03-31"),
    ("中华民国113年5月20日", "2024-05-20", "2024-05-20"),
]

REFUSED = [
    "农历八月十五",
    "阴历去年腊月",
    "佛历2568年",
    "回历1447年",
    "in 1447 AH",
    "since 2568 B.E.",
    "since Ramadan 1446",
    "on 5 Nisan 5785",
]


@all_cases(("text", "first", "last"), READ)
def test_times_are_read_as_days(text: str, first: str, last: str) -> None:
    [found] = find_spans(text, TODAY)

    assert (str(found.first), str(found.last)) == (first, last)


@all_cases("text", REFUSED)
def test_days_of_other_calendars_are_found_and_not_guessed(text: str) -> None:
    found = find_spans(text, TODAY)

    assert found
    assert all(each.first is None for each in found)


def test_the_month_comes_first_where_people_write_so() -> None:
    zones = {
        name: writes_month_first(ZoneInfo(name)) for name in ("America/New_York", "Asia/Tokyo")
    }
    [found] = find_spans("on 3/4/2025", TODAY, month_first=True)

    assert zones == {"America/New_York": True, "Asia/Tokyo": False}
    assert str(found.first) == "2025-03-04"
