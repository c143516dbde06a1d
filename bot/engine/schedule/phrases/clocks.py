"""Reads hours and parts of the day."""

from __future__ import annotations

import re

from bot.engine.schedule.phrases.model import ClockTime, DayPart, Element, TimePhrase
from bot.engine.schedule.phrases.words import NUMBER_END, ZH_NUMBER, parse_number

_NOON, _MIDNIGHT, _HOUR_MINUTES = 12, 24, 60
_PARTS = {
    "凌晨": DayPart.DAWN,
    "清晨": DayPart.AM,
    "上午": DayPart.AM,
    "中午": DayPart.NOON,
    "正午": DayPart.NOON,
    "下午": DayPart.PM,
    "午后": DayPart.PM,
    "傍晚": DayPart.DUSK,
    "午夜": DayPart.MIDNIGHT,
    "半夜": DayPart.MIDNIGHT,
    "早": DayPart.AM,
    "晚": DayPart.NIGHT,
    "夜": DayPart.NIGHT,
    "morning": DayPart.AM,
    "afternoon": DayPart.PM,
    "evening": DayPart.EVENING,
    "midnight": DayPart.MIDNIGHT,
    "night": DayPart.NIGHT,
    "noon": DayPart.NOON,
    "midday": DayPart.NOON,
}
_ZH_PART = (
    "凌晨|清晨|清早|一早|大早上|早上|早晨|上午|中午|正午|午后|下午|傍晚|晚上|晚间|夜里|夜晚|深夜"
    "|半夜|午夜|[早晚](?=[0-9]{2}|[4-9五六七八九十])"
)


def part_in(text: str) -> DayPart | None:
    """The part of the day that the text names, None if it names none."""
    named = (part for word, part in _PARTS.items() if word in text)
    return next(named, None)


def _take_clock(match: re.Match[str], phrase: TimePhrase) -> bool:
    found = match.groupdict()
    hour_text = found["hour"]
    minute = _minute(found)
    if minute is None:
        return False
    part = part_in(found.get("part") or "")
    if ampm := (found.get("ampm") or "").replace(".", ""):
        part = DayPart.AM if ampm == "am" else DayPart.PM
        if not 1 <= int(hour_text) <= _NOON:
            return False
    exact = bool(ampm) or (hour_text[0] == "0" and hour_text.isdigit())
    if part and not ampm and phrase.part and part is not phrase.part and not phrase.clocks:
        return False
    before = found.get("to_hour") is not None
    return add_clock(phrase, hour_text, minute=minute, part=part, exact=exact, before=before)


def _minute(found: dict[str, str | None]) -> int | None:
    if found.get("half"):
        return 30
    if quarter := found.get("quarter"):
        return 15 * int(parse_number(quarter) or 1) if quarter in "一三" else 15
    value = parse_number(found.get("minute") or found.get("minute_only") or "0")
    return int(value) if value is not None and value < _HOUR_MINUTES else None


def add_clock(
    phrase: TimePhrase,
    hour_text: str,
    *,
    minute: int = 0,
    part: DayPart | None = None,
    exact: bool = False,
    before: bool = False,
) -> bool:
    """Add an hour, `before` which it is so many minutes; False if there is no such hour."""
    number = parse_number(hour_text)
    if number is None or number > _MIDNIGHT or phrase.instant is not None:
        return False
    hour = int(number)
    if before:
        hour, minute = (hour - 1) % _MIDNIGHT, _HOUR_MINUTES - minute
    exact = exact or hour > _NOON or hour == 0
    phrase.clocks.append(ClockTime(hour=hour, minute=minute, part=part, exact=exact))
    return True


_EN_HOUR = r"(?:[0-9]{1,2}|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)"
_ZH_AFTER = r"(?!建议|意见|原因|理由|要求|内容|想法|问题|事|击|赞|评|心|子|头|到为止|儿|名|都)"
_AND = r"(?:(?:and|&|和|及|跟|、)\s?)?"
_AM_PM = rf"(?P<ampm>am|pm|a\.m\.?|p\.m\.?){NUMBER_END}"
_CLOCKS = tuple(
    re.compile(_AND + pattern)
    for pattern in (
        # 9点, 下午3点半, 18时30分
        (
            rf"(?P<part>{_ZH_PART})?\s?(?P<hour>{ZH_NUMBER})\s?(?:点|(?<=[0-9])时(?!候|间|常))"
            rf"{_ZH_AFTER}(?:钟|整)?\s?(?:(?P<half>半)|(?P<quarter>[一三])刻"
            r"|(?P<minute>[0-5][0-9]|[一二三四五]?十[一二三四五六七八九]?|[零〇][一二三四五六七八九])"
            r"(?:\s?分|(?![个名位份条次元块天页%]))|(?P<minute_only>[0-9])(?=\s?分))?(?:\s?分)?"
        ),
        # 9:30, 下午 9:30, 9:30 pm
        (
            rf"(?:at\s|@\s?)?(?P<part>{_ZH_PART})?\s?(?P<hour>[0-9]{{1,2}}):(?P<minute>[0-5][0-9])"
            rf"(?::[0-5][0-9])?(?![0-9])(?:\s?{_AM_PM})?"
        ),
        # 9am, 7.45pm
        rf"(?:at\s|@\s?)?(?P<hour>[0-9]{{1,2}})(?:\.(?P<minute>[0-5][0-9]))?\s?{_AM_PM}",
        # half past nine, quarter to 9
        (
            r"(?:at\s)?(?:(?P<half>half)\spast|(?:a\s)?(?P<quarter>quarter)\s(?:past|(?P<to_hour>to)))"
            rf"\s(?P<hour>{_EN_HOUR}){NUMBER_END}"
        ),
        # at 9, at nine, 9 o'clock
        (
            rf"(?:at|around|@)\s(?P<hour>{_EN_HOUR})(?:\s?o'?clock)?"
            r"(?![0-9a-z%/]|[:.][0-9]|\s(?:minutes|percent|people))"
        ),
        rf"(?P<hour>{_EN_HOUR})\s?o'?clock{NUMBER_END}",
        # 9 tonight
        r"(?P<hour>[0-9]{1,2})(?=\s(?:tonight|tomorrow|in\sthe\s(?:morning|afternoon|evening)))",
    )
)
_MORE_CLOCKS = re.compile(
    r"(?:\s?(?:,\s?and|,|and|&|和|、)\s?)(?P<hour>[0-9]{1,2})(?![0-9:a-z%/.\-点时月])"
    r"(?!\s(?!and\s[0-9]|every|each|daily|on|in|tomorrow|$))"
)


def _take_more_clocks(match: re.Match[str], phrase: TimePhrase) -> bool:
    """`and 18`, after `at 9`."""
    return bool(phrase.clocks) and add_clock(phrase, match["hour"])


def _take_part(match: re.Match[str], phrase: TimePhrase) -> bool:
    """`in the morning`, `morning` after a day, `下午`, `noon`."""
    part = part_in(match[0])
    is_end_of_night = part is DayPart.MIDNIGHT and phrase.part is DayPart.NIGHT
    if part is None or (phrase.part is not None and not is_end_of_night):
        return False
    english = match[0][0].isascii()
    if english and part not in {DayPart.NOON, DayPart.MIDNIGHT} and phrase.is_empty:
        return False
    if any(clock.part for clock in phrase.clocks):
        return False
    phrase.part = part
    return True


_PART = re.compile(
    r"(?:(?:at\s)?(?:noon|midday|midnight|night)|(?:in\sthe\s)?(?:morning|afternoon|evening))s?"
    rf"{NUMBER_END}|(?:{_ZH_PART})"
)

ELEMENTS: tuple[Element, ...] = tuple((pattern, _take_clock) for pattern in _CLOCKS)
LATE_ELEMENTS: tuple[Element, ...] = ((_MORE_CLOCKS, _take_more_clocks), (_PART, _take_part))
"""Tried where nothing else fits."""
