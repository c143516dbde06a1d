"""Numbers, amounts of time and names of days, months and zones, as words of both languages."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from datetime import timedelta

_ZH_DIGITS = {char: n for n, char in enumerate("零一二三四五六七八九")} | {
    "〇": 0,
    "两": 2,
    "俩": 2,
}
_ZH_TENS = {"十": 10, "百": 100}
_EN_NUMBERS = {
    "a": 1,
    "an": 1,
    "one": 1,
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
    "eleven": 11,
    "twelve": 12,
    "fifteen": 15,
    "twenty": 20,
    "thirty": 30,
    "forty": 40,
    "forty-five": 45,
    "fifty": 50,
    "sixty": 60,
    "ninety": 90,
    "a couple of": 2,
    "a few": 3,
    "half": 0.5,
    "half a": 0.5,
    "half an": 0.5,
    "a quarter of an": 0.25,
    "three quarters of an": 0.75,
    "quarter of an": 0.25,
    "another": 1,
}
_EN_NUMBER = "|".join(sorted(_EN_NUMBERS, key=len, reverse=True))

NUMBER_END = r"(?![a-z0-9])"
"""After an English word or a number, which Chinese may follow at once."""
ZH_NUMBER = r"(?:[0-9]{1,4}|[零〇一二两三四五六七八九十百]{1,5})"

_MONTH_NAMES = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
EN_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_DAY_NAMES = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
EN_DAY = (
    r"(?:mon(?:day)?|tue(?:s(?:day)?)?|wed(?:s|nesday)?|thu(?:r(?:s(?:day)?)?)?"
    r"|fri(?:day)?|sat(?:urday)?|sun(?:day)?"
    r"|moday|munday|tuseday|teusday|wensday|wendesday|wedensday|wednsday|thrusday|thurday|firday"
    r"|satuday|saterday)"
)
"""With frequent slips of the keyboard."""
_DAY_SLIPS = {"mun": 0, "tus": 1, "teu": 1, "wen": 2, "thr": 3, "fir": 4, "mod": 0}
_ZH_DAY_NAMES = {char: n for n, char in enumerate("一二三四五六日")} | {"天": 6}
ZH_DAYS = "(?:[一二三四五六日天](?!次)|[1-7](?![0-9点:次天号月个小年]))"

_ZONES = {
    **dict.fromkeys(("北京", "上海", "中国", "beijing", "shanghai", "china"), "Asia/Shanghai"),
    **dict.fromkeys(("香港", "hong kong"), "Asia/Hong_Kong"),
    **dict.fromkeys(("台北", "taipei"), "Asia/Taipei"),
    **dict.fromkeys(("东京", "日本", "tokyo", "japan"), "Asia/Tokyo"),
    **dict.fromkeys(("首尔", "seoul"), "Asia/Seoul"),
    **dict.fromkeys(("新加坡", "singapore"), "Asia/Singapore"),
    **dict.fromkeys(("悉尼", "sydney"), "Australia/Sydney"),
    **dict.fromkeys(("莫斯科", "moscow"), "Europe/Moscow"),
    **dict.fromkeys(("柏林", "德国", "berlin", "german"), "Europe/Berlin"),
    **dict.fromkeys(("巴黎", "paris"), "Europe/Paris"),
    **dict.fromkeys(("伦敦", "london"), "Europe/London"),
    **dict.fromkeys(("纽约", "美东", "new york", "eastern"), "America/New_York"),
    **dict.fromkeys(("旧金山", "洛杉矶", "los angeles", "pacific"), "America/Los_Angeles"),
    **dict.fromkeys(("utc", "gmt"), "UTC"),
}
_ZONE = re.compile(
    rf"\(?(?:in\s)?({'|'.join(_ZONES)})(?:(?<=utc)|(?<=gmt)|\s?time|时间|\s时间){NUMBER_END}\)?"
)

_EN_AMOUNT = re.compile(
    rf"([0-9]{{1,20}}(?:\.[0-9]{{1,3}})?|(?:{_EN_NUMBER})(?=\s|-))(\sand\sa\shalf)?[\s-]?"
    r"(seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|weeks?|wks?|fortnights?|months?|years?|[smhdw])"
    rf"(?=[0-9]|{NUMBER_END})(\sand\sa\shalf{NUMBER_END})?"
)
_ZH_AMOUNT = re.compile(
    r"(半|[0-9]{1,20}(?:\.[0-9]{1,3})?|[零〇一二两俩三四五六七八九十百]{1,5})\s?"
    r"(个半小时|个半钟头|个半月|秒钟?|分钟|分(?!之)|刻钟|个?小时|个?钟头|天半|天|日|个?星期|个?礼拜"
    rf"|周|个月|月(?!{ZH_NUMBER}[日号])|年半|年|个?季度)"
)
_AMOUNT_JOINT = re.compile(r"\s?(?:and\s|,\s|又|零)?")
_MINUTES_BY_UNIT = {"s": 1 / 60, "m": 1, "h": 60, "d": 1440, "w": 10080}
_ZH_UNITS = {
    **dict(zip("秒分刻小钟天日周星礼", "smqhhddwww", strict=True)),
    "月": "mo",
    "年": "y",
    "季": "qu",
}
"""The unit by the first character of its name."""

_SIMPLIFIED = str.maketrans(
    "點鐘後週個號兩時禮間過節單雙鬧發給記別嗎麼請幫設訂檢備總報醒喚"
    "從開續連結為現這鈴聖誕國慶勞動農曆運執監統計彙",
    "点钟后周个号两时礼间过节单双闹发给记别吗么请帮设订检备总报醒唤"
    "从开续连结为现这铃圣诞国庆劳动农历运执监统计汇",
)
_MAX_DAYS = 100_000
_MAX_PARTS = 6
"""Of an amount: seconds to years."""
_DAYS_IN_MONTH = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """A length of time: calendar months, calendar days, and what is counted by the clock."""

    months: int = 0
    days: int = 0
    span: timedelta = timedelta()

    @property
    def is_whole_days(self) -> bool:
        return not self.span

    def plus(self, other: Amount) -> Amount:
        return Amount(
            months=self.months + other.months,
            days=self.days + other.days,
            span=self.span + other.span,
        )


def normalise(text: str) -> str:
    """Lower case, with half-width digits and punctuation, and simplified characters in what is read
    here; each character stays in its place."""
    return "".join(map(_normalise_char, text)).translate(_SIMPLIFIED)


def parse_number(text: str) -> float | None:
    """The number in digits, in Chinese or in English words; None if it is none."""
    if re.fullmatch(r"[0-9]{1,20}(?:\.[0-9]{1,3})?", text):
        return float(text)
    return _EN_NUMBERS.get(text, _parse_chinese(text))


def read_amount(text: str, at: int) -> tuple[Amount, int] | None:
    """The amount of time at this place, such as `1h30m`, `an hour and a half`, `一个半小时`, and
    the place after it."""
    total, end = Amount(), at
    for pattern, read in ((_EN_AMOUNT, _read_english), (_ZH_AMOUNT, _read_chinese)):
        for _ in range(_MAX_PARTS):
            match = pattern.match(text, end)
            if match is None:
                break
            amount = read(match)
            if amount is None:
                return None
            total, end = total.plus(amount), match.end()
            joint = _AMOUNT_JOINT.match(text, end)
            if joint is None or not pattern.match(text, joint.end()):
                break
            end = joint.end()
        if end > at:
            return total, end
    return None


def read_zone(text: str, at: int) -> tuple[str, int] | None:
    """The IANA name of the zone that is named here, as in `Berlin time`, and the place after it."""
    match = _ZONE.match(text, at)
    return (_ZONES[match[1]], match.end()) if match else None


def month_number(name: str) -> int:
    return _MONTH_NAMES.index(name[:3]) + 1


def day_number(name: str) -> int:
    """0 for Monday, of an English name, or a Chinese character or digit after 周."""
    if name.isdigit():
        return int(name) - 1
    if name in _ZH_DAY_NAMES:
        return _ZH_DAY_NAMES[name]
    short = name[:3]
    return _DAY_SLIPS[short] if short in _DAY_SLIPS else _DAY_NAMES.index(short)


def _normalise_char(char: str) -> str:
    plain = unicodedata.normalize("NFKC", char).lower()
    if plain in "“”‘’「」":
        return '"'
    return plain if len(plain) == 1 else char


def _parse_chinese(text: str) -> float | None:
    if text == "半":
        return 0.5
    if not text or any(char not in _ZH_DIGITS and char not in _ZH_TENS for char in text):
        return None
    if not any(char in _ZH_TENS for char in text):
        return float("".join(str(_ZH_DIGITS[char]) for char in text))
    total, digit = 0, None
    for char in text:
        if char in _ZH_TENS:
            total += (1 if digit is None else digit) * _ZH_TENS[char]
            digit = None
        else:
            digit = _ZH_DIGITS[char]
    return float(total + (digit or 0))


def _read_english(match: re.Match[str]) -> Amount | None:
    number = parse_number(match[1])
    if number is None:
        return None
    number += 0.5 * bool(match[2] or match[4])
    unit = match[3]
    if unit.startswith("mo"):
        return _amount_of(number, "mo")
    if unit.startswith("f"):
        return _amount_of(number * 2, "w")
    return _amount_of(number, unit[0])


def _read_chinese(match: re.Match[str]) -> Amount | None:
    number = parse_number(match[1])
    if number is None:
        return None
    unit = match[2]
    if "半" in unit:
        number += 0.5
    return _amount_of(number, _ZH_UNITS[unit.replace("个", "").replace("半", "")[0]])


def _amount_of(number: float, unit: str) -> Amount | None:
    if unit in {"mo", "y", "qu"}:
        months = number * {"mo": 1, "y": 12, "qu": 3}[unit]
        whole = int(months)
        return _limited(Amount(months=whole, days=int((months - whole) * _DAYS_IN_MONTH)))
    if unit in "dw" and number == int(number):
        return _limited(Amount(days=int(number) * (7 if unit == "w" else 1)))
    if unit == "q":
        number, unit = number * 15, "m"
    minutes = number * _MINUTES_BY_UNIT[unit]
    if minutes > _MAX_DAYS * 1440:
        return _limited(Amount(days=_MAX_DAYS + 1))
    return Amount(span=timedelta(seconds=round(minutes * 60)))


def _limited(amount: Amount) -> Amount:
    """The amount, cut to a length that calendars can count."""
    return Amount(
        months=min(amount.months, _MAX_DAYS // _DAYS_IN_MONTH),
        days=min(amount.days, _MAX_DAYS),
        span=amount.span,
    )
