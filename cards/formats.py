"""Formats durations, ages, money and sizes in both languages, and cleans text for display, of
invisible characters too."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from unicodedata import category
from zoneinfo import ZoneInfo

from cards.catalog import TextCatalog
from storage.records.tasks import UsageTotals

# --- invisible characters
# They can hide instructions, reverse text and control terminals. Line ends and parts of emoji and
# scripts do not count.

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u2800\u3164\ud800-\udfff\ufeff\uffa0\ufff9-\ufffb\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e007f\U000e0100-\U000e01ef]"
)


def strip_invisible(text: str) -> str:
    return _INVISIBLE.sub("", text)


def escape_invisible(text: str) -> str:
    """Escape invisible characters by number, as in JSON, for a terminal."""
    return _INVISIBLE.sub(lambda found: escape_by_number(found[0]), text)


def escape_by_number(text: str) -> str:
    """Escape every character by its number, as in JSON."""
    units = text.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


# --- durations, ages, money and sizes

# Escape sequences would control a reader's terminal; \n and \t stay.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Blanks that are none for a shell, and characters without a width.
_HIDDEN = re.compile(
    "[\u00a0\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200d\u202f\u205f\ufe00-\ufe0f]+"
)
# Marks that strike through what stands before them, or cover the lines around it in heaps.
_COVERING = re.compile("[\u0334-\u0338\u20d2-\u20eb]+|(?<=[\u0300-\u036f]{2})[\u0300-\u036f]+")
# Greek, Cyrillic, Armenian and Cherokee letters within a Latin word.
_MIXED_WORD = re.compile("[A-Za-z\u0370-\u052f\u0531-\u058f\u13a0-\u13ff]+")
_FOREIGN_LETTERS = re.compile("[\u0370-\u052f\u0531-\u058f\u13a0-\u13ff]+")
_LATIN_LETTER = re.compile("[A-Za-z]")
_LONG_BLANKS = re.compile(r"(?<=[^\s])[ \t\u3000]{12,}|[ \t\u3000]{60,}")
_LONG_GAP = re.compile(r"\n(?:[ \t\u3000]*\n){4,}")
# Direction overrides are harmless in prose but can disguise a name or label.
_BIDI_OVERRIDES = re.compile(r"[\u202a-\u202e\u2066-\u2069]")


def drop_surrogates(text: str) -> str:
    """The text without lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode("utf-8")


def strip_controls(text: str) -> str:
    r"""The text without control characters; line ends become `\\n`."""
    return _CONTROLS.sub("", drop_surrogates(text).replace("\r\n", "\n").replace("\r", "\n"))


def clean_line(text: str) -> str:
    """One clean line without direction overrides."""
    return " ".join(strip_bidi_overrides(strip_controls(text)).split())


def strip_bidi_overrides(text: str) -> str:
    return _BIDI_OVERRIDES.sub("", text)


def show_exactly(text: str) -> str:
    """Text that a person decides on, with hidden content made visible. Characters without a sign,
    or that change the direction or cover others, are shown by number, and so are letters that look
    like others in their word. Long runs of blanks and empty lines are shown by their length."""
    seen = text.replace("\r\n", "\n")
    for pattern in (_HIDDEN, _COVERING):
        seen = pattern.sub(lambda match: escape_by_number(match[0]), seen)
    seen = _MIXED_WORD.sub(_escape_lookalikes, seen)
    seen = escape_invisible(seen)
    seen = _LONG_BLANKS.sub(lambda match: f"⟨␣×{len(match[0])}⟩", seen)
    return _LONG_GAP.sub(lambda match: f"\n⟨⏎×{len(match[0])}⟩\n", seen)


def _escape_lookalikes(word: re.Match[str]) -> str:
    if not _LATIN_LETTER.search(word[0]):
        return word[0]
    return _FOREIGN_LETTERS.sub(lambda match: escape_by_number(match[0]), word[0])


def head_and_tail(text: str, limit: int, gap: str) -> str:
    """At most some `limit` characters: the first two thirds and the end, with `gap` between."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    return f"{text[:head]}\n{gap}\n{text[head - limit :]}"


_MINUTE = 60
_HOUR = 3600
_DAY = 86_400
_THOUSAND = 1000
_KILOBYTE = 1024
_MICROS = 1_000_000
_BAR_CELLS = 10
_MAX_FACT = 400
_MARKUP = re.compile(r"[*_~`\[\]<>#|&!\\]")


def time_limit(seconds: float, words: TextCatalog) -> str:
    """How long something may take."""
    return words("format.at_most", time=duration(timedelta(seconds=seconds), words))


def duration(span: timedelta, words: TextCatalog) -> str:
    """The two largest units: `1 h 03 min`. Never negative."""
    seconds = max(0, int(span.total_seconds()))
    if seconds < _MINUTE:
        return words("format.seconds", s=seconds)
    if seconds < _HOUR:
        return words("format.minutes", m=seconds // _MINUTE, s=f"{seconds % _MINUTE:02}")
    if seconds < _DAY:
        return words("format.hours", h=seconds // _HOUR, m=f"{seconds % _HOUR // _MINUTE:02}")
    return words("format.days", d=seconds // _DAY, h=seconds % _DAY // _HOUR)


def time_ago(at: datetime, now: datetime, words: TextCatalog) -> str:
    """The time elapsed, in one unit."""
    seconds = max(0, int((now - at).total_seconds()))
    for size, unit in ((_DAY, "days"), (_HOUR, "hours"), (_MINUTE, "minutes")):
        if seconds >= size:
            return words(f"format.{unit}_ago", n=seconds // size)
    return words("format.just_now")


def time_of_day(at: datetime, zone: ZoneInfo) -> str:
    return at.astimezone(zone).strftime("%H:%M:%S")


def date_time(at: datetime, zone: ZoneInfo) -> str:
    return at.astimezone(zone).strftime("%Y-%m-%d %H:%M")


def money(micros: int) -> str:
    """US dollars from millionths: four decimals below a dollar, two above."""
    places = 4 if 0 < abs(micros) < _MICROS else 2
    sign = "-" if micros < 0 else ""
    return f"{sign}${abs(micros) / _MICROS:,.{places}f}"


def compact_number(number: int) -> str:
    """`950`, `12.3k`, `4.5M`."""
    amount = float(number)
    for unit in ("", "k"):
        if round(amount, 1) < _THOUSAND:
            return f"{amount:.1f}{unit}" if unit else str(number)
        amount /= _THOUSAND
    return f"{amount:.1f}M"


def file_size(number: int) -> str:
    amount = float(max(0, number))
    for unit in ("B", "KB", "MB"):
        if amount < _KILOBYTE:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= _KILOBYTE
    return f"{amount:.1f} GB"


def progress_bar(percent: int) -> str:
    percent = min(100, max(0, percent))
    full = percent * _BAR_CELLS // 100
    return f"{'▓' * full}{'░' * (_BAR_CELLS - full)} {percent} %"


def spent_cost(usage: UsageTotals, words: TextCatalog) -> str:
    """The cost, with a note if part of it is unknown."""
    if not usage.unpriced:
        return money(usage.cost_micros)
    if not usage.cost_micros:
        return words("format.unpriced")
    return words("format.at_least", money=money(usage.cost_micros))


def spent_tokens(usage: UsageTotals, words: TextCatalog) -> str:
    count = compact_number(usage.tokens)
    if is_tokens_unknown(usage):
        return words("format.tokens_unknown", count=count)
    return words("format.tokens", count=count)


def is_tokens_unknown(usage: UsageTotals) -> bool:
    """Whether no service has reported any of the tokens."""
    return 0 < usage.tokens <= usage.estimated_tokens


def truncate(text: str, limit: int) -> str:
    """At most `limit` characters, ending in an ellipsis if cut."""
    text = text.strip()
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def single_line(text: str, limit: int) -> str:
    """One line of at most `limit` characters."""
    return truncate(" ".join(strip_bidi_overrides(text[: limit * 4]).split()), limit)


def escape_markdown(text: str, limit: int) -> str:
    """Foreign text, such as a name, as Markdown without links, mentions or styles."""
    return _MARKUP.sub(lambda match: f"&#{ord(match.group())};", single_line(text, limit))


def code_text(text: str, limit: int) -> str:
    """Foreign text for between backticks, where nothing is escaped."""
    return single_line(strip_controls(text), limit).replace("`", "'")


def notice_text(key: str, facts: Mapping[str, str], words: TextCatalog) -> str:
    """The text of a run's notice. A fact is another key or foreign text."""
    shown = {
        name: words(fact) if words.has(fact) else escape_markdown(fact, _MAX_FACT)
        for name, fact in facts.items()
    }
    return words(key, **shown)


def escape_markdown_lines(text: str, limit: int) -> str:
    """Like `escape_markdown`, preserving line breaks."""
    lines = truncate(text, limit).splitlines()
    return "  \n".join(escape_markdown(each, limit) for each in lines)


def first_lines(text: str, *, lines: int = 3, limit: int = 200) -> str:
    """The first nonblank lines."""
    rows = [row.rstrip() for row in text[: limit * 4].splitlines() if row.strip()]
    return truncate("\n".join(rows[:lines]), limit)


def last_lines(text: str, limit: int) -> str:
    """The last whole lines that fit into `limit` characters."""
    if len(text) <= limit:
        return text
    tail = text[-(limit - 2) :]
    _, newline, whole = tail.partition("\n")
    return "…\n" + (whole if newline and whole else tail)


# Letters and symbols by Unicode category, but drawn as nothing.
_INVISIBLE_FILLERS = "\u115f\u1160\u2800\u3164\uffa0"


def is_blank(text: str) -> bool:
    """Whether the text has no visible character."""
    return all(category(char)[0] in "ZC" or char in _INVISIBLE_FILLERS for char in text)
