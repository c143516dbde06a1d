"""Finds what a message asks for later: the phrase of time, the subject, and whether to be reminded.

Only clear requests count. Questions, stories, deadlines and talk about reminders are none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from bot.engine.schedule.phrases.model import Every, TimePhrase
from bot.engine.schedule.phrases.reader import read_bounds, read_phrase
from bot.engine.schedule.phrases.words import (
    EN_DAY,
    EN_MONTH,
    NUMBER_END,
    ZH_NUMBER,
    read_amount,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRequest:
    """A request. `parts` are the start and end of each part of the subject in the text."""

    phrase: TimePhrase
    parts: tuple[tuple[int, int], ...]
    asks_reminder: bool


def find_request(text: str) -> FoundRequest | None:
    """The request in a normalised message, None where it is not clear."""
    lead = _Lead.read(text, 0)
    if (_QUESTION_END.search(text) and not lead.is_question) or EXCEPTION.search(text):
        return None
    found = _read_request(text, lead) or _read_bounded(text, lead)
    if found is None or any(_TALK_ZH.search(text, start, end) for start, end in found.parts):
        return None
    if found.phrase.repeats and found.parts:
        start, end = found.parts[-1]
        end = split_bounds(text, found.phrase, start, end)
        found = replace(found, parts=(*found.parts[:-1], *_parts(text, (start, end))))
        if any(LIMIT.search(text, *part) for part in found.parts):
            # It begins or ends in a way that is not understood.
            return None
    return found if found.asks_reminder or found.parts else None


def asks_for_reminder(text: str) -> bool:
    """Whether a normalised message asks for a reminder, at whatever time: in its first words, or
    in Chinese after those of a time."""
    lead = _Lead.read(text, 0)
    if _QUESTION_END.search(text) or _TALK_ZH.search(text):
        return False
    remind = _ASKED_REMINDER.match(text, lead.end)
    return remind is not None and not _asks_back(text, remind.end())


def split_bounds(text: str, phrase: TimePhrase, start: int, end: int) -> int:
    """Take the beginning or the end of the repetition into the phrase where the subject, from
    `start` to `end`, says it last; returns the place where the subject ends: `每天8点提醒我喝水，
    到月底`."""
    for match in _LATE_BOUND.finditer(text, start, end):
        at = match.end("apart")
        trial = replace(phrase)
        after = read_bounds(text, at, trial)
        is_whole = after is not None and _END.match(text, after)
        # `remind me every day to work until 5`, `把文件送到` are parts of the subject.
        is_clear = (
            bool(match["apart"].strip())
            or trial.since is not phrase.since
            or (trial.until is not None and (trial.until.has_day or phrase.repeats_by_clock))
        )
        if is_whole and is_clear:
            phrase.take_bounds(trial)
            return match.start()
    return end


_LATE_BOUND = re.compile(
    r"(?P<apart>[\s,;。、]{1,3}|(?=一?直?到|截[止至]))(?=(?:starting|beginning|from|until|till|til"
    r"|through|for|only|a\stotal|[0-9a-z]+\stimes|twice|thrice)\b"
    r"|[从自]|[明后下今].{1,5}[起开]|一?直?到|截[止至]|持续|坚持|连续|为期|[一总]?共|只"
    r"|[0-9一二两三四五六七八九十]+次)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lead:
    """Polite words before a request. `asks` words make any work a request, `remembers` words any
    matter a reminder."""

    end: int
    asks: bool = False
    remembers: bool = False
    is_question: bool = False

    @classmethod
    def read(cls, text: str, at: int) -> _Lead:
        words = _POLITE.match(text, at)
        end = words.end() if words else at
        said = text[at:end]
        return cls(
            end=end,
            asks=bool(_ASKING.search(said)),
            remembers=bool(_REMEMBERING.search(said)),
            is_question=bool(_POLITE_QUESTION.search(said)),
        )


_POLITE = re.compile(
    r"(?:[\s,]{1,5}|(?:please|pls|hey|hi|hello|ok|okay|so|also|and|then|just|kindly|shiftboss"
    r"|(?:can|could|would|will)\s(?:you|u)|i(?:'d|\swould)\slike\syou\sto"
    rf"|i\s(?:want|need)\syou\sto){NUMBER_END}"
    r"|请你?|麻烦[你您]?|劳驾|拜托|[你您]?(?:能不能|可不可以|能否|可否|可以|能)|[你您](?![好的])"
    r"|帮我们?|帮忙|记得|记一?下|别忘了?|不要忘了?|别让我忘了?|到时候?|那就?|然后"
    r"|(?:在|于|到了?(?!.{1,12}为止))(?=[0-9一二三四五六七八九十明后下每今早上中])"
    r"|(?:从今)?以后(?=每)|今后(?=每)|从?(?:今[天日]?|现在|即日)(?:开始|起)"
    r"|(?:from\snow\son|starting\s(?:now|today))(?=[\s,])){0,8}"
)
_ASKING = re.compile(
    r"please|pls|can|could|would|will|like|want|need|请|麻烦|劳驾|拜托|能|可以|可否|帮"
)
_REMEMBERING = re.compile("记得|忘")
_POLITE_QUESTION = re.compile(r"(?:can|could|would|will)\s(?:you|u)\b|能|可以|可否")

_REMIND_WORD = r"(?:rem+ind|rmind|reimnd|remid|remin|remnd|remimd|remidn|reminde|reming|remond)"
"""With frequent slips of the keyboard."""
_REMIND_EN = (
    rf"(?:{_REMIND_WORD}\s(?:me|us|everyone|everybody|the\steam)(?:\sagain)?"
    r"|tell\s(?:me|us)(?=\sto\s)|wake\s(?:me|us)(?:\sup)?|ping\s(?:me|us)"
    r"|nudge\sme|mind\sreminding\s(?:me|us)|alert\s(?:me|us)|notify\s(?:me|us)|(?:don'?t|do\snot|don\"t)\s(?:let\s(?:me|us)\s)?forget|remember(?=\sto\s)"
    r"|(?:(?:set|put|make)(?:\sup)?|add|create|schedule|(?:give|send|shoot)\sme|i\s(?:need|want))\s(?:me\s)?"
    rf"(?:an?|the|another)\s(?P<often>(?:daily|weekly|monthly)\s)?(?:reminder|alarm|timer)"
    rf"(?:\s(?:for|of)(?=\s))?){NUMBER_END}"
)
_REMIND_ZH = (
    r"(?:在群里)?(?:(?:[提题]醒|提示|通知|催|喊|remind\s?)(?:一?下|一声)?(?:我们|咱们|大家|我)(?:一下|一声)?"
    r"|叫醒?(?:我们|我)(?:一下|一声)?|提醒(?:一下|(?=:)))"
)
_REMIND = re.compile(rf"{_REMIND_EN}|{_REMIND_ZH}")
_ASKED_REMINDER = re.compile(
    rf"(?:{_REMIND_WORD}|ping)\s(?:me|us){NUMBER_END}|[^,。说让叫问的\"]{{0,12}}[提题]醒(?:我|我们|大家)"
)
_TIMER = re.compile(
    r"倒?计时|(?:set|start)\s(?:me\s)?(?:an?\s)(?=[0-9a-z]{1,10}[\s-](?:min|hour|sec))"
)
_TIMER_END = re.compile(r"\s(?:timer|alarm|reminder)(?![a-z])|$")
_LINK = re.compile(r"[\s,:;。、\-]{0,4}(?:(?:to|that|about|of)\s|[要去](?=做|干))?\s{0,3}")
_ALARM_ZH = re.compile(r"(?:给我)?(?:设置?|设定|定|订|创?建|新建|添?加|来)(?:一?个|一下)?\s?")
_ALARM_ZH_END = re.compile(r"\s?的?(?:闹钟|闹铃|提醒|定时提醒)[\s,:]{0,3}")

_VERB_EN = re.compile(
    r"(?:send|email|e-mail|mail|check|run|generate|write|summari[sz]e|give|tell|show|post|report"
    r"|back\sup|backup|update|fetch|get|create|make|review|start|search|collect|compile|prepare"
    r"|publish|sync|clean|delete|monitor|look|scan|pull|push|deploy|test|draft|message|restart"
    rf"|translate|find|download|upload|build|do){NUMBER_END}"
)
_STRONG_VERB_EN = re.compile(
    r"(?:send|email|e-mail|check|run|generate|summari[sz]e|post|report|back\sup|backup|update|fetch"
    rf"|collect|sync|clean|monitor|scan|restart|(?:give|tell|show|get)\s(?:me|us)){NUMBER_END}"
)
"""Those with which an order may begin whose time comes later."""
_THEN_ZH = re.compile("的?时候?")
_ADVERB_ZH = re.compile(r"(?:都|就|再|准时|按时|自动|定时|定期|\s|,){0,4}")
_ADDRESSED_ZH = re.compile(r"(?:帮我们?|帮忙|请|麻烦[你您]?|替我|为我)\s?")
_VERB_ZH = re.compile(
    r"看看?.{1,40}(?:是否|有没有|是不是)|给(?!我打电话)(?:我|我们|大家|客户|他|她|群里)"
    r"|发.{1,30}给(?:我|大家)|发(?:送|布|给|我|一|到|日报|周报)|推送|汇总|备份|生成|检查|总结|监控"
    r"|执行|运行|抓取|同步|整理|统计|巡检|汇报|报告|查(?:一下|询|看)|搜索|收集|更新|清理|扫描|重启|部署"
    r"|通知|告诉我|跑(?:一|测试|备份|任务|脚本)"
)
_TAKE_ZH = re.compile(
    r"把.{1,200}?(?:发|推|传|寄|备份|跑|运行|整理|汇总|总结|更新|检查|删|清|关|打开|做|写|生成|同步|提交"
    r"|部署|给我|告诉)"
)
_STATEMENT_ZH = re.compile(r"[很真太]|是个|是一|习惯|觉得|了$|了[。!,]|的是|谁|哪[个里些]|为什么")

_NOT_AFTER = re.compile(
    r"\s?(?:yesterday|ago|last\s|or\b|until\b|till\b|except\b|unless\b|starting\b|after\snext"
    r"|and\s(?:every|on\s|at\s|the\s[0-9]|[0-9])|for\s(?:the\snext|[0-9])"
    r"|之?前|以前|之间|以内|内|为止|开始|起(?!床|来)|的(?!时候)|结束)"
    r"|\s?(?:is|was|are|were)\s"
)
"""Words after a phrase of time that make it a deadline, a past time or a part of something else."""
_NOT_BEFORE = re.compile(
    r"(?:yesterday|last\s\w{1,9}|(?:or|and)(?:\son)?|weeks?|days|months|times|starting\s\w+"
    r"|tomorrow|today|tonight|since|until|till|by|before|from|after|than|for|past|previous"
    r"|some\s?time"
    r"|昨[天晚]|前天|上周|上个?月|去年|过去|截至|到|的|最[晚迟]|不晚于)\s?$"
)
"""The same before it."""
_CLAUSE_EN = re.compile(
    r"\b(?:that|which|who|why|how|when|what|because|where|meeting|appointment|event|flight|call\sat"
    r"|to\s(?:do|be|say|eat|read|watch)|we|they|he|she|i|it|you)\b|\bto\s\w{1,20}\s?$"
)
_LOOSE_NOUN_EN = re.compile(r"\b(?:about|for|of|on|whether|if)\b")
_ADJECTIVE_EN = re.compile(
    r"(?:daily|nightly|hourly|weekly|monthly|quarterly|yearly)\s(?!to\s|that\s|about\s)"
)
_HEARSAY_ZH = re.compile("说|让|叫|问")
_MARKS = ", \n;。"
_QUESTION_EN = re.compile(
    rf"[\s,:]{{0,4}}(?:what|when|why|how|who|whom|whose|where|which|whether|if){NUMBER_END}"
)
_QUESTION_ZH = re.compile(
    r"[\s,:]{0,4}(?:了|过|什么|有什么|有哪些|有没有|是什么|要做什么|的|吗|几|哪|怎么|为什么|呢|功能"
    r"|我们昨)"
)
EXCEPTION = re.compile(
    r"除外|除了|\b(?:except|excluding|unless|apart\sfrom|other\sthan)\b"
    rf"|\bbut\s(?:not|on)?\s?(?:{EN_DAY}|weekend)"
)
"""Days that are left out, which no timing can hold."""
LIMIT = re.compile(
    rf"\bfrom\s{EN_MONTH}\s(?:to|through|thru)\b|{ZH_NUMBER}月份?[到至]{ZH_NUMBER}月"
    r"|\b(?:until|till|starting|beginning)\b|直到|为止|[到至](?=[0-9一二三四五六七八九十]+[号日])"
)
"""Words of a beginning or an end."""
_TALK_ZH = re.compile(r"的(?:那个|这个)(?:任务|提醒|闹钟|日程|计划)|删掉|停掉|取消|关掉这个")
_QUESTION_END = re.compile(r"[?]\s{0,3}$|[吗呢么]\s?$")
_END = re.compile(
    r"[\s,，.。!?~\"]{0,6}(?:please|pls|thanks|thank\syou|谢谢|吧|哦|啊|哈|吗|呢)?[\s.。!?~]{0,6}$"
)
_AT = re.compile(r"at\s(?!least|most|once|last|first)")
_ONLY_SMALL_HOUR = re.compile(r"[一两二三]点")
_WORD_START = re.compile(r"(?<![a-z0-9])[a-z0-9]|[^\x00-\x7f]")


def _read_request(text: str, lead: _Lead) -> FoundRequest | None:
    phrase = _phrase_at(text, lead.end)
    if phrase is not None:
        return _read_after_time(text, lead, phrase)
    if timer := _TIMER.match(text, lead.end):
        return _read_timer(text, timer.end())
    if remind := _REMIND.match(text, lead.end):
        is_adjective = remind["often"] is not None
        return _read_repeated(text, remind) if is_adjective else _read_reminder(text, remind.end())
    if lead.remembers:
        return _read_event(text, lead.end) or _read_reminder(text, lead.end)
    if alarm := _ALARM_ZH.match(text, lead.end):
        return _read_alarm(text, alarm.end())
    return _read_trailing_reminder(text, lead.end) or _read_work(text, lead)


def _read_bounded(text: str, lead: _Lead) -> FoundRequest | None:
    """`starting tomorrow, remind me every day at 7 to …`, `到月底为止，提醒我每天…`."""
    bounds = TimePhrase(end=lead.end, every=Every.DAY)
    end = read_bounds(text, lead.end, bounds)
    if end is None:
        return None
    found = _read_request(text, _Lead.read(text, end))
    if found is None or found.phrase.has_bound:
        return None
    phrase = found.phrase
    if bounds.lasting and bounds.lasting.is_whole_days and not (phrase.has_day or phrase.delay):
        # `for three days remind me at noon`
        phrase.every = phrase.every or Every.DAY
    phrase.take_bounds(bounds)
    return found if phrase.repeats else None


def _read_after_time(text: str, lead: _Lead, phrase: TimePhrase) -> FoundRequest | None:
    """`明天9点提醒我…`, `in 20 minutes check …`."""
    then = _THEN_ZH.match(text, phrase.end)
    more = _Lead.read(text, then.end() if then else phrase.end)
    if remind := _REMIND.match(text, more.end):
        return _reminder(text, phrase, remind.end())
    if lead.remembers or more.remembers:
        return _reminder(text, phrase, more.end)
    start = _ADVERB_ZH.match(text, more.end).end()  # type: ignore[union-attr] # it matches nothing
    if _VERB_EN.match(text, start):
        return _work(text, phrase, start, len(text))
    addressed = _ADDRESSED_ZH.match(text, start)
    start = addressed.end() if addressed else start
    asks = addressed is not None or lead.asks or more.asks
    if not (asks or phrase.repeats or phrase.delay or phrase.has_hour):
        return None
    is_verb = _VERB_ZH.match(text, start) or _TAKE_ZH.match(text, start)
    if text[start : start + 1].isascii() or not (asks or is_verb):
        return None
    return None if _STATEMENT_ZH.search(text, start) else _work(text, phrase, start, len(text))


def _read_reminder(text: str, start: int) -> FoundRequest | None:
    """Reads the rest after `remind me`: its time comes at once, at the end, or in the middle."""
    if _asks_back(text, start):
        return None
    link = _link_end(text, start)
    for place in (start, link):
        at = _skip_blank(text, place)
        phrase = _phrase_at(text, at) or _timer_at(text, start, at)
        if phrase is not None:
            return _reminder(text, phrase, phrase.end)
    if read_phrase(text, link, loose=False) or LIMIT.match(text, link):
        # A time is at once, with more that is not understood: `every Monday and every Friday`.
        return None
    found = [*_phrases(text, link)]
    if not found:
        return None
    at, phrase = next((each for each in found if _END.match(text, each[1].end)), found[-1])
    return FoundRequest(
        phrase=phrase, parts=_parts(text, (link, at), (phrase.end, len(text))), asks_reminder=True
    )


def _read_repeated(text: str, remind: re.Match[str]) -> FoundRequest | None:
    """`set a daily reminder at 9 to …`."""
    often = read_phrase(text, remind.start("often"), loose=False)
    phrase = read_phrase(text, _skip_blank(text, remind.end()), loose=False)
    if (
        often is None
        or phrase is None
        or phrase.repeats
        or phrase.delay
        or phrase.offset is not None
    ):
        return None
    phrase.every = often.every
    return _reminder(text, phrase, phrase.end)


def _read_event(text: str, start: int) -> FoundRequest | None:
    """`明天10点的电话会`, after `别忘了`."""
    phrase = read_phrase(text, start, loose=False)
    if phrase is None or not text.startswith("的", phrase.end):
        return None
    return _reminder(text, phrase, phrase.end + 1)


def _read_timer(text: str, start: int) -> FoundRequest | None:
    """`set a 20 minute timer`, `倒计时12分钟`."""
    delay = _delay_at(text, start)
    end = _TIMER_END.match(text, delay.end) if delay else None
    return _reminder(text, delay, end.end()) if delay and end else None


def _read_alarm(text: str, start: int) -> FoundRequest | None:
    """`设个明天早上7点的闹钟`, `定个提醒：明天早上7点`."""
    if alarm := _ALARM_ZH_END.match(text, start):
        phrase = _phrase_at(text, alarm.end())
        return _reminder(text, phrase, phrase.end) if phrase else None
    phrase = read_phrase(text, start, loose=False) or _delay_at(text, start)
    end = _ALARM_ZH_END.match(text, phrase.end) if phrase else None
    return _reminder(text, phrase, end.end()) if phrase and end else None


def _read_trailing_reminder(text: str, start: int) -> FoundRequest | None:
    """`交房租，每月1号提醒我`."""
    for at, phrase in _phrases(text, start):
        remind = _REMIND.match(text, phrase.end)
        is_apart = at > start and text[at - 1] in _MARKS
        if remind and is_apart and _END.match(text, remind.end()):
            if _HEARSAY_ZH.search(text, start, at):
                return None
            return FoundRequest(phrase=phrase, parts=_parts(text, (start, at)), asks_reminder=True)
    return None


def _read_work(text: str, lead: _Lead) -> FoundRequest | None:
    """`check every hour whether …`, `send me the news every morning`, `把新闻发给我，每天8点`."""
    start = lead.end
    if verb := _STRONG_VERB_EN.match(text, start):
        at = _skip_blank(text, verb.end())
        for each in ("me ", "us "):
            at += len(each) * text.startswith(each, at)
        phrase = _phrase_at(text, at)
        if phrase and phrase.end < len(text) and (phrase.repeats or phrase.delay):
            return FoundRequest(
                phrase=phrase,
                parts=_parts(text, (start, at), (phrase.end, len(text))),
                asks_reminder=False,
            )
    elif not (_TAKE_ZH.match(text, start) or _VERB_ZH.match(text, start)):
        return None
    for at, phrase in _phrases(text, start + 1):
        if _END.match(text, phrase.end):
            is_clear = (
                _is_clear_end_en(text[start:at], phrase)
                if verb
                else _is_clear_end_zh(text, at, phrase)
            )
            return _work(text, phrase, start, at) if is_clear else None
    return None


def _is_clear_end_en(before: str, phrase: TimePhrase) -> bool:
    """Whether a single time at the end belongs to the request. In `the meeting at 9` it may belong
    to the noun."""
    if _CLAUSE_EN.search(before) or " " not in before.strip():
        return False
    if phrase.repeats:
        return True
    is_single = phrase.has_day or phrase.part or any(clock.part for clock in phrase.clocks)
    is_precise = phrase.delay is not None or (phrase.has_hour and is_single)
    return bool(is_precise) and not _LOOSE_NOUN_EN.search(before)


def _is_clear_end_zh(text: str, at: int, phrase: TimePhrase) -> bool:
    return text[at - 1] in _MARKS and bool(phrase.repeats or phrase.delay or phrase.has_hour)


def _phrase_at(text: str, at: int) -> TimePhrase | None:
    """A phrase that other words do not make into something else, such as `明天9点的…`."""
    phrase = read_phrase(text, at, loose=False)
    if phrase is None or _NOT_AFTER.match(text, phrase.end):
        return None
    adjective = _ADJECTIVE_EN.match(text, at)
    if adjective and adjective.end() == phrase.end + 1:
        # `weekly report`
        return None
    return None if _ONLY_SMALL_HOUR.fullmatch(text, at, phrase.end) else phrase


def _timer_at(text: str, start: int, at: int) -> TimePhrase | None:
    """The amount after `set a timer for`."""
    return _delay_at(text, at) if text[:start].endswith("timer for") else None


def _delay_at(text: str, at: int) -> TimePhrase | None:
    amount = read_amount(text, at)
    return TimePhrase(end=amount[1], delay=amount[0]) if amount else None


def _phrases(text: str, start: int) -> Iterator[tuple[int, TimePhrase]]:
    """Phrases of time in the text and where they begin."""
    place = start
    while match := _WORD_START.search(text, place):
        at = match.start()
        phrase = _phrase_at(text, at)
        if phrase is None:
            place = at + 1
            continue
        place = phrase.end
        if not _NOT_BEFORE.search(text, max(start, at - 20), at):
            yield at, phrase


def _reminder(text: str, phrase: TimePhrase, end: int) -> FoundRequest | None:
    if not _END.match(text, end) and _asks_back(text, end):
        return None
    if phrase.window and not phrase.often:
        # `remind me hourly to …`
        more = _phrase_at(text, _skip_blank(text, end))
        end = more.end if more and _merge(phrase, more) else end
    start = _link_end(text, end)
    is_hour = not phrase.clocks and phrase.has_day and _is_hour_at(text, start)
    if is_hour or _AT.match(text, start):
        # `明天上午提醒我9点半有个会`: the hour of the reminder, or of its matter. `each day at
        # lunch`: more of the time, which is not understood.
        return None
    end = _merge_trailing(text, phrase, start)
    return FoundRequest(phrase=phrase, parts=_parts(text, (start, end)), asks_reminder=True)


def _is_hour_at(text: str, at: int) -> bool:
    matter = read_phrase(text, at, loose=False)
    return matter is not None and bool(matter.clocks)


def _merge_trailing(text: str, phrase: TimePhrase, start: int) -> int:
    """The end of the subject, without an hour that is said last: `每天提醒我背单词，早上7点`."""
    if phrase.delay or (phrase.has_hour and not phrase.window):
        return len(text)
    for at, more in _phrases(text, start + 1):
        is_apart = text[at - 1] in _MARKS if at and not text[at].isascii() else True
        if is_apart and _END.match(text, more.end) and _merge(phrase, more):
            return at
    return len(text)


def _merge(phrase: TimePhrase, more: TimePhrase) -> bool:
    """Take the hours, or the span within a window, that another phrase adds; False if it says
    anything else."""
    if more.has_day or more.delay or more.window or more.filter is not phrase.filter:
        return False
    if phrase.window:
        more.make_often()
        phrase.often = phrase.often or more.often
        return more.often is not None and not more.every and not more.has_hour
    if more.repeats or not more.clocks or phrase.has_hour:
        return False
    phrase.clocks, phrase.part = more.clocks, more.part
    return True


def _work(text: str, phrase: TimePhrase, start: int, end: int) -> FoundRequest:
    if phrase.window and not phrase.often:
        end = min(end, _merge_trailing(text, phrase, start))
    return FoundRequest(phrase=phrase, parts=_parts(text, (start, end)), asks_reminder=False)


def _link_end(text: str, at: int) -> int:
    link = _LINK.match(text, at)
    remind = _REMIND.match(text, link.end()) if link else None
    return remind.end() if remind else link.end() if link else at


def _skip_blank(text: str, at: int) -> int:
    while text[at : at + 1] in {" ", ","}:
        at += 1
    return at


def _parts(text: str, *places: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    """The nonempty parts of the subject, without polite words at the end."""
    trimmed = []
    for start, end in places:
        last = end
        if end == len(text) and (tail := _END.search(text, start)):
            last = tail.start()
        while last > start and text[last - 1] in " ,;:\n":
            last -= 1
        while start < last and text[start] in " ,;:\n":
            start += 1  # noqa: PLW2901 - the place moves
        if last > start:
            trimmed.append((start, last))
    return tuple(trimmed)


def _asks_back(text: str, at: int) -> bool:
    """Whether the message asks a question about the past, as in `remind me what we said`."""
    return bool(_QUESTION_EN.match(text, at) or _QUESTION_ZH.match(text, at))
