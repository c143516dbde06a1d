"""Recognises by rules what people like, prefer, use, keep and do. Of what excludes one another,
such as a dark and a light theme, the later is meant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from bot.engine.memory.said_clauses import SaidClause, as_said, said_clauses
from bot.engine.memory.self_statements import (
    ExplicitStatement,
    is_quoted_or_fictional,
)
from bot.engine.memory.thing_kinds import KINDS, named_slot
from storage.records.memory import MemoryCategory
from storage.search.chinese import contains_han


def find_preferences(
    text: str, today: date | None = None, *, month_first: bool = False
) -> Iterator[ExplicitStatement]:
    if is_quoted_or_fictional(text):
        return
    for clause in said_clauses(text, today, month_first=month_first):
        if not clause.holds_now:
            continue
        found = _read(clause)
        if found is not None:
            yield found


SWITCHED = "switched"
"""The value of a statement that one thing is used instead of another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _PreferenceRule:
    pattern: re.Pattern[str]
    key: str
    templates: tuple[str, str]
    category: MemoryCategory = MemoryCategory.PREFERENCES
    is_switch: bool = False
    things: re.Pattern[str] | None = None
    """Kinds of things it may be about, where the words alone do not tell."""


def _read(clause: SaidClause) -> ExplicitStatement | None:
    han = contains_han(clause.plain)
    for rule in _RULES:
        found = rule.pattern.fullmatch(clause.plain)
        if found is None:
            continue
        what = found["what"].strip(" '\"")
        if rule.things is None and _CONTEXTUAL.search(what):
            continue
        if not what or (rule.things is not None and not rule.things.fullmatch(what)):
            continue
        slot = named_slot(what) if rule.key == "prefers {slot}" else ""
        groups = {name: each or "" for name, each in found.groupdict().items()}
        key = rule.key.format(**{**groups, "what": what, "slot": slot or what})
        en, zh = rule.templates
        told = (zh if han else en).format(
            **{
                **{name: as_said(each, clause.text) for name, each in groups.items()},
                "what": as_said(what, clause.text),
            }
        )
        return ExplicitStatement(
            text=told,
            category=rule.category,
            key=f"{rule.category}:{key}",
            confidence=0.9,
            is_request=False,
            since=clause.since,
            value=SWITCHED if rule.is_switch else "",
        )
    return None


_CONTEXTUAL = re.compile(
    r"\b(?:it|this|that|these|those|them|him|her|you|your|yours|his|their|one|ones|option"
    r"|version|idea|way|approach|plan|first|second|third|former|latter|both|what|when|how|where"
    r"|if|to|not|too|very much|better|things?|stuff|everything|nothing|anything|something|here"
    r"|there|some|any|so|answer|answers|reply|suggestion|result|the|an?|my|our)\b"
    r"|这|那|它|他|她|你|哪|什么|方案|版本|主意|想法|办法|一个|第[一二三]|前者|后者|两个|都|不|没"
    r"|吗|样|建议|结果|回答|很多|了",
)
_WHAT = r"(?P<what>[a-z0-9][\w.+#'-]*(?: [\w.+#'-]+){0,3}?)"
_WHAT_ZH = r"(?P<what>[\w.+#]{1,10}?)"
_HOW_OFTEN = (
    r"(?:,? (?:every (?:day|morning|evening|night|week)|daily|a lot|in the mornings?"
    r"|most days|with .{1,30}|all day|the most|best|more|very much"
    r"|for (?:work|coding|everything|calls|meetings|my .{1,20}|the .{1,20}|\w+ing)))*"
)
_ADVERBS = (
    r"(?:(?:really|absolutely|actually|just|still|always|usually|mostly|only|mainly|do"
    r"|also|much|generally|definitely|now|strongly|personally|simply|currently|typically|normally"
    r"|often|daily) )*"
)
_ADVERBS_ZH = (
    r"(?:现在|其实|真的|非常|特别|很|最|一直|平时|一般|通常|比较|也|还|都|就|只|每天"
    r"|每天早上|每天都|经常|常|尤其|超|更|还是|主要|目前|个人)*"
)
_I_ZH = r"(?:我|本人)"
_PETS = (
    r"(?:dogs?|cats?|parrots?|rabbits?|hamsters?|horses?|puppy|puppies|kittens?|turtles?"
    r"|fish|goldfish|bunny)"
)
_THINGS_USED = re.compile(
    "|".join(
        pattern.pattern
        for slot, pattern in KINDS
        if slot in {"editor", "system", "browser", "shell", "package manager", "language of code"}
    )
    + r"|iphones?|android|notion|obsidian|figma|docker|postgres(?:ql)?|mysql|pixel|ipad|slack"
    r"|teams|zoom|jira|trello|asana|excel|photoshop|evernote|spotify|gmail"
    r"|outlook"
)
_DRINKS = re.compile(
    r"(?:(?:black|green|herbal|decaf|iced|oat|soy|almond|whole|skim) )?(?:coffee|tea|espresso"
    r"|milk|beer|wine|whisk(?:e)?y|water|cola|coke|juice|alcohol|matcha|cappuccino|latte|soda)"
    r"|(?:黑|绿|红|冰|美式)?(?:咖啡|茶|牛奶|啤酒|葡萄酒|白酒|酒|水|可乐|果汁|豆浆|奶茶)"
)
_PLAYED = re.compile(
    r"(?:the )?(?:guitar|piano|violin|cello|drums|flute|tennis|football|soccer|basketball"
    r"|badminton|golf|chess|volleyball|squash|hockey|table tennis|bass)"
    r"|篮球|足球|羽毛球|乒乓球|网球|排球|吉他|钢琴|小提琴|大提琴|古筝|高尔夫|围棋|象棋"
)
_LEARNED = re.compile(
    r"(?:english|german|french|spanish|italian|japanese|korean|chinese|mandarin|russian|arabic"
    r"|portuguese|rust|python|go|java|guitar|piano|the piano|the guitar|violin|to drive|to swim"
    r"|latin|dutch|swedish|kotlin|typescript)"
    r"|英语|德语|法语|西班牙语|意大利语|日语|韩语|俄语|阿拉伯语|葡萄牙语|吉他|钢琴|游泳|开车"
    r"|小提琴|书法|画画"
)


def _rules(
    key: str,
    en: str,
    zh: str,
    *patterns: str,
    things: re.Pattern[str] | None = None,
    category: MemoryCategory = MemoryCategory.PREFERENCES,
    is_switch: bool = False,
) -> Iterator[_PreferenceRule]:
    for each in patterns:
        yield _PreferenceRule(
            pattern=re.compile(each),
            key=key,
            templates=(en, zh),
            things=things,
            category=category,
            is_switch=is_switch,
        )


_RULES = (
    *_rules(
        "prefers {slot}",
        "Prefers {what}",
        "更喜欢{what}",
        rf"i(?:'d)? {_ADVERBS}prefer {_WHAT}(?:,? (?:to|over|rather than|instead of|and not"
        rf"|not) .{{1,40}})?{_HOW_OFTEN}",
        rf"i(?:'d| would) rather (?:have|use|drink|take|get|sit (?:at|by)|go by)? ?(?:an? "
        rf"|the )?{_WHAT}",
        rf"i {_ADVERBS}(?:like|love) {_WHAT} (?:more|better|best|most)(?: than .{{1,40}})?",
        rf"{_I_ZH}?{_ADVERBS_ZH}(?:偏好|偏爱|习惯用|更喜欢|更爱)(?:用|喝|吃|坐|看|写"
        rf"|使用)?{_WHAT_ZH}(?:而?不(?:是|喜欢|用|喝).{{1,12}}|一些|多一点|一点)?",
        rf"(?:比起|相比|与其).{{1,12}}?(?:来说|相比)?我?(?:现在)?(?:更|还是|宁愿|比较)(?:喜欢|爱"
        rf"|偏好)(?:用|喝|吃|坐)?{_WHAT_ZH}",
        rf"{_I_ZH}喜欢{_WHAT_ZH}(?:多过|胜过|超过).{{1,12}}",
    ),
    *_rules(
        "prefers {slot}",
        "Prefers {what}",
        "更喜欢{what}",
        rf"(?:i(?:'ve| have)? )?{_ADVERBS}(?:switched|changed|moved|migrated|gone(?: back)?"
        rf"|went(?: back)?"
        rf"|converted)(?: over)?(?: from .{{1,40}}?)? to {_WHAT}(?:(?: instead| now"
        rf"| (?:for|at) .{{1,30}}))*",
        rf"{_I_ZH}?{_ADVERBS_ZH}(?:已经)?(?:从.{{1,12}}?)?(?:换成|换到|换用|改成|改用|改喝|改吃"
        rf"|转用|切换到|改为)了?(?:用|喝|吃)?{_WHAT_ZH}(?:了)?",
        rf"{_I_ZH}?不(?:再)?(?:用|喝|吃).{{1,12}}?(?:了)?(?:改|换)(?:用|喝|吃"
        rf"|成)?{_WHAT_ZH}(?:了)?",
        things=re.compile("|".join(pattern.pattern for _, pattern in KINDS)),
        is_switch=True,
    ),
    *_rules(
        "favourite {topic}",
        "Favourite {topic}: {what}",
        "最喜欢的{topic}：{what}",
        rf"my (?:all[- ]time |absolute )?favou?rite (?P<topic>[a-z ]{{2,24}}?) (?:is|are)(?: now"
        rf"| actually| still)? {_WHAT}",
        rf"{_WHAT} (?:is|are)(?: now| actually| still)? my (?:all[- ]time "
        rf"|absolute )?favou?rite (?P<topic>[a-z ]{{2,24}})",
        rf"{_I_ZH}?(?:现在)?最(?:喜欢|爱)的(?P<topic>[\u4e00-\u9fff]{{1,6}}?)(?:是|就是|变成了?"
        rf"|换成了?){_WHAT_ZH}(?:了)?",
    ),
    *_rules(
        "likes {what}",
        "Dislikes {what}",
        "不喜欢{what}",
        rf"i {_ADVERBS}(?:dislike|hate|can't stand|cannot stand|don't (?:really )?like"
        rf"|do not like|loathe|detest) {_WHAT}",
        rf"{_I_ZH}{_ADVERBS_ZH}(?:不喜欢|讨厌|不爱|受不了)(?:吃|喝|用|看|听)?{_WHAT_ZH}",
    ),
    *_rules(
        "likes {what}",
        "Likes {what}",
        "喜欢{what}",
        rf"i {_ADVERBS}(?:like|love|enjoy|adore) {_WHAT}{_HOW_OFTEN}",
        rf"i(?:'ve| have)? (?:come|came|grown|grew|learned|started) to (?:like|love"
        rf"|enjoy) {_WHAT}{_HOW_OFTEN}",
        rf"i(?:'m| am) (?:a (?:big |huge )?fan of|fond of|crazy about|really into|into) {_WHAT}",
        rf"{_I_ZH}{_ADVERBS_ZH}(?:喜欢|爱|热爱|爱好)上?(?:吃|喝|用|看|听|玩|打)?{_WHAT_ZH}了?",
    ),
    *_rules(
        "drinks {what}",
        "Drinks {what}",
        "喝{what}",
        rf"i {_ADVERBS}drink {_WHAT}{_HOW_OFTEN}",
        rf"{_I_ZH}{_ADVERBS_ZH}喝{_WHAT_ZH}",
        things=_DRINKS,
    ),
    *_rules(
        "uses {what}",
        "Uses {what}",
        "用{what}",
        rf"i {_ADVERBS}(?:use|work with|code in|write) {_WHAT}(?: (?:as|for|on"
        rf"|at) .{{1,40}})?{_HOW_OFTEN}",
        rf"my (?:editor|browser|os|operating system|shell|phone|laptop|ide) is(?: now"
        rf"| actually)? (?:an? )?{_WHAT}",
        rf"{_I_ZH}{_ADVERBS_ZH}(?:使用|用)(?:的是|的编辑器是)?{_WHAT_ZH}(?:写代码|编程|开发|办公"
        rf"|上网|工作)?",
        things=_THINGS_USED,
    ),
    *_rules(
        "plays {what}",
        "Plays {what}",
        "常玩{what}",
        rf"i {_ADVERBS}play {_WHAT}{_HOW_OFTEN}(?: (?:on|in|at|every|twice|once) .{{1,30}})?",
        rf"{_I_ZH}{_ADVERBS_ZH}(?:打|踢|弹|拉|玩|下){_WHAT_ZH}",
        things=_PLAYED,
        category=MemoryCategory.PROFILE,
    ),
    *_rules(
        "learns {what}",
        "Is learning {what}",
        "在学{what}",
        rf"i(?:'m| am) (?:currently |now )?(?:learning|studying) {_WHAT}",
        rf"i(?:'ve| have)? (?:just )?(?:started|begun) (?:learning|studying"
        rf"|taking) {_WHAT}(?: lessons| classes)?",
        rf"{_I_ZH}(?:现在|最近|正|一直|也|还)*在学{_WHAT_ZH}",
        things=_LEARNED,
        category=MemoryCategory.PROFILE,
    ),
    *_rules(
        "owns {what}",
        "Has {count}{what}{name}",
        "养了{what}{name}",
        rf"(?:i|we) (?:now |also )?(?:have|got|keep|own) (?P<count>an? |one |two "
        rf"|three )(?:\w+ )?(?P<what>{_PETS})(?P<name> (?:named|called) \w+)?",
        rf"{_I_ZH}(?:家|现在|们家)*(?:养了?|有)(?:一|两|三|1|2)?(?:只|条|匹)(?P<what>猫|狗|兔子"
        rf"|鹦鹉|仓鼠|乌龟|金毛|泰迪|柯基)(?P<name>，?叫\w{{1,6}})?",
        category=MemoryCategory.PROFILE,
    ),
    *_rules(
        "smokes",
        "Smokes",
        "抽烟",
        rf"i {_ADVERBS}(?P<what>smoke)(?: .{{1,30}})?",
        rf"{_I_ZH}{_ADVERBS_ZH}(?P<what>抽烟|吸烟)",
        category=MemoryCategory.PROFILE,
    ),
)
