"""Reads days: of the week, of the month, dates, and those counted from today."""

from __future__ import annotations

import re
from datetime import datetime

from bot.engine.schedule.phrases.clocks import ZH_PART, part_in
from bot.engine.schedule.phrases.model import LAST, ClockTime, Element, Every, TimePhrase
from bot.engine.schedule.phrases.words import (
    EN_DAY,
    EN_MONTH,
    NUMBER_END,
    ZH_DAYS,
    ZH_NUMBER,
    day_number,
    month_number,
    parse_number,
)


def _take_date(match: re.Match[str], phrase: TimePhrase) -> bool:
    """A date, with or without a year."""
    found = match.groupdict()
    if phrase.month_days or phrase.offset is not None or phrase.week is not None or phrase.delay:
        return False
    if phrase.every not in {None, Every.YEAR} or phrase.nth:
        return False
    month = found["month"]
    number = month_number(month) if month[0].isalpha() and month.isascii() else parse_number(month)
    day = parse_number(found["day"])
    year = parse_number(found["year"]) if found.get("year") else None
    if not number or not day or number > _MAX_MONTH or day > _MAX_DAY:
        return False
    # The date decides, whatever day of the week was said with it.
    phrase.weekdays = []
    phrase.month, phrase.month_days = int(number), [int(day)]
    phrase.year = int(year if year > _MAX_SHORT_YEAR else 2000 + year) if year else None
    phrase.year_offset = {"明年": 1, "后年": 2}.get(found.get("in_year") or "", 0)
    return True


_MAX_MONTH, _MAX_DAY, _MAX_SHORT_YEAR = 12, 31, 99
_YEAR = r"(?P<year>[0-9]{4})"
_LATE_YEAR = rf"(?:,?\s{_YEAR}(?![0-9:]))?"
_EN_MONTH_DAY = r"(?P<day>[0-9]{1,2})(?:st|nd|rd|th)?"
_ZH_MONTH_DAY = rf"(?P<month>{ZH_NUMBER})月(?P<day>{ZH_NUMBER})[日号]"
_DATES = tuple(
    re.compile(pattern)
    for pattern in (
        (
            rf"(?:on\s)?{_YEAR}(?P<mark>[-/.])(?P<month>[0-9]{{1,2}})(?P=mark)(?P<day>[0-9]{{1,2}})"
            r"(?![0-9])(?!t[0-9])"
        ),
        rf"(?P<year>[0-9]{{4}}|[0-9]{{2}}|[一二][零〇一二三四五六七八九]{{3}})年{_ZH_MONTH_DAY}",
        rf"(?P<in_year>明年|后年|今年)?的?{_ZH_MONTH_DAY}",
        rf"(?:on\s)?(?P<month>{EN_MONTH})\s(?:the\s)?{_EN_MONTH_DAY}{NUMBER_END}(?!:){_LATE_YEAR}",
        (
            rf"(?:on\s)?(?:the\s)?{_EN_MONTH_DAY}\s(?:of\s)?(?P<month>{EN_MONTH}){NUMBER_END}"
            rf"{_LATE_YEAR}"
        ),
        r"(?:on\s)?(?P<month>[0-9]{1,2})/(?P<day>[0-9]{1,2})(?![0-9/])",
        r"(?P<month>[0-9]{2})-(?P<day>[0-9]{2})(?=\s[0-9]{1,2}:)",
        rf"(?P<month>[0-9]{{1,2}})\.(?P<day>[0-9]{{1,2}})(?=\s?(?:{ZH_PART}))",
    )
)


def _take_holiday(match: re.Match[str], phrase: TimePhrase) -> bool:
    """`Christmas`, `元旦`: holidays that have the same date each year."""
    if phrase.has_day or phrase.every not in {None, Every.YEAR} or phrase.delay or phrase.instant:
        return False
    found = (date for name, date in _HOLIDAYS.items() if match["holiday"].startswith(name))
    phrase.month, day = next(found)
    phrase.month_days = [day]
    phrase.year_offset = {"明年": 1, "后年": 2}.get(match["in_year"] or "", 0)
    return True


_HOLIDAYS = {
    **dict.fromkeys(("元旦", "new year's day"), (1, 1)),
    **dict.fromkeys(("情人节", "valentine's day"), (2, 14)),
    **dict.fromkeys(("劳动节", "五一劳动节"), (5, 1)),
    **dict.fromkeys(("国庆节",), (10, 1)),
    **dict.fromkeys(("平安夜", "christmas eve"), (12, 24)),
    **dict.fromkeys(("圣诞节", "christmas"), (12, 25)),
    **dict.fromkeys(("new year's eve", "年底", "年末", "the end of the year"), (12, 31)),
    **dict.fromkeys(("halloween",), (10, 31)),
}
_HOLIDAY = re.compile(
    rf"(?:on\s)?(?P<in_year>明年|后年|今年)?的?(?:(?P<holiday>{'|'.join(_HOLIDAYS)})(?:\sday)?)"
    rf"(?:当天|那天)?(?![前后假期活]|(?<=[a-z])[a-z0-9])"
)


def _take_instant(match: re.Match[str], phrase: TimePhrase) -> bool:
    """`2026-12-01T09:00`, with or without an offset."""
    if phrase.has_day or phrase.clocks or phrase.every:
        return False
    try:
        at = datetime.fromisoformat(match[0].replace("t", "T").replace("z", "Z"))
    except ValueError:
        return False
    if at.tzinfo:
        phrase.instant = at
        return True
    phrase.year, phrase.month, phrase.month_days = at.year, at.month, [at.day]
    phrase.clocks = [ClockTime(hour=at.hour, minute=at.minute, exact=True)]
    return True


_INSTANT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}t[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{3,6})?)?"
    rf"(?:z|[+-][0-9]{{2}}:?[0-9]{{2}})?{NUMBER_END}"
)


def _take_days(match: re.Match[str], phrase: TimePhrase) -> bool:
    """`Friday`, `next Monday`, `Mon-Fri`, `Mondays`, `周一三五`, `下周三`."""
    if phrase.weekdays or phrase.month_days or phrase.offset is not None or phrase.delay:
        # A date may name its day too: `Friday, Dec 4` is read by the date.
        return False
    which = (match["which"] or "").strip()
    if match["from"] and not match["last"]:
        return False
    if which and (phrase.every or phrase.week is not None):
        return False
    first = day_number(match["day"])
    days = [first]
    if match["last"]:
        last = day_number(match["last"])
        days = [day % 7 for day in range(first, last + (0 if last >= first else 7) + 1)]
    else:
        names = re.findall(f"{EN_DAY}|{ZH_DAYS}", re.sub("星期|礼拜", "周", match["more"] or ""))
        days += [day_number(name) for name in names]
    if len(days) > 1 and which:
        return False
    phrase.weekdays = days
    if which:
        phrase.week = _WEEKS.get(which.removesuffix("个"))
    if len(days) > 1 or match.groupdict().get("plural"):
        phrase.make_often()
    if not phrase.every and (len(days) > 1 or match.groupdict().get("plural")):
        phrase.repeat(Every.WEEK)
    return True


_WEEKS = {"this": 0, "next": 1, "这": 0, "本": 0, "下": 1, "下下": 2}
_NO_COUNT = r"(?![点时:刻分十个百天号月次人份条])"
_DAYS_EN = re.compile(
    rf"(?:on\s|(?P<from>from\s))?(?P<which>(?:this\scoming|the\scoming|coming|this|next)\s)?(?P<day>{EN_DAY})"
    rf"(?P<plural>(?<=day)s)?{NUMBER_END}"
    rf"(?:\s?(?:-|–|to|through|thru)\s?(?P<last>{EN_DAY}){NUMBER_END}"
    rf"|(?P<more>(?:\s?(?:,\s?and|,|and|&|/)\s?{EN_DAY}s?{NUMBER_END}){{1,6}}"
    rf"|(?:\s{EN_DAY}{NUMBER_END}){{2,6}}))?"
)
_DAYS_ZH = re.compile(
    rf"(?P<from>从)?(?P<which>(?:下下|下|这|本)个?)?(?:周|星期|礼拜)(?P<day>{ZH_DAYS})"
    rf"(?:\s?[到至~-]\s?(?:周|星期|礼拜)?(?P<last>{ZH_DAYS}){_NO_COUNT}"
    rf"|(?P<more>(?:(?:[、,和与及]\s?)?(?:周|星期|礼拜){ZH_DAYS}"
    rf"|(?:[、,和与及]\s?)?[一二三四五六日]{_NO_COUNT}){{1,6}}))?"
)


def _take_weeks_after(match: re.Match[str], phrase: TimePhrase) -> bool:
    """`a week from Friday`, `two weeks from tomorrow`, `Friday week`."""
    if phrase.has_day or phrase.every or phrase.delay or phrase.instant:
        return False
    found = match.groupdict()
    weeks = int(parse_number(found.get("weeks") or "a") or 0)
    word = found.get("word")
    if word is None:
        phrase.weekdays, phrase.weeks_after = [day_number(match["day"])], weeks
    else:
        phrase.offset = 7 * weeks + (word == "tomorrow")
    return True


_WEEKS_AFTER = (
    re.compile(
        r"(?:in\s)?(?P<weeks>an?|one|two|three|four|[1-9])\sweeks?\s(?:from|after)\s(?:this\s)?"
        rf"(?:(?P<word>today|tomorrow)|(?:on\s)?(?P<day>{EN_DAY})){NUMBER_END}"
    ),
    re.compile(rf"(?:on\s)?(?P<day>{EN_DAY})\sweek{NUMBER_END}"),
)


def _take_offset(match: re.Match[str], phrase: TimePhrase) -> bool:
    """`tomorrow`, `tonight`, `大后天`, `明早`."""
    if phrase.has_day or phrase.every or phrase.delay or phrase.instant:
        return False
    word = match["word"]
    phrase.offset = next(n for name, n in _OFFSETS.items() if name in word)
    part = part_in(match[0].replace("nite", "night"))
    if part and phrase.part is None and not any(clock.part for clock in phrase.clocks):
        phrase.part = part
    return True


_OFFSETS = {
    "大后": 3,
    "day after tomorrow": 2,
    "后": 2,
    "明": 1,
    "tomorrow": 1,
    "morrow": 1,
    "tomr": 1,
    "tomar": 1,
    "tommar": 1,
    "moro": 1,
    "tm": 1,
    "今": 0,
    "today": 0,
    "tonight": 0,
    "tonite": 0,
    "this": 0,
}
_OFFSET = re.compile(
    rf"(?P<word>(?:the\s)?day\safter\stomorrow|tom+or+ow|tom+or+o|tomrr?ow|tomm?arow|2mor+ow|2moro|tmrw|tmr|tmw|today|tonight|tonite"
    rf"|this\s(?:morning|afternoon|evening)){NUMBER_END}"
)
_OFFSET_ZH = re.compile(
    r"(?P<word>大后[天日]|后[天日]|明[天日儿]|今[天日儿]|[今明][早晚夜](?!上|点))"
)


def _take_week(match: re.Match[str], phrase: TimePhrase) -> bool:
    """`next week`, `下周`, `this weekend`, `周末`."""
    if phrase.offset is not None or phrase.week is not None or phrase.month_days or phrase.every:
        return False
    text = match[0]
    if phrase.weekdays and re.search("weekend|末", text):
        return False
    phrase.week = 2 if "下下" in text else int("下" in text or "next" in text)
    if re.search("weekend|末", text):
        phrase.weekdays = [5]
    return True


_WEEK = re.compile(
    rf"(?:(?:on\s|at\s)?(?:the\s|this\s|next\s)weekend|next\sweek){NUMBER_END}"
    r"|(?:下下个?|下个?|这个?|本)?周末|(?:下下个?|下个?)(?:周|星期|礼拜)(?![一二三四五六日天1-7])"
)


def _take_month(match: re.Match[str], phrase: TimePhrase) -> bool:
    """`next month`, `下个月`."""
    if phrase.month_offset is not None or phrase.every or phrase.offset is not None or phrase.month:
        return False
    phrase.month_offset = 2 if "下下" in match[0] else int("下" in match[0] or "next" in match[0])
    return True


_MONTH = re.compile(
    rf"(?:of\s)?next\smonth{NUMBER_END}|下下个月|下个?月(?![底末])|(?:这个?|本)月(?=[0-9一二三十])"
)


def _take_month_end(match: re.Match[str], phrase: TimePhrase) -> bool:
    """`end of the month`, `月底`, `下月底`."""
    if phrase.weekdays or phrase.offset is not None or LAST in phrase.month_days:
        return False
    if phrase.month_days and (phrase.every is not Every.MONTH or not _AND.match(match[0])):
        return False
    phrase.month_days.append(LAST)
    if named := match["en"] or match["zh"]:
        is_english = named.isascii() and named.isalpha()
        phrase.month = month_number(named) if is_english else int(parse_number(named) or 0)
    if re.search("every|each", match[0]):
        phrase.repeat(Every.MONTH)
    if not phrase.every and re.search("下|next", match[0]):
        phrase.month_offset = 1
    elif not phrase.every and re.search("[这本]|this", match[0]):
        phrase.month_offset = 0
    return True


_MONTH_END = re.compile(
    rf"(?:at\s)?(?:the\s)?end\sof\s(?:(?:the|this|next|every|each)\smonth|(?P<en>{EN_MONTH})){NUMBER_END}"
    r"|(?P<zh>1[0-2]|[1-9]|十[一二]?|[一二三四五六七八九])月[底末]"
    r"|(?:这个?|本|下个?|[和、])?月?月?[底末](?<=月[底末])(?:的?最后一天)?|[和、]最后一天"
    r"|[底末](?=\s|[0-9上下早晚中凌]|$)"
)


_AND = re.compile("[和、]")


def _take_month_days(match: re.Match[str], phrase: TimePhrase) -> bool:
    """`the 1st and 15th`, `1号和15号`."""
    if phrase.month_days or phrase.weekdays or phrase.offset is not None or phrase.delay:
        return False
    names = re.findall(rf"first|{ZH_NUMBER}", match["days"])
    days = [1 if name == "first" else int(parse_number(name) or 0) for name in names]
    if not all(1 <= day <= _MAX_DAY for day in days):
        return False
    phrase.month_days = days
    if len(days) > 1 and not phrase.repeats and phrase.month_offset is None:
        phrase.repeat(Every.MONTH)
    return True


_MONTH_DAYS_EN = re.compile(
    rf"(?:on\s)?(?:the\s)?(?P<days>first(?=\sof\s(?:the|each|every)\smonth)"
    rf"|[0-9]{{1,2}}(?:st|nd|rd|th){NUMBER_END}"
    rf"(?:\s?(?:,|and|&)\s?(?:the\s)?[0-9]{{1,2}}(?:st|nd|rd|th){NUMBER_END}){{0,9}})"
)
_MONTH_DAYS_ZH = re.compile(
    rf"(?P<days>{ZH_NUMBER}[号日]?(?:[、,和与及]\s?{ZH_NUMBER}[号日]?){{0,9}}(?<=[号日]))(?!店|线|楼)"
)

DATE_ELEMENTS: tuple[Element, ...] = (
    (_INSTANT, _take_instant),
    *((pattern, _take_date) for pattern in _DATES),
    (_HOLIDAY, _take_holiday),
)
DAY_ELEMENTS: tuple[Element, ...] = (
    *((pattern, _take_weeks_after) for pattern in _WEEKS_AFTER),
    (_DAYS_EN, _take_days),
    (_DAYS_ZH, _take_days),
    (_OFFSET, _take_offset),
    (_OFFSET_ZH, _take_offset),
    (_WEEK, _take_week),
    (_MONTH_END, _take_month_end),
    (_MONTH, _take_month),
    (_MONTH_DAYS_EN, _take_month_days),
    (_MONTH_DAYS_ZH, _take_month_days),
)
