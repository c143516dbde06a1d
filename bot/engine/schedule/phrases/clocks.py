"""Reads hours and parts of the day."""

from __future__ import annotations

import re
from dataclasses import replace

from bot.engine.schedule.phrases.model import (
    HOUR_MINUTES,
    MIDNIGHT,
    NOON,
    ClockTime,
    DayPart,
    Element,
    TimePhrase,
)
from bot.engine.schedule.phrases.words import NUMBER_END, ZH_NUMBER, parse_number

_MAX_CLOCKS = 24
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
ZH_PART = (
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
        if not 1 <= int(hour_text) <= NOON:
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
        return 15 * int(parse_number(quarter) or 1)
    value = parse_number(found.get("minute") or found.get("minute_only") or "0")
    return int(value) if value is not None and value < HOUR_MINUTES else None


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
    if number is None or number > MIDNIGHT or phrase.instant is not None:
        return False
    if len(phrase.clocks) >= _MAX_CLOCKS:
        return False
    hour = int(number)
    if before:
        hour, minute = (hour - 1) % MIDNIGHT, HOUR_MINUTES - minute
    exact = exact or hour > NOON or hour == 0
    phrase.clocks.append(ClockTime(hour=hour, minute=minute, part=part, exact=exact))
    return True


_EN_HOUR = r"(?:[0-9]{1,2}|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)"
_NO_COUNT_AFTER = (
    r"(?!建议|意见|原因|理由|要求|内容|想法|问题|事|击|赞|评|心|子|头|到为止|儿|名|都)"
)
"""点 may count items and strokes, too."""
_JOINT = r"(?:(?:and|&|和|及|跟|、|/)\s?)?"
_AM_PM = rf"(?P<ampm>am|pm|a\.m\.?|p\.m\.?){NUMBER_END}"
_CLOCKS = tuple(
    re.compile(_JOINT + pattern)
    for pattern in (
        # 9点, 下午3点半, 18时30分
        (
            rf"(?P<part>{ZH_PART})?\s?(?P<hour>{ZH_NUMBER})\s?(?:点|(?<=[0-9])时(?!候|间|常))"
            rf"{_NO_COUNT_AFTER}(?:钟|整)?\s?(?:(?P<half>半)|(?P<quarter>[一三13])刻"
            r"|过?(?P<minute>[0-5][0-9]|[一二三四五]?十[一二三四五六七八九]?|[零〇][一二三四五六七八九])"
            r"(?:\s?分|(?![个名位份条次元块天页%]))|过?(?P<minute_only>[0-9五])(?=\s?分))?(?:\s?分)?(?:左右)?"
        ),
        # 差十分八点, 差一刻九点
        rf"差(?:(?P<minute>{ZH_NUMBER})分钟?|(?P<quarter>[一1])刻钟?)\s?(?P<to_hour>(?P<hour>{ZH_NUMBER}))点{_NO_COUNT_AFTER}",
        # 9:30, 下午 9:30, 9:30 pm
        (
            rf"(?:at\s|@\s?)?(?P<part>{ZH_PART})?\s?(?P<hour>[0-9]{{1,2}}):(?P<minute>[0-5][0-9])"
            rf"(?::[0-5][0-9])?(?![0-9])(?:\s?{_AM_PM})?"
        ),
        # 9am, 7.45pm
        rf"(?:at\s|@\s?)?(?P<hour>[0-9]{{1,2}})(?:\.(?P<minute>[0-5][0-9]))?\s?{_AM_PM}",
        # half past nine, quarter to 9
        (
            r"(?:at\s)?(?:(?P<half>half)\spast|(?:a\s)?(?P<quarter>quarter)\s(?:past|(?P<to_hour>to)))"
            rf"\s(?P<hour>{_EN_HOUR}){NUMBER_END}"
        ),
        # ten to nine, 10 minutes past 9
        (
            r"(?:at\s)?(?P<minute>five|ten|twenty|(?:[0-9]{1,2}|five|ten|twenty)(?=\sminutes))(?:\sminutes)?"
            rf"\s(?:past|(?P<to_hour>to))\s(?P<hour>{_EN_HOUR}){NUMBER_END}"
        ),
        # at 9, at nine, 9 o'clock
        (
            rf"(?:at(?:\s(?:about|around))?|around|@)\s(?P<hour>{_EN_HOUR})"
            r"(?:\.(?P<minute>[0-5][0-9])|\s?o'?clock)?"
            r"(?![0-9a-z%/]|[:.][0-9]|\s(?:minutes|percent|people|dollars|euros)|\s(?:to|past)\s[0-9])"
        ),
        rf"(?P<hour>{_EN_HOUR})\s?o'?clock{NUMBER_END}",
        # 9 tonight
        r"(?P<hour>[0-9]{1,2})(?=\s(?:tonight|tomorrow|in\sthe\s(?:morning|afternoon|evening)))",
    )
)
_MORE_PART_CLOCK = re.compile(
    r"(?:and|&)\s(?:every|each|in\sthe)\s(?P<part>morning|afternoon|evening|night)\sat\s"
    rf"(?P<hour>{_EN_HOUR})(?::(?P<minute>[0-5][0-9]))?(?:\s?{_AM_PM})?{NUMBER_END}"
)
"""`and every evening at 9`, after `every morning at 8`."""
_MORE_CLOCKS = re.compile(
    r"(?:\s?(?:,\s?and|,|and|&|和|、)\s?)(?P<hour>[0-9]{1,2})(?![0-9:a-z%/.\-点时月])"
    r"(?!\s(?!and\s[0-9]|every|each|daily|on|in|tomorrow|to\s|remind|send|check|post|give|run|$))"
)


def _take_more_clocks(match: re.Match[str], phrase: TimePhrase) -> bool:
    """`and 18`, after `at 9`."""
    return bool(phrase.clocks) and add_clock(phrase, match["hour"])


def _take_end_of_day(_: re.Match[str], phrase: TimePhrase) -> bool:
    """`EOD`, which is the end of work."""
    return not phrase.has_hour and add_clock(phrase, "17", exact=True)


_END_OF_DAY = re.compile(
    rf"(?:at\s)?(?:eod|cob|(?:the\s)?end\sof\s(?:the\s)?(?:business\s|working?\s)?day"
    rf"|close\sof\sbusiness){NUMBER_END}"
)


def _take_both(match: re.Match[str], phrase: TimePhrase) -> bool:
    """`早晚8点`."""
    return (
        not phrase.has_hour
        and add_clock(phrase, match["hour"], part=DayPart.AM)
        and add_clock(phrase, match["hour"], part=DayPart.NIGHT)
    )


_BOTH = re.compile(rf"早晚各?(?P<hour>{ZH_NUMBER})点{_NO_COUNT_AFTER}")


def _take_more_parts(match: re.Match[str], phrase: TimePhrase) -> bool:
    """`and evening`, after `every morning`."""
    more = part_in(match[0])
    if phrase.part is None or more is None or phrase.clocks or not phrase.every:
        return False
    for part in (phrase.part, more):
        phrase.clocks.append(ClockTime(hour=part.value, part=part, exact=True))
    return True


_MORE_PARTS = re.compile(
    rf"(?:\sand\s(?:every\s)?|\s?[和、]\s?)(?:(?:morning|noon|afternoon|evening|night){NUMBER_END}"
    rf"|(?:早上|中午|下午|傍晚|晚上)(?!{ZH_NUMBER}点))"
)


def _take_window(match: re.Match[str], phrase: TimePhrase) -> bool:
    """`from 9 to 17`, `9点到18点`, `between 9am and 5pm`."""
    if phrase.window or phrase.clocks or phrase.instant or phrase.delay:
        return False
    lead, joint = match["lead"], match["joint"]
    if (joint == "and") is not (lead == "between "):
        return False
    is_bare = not lead and f"{match['start']}{match['end']}".isdigit()
    if is_bare and not (phrase.repeats or _REPEATED.match(match.string, match.end())):
        return False
    start, end = _side(match["start"]), _side(match["end"])
    if start is None or end is None:
        return False
    if end.part in {DayPart.AM, DayPart.PM} and start.part is None and start.hour < end.hour:
        # `2 to 5pm`
        start = replace(start, part=end.part)
    phrase.make_often()
    phrase.window = (start, end)
    return True


def _side(text: str) -> ClockTime | None:
    """One end of a window."""
    match = _SIDE_PARTS.fullmatch(text)
    phrase = TimePhrase(end=0)
    if match is None:
        part = part_in(text)
        return ClockTime(hour=part.value, exact=True) if part else None
    return phrase.clocks[0] if _take_clock(match, phrase) else None


_SIDE_PARTS = re.compile(
    rf"(?P<part>{ZH_PART})?\s?(?P<hour>{ZH_NUMBER})(?:[:.](?P<minute>[0-5][0-9])|\s?点(?:钟|整)?"
    r"(?:(?P<half>半)|(?P<quarter>[一三])刻|(?P<minute_only>[0-5][0-9])分?)?)?"
    r"(?:\s?(?P<ampm>am|pm|a\.m\.?|p\.m\.?))?"
)
_SIDE = re.sub(r"\?P<\w+>", "?:", _SIDE_PARTS.pattern)
_WINDOW = re.compile(
    rf"(?P<lead>from\s|between\s|从)?(?P<start>{_SIDE}|noon|midday)\s?"
    rf"(?P<joint>to|until|till|and|[-–—~到至])\s?(?P<end>{_SIDE}|noon|midday|midnight)"
    r"(?![0-9a-z:%/.\-号日月])(?:\s?(?:之间|期间|内))?"
)
_REPEATED = re.compile(r"[\s,]{0,2}(?:on\s(?:weekdays|workdays)|every|each|hourly|每)")


def _take_part(match: re.Match[str], phrase: TimePhrase) -> bool:
    """`in the morning`, `morning` after a day, `下午`, `noon`."""
    part = part_in(match[0])
    is_end_of_night = part is DayPart.MIDNIGHT and phrase.part is DayPart.NIGHT
    if part is None or (phrase.part not in {None, part} and not is_end_of_night):
        return False
    english = match[0][0].isascii()
    if english and part not in {DayPart.NOON, DayPart.MIDNIGHT} and phrase.is_empty:
        return False
    if any(clock.part for clock in phrase.clocks):
        return False
    phrase.part = part
    return True


_FIRST_THING = re.compile(
    r"first\sthing(?:\sin\sthe\smorning)?"
    r"(?=(?P<day>\s(?:on\s)?(?:next\s)?(?:tom|tmr|mon|tue|wed|thu|fri|sat|sun))?)"
)


def _take_first_thing(match: re.Match[str], phrase: TimePhrase) -> bool:
    """`first thing tomorrow`."""
    if phrase.has_hour or (phrase.is_empty and not match["day"]):
        return False
    phrase.part = DayPart.AM
    return True


_PART = re.compile(
    r"(?:(?:at\s)?(?:noon|midday|midnight|night)|(?:in\sthe\s)?(?:morning|afternoon|evening))s?"
    rf"{NUMBER_END}|(?:{ZH_PART})"
)

ELEMENTS: tuple[Element, ...] = tuple((pattern, _take_clock) for pattern in _CLOCKS)
WINDOW_ELEMENTS: tuple[Element, ...] = ((_WINDOW, _take_window),)
LATE_ELEMENTS: tuple[Element, ...] = (
    (_MORE_PART_CLOCK, _take_clock),
    (_MORE_CLOCKS, _take_more_clocks),
    (_MORE_PARTS, _take_more_parts),
    (_BOTH, _take_both),
    (_END_OF_DAY, _take_end_of_day),
    (_FIRST_THING, _take_first_thing),
    (_PART, _take_part),
)
"""Tried where nothing else fits."""
