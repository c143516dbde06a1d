"""Stages of a life that follow one another and exclude one another: who has graduated studies no
more, who is engaged is not single, who has found a job looks for none. Each is known by the words
of facts, and its end by what people say when the next one begins; neither need repeat the other's
words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bot.engine.memory.fact_terms import content_terms
from storage.search.chinese import simplify_han


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeStage:
    """`known` finds it in a fact, `over` in words that end it. `needs_topic`: both must name the
    same thing, as one has several at a time. `levels` are degrees of it that are told apart."""

    name: str
    known: re.Pattern[str]
    over: re.Pattern[str]
    needs_topic: bool = False
    of_family: bool = False
    """Whether what one says of oneself also ends it for one's family."""
    levels: Sequence[re.Pattern[str]] = ()


def stages_ended(clause: str) -> Iterator[LifeStage]:
    """Stages that a clause in lower case says are over."""
    return (each for each in _STAGES if each.over.search(clause))


def is_of_family(name: str) -> bool:
    return any(each.of_family for each in _STAGES if each.name == name)


def ends_stage(name: str, said: str, fact: str, leads: frozenset[str]) -> bool:
    """Whether the fact is of the stage, and of the one that the words mean. `leads` are words
    before them that the fact has not: somebody or something else, if no degree of the stage."""
    stage = next(each for each in _STAGES if each.name == name)
    told, known = simplify_han(said).casefold(), simplify_han(fact).casefold()
    if stage.known.search(known) is None or stage.over.search(known) is not None:
        return False
    of_stage = " ".join(
        found for each in (*stage.levels, stage.known) for found in each.findall(told)
    )
    if leads - content_terms(of_stage):
        return False
    levels = [each for each in stage.levels if each.search(told)]
    if levels and not any(each.search(known) for each in levels):
        return not any(each.search(known) for each in stage.levels)
    if not stage.needs_topic:
        return True
    about = content_terms(stage.known.sub(" ", known)) | content_terms(known)
    return bool((about & content_terms(told)) - _NO_TOPIC)


def _stage(
    name: str,
    known: str,
    over: str,
    *,
    needs_topic: bool = False,
    of_family: bool = False,
    levels: Sequence[str] = (),
) -> LifeStage:
    return LifeStage(
        name=name,
        known=re.compile(known),
        over=re.compile(over),
        needs_topic=needs_topic,
        of_family=of_family,
        levels=[re.compile(each) for each in levels],
    )


_NO_TOPIC = content_terms(
    "my the project app new old finish start wait apply submit first last home team 在 做 申 请"
    " 准 备"
    " 等 完 好 写 上 了 要"
)
_DEGREE = (
    r"(?:degree|studies|uni(?:versity)?|college|school|ph\.?d|doctorate|master'?s?|mba|bachelor'?s?"
    r"|undergrad|thesis|dissertation|diploma|program(?:me)?|viva)"
)
_GONE_PAST = (
    r"(?:finished|completed|done with|wrapped up|got|received|handed in|submitted|earned|passed)"
)
_PARTNERED = (
    r"\b(?:(?:got|are|is|am|we're|i'm|just|newly) (?:\w+ )?married|tied the knot|eloped"
    r"|newlyweds?|wedding (?:was|went)|(?:is|are|as) (?:now )?husband and wife)\b|领证|结婚了"
    r"|结了婚"
    r"|成家了|办了(?:婚礼|酒席)|已婚了"
)
_ENGAGED = (
    r"\b(?:got engaged|(?:is|are|am|we're|i'm) (?:now )?engaged|proposed (?:to|and)"
    r"|popped the question|said yes)\b|订婚|订了婚|求婚成功"
)
_PAIRED = (
    r"\b(?:(?:started|been|now|am|i'm|we're|are) (?:dating|seeing)|have a (?:new )?(?:girl"
    r"|boy)friend"
    r"|got a (?:girl|boy)friend|in a relationship|(?:not|no longer|isn't|ain't) single"
    r"|met someone (?:special|lovely))\b|有了?新?[男女]朋?友了|有对象了|脱单|在一起了|谈恋爱了"
    r"|交了[个位]?[男女]朋?友|不是?单身了?"
)
_PARTED = (
    r"\b(?:broke up|broken up|split up|split from|called it quits|parted ways|no longer together"
    r"|not together any|(?:single|on my own) (?:again|now)|got divorced|divorced|separated"
    r"|dumped (?:me|him|her)|ended (?:it|things)|(?:broke|called) (?:it|things|us) off"
    r"|divorce (?:is|was|went|came)"
    r"|(?:called|broke) off (?:the|our) (?:engagement|wedding))\b|分手|分开了|掰了|离婚|离了"
    r"|恢复单身|单身了|退婚|吹了"
)
_IS_SINGLE = r"\b(?:single|unmarried|not in a relationship)\b|单身|没有?对象"
_IS_PAIRED = (
    r"\b(?:dating|seeing (?=\w+$)|girlfriend|boyfriend|in a relationship|partner)\b"
    r"|[男女]朋?友(?!家)|谈恋爱|对象|交往"
)
_IS_ENGAGED = r"\b(?:engaged|fianc[eé]e?)\b|订婚|未婚[妻夫]"
_IS_MARRIED = r"\b(?:married|wife|husband|spouse)\b|已婚|结婚|老婆|老公|太太|妻子|丈夫"

_STAGES = (
    _stage(
        "studies",
        (
            r"\b(?:study|studies|studying|student|undergrad\w*|grad school|phd|doctorate|doctoral"
            r"|master's|mba|bachelor's|degree|freshman|sophomore|attends|enrolled|thesis"
            r"|dissertation)\b|读研|读博|在读|研究生|博士|硕士|本科|大[一二三四](?!线)|上大学"
            r"|念书|留学|念"
            r"|读(?:[^书]{0,8})(?:专业|系|学)|学生|就读|论文"
        ),
        (
            rf"\b(?:graduated|{_GONE_PAST} (?:\w+ )?(?:my |the "
            rf"|our )?(?:[\w']+ )?{_DEGREE}(?! team)"
            r"|defended|(?:drop|dropped|dropping) out|left (?:uni|university|college|school"
            r"|academia)"
            rf"|(?:my )?{_DEGREE} (?:is|are) (?:done|finished|over|complete\w*)"
            r"|no longer (?:a student|studying|enrolled)|quit (?:my |the )?"
            rf"{_DEGREE})\b|毕业(?!设计|论文|证还|照|季|前|旅行|班)|答辩(?:都)?(?:已经)?(?:通过"
            rf"|过了|完|结束)"
            r"|拿到了?(?:学位|毕业证|博士|硕士)|退学|肄业|不读(?:研|博|书)?了"
        ),
        levels=(
            r"\b(?:phd|ph\.d|doctor\w+)\b|博",
            r"\b(?:master'?s?|mba|msc)\b|硕士|研究生|读研",
            r"\b(?:bachelor'?s?|undergrad\w*|bsc)\b|本科|大[一二三四]",
            r"\b(?:high school|school)\b(?! of)|高中|初中|高三",
        ),
    ),
    _stage("single", _IS_SINGLE, rf"{_PAIRED}|{_ENGAGED}|{_PARTNERED}"),
    _stage("paired", _IS_PAIRED, rf"{_ENGAGED}|{_PARTNERED}|{_PARTED}"),
    _stage("engaged", _IS_ENGAGED, rf"{_PARTNERED}|{_PARTED}"),
    _stage("married", _IS_MARRIED, _PARTED),
    _stage(
        "job search",
        (
            r"\b(?:(?:looking|searching|hunting|applying) for (?:\w+ ){0,3}(?:jobs?|work"
            r"|positions?|roles?)"
            r"|job[- ]?(?:hunt\w*|search\w*|seek\w*)|unemployed|between jobs|out of (?:a job"
            r"|work))\b"
            r"|找(?:新)?工作|求职|待业|失业|面试中"
        ),
        (
            r"\b(?:(?:got|landed|found|took|accepted|have|start(?:ed)?) (?:the|a|an|my"
            r"|their) (?:\w+ ){0,2}"
            r"(?:job|offer|position|role|contract)|found work|signed (?:the|my|a|an|with) (?:\w+ )?"
            r"(?:contract|offer)|(?:got|been|was) hired|i(?:'m| am) employed)\b|找到(?:新)?工作"
            r"|拿到.{0,8}offer"
            r"|有工作了|入职|上班了|签了(?:劳动)?(?:合同|offer|三方)"
        ),
    ),
    _stage(
        "home search",
        (
            r"\b(?:(?:looking|searching|hunting) for (?:\w+ ){0,3}(?:flats?|apartments?|house|home"
            r"|rooms?|place)|(?:flat|house|apartment)[- ]?hunting)\b|找房|看房|找.{0,4}房子"
        ),
        (
            r"\b(?:found (?:a|an|our|the) (?:\w+ ){0,2}(?:flat|apartment|house|home|room|place)"
            r"|signed (?:the|a|our|my) (?:lease|rental\w*|contract)|got the (?:keys|flat"
            r"|apartment|house)"
            r"|bought (?:a|an|our|the) (?:\w+ ){0,2}(?:flat|apartment|house|home|place|condo)"
            r"|moved in)\b"
            r"|找到房|房子找到|租到|签了?(?:租房|租赁)?合同|买了?(?:套|个)?(?:新)?房|搬进"
        ),
    ),
    _stage(
        "tenancy",
        r"\b(?:rents|renting|rented|rent)\b|租房|租[住了]|租着|房租",
        (
            r"\b(?:bought|closed on|own) (?:a|an|our|the|my) (?:\w+ ){0,2}(?:flat|apartment|house"
            r"|home"
            r"|place|condo)\b(?! for)|买了?(?:套|个)?(?:新|自己的)?房(?!车|东)|住进自己的房"
        ),
    ),
    _stage(
        "pregnancy",
        r"\b(?:pregnant|expecting|due (?:date|in|on)|baby due)\b|怀孕|预产期|备孕|孕期",
        (
            r"\b(?:gave birth|(?:was|were|is|are) born|(?:baby|son|daughter|boy|girl|twins?)(?:'s"
            r"| is"
            r"| has| have| are)? (?:finally )?(?:here|arrived)|had (?:the|our|my|a) (?:baby|son"
            r"|daughter"
            r"|boy|girl)|became (?:a )?(?:mum|mom|dad|parents|father|mother))\b|生了|出生了|卸货"
            r"|当[爸妈]"
            r"|宝宝来了"
        ),
        of_family=True,
    ),
    _stage(
        "exam",
        (
            r"\b(?:prepar\w+|stud(?:ies|ying)|revis\w+|cramming"
            r"|train\w*) (?:\w+ )?for (?:\w+ ){0,4}(?:exams?"
            r"|tests?|bar|certificat\w+|ielts|toefl|gre|gmat|cfa|cpa|jlpt|hsk|n\d|finals?)\b"
            r"|备考|准备.{0,12}(?:考|雅思|托福|面试)|复习.{0,8}考"
        ),
        (
            r"\b(?:passed|failed|aced|flunked|(?:exams?|tests?|finals?)(?: is| are)? (?:over|done"
            r"|behind me"
            r"|finished)|(?:done|finished) with (?:\w+ )?(?:exams?|finals?)|took the (?:exam|test)"
            r"|got my (?:\w+ )?(?:result|score|certificat\w+))\b|考完|考过|上岸|考上|通过了"
            r"|没考[上过]"
            r"|拿到.{0,8}(?:证|成绩|分)|出分了|不考了"
        ),
    ),
    _stage(
        "driving lessons",
        r"\b(?:driving (?:lessons?|school)|learn\w* to drive|learner'?s permit)\b|学车|学开车"
        r"|考驾照|驾校",
        (
            r"\b(?:passed (?:my|the) (?:driving |road )?test|got (?:my|a) (?:driver'?s "
            r"|driving )?licen[cs]e)\b"
            r"|拿到?了?驾照|驾照(?:到手|下来|拿到|考[过到出])|科[四目].{0,3}过"
        ),
    ),
    _stage(
        "leave",
        (
            r"\b(?:on (?:\w+ )?(?:leave|sabbatical|furlough)|sabbatical|(?:maternity|paternity"
            r"|parental"
            r"|sick) leave)\b|休.{0,3}假|产假|病假|停薪留职"
        ),
        (
            r"\b(?:(?:back|returned|return) (?:at|to|in) (?:work|the office|my job)|(?:leave"
            r"|sabbatical)"
            r"(?: is|'s| has)? (?:over|ended|done|finished))\b|复工|回.{0,4}上班|休完|销假"
            r"|假期结束|产假结束"
        ),
    ),
    _stage(
        "injury",
        (
            r"\b(?:broken|broke|sprained|torn|fractured|injur\w+|crutches|in a cast|wears? a cast"
            r"|physio\w*"
            r"|covid|flu|recovering)\b|骨折|受伤|拐杖|石膏|扭[伤了]|拉伤|新冠|流感|肺炎|发烧"
        ),
        (
            r"\b(?:(?:has |is |are |'s )?(?:fully |completely |all )?(?:healed|recovered|mended"
            r"|better now)"
            r"|cast (?:is|came|got) (?:off|removed)|off (?:the )?crutches|(?:done"
            r"|finished) with physio"
            r"|tested negative|walk(?:ing)? (?:normally|without))\b|康复|痊愈"
            r"|(?<![做弄买备写吃修办])好(?:利索|全)?了|拆(?:了)?石膏|石膏拆"
            r"|转阴|退烧|不用拐"
        ),
    ),
    _stage(
        "waiting",
        r"\b(?:wait(?:s|ing)? (?:for|on)|applied for|applying for|ordered|expects?)\b|在等|等待"
        r"|申请了?|订了",
        (
            r"\b(?:arrived|came (?:through|in|today|yesterday)|approved|granted|rejected"
            r"|turned down"
            r"|got (?:the|my|it)|has come|is here|finally (?:have|got)|received|refused)\b|到了"
            r"|到手|批了|批下来"
            r"|下来了|拿到|收到|被拒|通过了"
        ),
        needs_topic=True,
    ),
    _stage(
        "undertaking",
        (
            r"\b(?:(?:work|works|working) on|(?:is |are )?(?:building|writing|renovating"
            r"|developing|restoring"
            r"|planning|organi[sz]ing|migrating|training for|reading|knitting))\b"
            r"|在[做写装读搞开组]|装修"
            r"|备赛|筹备"
        ),
        (
            r"\b(?:(?:finally )?(?:ran the|finished|completed|shipped|launched|released|submitted"
            r"|published|delivered"
            r"|wrapped up)(?! (?:at|late|early|work\b))|is (?:done|finished|live|out|complete)"
            r"|went live"
            r"|got published|in the bag)\b|做完|写完|读完|搞定|完工|完成了|上线了|交付|装修[完好]"
            r"|跑完|结项|发布了|出版了"
            r"|收尾了|验收"
        ),
        needs_topic=True,
    ),
)
