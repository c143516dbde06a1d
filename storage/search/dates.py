"""Finds dates in Chinese and English texts and turns them into index tokens."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, date, timedelta

_MAX_DATES = 20
"""Maximum dates found in one text."""
_MAX_TEXT = 10_000
_DAYS_ONE_BY_ONE = 10
_DAYS_BY_MONTHS = 400
_MONTHS_OF_A_YEAR = 12
_LEAP_YEAR = 2024


@dataclass(frozen=True, slots=True, kw_only=True)
class DateMention:
    """A date in a text and its tokens. `is_relative` ones, such as yesterday, depend on the day
    they were said."""

    start: int
    end: int
    tokens: Sequence[str]
    is_relative: bool = False


def day_tokens(day: date) -> Sequence[str]:
    """All tokens by which an entry of that day can be found. No word of a text looks like them."""
    return (
        f"={day.isoformat()}",
        f"={day:%m-%d}",
        f"={day.isoformat()[:7]}",
        f"={day:%m}",
        f"={day.year:04}",
        f"=w{day.weekday()}",
    )


def find_dates(text: str, today: date) -> Sequence[DateMention]:
    """Dates in a text, in order; of overlapping ones the longest. `today` is the day it was said.
    Impossible dates are ignored."""
    found = sorted(_candidates(text[:_MAX_TEXT], today), key=lambda m: (m.start, -m.end))
    kept: list[DateMention] = []
    for mention in found:
        if not kept or mention.start >= kept[-1].end:
            kept.append(mention)
    return kept[:_MAX_DATES]


def _candidates(text: str, today: date) -> Iterator[DateMention]:
    for pattern, read, relative in _PATTERNS:
        for number, match in enumerate(pattern.finditer(text)):
            if number >= _MAX_DATES:
                break
            try:
                tokens = read(match, today)
            except (ValueError, OverflowError):
                continue
            if tokens:
                yield DateMention(
                    start=match.start(), end=match.end(), tokens=tokens, is_relative=relative
                )


_DIGITS = {"零": 0, "〇": 0, "一": 1, "二": 2, "两": 2, "三": 3, "四": 4, "五": 5} | {
    "六": 6,
    "七": 7,
    "八": 8,
    "九": 9,
}
_ENGLISH_NUMBERS = {
    word: number
    for number, words in enumerate(
        ["x", "a an one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    )
    for word in words.split()
} | {"couple of": 2, "few": 3}
_MONTHS = "january february march april may june july august september october november december"
_MONTH_OF = {name[:3]: at for at, name in enumerate(_MONTHS.split(), 1)}
_WEEKDAY_OF = {
    name: at for at, name in enumerate(["mon", "tue", "wed", "thu", "fri", "sat", "sun"])
}

_ZH_NUMBER = r"[\d零〇一二两三四五六七八九十]{1,3}"
_ZH_DAY = r"[一二三四五六日天末1-6]"
_EN_MONTH = (
    r"(jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_EN_DAY = r"(\d{1,2})(?:st|nd|rd|th)?"
_EN_WEEKDAY = r"(mon|tue|wed|thu|fri|sat|sun)(?:s|nes|rs|ur)?(?:day)?"
_EN_COUNT = (
    r"(\d{1,4}|an?|one|two|three|four|five|six|seven|eight|nine|ten|(?:a )?(?:couple of|few))"
)


def _number(text: str) -> int:
    if text.isdigit():
        return int(text)
    tens, ten, ones = text.partition("十")
    if not ten:
        return int("".join(str(_DIGITS[each]) for each in text))
    return (_DIGITS[tens] if tens else 1) * 10 + (_DIGITS[ones] if ones else 0)


def _count(text: str) -> int:
    text = text.lower().removeprefix("a ") if " " in text else text.lower()
    return int(text) if text.isdigit() else _ENGLISH_NUMBERS[text]


def _day_token(day: date) -> Sequence[str]:
    return (f"={day.isoformat()}",)


def _span_tokens(first: date, last: date) -> Sequence[str]:
    """Each day if they are few, else their months, else their years."""
    days = (last - first).days
    if days < _DAYS_ONE_BY_ONE:
        return [f"={(first + timedelta(days=n)).isoformat()}" for n in range(days + 1)]
    if days < _DAYS_BY_MONTHS:
        months = {
            f"={(first + timedelta(days=n)).isoformat()[:7]}": None for n in range(0, days + 1, 7)
        }
        return list(months | {f"={last.isoformat()[:7]}": None})
    return [f"={year:04}" for year in range(first.year, min(last.year, first.year + 10) + 1)]


def _relative_month(today: date, shift: int) -> Sequence[str]:
    months = today.year * 12 + today.month - 1 + shift
    return (f"={date(months // 12, months % 12 + 1, 1).isoformat()[:7]}",)


def _date_tokens(year: str | None, month: int, day: int) -> Sequence[str]:
    if year:
        return _day_token(date(int(year), month, day))
    if not (1 <= month <= _MONTHS_OF_A_YEAR and 1 <= day <= monthrange(_LEAP_YEAR, month)[1]):
        raise ValueError
    return (f"={month:02}-{day:02}",)


def _month_of(year: str | None, month: int) -> Sequence[str]:
    if not 1 <= month <= _MONTHS_OF_A_YEAR:
        raise ValueError
    return (f"={int(year):04}-{month:02}",) if year else (f"={month:02}",)


def _zh_year(word: str | None, today: date) -> str | None:
    if not word:
        return None
    shift = {"前年": -2, "去年": -1, "今年": 0, "明年": 1}.get(word)
    return word.removesuffix("年") if shift is None else str(today.year + shift)


def _zh_date(match: re.Match[str], today: date) -> Sequence[str]:
    year = _zh_year(match[1], today)
    return _date_tokens(year, _number(match[2]), _number(match[3]))


def _zh_month(match: re.Match[str], today: date) -> Sequence[str]:
    return _month_of(_zh_year(match[1], today), _number(match[2]))


def _zh_whole_year(match: re.Match[str], today: date) -> Sequence[str]:
    return (f"={int(_zh_year(match[0], today) or 0):04}",)


_ZH_SHIFTS = {"大前": -3, "前": -2, "昨": -1, "今": 0, "明": 1, "后": 2, "大后": 3}


def _zh_relative(match: re.Match[str], today: date) -> Sequence[str]:
    return _day_token(today + timedelta(days=_ZH_SHIFTS[match[1]]))


def _zh_week(match: re.Match[str], today: date) -> Sequence[str]:
    weeks = {"上上": -2, "上": -1, "这": 0, "本": 0, "下": 1, "下下": 2}[match[1]]
    monday = today + timedelta(days=7 * weeks - today.weekday())
    which = match[2]
    if not which:
        return _span_tokens(monday, monday + timedelta(days=6))
    if which == "末":
        return _span_tokens(monday + timedelta(days=5), monday + timedelta(days=6))
    return _day_token(monday + timedelta(days=_zh_weekday(which)))


def _zh_bare_weekday(match: re.Match[str], _today: date) -> Sequence[str]:
    if match[1] == "末":
        return ("=w5", "=w6")
    return (f"=w{_zh_weekday(match[1])}",)


def _zh_weekday(letter: str) -> int:
    return 6 if letter in "日天" else _number(letter) - 1


def _zh_near_month(match: re.Match[str], today: date) -> Sequence[str]:
    return _relative_month(today, {"上上": -2, "上": -1, "这": 0, "本": 0, "下": 1}[match[1]])


def _zh_ago(match: re.Match[str], today: date) -> Sequence[str]:
    sign = 1 if match[3] in ("后", "以后", "之后") else -1
    return _shifted(today, sign * _number(match[1]), {"周": "w", "月": "m", "年": "y"}, match[2])


def _shifted(today: date, count: int, units: dict[str, str], unit: str) -> Sequence[str]:
    kind = next((kind for sign, kind in units.items() if sign in unit), "d")
    if kind == "m":
        return _relative_month(today, count)
    if kind == "y":
        return (f"={today.year + count:04}",) if MINYEAR <= today.year + count <= MAXYEAR else ()
    if kind == "w":
        middle = today + timedelta(weeks=count)
        return _span_tokens(middle - timedelta(days=3), middle + timedelta(days=3))
    return _day_token(today + timedelta(days=count))


def _iso(match: re.Match[str], _today: date) -> Sequence[str]:
    return _date_tokens(match[1], int(match[2]), int(match[3]))


def _iso_month(match: re.Match[str], _today: date) -> Sequence[str]:
    return _month_of(match[1], int(match[2]))


def _en_month_first(match: re.Match[str], _today: date) -> Sequence[str]:
    return _date_tokens(match[3], _MONTH_OF[match[1][:3].lower()], int(match[2]))


def _en_day_first(match: re.Match[str], _today: date) -> Sequence[str]:
    return _date_tokens(match[3], _MONTH_OF[match[2][:3].lower()], int(match[1]))


def _en_month(match: re.Match[str], today: date) -> Sequence[str]:
    month = _MONTH_OF[match[2][:3].lower()]
    how = (match[1] or "").lower()
    year = match[3]
    if year is None and how in ("last", "this", "next"):
        near = today.year + {"last": -1, "this": 0, "next": 1}[how]
        year = str(near + (how == "last" and month < today.month))
    return _month_of(year, month)


def _en_month_alone(match: re.Match[str], _today: date) -> Sequence[str]:
    return _month_of(None, _MONTH_OF[match[1][:3].lower()])


_EN_DAYS = {
    "the day before yesterday": -2,
    "the day after tomorrow": 2,
    "yesterday": -1,
    "last night": -1,
    "today": 0,
    "tonight": 0,
    "this morning": 0,
    "tomorrow": 1,
}


def _en_relative(match: re.Match[str], today: date) -> Sequence[str]:
    return _day_token(today + timedelta(days=_EN_DAYS[" ".join(match[0].lower().split())]))


def _en_near(match: re.Match[str], today: date) -> Sequence[str]:
    shift = {"last": -1, "past": -1, "previous": -1, "this": 0, "next": 1}[match[1].lower()]
    unit = match[2].lower()
    if unit == "month":
        return _relative_month(today, shift)
    if unit == "year":
        return (f"={today.year + shift:04}",)
    monday = today + timedelta(days=7 * shift - today.weekday())
    first = monday + timedelta(days=5) if unit == "weekend" else monday
    return _span_tokens(first, monday + timedelta(days=6))


def _en_near_weekday(match: re.Match[str], today: date) -> Sequence[str]:
    """`last Friday` is the one before today, `next Friday` the one after."""
    wanted = _WEEKDAY_OF[match[2][:3].lower()]
    if match[1].lower() == "last":
        return _day_token(today - timedelta(days=(today.weekday() - wanted - 1) % 7 + 1))
    return _day_token(today + timedelta(days=(wanted - today.weekday() - 1) % 7 + 1))


def _en_bare_weekday(match: re.Match[str], _today: date) -> Sequence[str]:
    return (f"=w{_WEEKDAY_OF[match[1][:3].lower()]}",)


def _en_ago(match: re.Match[str], today: date) -> Sequence[str]:
    units = {"week": "w", "month": "m", "year": "y"}
    return _shifted(today, -_count(match[1]), units, match[2].lower())


def _en_year(match: re.Match[str], _today: date) -> Sequence[str]:
    return (f"={match[0]}",)


_DateReader = Callable[[re.Match[str], date], Sequence[str]]
_EN_DAY_NAMES = "|".join(_EN_DAYS).replace(" ", r"\s+")
_BEFORE_A_MONTH = r"(?<![a-z])(?:(last|this|next|in|of|since|during|by|until|early|late|mid)[\s-]+)"
# "May" and "march" are ordinary words too.
_PLAIN_MONTHS = "|".join(each for each in _MONTHS.split() if each not in ("march", "may"))
_EN_NEAR_WORD = r"(?<![a-z])(last|this|next|past|previous)\s+"
_PATTERNS: Sequence[tuple[re.Pattern[str], _DateReader, bool]] = [
    (re.compile(pattern, re.IGNORECASE), read, relative)
    for pattern, read, relative in (
        (
            rf"(\d{{4}}年|前年|去年|今年|明年)?({_ZH_NUMBER})月({_ZH_NUMBER})[日号號]?",
            _zh_date,
            False,
        ),
        (
            rf"(\d{{4}}年|前年|去年|今年|明年)?的?({_ZH_NUMBER})月份?(?!{_ZH_NUMBER})",
            _zh_month,
            False,
        ),
        (r"前年|去年|今年|明年", _zh_whole_year, True),
        (r"(?<!\d)\d{4}年", _zh_whole_year, False),
        (r"(大前|大后|前|昨|今|明|后)(?:天|晚|早|日|儿)", _zh_relative, True),
        (rf"(上上|上|这|本|下下|下)个?(?:周|星期|礼拜)({_ZH_DAY})?", _zh_week, True),
        (rf"(?:周|星期|礼拜)({_ZH_DAY})", _zh_bare_weekday, False),
        (r"(上上|上|这|本|下)个?月(?!份?\d)", _zh_near_month, True),
        (
            rf"({_ZH_NUMBER})(天|日|周|个?星期|个?礼拜|个月|年)(以前|之前|前|以后|之后|后)",
            _zh_ago,
            True,
        ),
        (r"(?<!\d)(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?!\d)", _iso, False),
        (r"(?<!\d)(\d{4})-(\d{2})(?![\d-])", _iso_month, False),
        (
            rf"(?<![a-z]){_EN_MONTH}\s*{_EN_DAY}(?![\da-z])(?:,?\s+(\d{{4}})(?!\d))?",
            _en_month_first,
            False,
        ),
        (
            rf"(?<!\d){_EN_DAY}\s+(?:of\s+)?{_EN_MONTH}(?![a-z])(?:,?\s+(\d{{4}})(?!\d))?",
            _en_day_first,
            False,
        ),
        (
            rf"{_BEFORE_A_MONTH}{_EN_MONTH}(?![a-z])(?:,?\s+(?:of\s+)?(\d{{4}})(?!\d))?",
            _en_month,
            False,
        ),
        (rf"(?<![a-z])(){_EN_MONTH},?\s+(\d{{4}})(?!\d)", _en_month, False),
        (
            rf"(?<![a-z])({_PLAIN_MONTHS})(?![a-z])",
            _en_month_alone,
            False,
        ),
        (
            rf"(?<![a-z])(?:{_EN_DAY_NAMES})(?![a-z])",
            _en_relative,
            True,
        ),
        (rf"{_EN_NEAR_WORD}(week|weekend|month|year)(?![a-z])", _en_near, True),
        (rf"(?<![a-z])(last|next)\s+{_EN_WEEKDAY}(?![a-z])", _en_near_weekday, True),
        (rf"(?<![a-z]){_EN_WEEKDAY}(?<=day)(?![a-z])", _en_bare_weekday, False),
        (rf"(?<![a-z]){_EN_COUNT}\s+(day|week|month|year)s?\s+ago(?![a-z])", _en_ago, True),
        (r"(?<![\d.=])(?:19|20)\d\d(?![\d.])", _en_year, False),
    )
]
"""Each pattern, its parser, and whether the result depends on the day it was said."""
