"""When something was said, however it is written."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from datetime import UTC, datetime, time, timedelta, timezone, tzinfo

from storage.memory.lexicon.dates import mentions

_A_DAY = re.compile(r"=\d{4}-\d\d-\d\d")
_CLOCK = re.compile(
    r"(?P<zh>上午|早上|凌晨|中午|下午|晚上|傍晚)?\s*(?<!\d)(?P<hour>\d{1,2})"
    r"(?:(?:[:：]|[点时])(?P<minute>\d{1,2})(?:[:：](?P<second>\d{2})(?:\.\d+)?)?分?|[点时]"
    r"|(?=\s*[ap]\.?m\b))\s*(?P<half>[ap]\.?m\b\.?)?"
    r"\s*(?:(?P<utc>utc|gmt|z)\b|(?P<sign>[+-])(?P<hours>\d\d):?(?P<minutes>\d\d)\b)?",
    re.IGNORECASE,
)
_FORMATS = ("%a %b %d %H:%M:%S %Y", "%a %b %d %H:%M:%S %z %Y")
"""With the time of day before the year: what C's ctime writes."""
_SECONDS_BELOW = 1e11
_YEARS = range(1970, 2200)
_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC).date()
_NOON = 12
_LONGEST = 200
"""Letters of a time in words."""
_LATER = {"下午": 12, "晚上": 12, "傍晚": 12, "中午": 3}
"""Hours below these are counted from noon on."""


def moment(told: str, zone: tzinfo) -> datetime:
    """When that is: ISO 8601, seconds (or milli-, micro-, nanoseconds) since 1970, or a day in
    words with a time of day. Without an offset it is told by the clock of `zone`. Raises
    ValueError."""
    found = _moment(told.strip()[:_LONGEST])
    if found is None or found.year not in _YEARS:
        raise ValueError(f"at: {told[:40]!r} is no time that can be read")
    return found if found.tzinfo else found.replace(tzinfo=zone)


def _moment(told: str) -> datetime | None:
    with suppress(ValueError):
        return datetime.fromisoformat(told)
    with suppress(ValueError, OverflowError, OSError):
        return _since_1970(float(told))
    for form in _FORMATS:
        with suppress(ValueError):
            return datetime.strptime(told, form)  # noqa: DTZ007 - the caller gives it a zone
    with suppress(ValueError):
        return _in_words(told)
    return None


def _since_1970(number: float) -> datetime | None:
    if number in _YEARS or not math.isfinite(number):
        return None  # a year says too little
    while abs(number) > _SECONDS_BELOW:
        number /= 1000
    return datetime.fromtimestamp(number, UTC)


def _in_words(told: str) -> datetime | None:
    """Of words that depend on today (yesterday) nobody knows which day they were said on."""
    tokens = (
        token for each in mentions(told, _LONG_AGO) if not each.is_relative for token in each.tokens
    )
    day = next((token for token in tokens if _A_DAY.fullmatch(token)), None)
    if day is None:
        return None
    return datetime.combine(datetime.fromisoformat(day[1:]), _clock(told))


def _clock(told: str) -> time:
    match = _CLOCK.search(told)
    if match is None:
        return time()
    hour = int(match["hour"])
    if match["half"]:
        hour = hour % _NOON + _NOON * (match["half"][0].lower() == "p")
    elif hour < _LATER.get(match["zh"] or "", 0):
        hour += _NOON
    return time(hour, int(match["minute"] or 0), int(match["second"] or 0), tzinfo=_offset(match))


def _offset(match: re.Match[str]) -> tzinfo | None:
    if match["utc"]:
        return UTC
    if not match["sign"]:
        return None
    away = timedelta(hours=int(match["hours"]), minutes=int(match["minutes"]))
    return timezone(-away if match["sign"] == "-" else away)
