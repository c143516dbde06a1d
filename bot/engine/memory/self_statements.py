"""Recognises plain statements of people about themselves, and prohibitions. Prefers missing a
statement to inventing one: only whole first-person clauses count, and none in texts to translate,
retell or act out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date

from bot.engine.memory.noise_filter import classify_fact_noise
from bot.engine.memory.said_clauses import (
    as_said,
    split_clauses,
    split_sentences,
    without_beginning,
)
from bot.engine.memory.said_dates import DatedSpan, find_spans
from bot.engine.memory.statement_words import (
    CITY_ZH,
    DATE,
    DATE_ZH,
    FEARS_EN,
    FEARS_ZH,
    PLACE_ZH,
    SURNAMES_ZH,
    WORKPLACE_ZH,
)
from storage.records.memory import MemoryCategory
from storage.search.chinese import HAN, contains_han, simplify_han


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplicitStatement:
    """A recognised statement. A later one with the same `key` replaces it; without a key, all are
    kept. `value` is machine-readable (`zh`, `brief`, a name). `is_request` means that the person
    wants it saved even if it was forgotten before. `since` and `until` are the days it names."""

    text: str
    category: MemoryCategory
    key: str = ""
    value: str = ""
    confidence: float = 0.95
    is_request: bool = True
    since: DatedSpan | None = None
    until: DatedSpan | None = None

    @property
    def is_over(self) -> bool:
        """Whether it is said of the past only ("I lived in Madrid until 2019"). It takes nothing's
        place."""
        return self.key.partition(":")[2].startswith("once ")


def is_quoted_or_fictional(text: str) -> bool:
    """Whether the text speaks with somebody else's words, or is to be worked on."""
    return _QUOTED_OR_FICTIONAL.search(text) is not None


_MAX_CHARS_READ = 600
"""Longer messages are probably pasted text."""
_MAX_PROHIBITION = 200
_MIN_PROHIBITION = 8
_MIN_PROHIBITION_HAN = 6


def find_self_statements(
    text: str, today: date | None = None, *, month_first: bool = False
) -> Iterator[ExplicitStatement]:
    """At most one statement on each subject. Months and years since when it is so are read if the
    day it was said is known."""
    if len(text) > _MAX_CHARS_READ or _QUOTED_OR_FICTIONAL.search(text):
        return
    known: set[str] = set()
    for sentence in split_sentences(simplify_han(text)):
        plain = sentence
        spans: Sequence[DatedSpan] = ()
        if today is not None:
            plain, spans = _without_times(sentence, today, month_first=month_first)
        is_wish = _REMEMBER_REQUEST.search(sentence) is not None
        is_over = today is not None and any(
            each.is_until and each.first is not None and each.first <= today for each in spans
        )
        for found in _read_sentence(plain, is_wish=is_wish, is_over=is_over):
            if found.key not in known:
                known.add(found.key)
                yield replace(
                    found,
                    text=_with_characters_of(text, found.text),
                    since=next((each for each in spans if not each.is_until), None),
                    until=next((each for each in spans if each.is_until), None),
                )


def _with_characters_of(text: str, told: str) -> str:
    """The statement, with its object as the person writes it."""
    read = simplify_han(text)
    if read == text:
        return told
    return re.sub(
        rf"[{HAN}]{{2,}}",
        lambda run: next(
            (
                run[0][:at] + as_said(run[0][at:], text)
                for at in range(len(run[0]) - 1)
                if run[0][at:] in read
            ),
            run[0],
        ),
        told,
    )


def _read_sentence(sentence: str, *, is_wish: bool, is_over: bool) -> Iterator[ExplicitStatement]:
    """`is_over`: it names a time that has passed as the end of what it says."""
    sentence = _CORRECTS.sub("", sentence.strip())
    if _UNCERTAIN.search(sentence):
        return
    is_speaker = False
    for clause, asked in split_clauses(sentence):
        restored = f"我{_ALSO.sub('', clause)}" if is_speaker and _ELIDED.match(clause) else clause
        is_speaker = is_speaker or clause.startswith(("我", "本人", *_SPEAKERS_MOVES))
        if not asked:
            yield from _match_rule(restored, is_wish=is_wish, is_over=is_over)


def _without_times(
    sentence: str, today: date, *, month_first: bool
) -> tuple[str, Sequence[DatedSpan]]:
    """The sentence without times that say since or until when it is so. Those for a short while
    stay, and so do those of a birth."""
    sentence = without_beginning(sentence).strip()
    if _TIME_IS_TOLD.search(sentence):
        return sentence, ()
    ahead = _WILL_MOVE.search(sentence) is not None
    if ahead and not any(
        each.first is None or each.first > today
        for each in find_spans(sentence, today, month_first=month_first, ahead=True)
    ):
        # "I move to X" without a day is a plan; 民国110年搬到台南 is told of the past.
        ahead = contains_han(sentence) is False
    spans = [
        each
        for each in find_spans(sentence, today, month_first=month_first, ahead=ahead)
        if ahead
        or each.first is None
        or _CHANGED.search(sentence)
        or _SHORT_TIME.search(sentence[each.start : each.end]) is None
        or _STARTS.search(sentence[each.start : each.end])
    ]
    if ahead:
        if not spans or spans[0].first is None or spans[0].first <= today:
            return sentence, ()
        sentence, spans = _cut(sentence, spans), spans[:1]
        return _WILL_MOVE.sub(_as_moved, sentence), spans
    return _cut(sentence, spans), spans


def _cut(sentence: str, spans: Sequence[DatedSpan]) -> str:
    for each in reversed(spans):
        sentence = f"{sentence[: each.start].rstrip()} {sentence[each.end :].lstrip()}"
    return re.sub(rf"(?<=[{HAN}]) +| +(?=[{HAN}.,!，。])", "", sentence).strip()


def _as_moved(found: re.Match[str]) -> str:
    if contains_han(found[0]):
        return f"{found['zh_who'] or ''}搬到"
    return "I moved to"


def find_introduced_name(text: str) -> ExplicitStatement | None:
    """Name after "我叫…" and the like; other uses of 叫 (ordering, calling) do not count."""
    if len(text) > _MAX_CHARS_READ or _QUOTED_OR_FICTIONAL.search(text):
        return None
    for clause, asked in split_clauses(text):
        found = None if asked else _INTRODUCED.fullmatch(_OPENING_WORDS.sub("", clause))
        if found is not None and _NOT_A_PERSON.search(found["name"]) is None:
            name = found["name"].strip()
            told, key = f"称呼：{name}", f"{MemoryCategory.PROFILE}:name"
            return ExplicitStatement(
                text=told, category=MemoryCategory.PROFILE, key=key, value=name
            )
    return None


def find_prohibition(text: str) -> ExplicitStatement | None:
    """A standing prohibition, as worded."""
    if len(text) > _MAX_CHARS_READ or _QUOTED_OR_FICTIONAL.search(text):
        return None
    for sentence in split_sentences(text):
        said = _OPENING_WORDS.sub("", " ".join(sentence.split()))[:_MAX_PROHIBITION].strip(
            " ，,。.!！"
        )
        asked = sentence.rstrip().endswith(("?", "？", "吗", "吧"))
        if asked or _UNCERTAIN.search(sentence) or not _is_prohibition(said):
            continue
        return ExplicitStatement(
            text=said, category=MemoryCategory.LESSONS, confidence=0.9, is_request=False
        )
    return None


def _is_prohibition(said: str) -> bool:
    least = _MIN_PROHIBITION_HAN if contains_han(said) else _MIN_PROHIBITION
    if (
        len(said) < least
        or classify_fact_noise(said) is not None
        or _VAGUE_PROHIBITION.search(said)
    ):
        return False
    return any(pattern.match(said) for pattern in _PROHIBITIONS)


def _match_rule(clause: str, *, is_wish: bool, is_over: bool) -> Iterator[ExplicitStatement]:
    clause = _OPENING_WORDS.sub("", clause)
    for rule in _SELF_STATEMENT_RULES:
        if rule.is_past != is_over:
            continue
        found = rule.pattern.fullmatch(clause)
        if found is None:
            continue
        said = found["what"].strip(" “”\"'")
        many = _LISTED.split(said) if rule.takes_several else [said]
        told = [what.strip() for what in many if rule.accepts(what.strip())]
        for what in told:
            en, zh = rule.templates
            text = (zh if contains_han(clause) else en).format(what=what)
            key = f"{MemoryCategory.PROFILE}:{rule.key.format(what=what.casefold())}"
            yield ExplicitStatement(
                text=text, category=MemoryCategory.PROFILE, key=key, is_request=is_wish
            )
        if told:
            return


def _is_not_empty(what: str) -> bool:
    return bool(what)


def _is_food(what: str) -> bool:
    return _NOT_FOOD.search(what) is None


def _is_place(what: str) -> bool:
    return len(what) > 1 and _NOT_A_PLACE.search(what) is None


def _is_workplace(what: str) -> bool:
    return _is_occupation(what) and _NOT_A_WORKPLACE.search(what) is None


def _is_occupation(what: str) -> bool:
    return len(what) > 1 and _NOT_AN_OCCUPATION.search(what) is None


@dataclass(frozen=True, slots=True, kw_only=True)
class _SelfStatementRule:
    """`templates` are the stored texts, English and Chinese."""

    pattern: re.Pattern[str]
    key: str
    templates: tuple[str, str]
    accepts: Callable[[str], bool] = _is_not_empty

    @property
    def is_past(self) -> bool:
        return self.key.startswith("once ")

    @property
    def takes_several(self) -> bool:
        return "{what}" in self.key


def _build_rules(
    key: str, en: str, zh: str, *patterns: str, fits: Callable[[str], bool] = _is_not_empty
) -> Iterator[_SelfStatementRule]:
    for each in patterns:
        pattern = re.compile(each, re.IGNORECASE)
        yield _SelfStatementRule(pattern=pattern, key=key, templates=(en, zh), accepts=fits)


_I_AM = r"i(?:['’]m| am)"
_SHORT_PHRASE = r"(?P<what>[a-z][a-z'’-]*(?:,? (?:and |or )?[a-z][a-z'’-]*){0,4}?)"
_PROPER_NAME = (
    r"(?P<what>(?-i:[A-Z])[\w.&'’-]*(?: (?:of|de|la|le|am|an|der|the|(?-i:[A-Z])[\w.&'’-]*)){0,3})"
)
_TRAILING_CLAUSE = (
    r"(?: (?:by the way|btw|now|these days|nowadays|currently|too|as well|actually|though|(?:with"
    r"|and|but|so|because|since|which|where) .{1,80}|(?:on |last |this )?(?:mon|tues|wednes|thurs"
    r"|fri|satur|sun)day|(?:last"
    r"|this) (?:week|month|year)"
    r"|(?:a|two|three|\d+) (?:days?|weeks?|months?) ago))?"
)
_TRAILING_BUT = _TRAILING_CLAUSE.replace("(?:with|and|but", "(?:with|but")
_INTRODUCED = re.compile(
    rf"(?:(?:我|本人|在下)(?:的名字)?(?:现在|改名)?|现在|改名)(?:就|名)?叫(?:做)?"
    rf"(?P<name>{SURNAMES_ZH}[\u4e00-\u9fff]{{1,2}}|[小阿]{SURNAMES_ZH}"
    r"|(?-i: ?[A-Z][a-z]{1,15}))",
    re.IGNORECASE,
)
_NOT_A_PERSON = re.compile(
    r"[来去吧了吗呢的着过说做看听帮给也都先别不等到总哥姐叔姨爷工导师]$|[说做帮给别不]"
    r"|^(?:黄牛|钱包|马上|方便|陆续|龙虾|汤[面圆]|石头$|高铁|江湖|任何|任务|许多|钟点|钟表|叶子"
    r"|程序|顾客|顾问"
    r"|武器|陶瓷|夏天|万一|余下|严格|贾|熊猫|熊孩|马车|马桶|毛|胡乱|梁子|孔雀|田地|范围|白|何|雷)"
    r"|(?-i:^ ?(?:Uber|Grab|Lyft|Didi|Bolt|Taxi|Kuai))"
)
_LISTED = re.compile(r",? (?:and|or) |、|和|跟|以及|与")
_ALSO = re.compile(r"^(?:也|还|同时|另外)+")
_SPEAKERS_MOVES = ("跳槽", "换工作", "换了工作", "搬家", "离职", "入职", "转正", "毕业")
"""Words that begin a sentence about oneself without 我."""
_ELIDED = re.compile(
    r"(?:现在|目前|如今|最近|也|还|同时)*(?:住|定居|搬到|搬去|常驻|在.{1,12}(?:工作|上班)"
    r"|(?<=现在)在.{2,12}$"
    r"|对.{1,12}过敏|不吃|吃素|怕)"
)
_SHORT_TIME = re.compile(
    r"\b(?:today|tonight|this|next|tomorrow|yesterday|days?|week\w*|weeks?)\b|[今明昨]|后天|下|这"
    r"|本|天|周|星期|礼拜",
    re.IGNORECASE,
)
_STARTS = re.compile(r"起$|开始$|^(?:from|as of|starting)", re.IGNORECASE)
_CHANGED = re.compile(
    r"\b(?:moved|relocated|joined|started|switched|left)\b|搬|入职|跳槽|加入|定居", re.IGNORECASE
)
_TIME_IS_TOLD = re.compile(r"birthday|born|生日|出生|生的|生$|过生", re.IGNORECASE)
_WILL_MOVE = re.compile(
    r"\bi(?:['’]m| am|['’]ll be| will be)? (?:moving|relocating|going to move|will move"
    r"|['’]ll move|planning to move"
    r"|about to move|will relocate|move|plan to move) to\b|\bi['’]ll (?:move|relocate) to\b"
    r"|(?P<zh_who>我)?(?:就|会|要|将|将要|打算|准备|计划|即将)*(?:搬|搬家)(?:到|去|往)(?!了"
    r"|[^，。]{1,14}了)",
    re.IGNORECASE,
)
_OPENING_WORDS = re.compile(
    r"^(?:现在|如今|目前)(?=我)|^(?:(?:correction|update|sorry|hi|hey|hello|btw|by the way|fyi"
    r"|also|and|so|well|oh|ok|okay|yes|actually|please"
    r"|just so you know|for the record|(?:please )?(?:note|remember|keep in mind)(?: that)?"
    r"|don['’]t forget(?: that)?)\b[:, ]*)+"
    r"|^(?:(?:请|麻烦|帮我|你要?|一定要?|务必)*(?:记住|记一下|记下来?|记得|别忘了)|对了|其实|另外"
    r"|顺便(?:说|提)一?[下句]|跟你说(?:一下)?|告诉你|提醒(?:你)?一下|还有)[，,：: ]*",
    re.IGNORECASE,
)

_CORRECTS = re.compile(
    r"^(?:(?:上次|之前|刚才|刚刚|昨天|前面|其实)*(?:我)?(?:说|写|打|记|搞|弄)错了?|更正(?:一下)?"
    r"|纠正(?:一下)?)[，,：:。 ]+"
    r"|^(?:sorry[,: ]+)?(?:i (?:said|got|wrote|had|put) (?:it|that|this"
    r"|something) wrong(?: last time| yesterday"
    r"| before| earlier)?|correction|i misspoke|my mistake|i meant)[,:;. —-]+",
    re.IGNORECASE,
)
"""Words by which what follows corrects what was said before."""

_REMEMBER_REQUEST = re.compile(
    r"\b(?:remember|don['’]t forget|keep in mind)\b|记住|记一下|记下|记得|别忘了", re.IGNORECASE
)

_SELF_STATEMENT_RULES = (
    *_build_rules(
        "allergy {what}",
        "Allergic to {what}",
        "对{what}过敏",
        rf"{_I_AM} (?:very |severely |highly |badly |really |seriously |deathly )?allergic to "
        rf"{_SHORT_PHRASE}{_TRAILING_BUT}",
        rf"i have (?:a|an) (?:severe |bad |serious )?{_SHORT_PHRASE} allergy",
        r"我(?:是)?对(?P<what>[^不没吗什谁哪么，]{1,12}?)(?:严重|特别|非常|很)?过敏(?:的)?",
        fits=_is_food,
    ),
    *_build_rules(
        "diet",
        "Diet: {what}",
        "饮食：{what}",
        rf"{_I_AM} (?:a |an )?(?:strict )?(?P<what>vegetarian|vegan|pescatarian"
        rf"|lactose[ -]intolerant|gluten[ -]intolerant|co?eliac|diabetic){_TRAILING_CLAUSE}",
        r"(?:(?:fully|completely|strictly|back to|just) )*(?P<what>vegetarian|vegan"
        r"|pescatarian)(?: again)? (?:now|these days|nowadays)",
        r"i (?:only eat|eat only|keep) (?P<what>halal|kosher)(?: food)?",
        r"我(?:是|一直|平时|只)*(?P<what>吃素|吃全素|吃清真|素食者|素食主义者|纯素食者)(?:的)?",
        r"我(?:有|是)?(?P<what>乳糖不耐受?|糖尿病|麸质不耐受?)(?:患者|症|的)?",
    ),
    *_build_rules(
        "not eaten {what}",
        "Does not eat {what}",
        "不吃{what}",
        rf"i (?:don['’]t|do not|never|can['’]?t|cannot) eat (?:any )?{_SHORT_PHRASE}",
        r"我(?:从来|从|一向|平时|一直)?(?:不吃|不能吃"
        r"|吃不了)(?P<what>[^不没吗什么，]{1,8}?)(?:的)?",
        fits=_is_food,
    ),
    *_build_rules(
        "birthday",
        "Birthday: {what}",
        "生日：{what}",
        rf"my birthday(?:['’]s| is)(?: on)? {DATE}{_TRAILING_CLAUSE}",
        rf"i was born on {DATE}{_TRAILING_CLAUSE}",
        rf"(?:我的?|本人)生日(?:就)?(?:是|在)?{DATE_ZH}",
        rf"我(?:是)?{DATE_ZH}(?:出生|生|过生日|的?生日)(?:的)?",
    ),
    *_build_rules(
        "home",
        "Lives in {what}",
        "住在{what}",
        rf"i (?:now |currently )?live in {_PROPER_NAME}{_TRAILING_CLAUSE}",
        rf"{_I_AM} based in {_PROPER_NAME}{_TRAILING_CLAUSE}",
        rf"(?:(?:i|we)(?:['’]ve| have)? )?(?:(?:just|finally"
        rf"|recently) )*(?:settled (?:down )?in(?:to (?:the|our|my|a) new"
        rf" (?:place|flat|house|home|apartment) in)?"
        rf"|(?:moved|relocated)(?: from [\w ]{{2,30}}?)? to) {_PROPER_NAME}{_TRAILING_CLAUSE}",
        rf"(?:my|our|the) new (?:place|flat|house|home"
        rf"|apartment) is in {_PROPER_NAME}{_TRAILING_CLAUSE}",
        rf"(?:i|we)(?:['’]ve| have) (?:lived|been living) in {_PROPER_NAME}{_TRAILING_CLAUSE}",
        rf"我(?:现在|目前|一直|平时|人|家)?住(?P<what>{CITY_ZH}[\w·]{{0,6}}?)(?:了|这边)?",
        r"我是?住(?![在院宿校店着进下])(?P<what>[^\W得惯满]{2,4})",
        r"我(?:现在|目前|如今)(?:改)?住(?P<what>[\w·]{2,8}?)(?:了|这边)*",
        rf"我(?:现在|目前|一直|平时|人|刚刚?|已经|已)?(?:从[\w·]{{1,8}})?(?:住在|家在|定居在?"
        rf"|常驻|常住|搬[到去来至往](?:了)?){PLACE_ZH}"
        r"(?:了|这边)*",
        fits=_is_place,
    ),
    *_build_rules(
        "work",
        "Works at {what}",
        "在{what}工作",
        rf"i (?:now |currently )?work (?:at|for) {_PROPER_NAME}{_TRAILING_CLAUSE}",
        rf"(?:i(?:['’]ve| have)? )?(?:just )?(?:started(?: a (?:new )?job| work(?:ing)?)?(?: at"
        rf"| with"
        rf"| for)|joined) {_PROPER_NAME}{_TRAILING_CLAUSE}",
        rf"(?:i(?:['’]ve| have)? )?(?:just )?(?:signed (?:on )?with|joined|hired by"
        rf"|(?:now )?working (?:at|for)"
        rf"|transferred to|switched to working (?:at|for)) {_PROPER_NAME}{_TRAILING_CLAUSE}",
        rf"i(?:['’]m| am) (?:now )?(?:at|with) {_PROPER_NAME} (?:now|these days)",
        rf"i(?:['’]ve| have) (?:been (?:at|with|working (?:at|for))|worked (?:at|for))"
        rf" {_PROPER_NAME}{_TRAILING_CLAUSE}",
        rf"我(?:刚|新|已经?)?(?:入职|加入|跳槽[到去至])(?:了|的是?|的)?{WORKPLACE_ZH}(?:了|的)?",
        r"我(?:现在|目前|一直)?在(?P<what>[\u4e00-\u9fff]{2,6}?)(?:上班|就职|任职|供职)(?:的)?",
        rf"我?(?:已经?|刚|现在)*从[\w·]{{1,12}}?(?:跳槽?|转|换|调)(?:到|去"
        rf"|至)了?{WORKPLACE_ZH}(?:了|工作|上班)*",
        r"我?(?:已经?|刚|现在)*从[\w·]{1,12}?(?:跳槽?|转|换)(?:到|去"
        r"|至)了?(?P<what>[\u4e00-\u9fff]{2,6}?)(?:上班|工作)?了",
        r"我去(?P<what>[\u4e00-\u9fff]{2,6}?)(?:上班|任职)(?:了|啦)",
        rf"我(?:现在|目前|一直)?(?:在|就职于|任职于){WORKPLACE_ZH}(?:工作|上班|任职|就职"
        rf"|当\w{{2,4}})?(?:的)?",
        fits=_is_workplace,
    ),
    *_build_rules(
        "once lived in {what}",
        "Lived in {what}",
        "在{what}住过",
        rf"(?:i|we) (?:lived|was living|were living|stayed) in {_PROPER_NAME}{_TRAILING_CLAUSE}",
        rf"我(?:以前|之前)?(?:住在?|在)(?P<what>{CITY_ZH}[\w·]{{0,6}}?)(?:住|生活|待|定居)?(?:过"
        rf"|了)?",
        fits=_is_place,
    ),
    *_build_rules(
        "once worked at {what}",
        "Worked at {what}",
        "在{what}工作过",
        rf"i (?:worked|was) (?:at|for|with) {_PROPER_NAME}{_TRAILING_CLAUSE}",
        rf"我(?:以前|之前)?在(?P<what>{CITY_ZH}[\w·]{{0,6}}?)(?:工作|上班)(?:过|了)?",
        rf"我(?:以前|之前)?在{WORKPLACE_ZH}(?:工作|上班|实习)?(?:过|了)?",
        fits=_is_place,
    ),
    *_build_rules(
        "surname",
        "Surname: {what}",
        "姓{what}",
        rf"(?:我|本人|免贵)姓(?P<what>{SURNAMES_ZH})",
    ),
    *_build_rules(
        "zodiac",
        "Born in the year of the {what}",
        "属{what}",
        r"我(?:是)?属(?P<what>[鼠牛虎兔龙蛇马羊猴鸡狗猪])(?:的)?",
    ),
    *_build_rules(
        "afraid of {what}",
        "Afraid of {what}",
        "怕{what}",
        rf"{_I_AM} (?:very |really |so )?(?:afraid|scared|terrified) of "
        rf"{FEARS_EN}{_TRAILING_CLAUSE}",
        rf"我(?:从小|一直|最|很|特别|非常|有点|就)*(?:怕|害怕){FEARS_ZH}(?:的)?",
    ),
    *_build_rules(
        "job",
        "Works as {what}",
        "职业：{what}",
        r"i(?: now| currently)? work as (?P<what>(?:a|an) [a-z][a-z -]{2,40}?)"
        r"(?: (?:at|for|in|by the way|btw|now|and|but) .{1,60})?",
        r"我(?:的职业|的工作)是(?P<what>[^不没吗什么，]{2,10})",
        r"我是一名(?P<what>[^不没吗什么，]{2,10})",
        fits=_is_occupation,
    ),
)

_PROHIBITIONS = (
    re.compile(r"(?:please )?(?:don['’]?t|do not|never)(?: ever)? .{3,150} again\b", re.IGNORECASE),
    re.compile(
        r"(?:from now on|in (?:the )?future|going forward|next time)[, ]+(?:please )?"
        r"(?:don['’]?t|do not|never|no more|stop|avoid)\b.{4,}",
        re.IGNORECASE,
    ),
    re.compile(
        r"(?:please )?(?:stop|quit) (?:asking|adding|using|calling|apologi[sz]ing|repeating|ending"
        r"|starting|beginning|saying|suggesting|guessing|including|putting|writing|answering"
        r"|replying|translating|shortening|inventing|making)\b.{4,}",
        re.IGNORECASE,
    ),
    re.compile(
        r"(?:以后|今后|往后|下次|从现在起|从今以后|永远)(?:你|都|请|可以|就|也|绝对|千万)*"
        r"(?:不要(?!紧)|别(?![的人墅扭致处])|不许|不准|不得|禁止|不能|不用|不必)(?:再)?.{3,}"
    ),
    re.compile(r"(?:请|你|千万|拜托)*(?:不要|别|不许|不准)再.{3,}"),
)
_VAGUE_PROHIBITION = re.compile(
    r"\b(?:do|say|try|happen|let|ask|mention|see|call|meet)(?: (?:that|this|it|so|me|him|her|them"
    r"|to me))* again\b|\bhere we go again\b|\bmaking sense\b|\bworry\b|\bnever mind\b"
    r"|\bagain and again\b"
    r"|(?:不要|别)再?(?:这样|那样|这么|那么|担心|客气|说了|问了|联系|见面|提了|犯|闹|玩|吵|想|睡"
    r"|犹豫|难过|伤心|哭|拖)|别忘"
    r"|再也|再见|再说吧|再来",
    re.IGNORECASE,
)
_QUOTED_OR_FICTIONAL = re.compile(
    r"\b(?:translat\w+|rewrite|rephrase|proofread|summari[sz]e|paraphrase|draft|correct (?:this|my)"
    r"|write (?:a|an|me|the|down)|story|poem|dialogue|novel|lyrics|role[ -]?play|pretend\w*"
    r"|imagin\w+|for example|example|e\.g\.|quot\w+|(?:this|an?|the|following|that|his|her"
    r"|my) e-?mail|letter|sentence|character|joke"
    r"|suppose|says?|said|tell (?:him|her|them)|told|wrote|asked|grammar)\b"
    r"|翻译|润色|改写|扮演|假装|假设|假如|例如|比如|例句|造句|故事|小说|台词|作文|歌词|诗|邮件"
    r"|邮箱|写一|写个|写封|写段|总结|这句|那句|这段|句子|笑话|文案|他说|她说|他们说|有人说|人家说"
    r"|据说|听说"
    r"|告诉他"
    r"|告诉她|转告|回复他|回复她|问我|角色|剧本|语法"
    r"|[“”\"「」『』《》`]|(?:^|\s)>",
    re.IGNORECASE | re.MULTILINE,
)
_UNCERTAIN = re.compile(
    r"\b(?:if|unless|whether|maybe|perhaps|probably|possibly|might|would|could|wish|hope|guess"
    r"|think|thought|used to|no longer|not sure|today|tonight|tomorrow|yesterday|this (?:week|month"
    r"|year|time|morning|evening|afternoon)|for (?:now|the moment|a while|the time being)"
    r"|temporarily|until|till|at the moment|once|last (?:week|month|year|time))\b"
    r"|如果|要是|万一|可能|也许|或许|大概|好像|似乎|应该是|曾经|以前|之前|过去|小时候|不再|已经不"
    r"|今天|今晚"
    r"|今早|明天|昨天|后天|这周|本周|这次|本次|这个月|这几天|这两天|暂时|临时|最近|上次|是不是"
    r"|会不会|有没有"
    r"|难道|怎么|为什么|什么|谁|哪|幸好|差点",
    re.IGNORECASE,
)
_NOT_FOOD = re.compile(
    r"\b(?:it|this|that|these|those|them|anything|everything|much|breakfast|lunch|dinner|out"
    r"|alone|yet"
    r"|at|mornings?|mondays?|meetings?|work|working|people|bullshit|nonsense|change|java|php"
    r"|code|phone|lol|bureaucracy|stupidity"
    r"|you|him|her|my|your|his|their|here|there|some|something|well|enough|late|early|before|after"
    r"|when|while|in|on|with)\b|^(?:and|or|i|my|need|want|would|like|love|have|can|am|was|get"
    r"|always|never|run|also|so)\b|这|那|套|亏|醋|[早午晚]?[饭餐]|药|苦|^素|东西|了|太|完|饱|加班"
    r"|开会|早起|上班|工作|废话|软|硬|你|他|她|我",
    re.IGNORECASE,
)
_NOT_A_PLACE = re.compile(
    r"\b(?:hell|heaven|money|midnight|studio|excel|vim|emacs|slack|zoom|hope|fear|peace|chaos)\b"
    r"|这|那|哪|不|没|过|酒店|宾馆|旅馆|民宿|医院|朋友|宿舍|隔壁"
    r"|楼|一起|附近|家里|公司|学校|单位|父母|室友|梦|老家|装|搬|办|等|开|做|看|修|吃|后面|前面"
    r"|旁边|里面|外面|一个|房子|房间",
    re.IGNORECASE,
)
_NOT_A_WORKPLACE = re.compile(
    r"家|馆|店|室|楼|外|(?<!阿)里$|里面|晚|早上|夜|白天|周|节|假|地铁|路上|边$|办公|远程|线上"
    r"|线下|哪"
    r"|附近|一起|努力|认真"
    r"|准时|正常|打卡|开始|准备|坚持|轮流|单独|一个人|安心|着急|赶|等|想|要|看|做|写|说|催|忙|着"
    r"|床|车|路|国$|村$"
    r"|总部|班|网(?!易)|地下|[上下]$|行业|^银行$|^工厂$|今天|明天|昨天|上午|下午|中午|现在|以前"
    r"|平时|那"
    r"|这|同一|工位|学校$|单位|市$|省$|区$|县$"
    rf"|^{CITY_ZH}"
)
_NOT_AN_OCCUPATION = re.compile(
    r"\b(?:money|midnight|team|rule|joke|matter|whole|group|pair|unit|charm|i)\b|用户|新手|粉丝"
    r"|成员|客户|顾客|读者|观众"
    r"|不|没|过|这|那|你|他|她|好|吧|普通|合格|密",
    re.IGNORECASE,
)
