"""How long something takes, as people write it: `90`, `30m`, `1h 30m`, `2 天`."""

from __future__ import annotations

import math
import re

_UNITS = {
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "h": 3_600.0,
    "d": 86_400.0,
    "w": 604_800.0,
}
_SPELLED = {
    "": "s",
    "毫秒": "ms",
    **dict.fromkeys(("sec", "secs", "second", "seconds", "秒", "秒钟"), "s"),
    **dict.fromkeys(("min", "mins", "minute", "minutes", "分", "分钟"), "m"),
    **dict.fromkeys(("hr", "hrs", "hour", "hours", "时", "小时"), "h"),
    **dict.fromkeys(("day", "days", "天", "日"), "d"),
    **dict.fromkeys(("week", "weeks", "周", "星期"), "w"),
}
_PART = re.compile(r"\s*(\d{1,12}(?:\.\d{1,6})?)\s*([^\W\d_]*)\s*")
_MOST = 100
_LARGEST = 1e15


def seconds_in(value: object, unit: str = "s") -> float | None:
    """Seconds; None for what is no duration. `unit` is that of a number without one."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    factor = _factor(unit)
    if factor is None:
        return None
    if isinstance(value, int | float):
        return value * factor if abs(value) < _LARGEST and math.isfinite(value) else None
    return _told(value.strip(), factor)


def _told(text: str, factor: float) -> float | None:
    if not text or len(text) > _MOST:
        return None
    at, total = 0, 0.0
    while at < len(text):
        found = _PART.match(text, at)
        if found is None:
            return None
        own = _factor(found[2]) if found[2] else factor
        if own is None:
            return None
        total += float(found[1]) * own
        at = found.end()
    return total


def _factor(unit: str) -> float | None:
    known = unit.strip().casefold()
    return _UNITS.get(_SPELLED.get(known, known))
