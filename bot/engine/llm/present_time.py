"""Adds date and time at the end of a prompt, where they do not invalidate its cached prefix."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, tzinfo
from typing import TypeAlias

TimeTeller: TypeAlias = Callable[[str], str]
"""Returns the prompt with the present time at its end."""

_LINE = re.compile(
    r"\n\n\[now: \d{4}-\d\d-\d\d [A-Z][a-z]{2} \d\d:\d\d, [^\]\n]{1,60}, UTC[+-]\d\d:\d\d\]"
)
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def with_present_time(prompt: str, now: datetime, zone: tzinfo) -> str:
    """The prompt with the date, weekday, minute and zone behind it; an empty prompt stays empty."""
    if not prompt.strip():
        return prompt
    local = now.astimezone(zone)
    offset = local.strftime("%z")
    return (
        f"{prompt}\n\n[now: {local:%Y-%m-%d} {_DAYS[local.weekday()]} {local:%H:%M}, {zone},"
        f" UTC{offset[:3]}:{offset[3:5]}]"
    )


def without_present_time(text: str) -> str:
    return _LINE.sub("", text) if "[now: " in text else text
