"""Infers the expiry of a fact from time expressions in it. Applies to events and things only: "said
today that they are allergic" does not expire tonight."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from storage.records.memory import MemoryCategory

_EXPIRING_CATEGORIES = frozenset({MemoryCategory.EVENTS, MemoryCategory.ENTITIES})
_DYNAMIC = re.compile(
    r"\b(?:today|yesterday|tomorrow|recently|currently|right now|(?:this|last|next) week"
    r"|this month|this morning|tonight|later)\b"
    r"|今天|昨天|明天|最近|正在|刚才|刚刚|这周|这个月|上周|下周|目前|现在|今晚|今早|稍后|待会",
    re.IGNORECASE,
)


def _end_of_day(days: int) -> Callable[[date], date]:
    return lambda today: today + timedelta(days=days + 1)


def _end_of_week(weeks: int) -> Callable[[date], date]:
    """Weeks start on Monday."""
    return lambda today: today + timedelta(days=7 * (weeks + 1) - today.weekday())


def _end_of_month(months: int) -> Callable[[date], date]:
    def ends(today: date) -> date:
        first = today.replace(day=1)
        for _ in range(months + 1):
            first = (first + timedelta(days=31)).replace(day=1)
        return first

    return ends


_EXPIRY_RULES = tuple(
    (re.compile(pattern, re.IGNORECASE), timedelta(hours=hours), ends)
    for pattern, hours, ends in (
        (r"后天|\bday after tomorrow\b", 48, _end_of_day(2)),
        (r"明天|(?<!day after )\btomorrow\b", 24, _end_of_day(1)),
        (r"下周|\bnext week\b", 7 * 24, _end_of_week(1)),
        (r"这周|本周|\bthis week\b", 3 * 24, _end_of_week(0)),
        (r"下个月|\bnext month\b", 30 * 24, _end_of_month(1)),
        (r"这个月|本月|\bthis month\b", 15 * 24, _end_of_month(0)),
        (r"今晚|\btonight\b", 12, _end_of_day(0)),
        (r"今天|\btoday\b", 18, _end_of_day(0)),
    )
)
"""Pattern of a time expression, minimum lifetime, and the first day after it."""


def is_dynamic(text: str, category: MemoryCategory) -> bool:
    return category in _EXPIRING_CATEGORIES and _DYNAMIC.search(text) is not None


def infer_valid_until(
    text: str, category: MemoryCategory, said_at: datetime, zone: tzinfo = UTC
) -> datetime | None:
    """None if the text names no end. Never before the last named day is over in `zone`: "tomorrow
    evening" does not expire tomorrow morning."""
    if category not in _EXPIRING_CATEGORIES:
        return None
    named = [(span, ends) for pattern, span, ends in _EXPIRY_RULES if pattern.search(text)]
    if not named:
        return None
    today = said_at.astimezone(zone).date()
    over = [datetime.combine(ends(today), time(), zone).astimezone(UTC) for _, ends in named]
    return max(said_at + named[0][0], *over)
