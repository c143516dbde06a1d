"""Reads one phrase of time, element by element."""

from __future__ import annotations

import re

from bot.engine.schedule.phrases import clocks, repetitions
from bot.engine.schedule.phrases.days import DATE_ELEMENTS, DAY_ELEMENTS
from bot.engine.schedule.phrases.model import TimePhrase
from bot.engine.schedule.phrases.words import (
    EN_MONTH,
    NUMBER_END,
    ZH_NUMBER,
    month_number,
    parse_number,
    read_zone,
)


def read_phrase(text: str, at: int, *, loose: bool) -> TimePhrase | None:
    """The longest phrase of time that begins at this place of a normalised text. In `loose` ones an
    hour may be a number alone, as in `tomorrow 9`."""
    phrase = TimePhrase(end=at)
    end: int | None = at
    while end is not None:
        phrase.end = end
        end = _read_element(text, end, phrase, loose=loose)
        if end is None and (joint := _JOINT.match(text, phrase.end)):
            end = _read_element(text, joint.end(), phrase, loose=loose)
    if phrase.repeats and text.startswith(("一次", "整点"), phrase.end):
        phrase.end += 2
    return None if phrase.is_empty else phrase


def read_bounds(text: str, at: int, phrase: TimePhrase) -> int | None:
    """The place after a beginning or an end of the repetition, or after both, such as `starting
    Monday, until Friday`, which the phrase takes."""
    found, end = None, _read_bound(text, at, phrase)
    while end is not None:
        joint = _JOINT.match(text, end)
        found, end = end, _read_bound(text, joint.end() if joint else end, phrase)
    return found


def _read_bound(text: str, at: int, phrase: TimePhrase) -> int | None:
    for read in _BOUNDS:
        if (end := read(text, at, phrase)) is not None:
            return end
    return None


def _read_element(text: str, at: int, phrase: TimePhrase, *, loose: bool) -> int | None:
    """The place after the element that begins here, None if there is none."""
    if _is_within_word(text, at, phrase):
        return None
    for read in _READERS:
        if (end := read(text, at, phrase)) is not None:
            return end
    if (end := _take_element(text, at, phrase)) is not None:
        return end
    return _read_bare_hour(text, at, phrase) if loose else None


def _take_element(text: str, at: int, phrase: TimePhrase) -> int | None:
    for pattern, take in _ELEMENTS:
        match = pattern.match(text, at)
        if match and take(match, phrase):
            return match.end()
    return None


def _read_since(text: str, at: int, phrase: TimePhrase) -> int | None:
    """`starting tomorrow`, `from Monday on`, `从下周一开始`, before or after a repetition. An hour
    alone is none: `每天从9点开始` may mean a part of each day."""
    if phrase.since is not None or phrase.delay is not None:
        return None
    if (end := _read_since_month(text, at, phrase)) is not None:
        return end
    lead = _SINCE.match(text, at)
    since = _read_moment(text, lead.end() if lead else at)
    if since is None or not (since.has_day or since.delay) or len(since.weekdays) > 1:
        return None
    tail = _SINCE_TAIL.match(text, since.end)
    end = tail.end() if tail else since.end
    joint = _TO.match(text, end)
    is_range = joint is not None and (lead is not None or (joint["zh"] and since.month))
    is_first = repetitions.REPETITION.match(text, end) is not None
    is_last = phrase.repeats and _AFTER_DAY.match(text, end)
    is_bound = since.names_date and (is_range or is_first or is_last)
    if tail is None and not (lead and lead["clear"]) and not (is_bound and (lead or is_range)):
        return None
    if not (phrase.repeats or is_range or is_first):
        return None
    phrase.since = since
    return end


def _read_since_month(text: str, at: int, phrase: TimePhrase) -> int | None:
    """`from December on`, `从12月起`, before or after a repetition."""
    match = _SINCE_MONTH.match(text, at)
    if match is None or not (phrase.repeats or repetitions.REPETITION.match(text, match.end())):
        return None
    number = month_number(match["en"]) if match["en"] else parse_number(match["zh"])
    if not number or number > _MAX_MONTH:
        return None
    years = {"明年": 1, "后年": 2}.get(match["in_year"] or "", 0)
    phrase.since = TimePhrase(
        end=match.end(), month=int(number), month_days=[1], whole_month=not years, year_offset=years
    )
    return match.end()


_MAX_MONTH = 12
_SINCE_MONTH = re.compile(
    rf"(?:(?:starting|beginning|commencing)(?:\s(?:from|in))?|as\sof|effective|from)\s"
    rf"(?P<en>{EN_MONTH}){NUMBER_END}(?!\s(?:the\s)?[0-9]|\s?-|\s(?:to|until|till|through|thru)\s)"
    rf"(?:\s(?:on|onwards?|forward){NUMBER_END})?"
    rf"|[从自]?(?P<in_year>明年|后年|今年)?(?P<zh>{ZH_NUMBER})月份?(?:开始|起)(?!床|来|飞|跑|到|至)[,\s]?"
)


def _read_moment(text: str, at: int) -> TimePhrase | None:
    """A phrase of a single time, which ends where a repetition begins."""
    phrase, end = TimePhrase(end=at), at
    while not repetitions.REPETITION.match(text, end):
        found = _read_single(text, end, phrase)
        if found is None and phrase.end > at and (joint := _JOINT.match(text, end)):
            found = _read_single(text, joint.end(), phrase)
        if found is None:
            break
        phrase.end = end = found
    return None if phrase.is_empty or phrase.repeats else phrase


def _read_single(text: str, at: int, phrase: TimePhrase) -> int | None:
    if (end := repetitions.read_delay(text, at, phrase)) is not None:
        return end
    return _take_element(text, at, phrase)


_SINCE = re.compile(
    r"(?P<clear>(?:starting|beginning|commencing)(?:\s(?:from|on|in(?=\s[a-z]{3,9}\s[0-9])))?|as\sof"
    r"|effective)\s|from\s|[从自]"
)
_SINCE_TAIL = re.compile(rf"\s(?:on|onwards?|forward){NUMBER_END}|\s?(?:开始|起)(?!床|来|飞|跑)")
_AFTER_DAY = re.compile(r"\s{0,2}(?:[,;.。]|$|remind\s|提醒)")
_TO = re.compile(r"\s(?:to|until|till|through)\s|(?P<zh>\s?(?:一直)?[到至])")


def _read_until(text: str, at: int, phrase: TimePhrase) -> int | None:
    """`until Friday`, `到月底为止`, after a repetition."""
    lead = _UNTIL.match(text, at)
    if lead is None or phrase.has_end or (lead[0] == "to " and phrase.since is None):
        return None
    until = _read_moment(text, lead.end())
    if until is None or until.repeats or until.window or until.has_end:
        return None
    tail = _UNTIL_END.match(text, until.end)
    end = tail.end() if tail else until.end
    is_part = phrase.month_days and until.month_days and until.month is until.month_offset is None
    is_range = len(phrase.weekdays) == 1 and until.weekdays and until.week is None
    is_first = repetitions.REPETITION.match(text, end)
    if is_part or is_range or not (phrase.repeats or is_first) or _NOT_UNTIL.match(text, end):
        # `每月1号到5号` and `Monday until Friday` are ranges of days.
        return None
    if until.has_day and phrase.repeats and not (phrase.has_hour or phrase.often or phrase.span):
        # `every day until Friday at 9`
        phrase.clocks, phrase.part = until.clocks, until.part
        until.clocks, until.part = [], None
    phrase.until = until
    return end


_UNTIL = re.compile(
    r"(?:until|till|til|through|thru|up\sto|to)\s|(?:一直|持续|坚持)?(?:直到|截[止至]到?|到|至)\s?"
)
_UNTIL_END = re.compile(r"\s?(?:为止|结束)")
_NOT_UNTIL = re.compile(r"\s?(?:之?前|以前|之?后|以后|的)")


def _read_zone(text: str, at: int, phrase: TimePhrase) -> int | None:
    found = None if phrase.zone else read_zone(text, at)
    if found is None:
        return None
    phrase.zone, end = found
    return end


def _read_bare_hour(text: str, at: int, phrase: TimePhrase) -> int | None:
    """`9` after a day, and after a word as in `daily9`, which is exact."""
    match = _BARE_HOUR.match(text, at)
    if match is None or phrase.clocks or not (phrase.every or phrase.has_day):
        return None
    return match.end() if clocks.add_clock(phrase, match[1], exact=text[at - 1] != " ") else None


def _is_within_word(text: str, at: int, phrase: TimePhrase) -> bool:
    """Digits may follow a word at once, as in `daily9`."""
    around = text[at - 1 : at + 1] if at else ""
    if len(around) < 2 or not (around.isascii() and around.isalnum()):  # noqa: PLR2004 - both sides
        return False
    return phrase.is_empty or not (around[0].isalpha() and around[1].isdigit())


_BOUNDS = (_read_since, repetitions.read_lasting, repetitions.read_times, _read_until)
_READERS = (*_BOUNDS[:1], repetitions.read_delay, repetitions.read_span, *_BOUNDS[1:], _read_zone)
_JOINT = re.compile(
    r"(?:\s{0,3},\s{0,2}|\s{1,3}|\s?的\s?|\s?(?:大概|大约|差不多)在?\s?|\s?\((?=北京|上海|中国|utc))"
)
_BARE_HOUR = re.compile(
    rf"([0-9]{{1,2}}){NUMBER_END}(?![:/.\-][0-9])(?!\s?(?:[点时月年次遍个]|times{NUMBER_END}))"
)


_ELEMENTS = (
    *DATE_ELEMENTS,
    *repetitions.ELEMENTS,
    *clocks.WINDOW_ELEMENTS,
    *DAY_ELEMENTS,
    *clocks.ELEMENTS,
    *clocks.LATE_ELEMENTS,
)
