"""Recognises by rules that a known fact has another value now: another number or day ("I get up at
7 now"), another holder of the same role ("Dana is my manager now"), another thing used, eaten or
done in its place. Both texts must be about the same; a word of change must be said, or the thing be
one of which people have only one."""

from __future__ import annotations

import re

from bot.engine.memory.fact_terms import KIN_TERMS, canonical_terms, content_terms
from storage.search.chinese import simplify_han

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
    return bool(_CHANGE.search(around) or _ONLY_ONE.search(read) or _AGE_SAID.search(read))


def has_other_value(clause: str, sentence: str, fact: str) -> bool:
    """Whether the clause says of what the fact says something that excludes it."""
    said, around, known = _plain(clause), _plain(sentence), _plain(fact)
    if canonical_terms(said) & KIN_TERMS != canonical_terms(known) & KIN_TERMS:
        return False
    if _is_age(known) and (age := _AGE_SAID.search(said)):
        return (age["en"] or age["zh"]) not in _FIGURE.findall(known)
    if _CHANGE.search(around):
        return (
            _has_other_figure(said, around, known)
            or _has_other_holder(said, around, known)
            or _does_other_thing(said, known)
            or _has_other_job(said, known)
            or (_CAREER.search(around) is not None and _IS_JOB.search(known) is not None)
        )
    return _ONLY_ONE.search(said) is not None and _has_other_holder(said, said, known)


def _plain(text: str) -> str:
    text = simplify_han(text).casefold().replace("’", "'").replace("用户", "我")
    return re.sub(r"\bi'm\b", "i am", text).strip(" ,.!。，！")


def _has_other_figure(said: str, around: str, known: str) -> bool:
    named = _NAMED_SUBJECT.match(known)
    if named is not None and named["name"] not in said:
        return False
    then, now = _figures(known), _figures(said)
    if not (then - now and now - then):
        return False
    then_words, now_words = _FIGURE.sub(" ", known), _FIGURE.sub(" ", around)
    about = content_terms(then_words)
    if _REDUCED.search(around) and (unit := _UNIT.search(known)) and unit["unit"] in around:
        # "Down to 84 kg" and "one coffee a day" leave the verb out.
        about -= content_terms(known.split(" ", 1)[0])
        if not about:
            return True
    if about:
        return about <= content_terms(now_words)
    words = set(_WORD.findall(then_words))
    return bool(words) and words <= set(_WORD.findall(now_words))


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
_FIGURE = re.compile(
    r"\d+(?:[.:]\d+)?(?: ?(?:kg|kilos?|lbs?|cm|km|公斤|千克|斤))?|\b(?:one|two|three|four|five|six"
    r"|seven|eight|nine|ten|eleven|twelve)\b"
    r"|\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b"
    r"|(?:周|星期|礼拜)[一二三四五六日天]|[一二两三四五六七八九十]+(?=[个只位岁口点条次年])"
)
_CHANGE = re.compile(
    r"\b(?:now|nowadays|these days|new|newly|chang(?:e|ed|es)|switched|moved|replaced|left|promoted"
    r"|instead|any ?more|no longer|since last|upgraded|pushed|postponed|brought forward|rescheduled"
    r"|correction|sorry|typo|mistake|actually|turned|down to|up to|became|become|got married|not)\b"
    r"|现在|如今|目前|改|换|搬|升|转|推迟|岁了|[挪移调降减增涨]到|提前|延后?到|更正|纠正|说错|写错"
    r"|打错|搞错|不对|其实|今年|跳槽"
    r"|不再|不是|新的?|以后"
)
_REDUCED = re.compile(r"\b(?:down|back|up) to\b|[降减增涨]到")
_UNIT = re.compile(
    r"(?:\b(?:one|two|three|four|five|six|\d+)) ?(?P<unit>kg|kilos?|lbs?|cm|km|公斤|斤"
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
    r"|(?:满|过了?|今年|已经)(?P<zh>\d{1,3})岁"
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
    rf"(?:now |actually |so )*i (?:am|work as)(?: now)? (?:an? )?{_JOB_EN}"
    rf" (?:now|these days|nowadays)"
    rf"|我?(?:现在|如今)(?:是|做|当){_JOB_ZH}了?"
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
