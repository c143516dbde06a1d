"""Reads repetitions, how long they last, and delays: `every weekday`, `每隔两天`, `for two weeks`,
`in 20 minutes`."""

from __future__ import annotations

import re
from datetime import timedelta

from bot.engine.schedule.phrases.clocks import ZH_PART, part_in
from bot.engine.schedule.phrases.model import LAST, LAST_WEEKDAY, Element, Every, TimePhrase
from bot.engine.schedule.phrases.words import (
    EN_DAY,
    EN_MONTH,
    NUMBER_END,
    ZH_DAYS,
    ZH_NUMBER,
    Amount,
    day_number,
    parse_number,
    read_amount,
)
from storage.records.schedules import DayFilter


def read_delay(text: str, at: int, phrase: TimePhrase) -> int | None:
    """`in 20 minutes`, `20 minutes later`, `20分钟后`, `过20分钟`."""
    lead = _DELAY_LEAD.match(text, at)
    start = lead.end() if lead else at
    found = read_amount(text, start)
    if found is None:
        return None
    amount, end = found
    tail = _DELAY_TAIL.match(text, end)
    if tail:
        end = tail.end()
    elif lead is None:
        return None
    if phrase.delay is not None or phrase.every or phrase.has_day:
        return None
    phrase.delay = amount
    return end


_DELAY_LEAD = re.compile(r"(?:in|after)\s|再?过\s?")
_DELAY_TAIL = re.compile(
    rf"\s(?:from\s(?:now|today)|later|hence){NUMBER_END}|\s?(?:之后|以后|过后|后(?!天|面|来|续))"
)


def read_span(text: str, at: int, phrase: TimePhrase) -> int | None:
    """`every 2 hours`, `every other Friday`, `每两天`, `每隔一天`, `隔周`."""
    if phrase.repeats and not phrase.takes_often:
        return None
    if phrase.takes_often:
        return _read_often(text, at, phrase)
    if match := _EVERY_OTHER.match(text, at):
        _repeat_every_other(match, phrase)
        return match.end()
    lead = _SPAN_LEAD.match(text, at)
    found = read_amount(text, lead.end()) if lead else None
    if lead is None or found is None:
        return None
    amount, end = found
    gap = "隔" in lead[0]
    if amount.months and not amount.days and not amount.span:
        phrase.repeat(Every.MONTH, amount.months)
        phrase.from_first = amount.months > 1
    elif amount.days and not amount.months and not amount.span:
        in_days = re.search("d|[天日]", text[lead.end() : end]) is not None
        step = amount.days if in_days else amount.days // 7
        phrase.repeat(Every.DAY if in_days else Every.WEEK, 2 if gap and step == 1 else step)
    else:
        phrase.repeat(Every.SPAN)
        phrase.span = amount
    return end


def _read_often(text: str, at: int, phrase: TimePhrase) -> int | None:
    """`every 2 hours`, after days or hours in which it is so."""
    lead = _SPAN_LEAD.match(text, at)
    found = read_amount(text, lead.end()) if lead else None
    if found is None or not found[0].span or found[0].days or found[0].months:
        return None
    phrase.often, end = found
    return end


def _repeat_every_other(match: re.Match[str], phrase: TimePhrase) -> None:
    what = match[1] or match[2] or "week"
    if what == "hour":
        phrase.repeat(Every.SPAN)
        phrase.span = Amount(span=timedelta(hours=2))
    elif re.fullmatch(EN_DAY, what):
        phrase.repeat(Every.WEEK, 2)
        phrase.weekdays = [day_number(what)]
    else:
        phrase.repeat(_OTHER_UNITS[what], 2)
        phrase.from_first = what == "month"


_OTHER_UNITS = {
    "day": Every.DAY,
    "week": Every.WEEK,
    "month": Every.MONTH,
    "天": Every.DAY,
    "日": Every.DAY,
    "周": Every.WEEK,
}
_EVERY_OTHER = re.compile(
    rf"every\s(?:other|second|2nd)\s(day|week|hour|month|{EN_DAY}){NUMBER_END}(?!\s(?:of|in)\s)"
    rf"|隔(?=(?:周|星期|礼拜){ZH_DAYS})|隔([天日周])|"
    rf"(?:biweekly|fortnightly|every\sfortnight){NUMBER_END}"
)
_SPAN_LEAD = re.compile(r"every\s(?!(?:an?|one)\s)|每隔|每(?!一?[天日年周月]|个?[月季周小]|分钟)")


def read_lasting(text: str, at: int, phrase: TimePhrase) -> int | None:
    """`for two weeks`, `持续两周`, `连续3天` before or after a repetition."""
    lead = _LASTING_LEAD.match(text, at)
    found = None if phrase.has_end else read_amount(text, lead.end() if lead else at)
    if found is None and not phrase.has_end and (unit := _NEXT_UNIT.match(text, at)):
        one = read_amount(f"1 {unit[1]}", 0)
        found = (one[0], unit.end()) if one else None
    if found is None:
        return None
    amount, end = found
    tail = _LASTING_TAIL.match(text, end)
    end = tail.end() if tail else end
    is_first = REPETITION.match(text, end) is not None
    if lead is None and not (tail and is_first):
        # `一周内每天`
        return None
    if lead and not phrase.repeats and not is_first:
        if not (lead["days"] and amount.is_whole_days and _TIME_OF_DAY.match(text, end)):
            return None
        # `连续3天早上8点`
        phrase.repeat(Every.DAY)
    phrase.lasting = amount
    return end


_LASTING_LEAD = re.compile(
    r"(?:for|over)\s(?:the\s(?:next|coming)\s)?|(?:一直)?(?:持续|坚持|为期|(?P<days>连续|接下来|未来|今后))的?"
)
_NEXT_UNIT = re.compile(rf"for\sthe\s(?:next|coming)\s(hour|day|week|month|year){NUMBER_END}")
_LASTING_TAIL = re.compile("[之以]?内")
REPETITION = re.compile(r"[\s,]{0,2}(?:every|each|daily|weekdays|每|天天)")
_TIME_OF_DAY = re.compile(rf"[\s,]{{0,2}}的?(?:{ZH_PART}|{ZH_NUMBER}[点:])")


def read_times(text: str, at: int, phrase: TimePhrase) -> int | None:
    """`3 times`, `共3次`. Right after a day they are those of each day, which are not read here."""
    match = _TIMES_EN.match(text, at) or _TIMES_ZH.match(text, at)
    if match is None or phrase.has_end:
        return None
    is_apart = text[max(0, at - 2) : at].rstrip(" ").endswith(",")
    is_first = match["total"] is not None or text[match.end() :][:1] in {",", ""}
    if not phrase.repeats and not (is_first and REPETITION.match(text, match.end())):
        return None
    if phrase.repeats and not (
        match["total"] or is_apart or phrase.clocks or phrase.every is Every.SPAN
    ):
        return None
    number = _TIMES_WORDS.get(match["n"]) or parse_number(match["n"])
    if not number or number > _MAX_TIMES or number != int(number):
        return None
    phrase.times = int(number)
    return match.end()


_MAX_TIMES = 1000
_TIMES_WORDS = {"once": 1, "twice": 2, "thrice": 3}
_TIMES_EN = re.compile(
    r"(?P<total>(?:for\s)?a\stotal\sof\s|for\s|only\s)?"
    rf"(?P<n>twice|thrice|(?:[0-9]{{1,4}}|[a-z]{{3,6}})(?=\stimes))(?:\stimes)?{NUMBER_END}"
    r"(?!\s(?:an?|per|each|every)\s)(?:\s(?:in\stotal|in\sall|total|only))?"
)
_TIMES_ZH = re.compile(
    rf"(?P<total>[总一]?共(?:提醒)?|连续(?:提醒)?|只(?:提醒)?)?(?P<n>{ZH_NUMBER})[次遍](?:为止|后停止|后结束)?"
)


def _take_unit(match: re.Match[str], phrase: TimePhrase) -> bool:
    """`every day`, `daily`, `weekends`, `每个工作日`, `每晚`."""
    word = match["unit"]
    if phrase.every in {Every.DAY, Every.WEEK} and _EACH_DAY.fullmatch(word):
        # `每周一到周五每天`
        return True
    every, step = next(
        ((every, step) for pattern, every, step in _UNITS if pattern.fullmatch(word)),
        (Every.DAY, 1),
    )
    if phrase.takes_often and every in _CLOCK_UNITS:
        phrase.often = _CLOCK_UNITS[every]
        return True
    if every not in _CLOCK_UNITS:
        phrase.make_often()
    if phrase.every or (phrase.has_day and every not in _WITH_DAYS):
        return False
    phrase.repeat(every, step)
    phrase.span = _CLOCK_UNITS[every] if every is Every.SPAN else None
    _take_kind_of_day(word, phrase)
    return True


def _take_kind_of_day(word: str, phrase: TimePhrase) -> None:
    if "weekday" in word:
        phrase.every, phrase.weekdays = Every.WEEK, [0, 1, 2, 3, 4]
    elif re.search("weekend|周末", word):
        phrase.every, phrase.weekdays = Every.WEEK, [5, 6]
    elif re.search("work|business|工作日", word):
        phrase.filter = DayFilter.WORKING
    elif re.search("off|holiday|休息日|假日", word):
        phrase.filter = DayFilter.FREE
    elif part := part_in(word):
        phrase.part = part


_CLOCK_UNITS = {
    Every.HOUR: Amount(span=timedelta(hours=1)),
    Every.MINUTE: Amount(span=timedelta(minutes=1)),
    Every.SPAN: Amount(span=timedelta(seconds=1)),
}
_EACH_DAY = re.compile(r"(?:every|each)\s?day|daily|每一?[天日]|天天")
_WITH_DAYS = frozenset({Every.WEEK, Every.MONTH, Every.YEAR})
_UNIT_WORDS = (
    r"(?:once\san?|once\severy|every|each)\s(?:single\s)?(?:day\soff|working\sday|business\sday|weekday|weekend|workday"
    r"|public\sholiday|holiday|day|morning|afternoon|evening|night|week|month|quarter|year|hour"
    r"|minute|second)"
    r"|(?:on\s)?(?:weekdays|weekends|working\sdays|workdays|business\sdays|days\soff|holidays)"
    r"|everyday|daily|nightly|weekly|monthly|quarterly|yearly|annually|hourly|(?:week|work)day(?=\s?[0-9]|\smornings)"
    r"|每一?[天日]|天天|每个?(?:早上|早晨|上午|中午|下午|傍晚|晚上)|每[早晚](?!上)"
    r"|(?:每个?|每逢)?(?:工作日|休息日|节假日)|每个?周末|每个?月|每个?季度?|每半年|每年"
    r"|每个?(?:小时|整点)|每分钟|每秒钟?"
)
_UNIT = re.compile(rf"(?P<unit>{_UNIT_WORDS})(?:(?<![a-z])|(?=[0-9])|{NUMBER_END})")
_UNITS = tuple(
    (
        re.compile(
            rf"(?:on\s)?(?:once\san?\s|once\severy\s|every\s|each\s|每)?(?:single\s)?(?:{pattern})"
        ),
        every,
        step,
    )
    for pattern, every, step in (
        (r"weekly|week", Every.WEEK, 1),
        (r"monthly|month|个?月", Every.MONTH, 1),
        (r"quarterly|quarter|个?季度?", Every.MONTH, 3),
        (r"半年", Every.MONTH, 6),
        (r"yearly|annually|year|年", Every.YEAR, 1),
        (r"hourly|hour|个?(?:小时|整点)", Every.HOUR, 1),
        (r"minute|分钟", Every.MINUTE, 1),
        (r"second|秒钟?", Every.SPAN, 1),
    )
)


def _take_every(match: re.Match[str], phrase: TimePhrase) -> bool:
    """`every` before a day of the week or of the year, `每周` before its days."""
    if phrase.every:
        return False
    if match.groupdict().get("monthly") is not None:
        phrase.repeat(Every.MONTH)
    elif re.match(r"every\s", match[0]) and re.match(EN_MONTH, match.string[match.end() :][:9]):
        phrase.repeat(Every.YEAR)
    else:
        phrase.repeat(Every.WEEK)
    return True


_EVERY = re.compile(
    rf"(?:every|each)\s(?:(?={EN_DAY}{NUMBER_END})|(?={EN_MONTH}\s[0-9])"
    r"|(?P<monthly>(?=(?:first|second|third|fourth|fifth|last)\s|[0-9]{1,2}(?:st|nd|rd|th))))"
)
_EVERY_ZH = re.compile(
    rf"(?:每?逢|每个|每一个|每)(?=(?:周|星期|礼拜){ZH_DAYS})|每个?(?:周|星期|礼拜)(?!{ZH_DAYS}|末)"
)


def _take_nth(match: re.Match[str], phrase: TimePhrase) -> bool:
    """`first Monday` or `last day` of a month, `第一个周一`, `最后一天`."""
    if (
        match["nth"].startswith("最后")
        and match["what"] in "天日"
        and phrase.month_offset is not None
    ):
        phrase.month_days = [LAST]
        return True
    if phrase.weekdays or phrase.month_days or (phrase.has_day and not phrase.every):
        return False
    if phrase.every not in {None, Every.MONTH, Every.YEAR}:
        return False
    if phrase.every is None and match.groupdict("").get("of") == "":
        # `the first day` of something else.
        return False
    nth = _nth(match["nth"])
    what = match["what"]
    if nth < LAST:
        return False
    if what in {"day", "天", "日"}:
        phrase.month_days = [nth]
    elif what == "weekday" and nth == LAST:
        phrase.month_days = [LAST_WEEKDAY]
    elif _WORKDAY.fullmatch(what):
        phrase.nth_working_day, phrase.filter = True, DayFilter.WORKING
        phrase.month_days = [nth]
    else:
        phrase.nth = nth
        phrase.weekdays = [day_number(what if what.isascii() else what[-1])]
    if phrase.every is None:
        phrase.repeat(
            Every.MONTH, 3 if match.groupdict("").get("of", "").endswith("quarter") else 1
        )
    return True


def _nth(text: str) -> int:
    """Counted from the end below 0."""
    if text.startswith(("last", "最后")):
        return LAST
    number = parse_number(text.strip("倒数第头个"))
    number = int(number) if number else _NTH[text]
    return -number if text.startswith("倒") else number


_WORKDAY = re.compile(r"weekday|work.*|business.*|工作日")
_ORDINALS = ("first|1st", "second|2nd", "third|3rd", "fourth|4th", "fifth|5th")
_NTH = {word: n for n, words in enumerate(_ORDINALS, 1) for word in words.split("|")}
_NTH_EN = re.compile(
    rf"(?:on\s)?(?:the\s)?(?P<nth>{'|'.join(_NTH)}|last)\s"
    rf"(?P<what>weekday|working\sday|workday|business\sday|day|{EN_DAY}){NUMBER_END}"
    rf"(?P<of>\s(?:of|in)\s(?:(?:the|every|each|a)\smonth|(?:every|each)\squarter){NUMBER_END})?"
)
_NTH_ZH = re.compile(
    rf"(?P<nth>(?:倒数)?第[一二三四五1-5]个?|头一个|最后一个?)(?P<what>(?:周|星期|礼拜){ZH_DAYS}|工作日|[天日])"
)


def _take_of_month(_: re.Match[str], phrase: TimePhrase) -> bool:
    """`of every month`, after its days."""
    if phrase.every not in {None, Every.MONTH} or not phrase.month_days:
        return False
    phrase.repeat(Every.MONTH)
    return True


_OF_MONTH = re.compile(rf"of\s(?:every|each|the)\smonth{NUMBER_END}")

ELEMENTS: tuple[Element, ...] = (
    (_NTH_EN, _take_nth),
    (_NTH_ZH, _take_nth),
    (_UNIT, _take_unit),
    (_EVERY, _take_every),
    (_EVERY_ZH, _take_every),
    (_OF_MONTH, _take_of_month),
)
