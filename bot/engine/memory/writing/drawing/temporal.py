"""How long a fact holds, by the words of it. For events and things only: “said today that they are
allergic” does not end tonight."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from storage.records.memory.entries import Category

_OF = frozenset({Category.EVENTS, Category.ENTITIES})
_DYNAMIC = re.compile(
    r"\b(?:today|yesterday|tomorrow|recently|currently|right now|(?:this|last|next) week"
    r"|this month|this morning|tonight|later)\b"
    r"|今天|昨天|明天|最近|正在|刚才|刚刚|这周|这个月|上周|下周|目前|现在|今晚|今早|稍后|待会",
    re.IGNORECASE,
)
_UNTIL = tuple(
    (re.compile(pattern, re.IGNORECASE), timedelta(hours=hours))
    for pattern, hours in (
        (r"后天|\bday after tomorrow\b", 48),
        (r"明天|\btomorrow\b", 24),
        (r"下周|\bnext week\b", 7 * 24),
        (r"这周|本周|\bthis week\b", 3 * 24),
        (r"下个月|\bnext month\b", 30 * 24),
        (r"这个月|本月|\bthis month\b", 15 * 24),
        (r"今晚|\btonight\b", 12),
        (r"今天|\btoday\b", 18),
    )
)


def is_dynamic(text: str, category: Category) -> bool:
    return category in _OF and _DYNAMIC.search(text) is not None


def valid_until(text: str, category: Category, said_at: datetime) -> datetime | None:
    """None where it says nothing of an end."""
    if category not in _OF:
        return None
    return next((said_at + span for pattern, span in _UNTIL if pattern.search(text)), None)
