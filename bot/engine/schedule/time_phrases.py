"""Reads from Chinese and English words when something is to happen, by rules.

- A time without a day is the next such time. A day without a time is at 9:00. Morning is 9, noon
  12, afternoon 15, evening 19 (傍晚 18), night 20; midnight is the end of the day that is named.
- Hours from 1 to 5 without another word are in the afternoon, others as they stand. `06:30` and
  `15:00` are exact. `today at 9`, said at ten, is 21:00.
- `Friday` is the next one, `this Friday` is in this week, `next Friday` and 下周五 are in the
  next. A week begins on Monday: 周日 and 下周日 are its last days.
- A weekday is Monday to Friday; a working day and 工作日 are those of the calendar of holidays.
- `12/3` is 3 December. A date without a year is the next one.
- `until Friday` includes that Friday; `for two weeks` counts from now or from the beginning that is
  named, `3 times` from the first.
- `every 2 days`, weeks or months count from the first such time, `every 2 hours` from now.
"""

from __future__ import annotations

import re
from datetime import datetime
from zoneinfo import ZoneInfo

from bot.engine.schedule.phrases.composition import compose
from bot.engine.schedule.phrases.model import TimePhrase
from bot.engine.schedule.phrases.reader import read_phrase
from bot.engine.schedule.phrases.requests import (
    EXCEPTION,
    LIMIT,
    asks_for_reminder,
    find_request,
    split_bounds,
)
from bot.engine.schedule.phrases.words import EN_DAY, ZH_NUMBER, normalise, read_amount
from bot.engine.timing import TimingError, check_timing
from handlers.ports_autonomy import TimedRequest
from storage.records.schedules import CronTiming, OneTime, Timing

MAX_READ = 500
"""Characters of a text in which times are looked for."""

_MAX_QUOTED = 60
_FIELD = r"[0-9a-z*/,#?\-]"
_CRON = re.compile(
    rf"(cron\s{{1,3}})?([\"'`]?)([0-9*]{_FIELD}{{0,60}}(?:\s{{1,3}}{_FIELD}{{1,60}}){{4}})(?:\2|(?=\s|$))"
)
_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_LEAD = re.compile(r"[\s\"'`(]{0,5}(?:(?:me|us|for)(?=\s)|[在于])?\s{0,3}")
_END = re.compile(r"[\s\"'`。.!！,，;)吧哦啊呀呢]{0,8}(?:please)?[\s.!]{0,3}")
_BETWEEN = re.compile(
    r"[\s,，:：;；。、]{0,5}(?:-{1,2}\s{1,3})?(?:(?:to|that|about)\s{1,3})?[\s:]{0,3}"
)
_UNREAD = re.compile(
    rf"{LIMIT.pattern}|{EXCEPTION.pattern}|农历|阴历|(?:[0-9]+|{ZH_NUMBER})\s?(?:times\b|[次遍])|之?前|以?内"
    rf"|(?:\*|[0-9*]+[-/,])[0-9*/,\-]*(?:\s|$)|[0-9]{{1,2}}:[0-9]|{EN_DAY}\s(?:{EN_DAY}|[0-9]|at\s)"
)
"""An end of a repetition, days that are left out, a number of times, a distance from the time, a
sixth field of a cron expression, an hour that there is not, or one more day."""
_NO_TRAIL = re.compile(
    r"(?:yesterday|last\s[a-z]{3,9}|昨[天晚]|前天|上个?(?:周|星期|月)|去年"
    r"|until|till|before|截止|直到)\s?$"
)
_MARKS = " \t\n,，;；:：。、"


_HOW_OFTEN = re.compile(
    r"\b(?:twice|thrice|[a-z0-9]{1,6}\stimes)\s(?:an?|per|each|every)\s[a-z]"
    rf"|(?:每个?|一个?)(?:天|日|周|星期|礼拜|月|年).{{0,12}}(?:{ZH_NUMBER}|几)[次遍回]"
)
_MORE_OFTEN = re.compile(rf"{_HOW_OFTEN.pattern}|(?:{ZH_NUMBER}|几)[次遍回]$")
"""The same in what is to be done: `每天提醒我喝水3次`."""
_REASONS = (
    (
        re.compile(
            r"农历|阴历|旧历|\blunar\b|chinese\snew\syear|spring\sfestival|mid-?autumn|dragon\sboat"
            r"|[正冬腊]月|大?年[三二]十|除夕|春节|元宵|端午|七夕|中秋|重阳|腊八|(?<![当月最])初[一二三四五六七八九十]"
        ),
        "timing.lunar",
    ),
    (_HOW_OFTEN, "timing.how_often"),
    (EXCEPTION, "timing.exception"),
    (
        re.compile(
            r"\b(?:some\s?time|at\ssome\spoint|soon|later|one\sof\sthese\sdays|someday)\b"
            r"|改天|改日|回头|过[一几]?(?:会儿?|阵子?|天再)|待会儿?|等会儿?|稍后|晚点|有空"
        ),
        "timing.vague",
    ),
    (
        re.compile(
            r"\b(?:before|by|no\slater\sthan)\s|之前|以前|[点号]前|(?:周|星期|礼拜)[一二三四五六日天]前"
            r"|(?:[下上]班|放学|出门|开会|吃饭|天黑|睡觉|[睡饭会])前"
        ),
        "timing.deadline",
    ),
)
"""Wordings that give no time, and what is said about each."""


def explain_refusal(text: str) -> TimingError:
    """The error for a text in which no time was understood: what is missing, and what to write."""
    return TimingError(_find_reason(normalise(text[:MAX_READ])) or "timing.words")


def _find_reason(plain: str) -> str:
    return next((key for pattern, key in _REASONS if pattern.search(plain)), "")


def read_request(text: str, *, now: datetime, zone: ZoneInfo) -> TimedRequest | None:
    """The request for later that the whole message is, None where it is none or in doubt."""
    found = find_request(normalise(text[:MAX_READ]))
    if found is None:
        return None
    own = ZoneInfo(found.phrase.zone) if found.phrase.zone else zone
    try:
        timing = compose(found.phrase, now=now, zone=zone)
        check_timing(timing, now=now, zone=own)
    except TimingError:
        return None
    pieces = [text[start:end] for start, end in found.parts]
    if not isinstance(timing, OneTime) and any(_MORE_OFTEN.search(each.lower()) for each in pieces):
        # `every Monday … twice a day`: more of the time.
        return None
    if len(text) > MAX_READ:
        pieces = [*pieces[:-1], text[found.parts[-1][0] :]] if pieces else []
    joint = " " if pieces and pieces[0].isascii() else ""
    return TimedRequest(
        timing=timing,
        subject=joint.join(pieces).strip(),
        asks_reminder=found.asks_reminder,
        zone_name=found.phrase.zone,
    )


def check_readable(text: str) -> None:
    """Raise TimingError for a message that asks for a reminder without saying when."""
    plain = normalise(text[:MAX_READ])
    reason = _find_reason(plain)
    if reason and asks_for_reminder(plain):
        raise TimingError(reason)


def read_timing(text: str, *, now: datetime, zone: ZoneInfo) -> Timing:
    """The time that the whole text says. Raises TimingError with what to write instead."""
    plain = normalise(text[:MAX_READ])
    timing, end, _ = _read_at(text, plain, now=now, zone=zone)
    if timing is None or not _END.fullmatch(plain, end) or len(text) > MAX_READ:
        raise explain_refusal(text)
    check_timing(timing, now=now, zone=zone)
    return timing


def split_timing(text: str, *, now: datetime, zone: ZoneInfo) -> tuple[Timing, str]:
    """The time at the beginning or else at the end of the text, and the rest of it. Raises
    TimingError if there is none."""
    plain = normalise(text[:MAX_READ])
    timing, end, last = _read_at(text, plain, now=now, zone=zone, with_rest=len(text) <= MAX_READ)
    if timing is not None and _ends_word(plain, end):
        start = _BETWEEN.match(plain, end).end()  # type: ignore[union-attr] # it matches nothing
        if _UNREAD.match(plain, start):
            # More of the time that is not understood must not become a part of the work.
            raise explain_refusal(text)
        rest = text[start:last]
    else:
        timing, rest = _split_trailing(text, plain, now=now, zone=zone)
    check_timing(timing, now=now, zone=zone)
    return timing, rest.strip()


def _split_trailing(text: str, plain: str, *, now: datetime, zone: ZoneInfo) -> tuple[Timing, str]:
    for start in range(1, len(plain) if len(text) <= MAX_READ else 0):
        phrase = read_phrase(plain, start, loose=True)
        if phrase and _END.fullmatch(plain, phrase.end) and not _NO_TRAIL.search(plain, 0, start):
            return _compose_own(phrase, now=now, zone=zone), text[:start].rstrip(_MARKS)
    raise explain_refusal(text)


def _ends_word(text: str, end: int) -> bool:
    following = text[end : end + 1]
    return not (following.isascii() and following.isalnum())


def _read_at(
    text: str, plain: str, *, now: datetime, zone: ZoneInfo, with_rest: bool = False
) -> tuple[Timing | None, int, int | None]:
    """The timing at the beginning of the text, the place after it and, `with_rest`, the place
    where the rest ends, None for the end of the text."""
    lead = _LEAD.match(plain)
    start = lead.end() if lead else 0
    if found := _read_cron(text, plain):
        return *found, None
    phrase = read_phrase(plain, start, loose=True)
    if phrase is not None:
        last: int | None = None
        if with_rest and phrase.repeats:
            place = split_bounds(plain, phrase, phrase.end, len(plain))
            last = place if place < len(plain) else None
        return _compose_own(phrase, now=now, zone=zone), phrase.end, last
    amount = read_amount(plain, start)
    if amount is not None:
        phrase = TimePhrase(end=amount[1], delay=amount[0])
        return compose(phrase, now=now, zone=zone), phrase.end, None
    return None, start, None


def _read_cron(text: str, plain: str) -> tuple[Timing, int] | None:
    start = len(plain) - len(plain.lstrip())
    for alias, expression in _ALIASES.items():
        if plain.startswith(alias, start):
            return CronTiming(expression=expression), start + len(alias)
    match = _CRON.match(plain, start)
    if match and (match[1] or "*" in match[3]):
        expression = text[match.start(3) : match.end(3)]
        return CronTiming(expression=" ".join(expression.split())), match.end()
    if plain.startswith("cron", start):
        raise TimingError("timing.cron", text=text[start:][:_MAX_QUOTED])
    return None


def _compose_own(phrase: TimePhrase, *, now: datetime, zone: ZoneInfo) -> Timing:
    """A single time may be of another zone; a repetition belongs to the zone of its schedule."""
    timing = compose(phrase, now=now, zone=zone)
    if not isinstance(timing, OneTime) and phrase.zone not in {"", zone.key}:
        raise TimingError("timing.other_zone", zone=phrase.zone)
    return timing
