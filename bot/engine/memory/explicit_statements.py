"""Recognises explicit statements by rules, without a model: names, reply preferences, corrections,
requests to remember, and when a fact expires."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from bot.engine.memory.noise_filter import NoiseKind, classify_fact_noise, is_time_bound
from bot.engine.memory.preference_statements import find_preferences
from bot.engine.memory.said_clauses import split_clauses, split_sentences
from bot.engine.memory.said_dates import DatedSpan
from bot.engine.memory.said_endings import EndedClaim
from bot.engine.memory.self_statements import (
    ExplicitStatement,
    find_introduced_name,
    find_prohibition,
    find_self_statements,
)
from cards.formats import truncate
from storage.records.memory import (
    PERSONAL_CATEGORIES,
    UNREAD_DATE_KEY,
    MemoryCategory,
    MemoryEntry,
    MemoryKind,
    MemoryScopeKind,
    MemoryState,
    MemoryTier,
    NewMemoryEntry,
)
from storage.records.memory_evidence import ENDING_PREFIX
from storage.search.chinese import contains_han, count_han

MAX_STATEMENT_CHARS = 260
_MAX_CHARS_READ = 4000
_MAX_NAME_CHARS = 20
_MAX_NAME_WORDS = 3
_MIN_HAN = 3
_EXPIRING_CATEGORIES = frozenset({MemoryCategory.EVENTS, MemoryCategory.ENTITIES})
_DYNAMIC = re.compile(
    r"\b(?:today|yesterday|tomorrow|recently|currently|right now|(?:this|last|next) week"
    r"|this month|this morning|tonight|later)\b"
    r"|今天|昨天|明天|最近|正在|刚才|刚刚|这周|这个月|上周|下周|目前|现在|今晚|今早|稍后|待会",
    re.IGNORECASE,
)


def find_explicit_statements(
    text: str, today: date | None = None, *, month_first: bool = False
) -> Sequence[ExplicitStatement]:
    """At most one statement on each subject, in the order of kinds. Times are read if the day it
    was said is known."""
    text = text[:_MAX_CHARS_READ]
    spoken = (
        _find_name(text) or find_introduced_name(text),
        *_find_reply_preferences(text),
        *find_self_statements(text, today, month_first=month_first),
        *find_preferences(text, today, month_first=month_first),
    )
    found = list({each.key: each for each in spoken if each is not None}.values())
    noted = _find_correction(text) or find_prohibition(text) or _find_reminder(text)
    return (*found, noted) if noted is not None else tuple(found)


def asks_to_remember(text: str) -> bool:
    """Whether the text asks to remember something; it is then processed at once."""
    text = text[:_MAX_CHARS_READ]
    asked = _REMEMBER.search(text) or _FROM_NOW_ON.search(text)
    return bool(asked or _is_correction(text) or find_prohibition(text))


def _find_name(text: str) -> ExplicitStatement | None:
    for clause, asked in split_clauses(text):
        found = None if asked else (_CALL_ME_ZH.fullmatch(clause) or _CALL_ME_EN.fullmatch(clause))
        if found is None:
            continue
        name = _strip_name(found.group("name"))
        if _is_name(name):
            told = f"称呼：{name}" if contains_han(text) else f"Wants to be called {name}"
            return ExplicitStatement(
                text=told, category=MemoryCategory.PROFILE, key="profile:name", value=name
            )
    return None


def _strip_name(name: str) -> str:
    name = name.strip(" \t“”\"'「」《》:：")
    return _ENDINGS.sub("", name).strip(" “”\"'「」")


def _is_name(name: str) -> bool:
    if not (1 <= len(name) <= _MAX_NAME_CHARS) or not _NAME_PATTERN.fullmatch(name):
        return False
    folded = name.casefold()
    if folded in _REJECTED_NAMES or _REJECTED_NAME_PATTERN.search(folded):
        return False
    words = name.split()
    if len(words) > _MAX_NAME_WORDS or words[0].casefold() in _REJECTED_FIRST_WORDS:
        return False
    # Every word must look like a name: "call me back later" contains none.
    return len(words) == 1 or all(word[0].isupper() or contains_han(word) for word in words)


def _find_reply_preferences(text: str) -> Iterator[ExplicitStatement]:
    """Lasting preferences only; requests for this one answer do not count."""
    found: dict[str, ExplicitStatement] = {}
    for sentence in split_sentences(text):
        if not _LASTING.search(sentence) or _NEGATED.search(sentence):
            continue
        if sentence.rstrip().endswith(("?", "？", "吗", "吗？")):
            continue
        for key, value, pattern, told in _REPLY_PREFERENCE_RULES:
            if pattern.search(sentence) and key not in found:
                said = told[0] if contains_han(sentence) else told[1]
                preferences = MemoryCategory.PREFERENCES
                found[key] = ExplicitStatement(
                    text=said, category=preferences, key=key, value=value
                )
    yield from found.values()


def _find_correction(text: str) -> ExplicitStatement | None:
    said = " ".join(text.split())[:MAX_STATEMENT_CHARS]
    if not _is_correction(said) or classify_fact_noise(said) is not None:
        return None
    told = f"更正：{said}" if contains_han(said) else f"Correction: {said}"
    return ExplicitStatement(
        text=told, category=MemoryCategory.LESSONS, confidence=0.9, is_request=False
    )


def _is_correction(text: str) -> bool:
    text = text.strip()
    if text.endswith(("?", "？")):
        return False
    return any(pattern.match(text) for pattern in _CORRECTIONS)


def _find_reminder(text: str) -> ExplicitStatement | None:
    """The words after "remember that"."""
    found = _REMEMBER.search(text)
    if found is None:
        return None
    said = " ".join(found.group("what").split())[:MAX_STATEMENT_CHARS].strip(" ：:，,")
    asks = text.strip().endswith(("?", "？", "吗", "嘛", "么"))
    if asks or not _is_worth_keeping(said) or _is_fully_covered(said):
        return None
    about = _MY.fullmatch(said)
    if about is None:
        return ExplicitStatement(text=said, category=MemoryCategory.OTHER, confidence=0.9)
    # A correction replaces the earlier statement.
    key = f"{MemoryCategory.ENTITIES}:{' '.join((about['en'] or about['zh']).casefold().split())}"
    return ExplicitStatement(text=said, category=MemoryCategory.ENTITIES, key=key, confidence=0.9)


def _is_worth_keeping(said: str) -> bool:
    """An explicit request may be as short as three characters."""
    noise = classify_fact_noise(said)
    return noise is None or (noise is NoiseKind.SHORT and count_han(said) >= _MIN_HAN)


def _is_fully_covered(said: str) -> bool:
    """Whether each clause is already covered by a more specific statement."""
    each = [clause for clause, _ in split_clauses(said)]
    return all(map(_is_covered, each))


def _is_covered(clause: str) -> bool:
    named = _find_name(clause) or find_introduced_name(clause)
    replies = (
        each
        for start in ("", "以后", "always ")
        for each in _find_reply_preferences(start + clause)
    )
    return named is not None or any(True for _ in (*replies, *find_self_statements(clause)))


def _word_set(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


_NAME_PATTERN = re.compile(r"[^\W_](?:[\w·•'’\- ]*[^\W_])?")
_CALL_ME_ZH = re.compile(
    r"(?:那|那么|好的?)?(?:以后|今后|从现在起|从今以后|之后)?(?:你|您|大家)?(?:就|都|请|可以|要)*"
    r"(?:(?:直接)?叫我|称呼我(?:为|叫)?|我的(?:名字|姓名|昵称)(?:是|叫(?:做)?))"
    r"\s*(?P<name>\S[^，。]{0,30})"
)
_CALL_ME_EN = re.compile(
    r"(?:hi |hello |hey |and |so |ok |okay )*(?:(?:from now on|in future|please|just|you can"
    r"|you may|always)[ ,]+)*(?:call me|my name is|my name['’]s)\s+(?P<name>\S.{0,40}?)"
    r"(?: (?:from now on|please|instead|always|in future|now))*",
    re.IGNORECASE,
)
_ENDINGS = re.compile(
    r"(?:就(?:行|好|可以|成)(?:了|啦|吧)?|即可|好了|行了|吧|呀|啦|哦|喔|呗|了|please|thanks)$"
)
_REJECTED_NAMES = _word_set(
    "老板 老大 主人 主子 上司 领导 经理 总经理 总裁 董事长 老师 先生 女士 小姐 太太 同学 同志 大人"
    " 亲 亲爱的 宝贝 用户 客户 管理员 管理 主管 组长 队长 船长 皇上 陛下 爸爸 爹 爷 大哥 老公 老婆"
    " 名字 全名 什么 啥 谁 一声 起床 一下 过来 过去"
    " boss chief master mistress sir madam ma'am mister miss admin administrator manager user owner"
    " client customer king queen god lord captain teacher doctor professor director president ceo"
    " cto assistant root system daddy darling dear honey babe me you him her them it"
)
_REJECTED_NAME_PATTERN = re.compile(
    r"什么|怎么|哪|谁|啥|多少|为何|为什么|几点|(?:经理|总监|老板|主任|管理员|先生|女士)$"
    r"|^(?:what|who|whom|how|why|which|when|where|whatever|whoever|anything|something)\b"
)
_REJECTED_FIRST_WORDS = _word_set(
    "a an the back at when if on in by again up later now once before after via for whenever until"
    " tomorrow today tonight asap soon crazy first not to with and or as out over about it this"
    " that only already still sometimes"
)
_LASTING = re.compile(
    r"以后|今后|往后|默认|一直|永远|总是|每次|从现在(?:起|开始)|从今(?:以后|天起)|长期"
    r"|\b(?:always|from now on|by default|going forward|from here on|in (?:the )?future|every time"
    r"|as a rule)\b"
    r"|\bi(?: \w+)? (?:prefer|like|love|want|need)\b.*\b(?:answers|replies|responses)\b"
    r"|\bkeep (?:your|all|all your) (?:answers|replies|responses)\b"
    r"|我(?:更|比较|一般|还是)?(?:喜欢|偏好|习惯).{0,8}(?:回答|回复|答复)",
    re.IGNORECASE,
)
_FROM_NOW_ON = re.compile(
    r"以后|今后|往后|默认|从现在(?:起|开始)|从今(?:以后|天起)"
    r"|\b(?:from now on|by default|going forward|from here on)\b",
    re.IGNORECASE,
)
_NEGATED = re.compile(
    r"不要|别|不用|不必|无需|不想|不再|禁止|\b(?:don['’]?t|do not|never|no longer|not|stop)\b",
    re.IGNORECASE,
)
_ANSWERING_ZH = r"(?:回答|回复|答复|交流|沟通|说话|聊天|聊|讲话|对话)"
_ANSWERING_EN = (
    r"\b(?:answer|answers|reply|replies|respond|responses?|speak|talk|write|communicate)\b"
)
_BRIEF = r"(?:简短|简洁|简明|精简|简单|短一?点|精炼|言简意赅)"
_FULL = r"(?:详细|详尽|细致|展开|具体一?点|细一?点)"


def _any_of(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_REPLY_PREFERENCE_RULES = (
    (
        "preferences:reply_language",
        "zh",
        _any_of(
            rf"(?:用|使用|以|讲|说)(?:简体)?(?:中文|汉语|普通话).{{0,6}}{_ANSWERING_ZH}",
            rf"{_ANSWERING_ZH}.{{0,6}}(?:用|使用|以)(?:简体)?(?:中文|汉语)",
            r"(?:和|跟|对)我(?:说|讲|用)(?:中文|汉语)",
            rf"{_ANSWERING_EN}(?: to me)?(?: back)? in (?:simplified )?chinese\b",
        ),
        ("回复语言：中文", "Wants answers in Chinese"),
    ),
    (
        "preferences:reply_language",
        "en",
        _any_of(
            rf"(?:用|使用|以|讲|说)(?:英文|英语).{{0,6}}{_ANSWERING_ZH}",
            rf"{_ANSWERING_ZH}.{{0,6}}(?:用|使用|以)(?:英文|英语)",
            r"(?:和|跟|对)我(?:说|讲|用)(?:英文|英语)",
            rf"{_ANSWERING_EN}(?: to me)?(?: back)? in english\b",
        ),
        ("回复语言：英文", "Wants answers in English"),
    ),
    (
        "preferences:reply_style",
        "brief",
        _any_of(
            rf"{_ANSWERING_ZH}.{{0,12}}{_BRIEF}",
            rf"{_BRIEF}.{{0,6}}{_ANSWERING_ZH}",
            rf"{_ANSWERING_EN}.{{0,24}}\b(?:brief|short|concise|terse)(?:ly)?\b",
            r"(?:^\s*|please |[,.] ?)(?:always )?(?:be|keep (?:it|your answers|your replies)) "
            r"(?:brief|short|concise|terse|to the point)\b",
            r"\b(?:brief|short|shorter|concise|terse) (?:answers|replies|responses)\b",
        ),
        ("回复风格：简短", "Wants brief answers"),
    ),
    (
        "preferences:reply_style",
        "detailed",
        _any_of(
            rf"{_ANSWERING_ZH}.{{0,12}}{_FULL}",
            rf"{_FULL}.{{0,6}}{_ANSWERING_ZH}",
            rf"{_ANSWERING_EN}.{{0,24}}\b"
            r"(?:in (?:full )?detail|detailed|thorough(?:ly)?|at length)\b",
            r"\b(?:detailed|long|longer|thorough|in-depth) (?:answers|replies|responses)\b",
        ),
        ("回复风格：详细", "Wants detailed answers"),
    ),
    (
        "preferences:reply_conclusion",
        "first",
        _any_of(
            r"先(?:说|给|讲|写|告诉我)?(?:出)?结论",
            r"结论(?:放|写|说|摆)?在?(?:最)?(?:前|先)",
            r"\b(?:conclusion|answer|result|bottom line|tl;?dr)s? (?:comes? )?first\b",
            r"\b(?:lead|start|begin) with the (?:conclusion|answer|result|bottom line)\b",
        ),
        ("回复先说结论", "Wants the conclusion first"),
    ),
)

_CORRECTIONS = (
    re.compile(
        r"(?:不对|不是的?|你?(?:搞|弄|说|记)?错了|更正|纠正)[，,。！!：:、 ]"
        r".{0,80}?(?:应该|其实|而是|是|要用|改成|用|叫|我说的)"
    ),
    re.compile(r"(?:应该|其实)(?:是|用|叫).{1,80}(?:而不是|不是|，不)"),
    re.compile(r"不是.{1,60}(?:，|,|而)(?:应该|其实)?是"),
    re.compile(
        r"(?:no|nope|wrong|incorrect|that['’]?s (?:wrong|not right|incorrect)|not quite|correction"
        r"|actually)\b[,.:;!\- ]{1,3}.{0,80}?(?:\bi (?:meant|mean|said)\b|\bshould\b|\bit['’]?s\b"
        r"|\bit is\b|\bthey['’]?re\b|\buse\b|\binstead\b|\bnot\b|\bis\b|\bare\b)",
        re.IGNORECASE,
    ),
    re.compile(r"i meant\b.{3}", re.IGNORECASE),
)

_REMEMBER = re.compile(
    r"(?:^|[，,。.!！;；\n][^\S\n]*)(?:please |also |and |请|麻烦|帮我|你要?|一定要?|务必){0,3}"
    r"(?:(?:记住|记下来?|记得|别忘了|不要忘记|牢记)(?!吗|了吗|我是谁)[：:，, ]{0,2}"
    r"|(?:remember|note|keep in mind|make a note|don['’]?t forget)(?: that|:| this:| for later:)\s+"
    r"|remember,? (?=my\b|i\b|i['’]m\b|we\b|our\b|the\b))"
    r"(?P<what>[^\n]{3,400})",
    re.IGNORECASE,
)
_MY = re.compile(
    r"(?:my|our) (?P<en>[\w' -]{2,30}?)(?: is| are|['’]s) (?!not\b).{1,200}"
    r"|(?:我|我们|咱们|我家)的(?P<zh>[^，,。的]{1,12}?)(?:是|叫|在)(?!不).{1,200}",
    re.IGNORECASE,
)


_MAYBE_TIME_BOUND = {MemoryCategory.OTHER, MemoryCategory.ENTITIES}
_IMPORTANCE = {MemoryCategory.PROFILE: 0.9, MemoryCategory.LESSONS: 0.8}


def personal_key(cell: MemoryEntry, key: str) -> str:
    """In a group, keys are per person."""
    shared = cell.scope.kind is not MemoryScopeKind.PERSON and cell.person is not None
    return f"{key}@{cell.person}" if key and shared else key


def attributed_text(cell: MemoryEntry, text: str) -> str:
    """In a group, texts name their speaker."""
    shared = cell.scope.kind is not MemoryScopeKind.PERSON and cell.sender
    return f"{cell.sender}: {text}" if shared else text


def build_statement_entry(
    cell: MemoryEntry, plain: ExplicitStatement, zone: tzinfo
) -> NewMemoryEntry:
    """The entry for a statement in `cell`. Days end at midnight in `zone`."""
    what = plain.key or "noted"
    # A reminder about tomorrow expires with it.
    passing = plain.category in _MAYBE_TIME_BOUND and is_time_bound(plain.text)
    until = (
        infer_valid_until(plain.text, MemoryCategory.EVENTS, cell.said_at, zone)
        if passing
        else first_moment(plain.until, zone)
    )
    return NewMemoryEntry(
        kind=MemoryKind.PROFILE if plain.category in PERSONAL_CATEGORIES else MemoryKind.FACT,
        scope=cell.scope,
        text=attributed_text(cell, plain.text),
        category=MemoryCategory.EVENTS if passing else plain.category,
        importance=_IMPORTANCE.get(plain.category, 0.8),
        confidence=plain.confidence,
        tier=MemoryTier.WORKING,
        dynamic=passing,
        valid_until=until,
        key=personal_key(cell, plain.key),
        origin=cell.origin,
        source=f"{what}:{cell.source}",
        evidence=(str(cell.source or cell.id),),
        sender=cell.sender,
        thread=cell.thread,
        person=cell.person,
        chat=cell.chat,
        task=cell.task,
        said_at=cell.said_at,
        valid_from=first_moment(plain.since, zone) or (until if plain.is_over else None),
        state=MemoryState.SUPERSEDED if plain.is_over else MemoryState.ACTIVE,
        extra={
            **({"value": plain.value} if plain.value else {}),
            **(
                {UNREAD_DATE_KEY: True}
                if _is_unread(plain.since) or _is_unread(plain.until)
                else {}
            ),
        },
    )


def build_ending_entry(
    cell: MemoryEntry, ended: EndedClaim, old: MemoryEntry, zone: tzinfo
) -> NewMemoryEntry:
    """The entry that takes the place of what the cell says is no longer so, in its words."""
    since = first_moment(ended.since, zone)
    plain = ExplicitStatement(
        text=truncate(" ".join((ended.told or ended.clause).split()), MAX_STATEMENT_CHARS),
        category=old.category,
        confidence=0.9,
        is_request=False,
    )
    return replace(
        build_statement_entry(cell, plain, zone),
        key=old.key,
        kind=MemoryKind.PROFILE if old.category in PERSONAL_CATEGORIES else MemoryKind.FACT,
        category=old.category,
        source=f"{ENDING_PREFIX}{old.id}:{cell.source}",
        dynamic=False,
        valid_from=since if since is not None and since < cell.said_at else None,
        extra={UNREAD_DATE_KEY: True} if _is_unread(ended.since) else {},
        valid_until=None,
    )


def _is_unread(span: DatedSpan | None) -> bool:
    return span is not None and span.first is None


def first_moment(span: DatedSpan | None, zone: tzinfo) -> datetime | None:
    """When the time that was named begins; None if none was, or if it was not understood."""
    if span is None or span.first is None:
        return None
    return datetime.combine(span.first, time(), zone).astimezone(UTC)


def _end_of_day(days: int) -> Callable[[date], date]:
    return lambda today: today + timedelta(days=days + 1)


def _end_of_week(weeks: int) -> Callable[[date], date]:
    """Weeks start on Monday."""
    return lambda today: today + timedelta(days=7 * (weeks + 1) - today.weekday())


def _end_of_month(months: int) -> Callable[[date], date]:
    def ends(today: date) -> date:
        first = today.replace(day=1)
        for _ in range(months + 1):
            first = (first + timedelta(days=31)).replace(day=1)
        return first

    return ends


_EXPIRY_RULES = tuple(
    (re.compile(pattern, re.IGNORECASE), timedelta(hours=hours), ends)
    for pattern, hours, ends in (
        (r"后天|\bday after tomorrow\b", 48, _end_of_day(2)),
        (r"明天|(?<!day after )\btomorrow\b", 24, _end_of_day(1)),
        (r"下周|\bnext week\b", 7 * 24, _end_of_week(1)),
        (r"这周|本周|\bthis week\b", 3 * 24, _end_of_week(0)),
        (r"下个月|\bnext month\b", 30 * 24, _end_of_month(1)),
        (r"这个月|本月|\bthis month\b", 15 * 24, _end_of_month(0)),
        (r"今晚|\btonight\b", 12, _end_of_day(0)),
        (r"今天|\btoday\b", 18, _end_of_day(0)),
    )
)
"""Pattern of a time expression, minimum lifetime, and the first day after it."""


def is_dynamic(text: str, category: MemoryCategory) -> bool:
    return category in _EXPIRING_CATEGORIES and _DYNAMIC.search(text) is not None


def infer_valid_until(
    text: str, category: MemoryCategory, said_at: datetime, zone: tzinfo = UTC
) -> datetime | None:
    """None if the text names no end. Never before the last named day is over in `zone`: "tomorrow
    evening" does not expire tomorrow morning."""
    if category not in _EXPIRING_CATEGORIES:
        return None
    named = [(span, ends) for pattern, span, ends in _EXPIRY_RULES if pattern.search(text)]
    if not named:
        return None
    today = said_at.astimezone(zone).date()
    over = [datetime.combine(ends(today), time(), zone).astimezone(UTC) for _, ends in named]
    return max(said_at + named[0][0], *over)
