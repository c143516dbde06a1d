"""Recognises by rules that a known fact has another value now: another number or day ("I get up at
7 now"), another holder of the same role ("Dana is my manager now"), another thing used, eaten or
done in its place. Both texts must be about the same; a word of change must be said, or the thing be
one of which people have only one."""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache

from bot.engine.memory.fact_terms import KIN_TERMS, canonical_terms, content_terms
from storage.search.chinese import simplify_han
from storage.search.dates import find_dates

_RELATIONS = (
    r"\b(?:drinks?|take my|takes)\b|喝",
    r"\beats?\b|吃",
    r"\b(?:uses?|using|write|writes|code|codes|type)\b|用",
    r"\b(?:live|lives|living|based|stay)\b|住",
    r"\b(?:work|works|working)\b|工作|上班",
    r"\b(?:am|is|as) an?\b|是一?[名个]",
    r"\b(?:attends?|goes to|is in)\b|上(?!班|周|个|次|午)",
    r"\b(?:prefer|prefers|like|likes|support|supports)\b|喜欢|支持",
)


def may_change_value(clause: str, sentence: str) -> bool:
    """Whether the clause may give a known fact another value."""
    read, around = _plain(clause), _plain(sentence)
    return bool(
        _CHANGE.search(around)
        or _EMAIL.search(around)
        or _ONLY_ONE.search(read)
        or _AGE_SAID.search(read)
    )


def has_other_value(clause: str, sentence: str, fact: str) -> bool:
    """Whether the clause says of what the fact says something that excludes it."""
    said, around, known = _plain(clause), _plain(sentence), _plain(fact)
    if canonical_terms(said) & KIN_TERMS != canonical_terms(known) & KIN_TERMS:
        return False
    if _RECURS.search(known) and _ONCE.search(said):
        return False
    if then := _EMAIL.findall(known):
        now = _EMAIL.findall(around)
        return bool(now) and not set(then) & set(now) and _READDRESSED.search(around) is not None
    if _is_age(known) and (age := _AGE_SAID.search(said)):
        return (age["en"] or age["zh"] or age["zh2"]) not in _FIGURE.findall(known)
    if _CHANGE.search(around):
        return (
            _has_other_figure(said, around, known)
            or _has_other_holder(said, around, known)
            or _does_other_thing(said, known)
            or _has_other_job(said, known)
            or (_NOW.search(around) is not None and _has_other_job(f"现在{said}", known))
            or (_CAREER.search(around) is not None and _IS_JOB.search(known) is not None)
        )
    return _ONLY_ONE.search(said) is not None and _has_other_holder(said, said, known)


@lru_cache(maxsize=500)
def _plain(text: str) -> str:
    text = simplify_han(text).casefold().replace("’", "'").replace("用户", "我")
    dates = find_dates(text, date.min) if _CALENDAR_DAY.search(text) else ()
    for mention in reversed(dates):
        # The same day is written in many ways.
        if mention.tokens and _CALENDAR_DAY.search(text[mention.start : mention.end]):
            day = mention.tokens[-1].strip("=").replace("-", "")
            text = f"{text[: mention.start]}day{day}{text[mention.end :]}"
    return re.sub(r"\bi'm\b", "i am", text).strip(" ,.!。，！")


def _has_other_figure(said: str, around: str, known: str) -> bool:
    named = _NAMED_SUBJECT.match(known)
    if named is not None and named["name"] not in said:
        return False
    then, now = _figures(known), _figures(said)
    gone, come = then - now, now - then
    # A day takes the place of a day, and a number that of a number.
    if not {_is_day(each) for each in gone} & {_is_day(each) for each in come}:
        return False
    unit = _UNIT.search(known)
    return (
        (any(each in around for each in gone if _is_telling(each)) and _shares_word(said, known))
        or (_MOVED_DAY.search(said) is not None and _is_same_event(said, known))
        or (unit is not None and _is_only_figure(said, known, unit["unit"]))
        or _is_of_same_thing(around, known)
    )


def _is_of_same_thing(around: str, known: str) -> bool:
    then_words, now_words = _FIGURE.sub(" ", known), _FIGURE.sub(" ", around)
    about = content_terms(then_words)
    if _REDUCED.search(around) and (unit := _UNIT.search(known)) and unit["unit"] in around:
        # "Down to 84 kg" and "one coffee a day" leave the verb out.
        about -= content_terms(known.split(" ", 1)[0])
        if not about:
            return True
    if not about - _OWN_EVENT:
        words = set(_WORD.findall(then_words))
        return bool(words) and words <= set(_WORD.findall(now_words))
    missing = about - _OWN_EVENT - content_terms(now_words)
    if missing and _AMOUNT.search(around):
        return 2 * len(missing) <= len(about - _OWN_EVENT)
    if missing and _MOVED_DAY.search(around) and any(map(_is_day, _figures(known))):
        return 3 * len(missing) <= len(about - _OWN_EVENT)  # 陶艺课 of 学陶艺
    is_new = content_terms(" ".join(_NEW.findall(around))) & about
    return not missing or (len(missing) == 1 and bool(is_new))


def _is_day(figure: str) -> bool:
    return _DAY.match(figure) is not None


def _is_telling(figure: str) -> bool:
    """Whether a figure is rarely that of two things: a time, a day, or one of three digits."""
    return _is_day(figure) or ":" in figure or sum(map(str.isdigit, figure)) >= _TELLING_DIGITS


def _shares_word(said: str, known: str) -> bool:
    spoken, told = (canonical_terms(_FIGURE.sub(" ", each)) for each in (said, known))
    return bool(spoken & told)


def _is_same_event(said: str, known: str) -> bool:
    """Whether both speak of one event: all names of the fact are said, or the event and nothing
    else."""
    about = content_terms(_FIGURE.sub(" ", _EVENT.sub(" ", known)))
    now = content_terms(_FIGURE.sub(" ", said))
    if about & now:
        return about <= now
    events = set(_EVENT.findall(known)) & set(_EVENT.findall(said))
    return bool(events) and about <= _OWN_EVENT


def _is_only_figure(said: str, known: str, unit: str) -> bool:
    """ "They raised it to 100 mg": nothing else is named."""
    if found := _RAISED.search(said):
        if found["unit"] != unit:
            return False
    elif unit not in said or not _NOW.search(said):
        return False
    rest = content_terms(_FIGURE.sub(" ", _UNIT.sub(" ", _RAISED.sub(" ", said))))
    return rest <= content_terms(known)


def _figures(text: str) -> set[str]:
    return {each.split()[0] for each in _FIGURE.findall(text)}


def _has_other_holder(said: str, around: str, known: str) -> bool:
    found = _ATTRIBUTE.fullmatch(known)
    if found is None:
        return False
    topic = content_terms(found["en"] or found["zh"])
    value = content_terms(found["value"] or found["value2"])
    is_named = topic <= content_terms(said) and _OF_OTHER.search(said) is None
    is_meant = _MEANS_TOPIC.match(said) is not None and topic <= content_terms(around)
    if not topic or not value or not (is_named or is_meant) or not _ASSIGNS.search(said):
        return False
    now = content_terms(said) - topic
    return bool(now - value) and not value <= now


def _does_other_thing(said: str, known: str) -> bool:
    if _NOW.search(said) is None or not any(
        re.search(each, known) and (re.search(each, said) or _SWITCHED.search(said))
        for each in _RELATIONS
    ):
        return False
    then, now = content_terms(known), content_terms(said)
    return bool(then & now) and bool(then - now) and bool(now - then)


def _has_other_job(said: str, known: str) -> bool:
    now, then = _JOB_NOW.fullmatch(said), _JOB.fullmatch(known)
    if now is None or then is None:
        return False
    return (now["en"] or now["zh"]) != (then["en"] or then["zh"])


def _is_age(known: str) -> bool:
    return _AGE.fullmatch(known) is not None


# What "web01" has says nothing of "web02".
_NAMED_SUBJECT = re.compile(r"(?:(?:the|my|our) )?(?:[a-z]+ )?(?P<name>[a-z]+\d\w*)\b")
_WORD = re.compile(r"[a-z]{2,}")
_CALENDAR_DAY = re.compile(
    r"月.*[\d一二三四五六七八九十]|\d[-/]\d|\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)"
)
_RECURS = re.compile(r"\b(?:every|each|daily|weekly|monthly|always|usually)\b|每|一直|通常")
_ONCE = re.compile(
    r"\b(?:today|tonight|tomorrow|this (?:week|time|once|\w+day|morning)|just (?:once|this)"
    r"|one-off)\b(?! on)"
    r"|今[天晚早]|明[天早晚]|这[周次回]|本周(?!起)|下周(?![起开])|临时|暂时"
)
_TELLING_DIGITS = 3
_DAY = re.compile(r"day\d|(?:mon|tues|wednes|thurs|fri|satur|sun)day|周|星期|礼拜")
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]*\w")
_READDRESSED = re.compile(
    r"\b(?:new|use|instead|changed|now|is|address|email|reach me|write to)\b|新|改|换|现在|用"
    r"|发到|邮箱"
)
_AMOUNT = re.compile(
    r"\b(?:raised?|increased?|went up|gone up|cut|lowered|reduced|dropped|up to|down to)\b|涨|降"
    r"|砍|加到|减到|提到|调到"
)
_NEW = re.compile(r"\bnew (?:\w+ )??(\w+)")
_OWN_EVENT = content_terms("project team our the 项目 我们 产品 团队 公司 元 块 钱 万 定 排 安")
_EVENT = re.compile(
    r"\b(?:deadline|due(?: date)?|launch|release|meeting|date|interview|exam|wedding|flight"
    r"|appointment|demo|review"
    r"|party|delivery|go-live|starts?|scheduled|is|planned)\b|上线|截止|时间|日期|会议|开会|面试"
    r"|考试|婚礼|航班|发布|交付|评审|例会|出发|开学"
)
_MOVED_DAY = re.compile(
    r"\b(?:pushed|moved|postponed|rescheduled|slipped|delayed|shifted|brought forward|put (?:off"
    r"|back)|is now|now"
    r"|changed|extended|move|push|postpone|reschedule|shift|delay)\b|推|延|提前|改|挪|调"
)
_RAISED = re.compile(
    r"\b(?:raised|increased|bumped|upped|doubled|halved|lowered|reduced|cut|dropped|moved|changed"
    r"|switched|went|gone"
    r"|up|down)\b.{0,20}\b(?:to|from)\b.{0,12}?\d[\d.,:]* ?(?P<unit>kg|kilos?|lbs?|cm|km|mg|ml"
    r"|euros?|eur|usd"
    r"|dollars?|pounds?|percent|%|[a-z]{3,}?)s?\b"
)
_FIGURE = re.compile(
    r"\bday\d+|\d+(?:[.:,]\d+)*(?: ?(?:kg|kilos?|lbs?|cm|km|公斤|千克|斤))?|\b(?:one|two|three"
    r"|four|five|six"
    r"|seven|eight|nine|ten|eleven|twelve)\b"
    r"|\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b"
    r"|(?:周|星期|礼拜)[一二三四五六日天]|[一二两三四五六七八九十]+点(?:半|一刻|三刻)?"
    r"|[一二两三四五六七八九十百千]+(?=[个只位岁口条次年万块元级页天])"
)
_CHANGE = re.compile(
    r"\b(?:now|nowadays|these days|new|newly|(?:had|have|need) to (?:move|push|postpone"
    r"|reschedule|shift|delay)|raised|increased|lowered|reduced|slipped|delayed"
    r"|moved|chang(?:e|ed|es)|switched|moved|replaced|left|promoted"
    r"|instead|any ?more|no longer|since last|upgraded|pushed|cancelled|extended|postponed"
    r"|brought forward|rescheduled"
    r"|correction|sorry|typo|mistake|actually|turned|down to|up to|became|become|got married|not)\b"
    r"|现在|如今|目前|改|换|搬|升|转|推[迟到后]|岁了|[挪移调降减增涨砍加提]到|提前|延后?到"
    r"|延[期到]|涨|降|更正|纠正|说错|写错"
    r"|打错|搞错|不对|其实|今年|跳槽"
    r"|不再|不是|新的?|以后"
)
_REDUCED = re.compile(r"\b(?:down|back|up) to\b|[降减增涨]到")
_UNIT = re.compile(
    r"(?:\b(?:one|two|three|four|five|six|\d+)|\d+|[一二两三四五六七八九十百千]+) ?(?P<unit>kg"
    r"|kilos?|lbs?|cm|km|mg|ml|公斤|斤|年级|岁|平米|万"
    r"|[a-z]{3,}?)s?\b"
)
_SWITCHED = re.compile(r"换|改[用喝吃成]")
_NOW = re.compile(
    r"\b(?:now|nowadays|these days|instead|from now on)\b"
    r"|现在|如今|改[用喝吃成为]|换[成用了]|换.{1,10}了|以后|今年"
)
_ATTRIBUTE = re.compile(
    r"(?:(?:my|our|the user's|user's|the|their) )?(?P<en>[a-z][\w' -]{1,30}?)(?:'s name)?"
    r"(?: is| are|:|'s)(?: now)?(?: called| named)? (?P<value>.{1,60})"
    r"|(?:我们?|本人)?的?(?P<zh>[^，。是叫]{1,10}?)(?:是|叫|：|:)(?P<value2>.{1,40})"
)
_ONLY_ONE = re.compile(
    r"\bmy (?:\w+ )?(?:name|boss|manager|wife|husband|partner|doctor|dentist|therapist|landlord"
    r"|birthday|address|phone number|number|email|e-mail|age|weight|height|blood type|job|employer"
    r"|favou?rite \w+)(?:'s name)?(?: is|'s|:)"
    r"|我的?(?:名字|老板|领导|上司|老婆|老公|爱人|医生|房东|生日|地址|电话|手机号|邮箱|年龄|体重"
    r"|身高|血型"
    r"|导师|班主任)(?:是|叫|：|:)"
)
_OF_OTHER = re.compile(
    r"\b(?!it's|he's|she's|that's|what's|there's)\w+'s (?!name\b)\w+|[他她它]的?"
)
_MEANS_TOPIC = re.compile(
    r"(?:it|he|she|they)(?:'s|'re| is| are)\b|(?:现在|如今|目前)?(?:是|叫|改成|换成)"
)
_ASSIGNS = re.compile(r"\b(?:is|are|am|changed to|became)\b|'s\b|'re\b|:|是|叫|换成|改成|：")
_AGE = re.compile(
    r"(?:(?:the user |user )?(?:is|am|i am) |age:? |年龄[：:]?|我|今年)*\d{1,3}"
    r"(?: years old| years of age|岁)?"
)
_AGE_SAID = re.compile(
    r"\b(?:turned|turning|am now|i am)(?: \w+)? (?P<en>\d{1,3})\b(?! (?:km|kg|min|hour|day|week"
    r"|month))"
    r"|(?:满|过了?|今年|已经)(?P<zh>\d{1,3})岁|^(?P<zh2>\d{1,3})岁?了$"
)
_JOB_EN = (
    r"(?P<en>(?:[a-z]+ ){0,2}(?!(?:father|mother|brother|sister|partner|member|owner|smoker"
    r"|drinker|lover|beginner|stranger|grandfather|grandmother|christian|parent|foreigner"
    r"|newcomer|user|fighter|winner|student|mentor|visitor|neighbor|minor|senior|junior)\b)"
    r"(?:[a-z]+(?:er|or|ist|ician|ant|man|woman)|nurse|chef|clerk|pilot|librarian|veterinarian"
    r"|judge|architect|cook|coach|analyst|surgeon))"
)
_JOB_ZH = (
    r"(?:一?[名个位])?(?P<zh>[^，。的是]{0,6}(?:师|员|医生|会计|经理|司机|警察|律师|护士|教授|主管"
    r"|总监|顾问|编辑|记者|工人|保安|导演|翻译|秘书|农民))"
)
_JOB_NOW = re.compile(
    rf"(?:现在)?(?:now |actually |so )*i (?:am|work as)(?: now)? (?:an? )?{_JOB_EN}"
    rf" (?:now|these days|nowadays)"
    rf"|我?(?:现在|如今)+我?(?:是|做|当){_JOB_ZH}了?"
)
_JOB = re.compile(
    rf"(?:(?:the user |user |i )?(?:is|am|works? as) (?:an? )?){_JOB_EN}"
    rf"|(?:我?(?:是|做|当)|职业.){_JOB_ZH}"
)
_CAREER = re.compile(r"\bpromoted\b|转正|转岗|转行|改行|升职|升为|升任|晋升")
_IS_JOB = re.compile(
    r"我?(?:是|做)[^，。的]{2,10}|职业.*|works as .*"
    r"|(?:the user |user )?(?:is|am|i am) an? .*"
)
