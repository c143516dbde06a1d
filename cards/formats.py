"""Durations, ages, money and sizes as people read them. Pure, in both languages."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from cards.safe_text import without_overrides
from cards.words import Words
from storage.records.tasks import Spent

_MINUTE = 60
_HOUR = 3600
_DAY = 86_400
_THOUSAND = 1000
_KILOBYTE = 1024
_MICROS = 1_000_000
_MARKUP = re.compile(r"[*_~`\[\]<>#|&!\\]")


def duration(span: timedelta, words: Words) -> str:
    """The two largest units: `1 h 03 min`. Never negative."""
    seconds = max(0, int(span.total_seconds()))
    if seconds < _MINUTE:
        return words("format.seconds", s=seconds)
    if seconds < _HOUR:
        return words("format.minutes", m=seconds // _MINUTE, s=f"{seconds % _MINUTE:02}")
    if seconds < _DAY:
        return words("format.hours", h=seconds // _HOUR, m=f"{seconds % _HOUR // _MINUTE:02}")
    return words("format.days", d=seconds // _DAY, h=seconds % _DAY // _HOUR)


def age(at: datetime, now: datetime, words: Words) -> str:
    """How long ago, in one unit."""
    seconds = max(0, int((now - at).total_seconds()))
    for size, unit in ((_DAY, "days"), (_HOUR, "hours"), (_MINUTE, "minutes")):
        if seconds >= size:
            return words(f"format.{unit}_ago", n=seconds // size)
    return words("format.just_now")


def clock(at: datetime, zone: ZoneInfo) -> str:
    return at.astimezone(zone).strftime("%H:%M:%S")


def moment(at: datetime, zone: ZoneInfo) -> str:
    return at.astimezone(zone).strftime("%Y-%m-%d %H:%M")


def money(micros: int) -> str:
    """US dollars from millionths: four places below a dollar, two above."""
    places = 4 if 0 < abs(micros) < _MICROS else 2
    sign = "-" if micros < 0 else ""
    return f"{sign}${abs(micros) / _MICROS:,.{places}f}"


def count(number: int) -> str:
    """`950`, `12.3k`, `4.5M`."""
    amount = float(number)
    for unit in ("", "k"):
        if round(amount, 1) < _THOUSAND:
            return f"{amount:.1f}{unit}" if unit else str(number)
        amount /= _THOUSAND
    return f"{amount:.1f}M"


def size(number: int) -> str:
    amount = float(max(0, number))
    for unit in ("B", "KB", "MB"):
        if amount < _KILOBYTE:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= _KILOBYTE
    return f"{amount:.1f} GB"


def cost(spent: Spent, words: Words) -> str:
    """The money, and whether some of it is not known."""
    if not spent.unpriced:
        return money(spent.cost_micros)
    if not spent.cost_micros:
        return words("format.unpriced")
    return words("format.at_least", money=money(spent.cost_micros))


def tokens(spent: Spent, words: Words) -> str:
    return words("format.tokens", count=count(spent.input_tokens + spent.output_tokens))


def cut(text: str, limit: int) -> str:
    """At most `limit` characters, the last an ellipsis if something is missing."""
    text = text.strip()
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def line(text: str, limit: int) -> str:
    """One line of at most `limit` characters."""
    return cut(" ".join(without_overrides(text[: limit * 4]).split()), limit)


def verbatim(text: str, limit: int) -> str:
    """Somebody else's words, a name say, as Markdown that shows them as they are: no links, no
    mentions, no styles."""
    return _MARKUP.sub(lambda match: f"&#{ord(match.group())};", line(text, limit))


def verbatim_lines(text: str, limit: int) -> str:
    """As `verbatim`, with its lines as they are."""
    lines = cut(text, limit).splitlines()
    return "  \n".join(verbatim(each, limit) for each in lines)


def preview(text: str, *, lines: int = 3, limit: int = 200) -> str:
    """The first lines that say something."""
    kept = [row.rstrip() for row in text[: limit * 4].splitlines() if row.strip()]
    return cut("\n".join(kept[:lines]), limit)


def tail(text: str, limit: int) -> str:
    """The last whole lines that fit into `limit` characters."""
    if len(text) <= limit:
        return text
    kept = text[-(limit - 2) :]
    _, newline, whole = kept.partition("\n")
    return "…\n" + (whole if newline and whole else kept)
