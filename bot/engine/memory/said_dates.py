"""Reads the times that a clause names as days since or until when it holds: those of
`storage.search.dates`, and beside them seasons, numeric dates by locale and the Minguo calendar.
Days of calendars that are not understood are found, but have no date."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, tzinfo

from storage.search.dates import find_dates

_MAX_YEAR = 2200
_MINGUO_START = 1911
_MAX_MONTH = 12
_CENTURY, _SHORT_YEARS_FROM = 100, 70


@dataclass(frozen=True, slots=True, kw_only=True)
class DatedSpan:
    """The place of a time in a text with its preposition, and its first and last day; both are None
    where its calendar is not understood."""

    start: int
    end: int
    first: date | None
    last: date | None
    is_until: bool = False


def find_spans(
    text: str, today: date, *, month_first: bool = False, ahead: bool = False
) -> Sequence[DatedSpan]:
    """Times that a text names, in order; days of the week are none. `month_first`: 3/4 is 4 March.
    `ahead`: a month without a year is the next one, else the last one."""
    found: list[DatedSpan] = []
    taken = text
    for span in (*_ranges(text), *([] if ahead else _durations(text, today))):
        found.append(span)
        taken = taken[: span.start] + "\0" * (span.end - span.start) + taken[span.end :]
    for start, end, days in (*_own_spans(text, today, month_first), *_foreign_spans(text)):
        if "\0" not in taken[start:end]:
            found.append(_span(text, start, end, days))
            taken = taken[:start] + "\0" * (end - start) + taken[end:]
    # "Since March 3rd, 2024" would be read as "since March".
    taken = _BEFORE_DAY.sub(lambda each: " " * len(each[0]), taken)
    for mention in find_dates(taken, today):
        days = _days_of(mention.tokens, today, ahead=ahead)
        if days is not None:
            found.append(_span(text, mention.start, mention.end, days))
    return sorted(found, key=lambda each: each.start)


def writes_month_first(zone: tzinfo) -> bool:
    """Whether 3/4 is 4 March where this zone is: in America only."""
    return str(zone).startswith(("America/", "US/", "Pacific/Honolulu"))


_Days = tuple[date, date] | None


def _span(text: str, start: int, end: int, days: _Days) -> DatedSpan:
    before = _BEFORE.search(text[:start])
    after = _AFTER.match(text[end:])
    word = (before[0] if before else "").strip().casefold()
    ends = word.startswith(("until", "till", "before", "up to", "to", "直到", "到"))
    return DatedSpan(
        start=before.start() if before else start,
        end=end + (after.end() if after else 0),
        first=days[0] if days else None,
        last=days[1] if days else None,
        is_until=ends or bool(after and after[0] in {"以前", "之前", "为止"}),
    )


def _own_spans(
    text: str, today: date, month_first: bool
) -> Iterator[tuple[int, int, tuple[date, date]]]:
    for found in _MINGUO.finditer(text):
        year = _MINGUO_START + _zh_number(found["year"])
        parts = [
            int(each) if each.isdigit() else _zh_number(each)
            for each in (found["month"], found["day"])
            if each
        ]
        if (days := _period(year, *parts)) is not None:
            yield found.start(), found.end(), days
    for found in _YEAR_END.finditer(text):
        year = int(found["year"]) if found["year"] else today.year + _YEAR_SHIFTS[found["which"]]
        if (days := _period(year, _MAX_MONTH)) is not None:
            yield found.start(), found.end(), days
    for found in _NUMERIC.finditer(text):
        first, second, year = int(found[1]), int(found[2]), int(found[3])
        year += (2000 if year < _SHORT_YEARS_FROM else 1900) if year < _CENTURY else 0
        month, day = (first, second) if month_first else (second, first)
        if month > _MAX_MONTH:
            month, day = day, month
        if (days := _period(year, month, day)) is not None:
            yield found.start(), found.end(), days
    for found in (*_EN_SEASON.finditer(text), *_ZH_SEASON.finditer(text)):
        yield found.start(), found.end(), _season(found, today)


def _ranges(text: str) -> Iterator[DatedSpan]:
    """ "From 2015 to 2018": its beginning, and its end with `is_until`."""
    for found in _RANGE.finditer(text):
        for part, is_until in (("since", False), ("until", True)):
            days = _period(int(found[part]))
            start, end = (
                (found.end("since"), found.end())
                if is_until
                else (found.start(), found.end("since"))
            )
            if days is not None:
                yield DatedSpan(
                    start=start, end=end, first=days[0], last=days[1], is_until=is_until
                )


def _durations(text: str, today: date) -> Iterator[DatedSpan]:
    """ "For three years": the month when it began."""
    for found in _DURATION.finditer(text):
        count = _number(found["en"] or found["zh"])
        unit = (found["unit"] or found["zh_unit"]).casefold()
        months = count * (12 if unit.startswith(("year", "年")) else 1)
        year, month = divmod(today.year * 12 + today.month - 1 - months, 12)
        if count and (days := _period(year, month + 1)) is not None:
            yield DatedSpan(start=found.start(), end=found.end(), first=days[0], last=days[1])


def _number(text: str) -> int:
    return _COUNTS.get(text.casefold()) or _zh_number(text.replace("两", "二"))


def _foreign_spans(text: str) -> Iterator[tuple[int, int, None]]:
    for found in _FOREIGN.finditer(text):
        yield found.start(), found.end(), None


def _season(found: re.Match[str], today: date) -> tuple[date, date]:
    """The last one before today if no year is named; winter begins in December of its year."""
    month = next(n for names, n in _SEASONS if found["season"].casefold() in names)
    named, which = found["year"], (found["which"] or "").casefold()
    if named:
        year = int(named)
    elif which in _YEAR_SHIFTS:
        year = today.year + _YEAR_SHIFTS[which]
    elif which == "next":
        year = today.year + (date(today.year, month, 1) <= today)
    else:
        # "Last spring" is the latest that is over.
        year = today.year - (_season_days(today.year, month)[1] >= today)
    return _season_days(year, month)


def _season_days(year: int, month: int) -> tuple[date, date]:
    last_year, last_month = (year + 1, 2) if month == _MAX_MONTH else (year, month + 2)
    return date(year, month, 1), date(last_year, last_month, monthrange(last_year, last_month)[1])


def _days_of(tokens: Sequence[str], today: date, *, ahead: bool) -> tuple[date, date] | None:
    spans = [
        span for each in tokens if (span := _token_days(each[1:], today, ahead=ahead)) is not None
    ]
    return (min(a for a, _ in spans), max(b for _, b in spans)) if spans else None


def _token_days(token: str, today: date, *, ahead: bool) -> tuple[date, date] | None:
    """The days of `2025-03-04`, `2025-03`, `2025`, `03-04` or `03`."""
    parts = token.split("-")
    if not all(each.isdigit() for each in parts):
        return None
    numbers = [int(each) for each in parts]
    if len(parts[0]) == len("2025"):
        return _period(*numbers)
    is_past = numbers <= [today.month, today.day][: len(numbers)]
    return _period(today.year + (is_past if ahead else is_past - 1), *numbers)


def _period(year: int, month: int = 0, day: int = 0) -> tuple[date, date] | None:
    if not 1 <= year < _MAX_YEAR:
        return None
    try:
        first = date(year, month or 1, day or 1)
        last_month = month or _MAX_MONTH
        return first, date(year, last_month, day or monthrange(year, last_month)[1])
    except ValueError:
        return None


def _zh_number(text: str) -> int:
    if text.isdigit():
        return int(text)
    total = 0
    for unit, size in (("百", 100), ("十", 10)):
        head, there, text = text.partition(unit) if unit in text else ("", "", text)
        total += (_ZH_DIGITS.get(head[-1:], 1) if there else 0) * size
    return total + _ZH_DIGITS.get(text[-1:], 0)


_ZH_DIGITS = {digit: at for at, digit in enumerate("零一二三四五六七八九")} | {"元": 1}
_ENGLISH_COUNTS = "one two three four five six seven eight nine ten eleven twelve"
_COUNTS = {word: at for at, word in enumerate(_ENGLISH_COUNTS.split(), start=1)}
_RANGE = re.compile(
    r"(?:\b(?:from|between)\s+|从)?(?P<since>(?:19|20)\d\d)\s*年?\s*"
    r"(?:\b(?:to|until|till|through|and)\b|[-–—~]|到|至)\s*(?P<until>(?:19|20)\d\d)(?!\d|-\d)年?"
    r"(?:之间|年间|期间)?",
    re.IGNORECASE,
)
_DURATION = re.compile(
    r"\bfor (?:the (?:last|past) |about |over |almost |nearly |more than )*"
    r"(?P<en>\d{1,2}|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)"
    r" (?P<unit>years?|months?)(?: now| already)?\b"
    r"|(?<=了)(?P<zh>\d{1,2}|[一二两三四五六七八九十]{1,3})(?P<zh_unit>年|个月)多?了?(?=$|[，,。.！!])",
    re.IGNORECASE,
)
_ZH_COUNT = r"[\d零一二三四五六七八九十百元]{1,6}"
_MINGUO = re.compile(
    rf"(?:中华|中華)?(?:民国|民國)\s*(?P<year>{_ZH_COUNT})\s*年(?:\s*(?P<month>{_ZH_COUNT})\s*月)?"
    rf"(?:\s*(?P<day>{_ZH_COUNT})\s*[日号號])?"
)
_YEAR_END = re.compile(r"(?:(?P<year>(?:19|20)\d\d)年|(?P<which>去年|前年|今年|明年))年?[底末]")
_NUMERIC = re.compile(r"(?<![\d/.-])(\d{1,2})[/.](\d{1,2})[/.](\d{4}|\d{2})(?![\d/])")
_SEASONS = (
    (frozenset({"spring", "春天", "春季", "春"}), 3),
    (frozenset({"summer", "夏天", "夏季", "夏"}), 6),
    (frozenset({"autumn", "fall", "秋天", "秋季", "秋"}), 9),
    (frozenset({"winter", "冬天", "冬季", "冬"}), 12),
)
_YEAR_SHIFTS = {"去年": -1, "前年": -2, "今年": 0, "明年": 1}
_EN_SEASON = re.compile(
    r"(?<![a-z])(?:(?P<which>last|this|next|past|the|in|since)\s+)(?:the\s+)?(?P<season>spring"
    r"|summer|autumn|fall|winter)"
    r"(?![a-z])(?:\s+(?:of\s+)?(?P<year>\d{4})(?!\d))?",
    re.IGNORECASE,
)
_ZH_SEASON = re.compile(
    r"(?:(?P<which>去年|前年|今年|明年)|(?P<year>\d{4})年)的?(?P<season>[春夏秋冬][天季]?)"
)
_FOREIGN = re.compile(
    r"(?:农历|農曆|阴历|陰曆|旧历|舊曆|佛历|佛曆|回历|回曆|伊斯兰历|伊历|希伯来历|藏历"
    r"|彝历)[^，,。；;!！?？\s]{0,14}[年月日号]?"
    r"|(?<!\d)(?:1[34]\d\d|25\d\d|57\d\d)\s*(?:a\.?h\.?|b\.?e\.?|a\.?m\.?|hijri"
    r"|buddhist era)(?![a-z])"
    r"|(?<![a-z])(?:b\.?e\.?|a\.?h\.?)\s*(?:1[34]\d\d|2[45]\d\d)(?!\d)|พ\.ศ\.\s*\d{4}"
    r"|(?:\d{1,2}\s+)?(?<![a-z])(?:ramadan|muharram|shawwal|safar|rajab|sha['’]?ban|dhu al-\w+"
    r"|nisan|tishrei|adar|nowruz)(?![a-z])(?:\s+\d{4})?"
    r"|\d{4}年?\s*(?:hijri|佛历|回历)",
    re.IGNORECASE,
)
_BEFORE_DAY = re.compile(
    r"\b(?:since|in|of|during|by|until|early|late|mid)(?=\s+[a-z]{3,9}\.?\s+\d{1,2}(?:st|nd|rd"
    r"|th)?\b)",
    re.IGNORECASE,
)
_BEFORE = re.compile(
    r"(?:(?:\b(?:since|as of|from|starting(?: in| from)?|back in|in|on|at|by|around|about|during"
    r"|until|till|up to"
    r"|before|early in|late in|early|late|mid|the end of|end of|beginning of)\s+)+|(?:从|自从|自"
    r"|于|在|直到|到|打)\s*)$",
    re.IGNORECASE,
)
_AFTER = re.compile(r"(?:起|开始|以来|之后|以后|的时候|就|以前|之前|为止|初|末|底|中旬|上旬|下旬)+")
