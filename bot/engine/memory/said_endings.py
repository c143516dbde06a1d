"""Reads by rules what people say is no longer so of themselves, or of somebody near ("not
vegetarian any more", 不吃素了, "I switched from tea to coffee")."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date

from bot.engine.memory.ending_patterns import (
    FactRelation,
    ending_patterns,
    switch_patterns,
)
from bot.engine.memory.ending_words import (
    AGAIN,
    CESSATION,
    GIVEN_UP,
    INSTEAD_OF,
    NEEDED_NO_MORE,
    NOT_SINCE,
)
from bot.engine.memory.fact_relations import relations_in
from bot.engine.memory.fact_terms import (
    content_terms,
)
from bot.engine.memory.life_stages import stages_ended
from bot.engine.memory.said_clauses import (
    SaidClause,
    said_clauses,
    split_sentences,
    without_authority,
)
from bot.engine.memory.said_dates import DatedSpan
from bot.engine.memory.self_statements import is_quoted_or_fictional
from bot.engine.memory.statement_words import SURNAMES_ZH
from bot.engine.memory.thing_kinds import (
    names_new_thing,
)
from bot.engine.memory.told_subjects import read_as_own
from bot.engine.memory.value_changes import may_change_value
from storage.search.chinese import contains_han


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedClaim:
    """A claim that no longer holds: `relation` to `what`, empty for whatever it was.
    `is_negative`: the negation held ("I eat meat again"). `was_so` says only that it was so in the
    past."""

    relation: FactRelation
    what: str
    clause: str
    is_negative: bool = False
    was_so: bool = False
    topic: str = ""
    is_thing: bool = False
    """Whether the words give up a thing, whatever was done with it."""
    told: str = ""
    """The words that take the place of what ended."""
    around: str = ""
    """The sentence, where `what` is a clause of it."""
    leads: str = ""
    """The words before, where nothing else says that it is the speaker's: the thing alone."""
    since: DatedSpan | None = None
    """When it ended, if that was said."""
    of: str = ""
    """Whom it is about, if not the speaker."""


def find_endings(
    text: str, today: date | None = None, *, month_first: bool = False
) -> Sequence[EndedClaim]:
    """Claims that the text ends, in order; none in questions, quotes, fiction, plans or talk about
    others."""
    if is_quoted_or_fictional(without_authority(text)):
        return ()
    found: list[EndedClaim] = []
    for clause in said_clauses(text, today, month_first=month_first):
        if clause.holds_now:
            found += _read_clause(clause)
        if clause.is_stated:
            found += _read_cessation(clause)
        found += _read_stages(clause)
        if contrast := _CONTRAST.search(clause.sentence):
            found += _read_contrast(clause, contrast)
        if clause.holds_now and _is_own(clause):
            found += _read_own(clause)
        found += _read_of_another(clause)
        is_told = clause.is_stated or (clause.is_rescheduled and not clause.is_asked)
        if is_told and may_change_value(clause.text, clause.sentence):
            found += [
                EndedClaim(
                    relation=FactRelation.VALUE,
                    what=what,
                    around=clause.sentence,
                    clause=clause.text,
                )
                for what in dict.fromkeys((clause.text, clause.sentence))
            ]
    return [replace(each, told=_told(each, text)) for each in found]


def _told(ended: EndedClaim, text: str) -> str:
    """The sentence of the clause, which may say what is so now; the clause of a long one."""
    clause = ended.clause
    sentence = next(
        (
            each
            for each in split_sentences(text)
            if clause in each or clause in each.replace(".", "")
        ),
        "",
    ).strip()
    return sentence.rstrip(" .。!！") if 0 < len(sentence) <= _MAX_TOLD else ended.clause


def _read_cessation(clause: SaidClause) -> Iterator[EndedClaim]:
    """Words that only say that something is over, and of which what they are about is named
    beside. Without a subject it is the speaker's own ("sold the Golf"), or the thing comes first
    ("Wednesdays on call is history")."""
    given_up = GIVEN_UP.search(clause.plain)
    over = given_up or CESSATION.search(clause.plain) or CESSATION.search(clause.text)
    is_act = over is given_up or (over is not None and over[0].startswith("stopp"))
    if over and is_act and _NOT_GIVEN_UP.search(over.string[: over.start()]):
        return
    if over is None and clause.since is not None:
        over = NOT_SINCE.search(clause.plain)
    needless = NEEDED_NO_MORE.fullmatch(clause.text)
    again = AGAIN.search(clause.text)
    if clause.is_first_person and (instead := INSTEAD_OF.search(clause.plain)):
        yield EndedClaim(
            relation=FactRelation.ANY, what=instead["what"], clause=instead["what"], is_thing=True
        )
    if over is None and needless is None and again is None:
        return
    begins = over if over and over.string == clause.plain else _DENIAL.search(clause.plain)
    before = clause.plain[: begins.start()].strip() if begins else ""
    is_own = clause.is_first_person or (
        (not clause.of_another and re.search(r"\bi\b|我|咱", before) is not None)
        or (given_up is not None and _TOLD_ME.search(clause.plain) is not None)
    )
    if not is_own and _SOMEBODY.match(before):
        return
    if _RATHER.search(clause.text) or (clause.of_another and not before and not is_own):
        return
    leads = "" if is_own or not before else before
    if leads and leads.isascii():
        leads = CESSATION.sub(" ", GIVEN_UP.sub(" ", clause.plain))
    leads = _WHEN.sub(" ", leads)
    if contains_han(leads):
        leads = re.sub(r"[喝吃用玩打弹养开抽练学做看穿戴]$", "", leads)
    yield EndedClaim(
        relation=FactRelation.ANY,
        what=clause.sentence,
        clause=clause.text,
        since=clause.until or clause.since,
        is_thing=given_up is not None or needless is not None,
        leads=leads,
        is_negative=over is None and needless is None,
    )


def _is_own(clause: SaidClause) -> bool:
    """Whether it is about the speaker, or names nobody ("upgraded to a Pixel 9")."""
    if clause.is_first_person or clause.of_another:
        return clause.is_first_person
    return _SPEAKER.search(clause.plain) is not None or not _BEGINS_WITH_NAME.match(clause.text)


def _read_own(clause: SaidClause) -> Iterator[EndedClaim]:
    if names_new_thing(clause.sentence):
        yield EndedClaim(relation=FactRelation.THING, what=clause.sentence, clause=clause.text)
    if (denied := _DOES_NOT.fullmatch(clause.plain)) and content_terms(denied["what"]):
        yield EndedClaim(
            relation=FactRelation.DOES,
            what=denied["what"],
            clause=clause.text,
            since=clause.until or clause.since,
        )


def _read_contrast(clause: SaidClause, contrast: re.Match[str]) -> Iterator[EndedClaim]:
    """ "I'm allergic to cashews, not peanuts": the same is not so of the other."""
    if not clause.holds_now or clause.text not in _true_part(contrast):
        return
    for relation in relations_in(_true_part(contrast)):
        yield EndedClaim(
            relation=relation,
            what=contrast["en"] or contrast["zh"],
            clause=clause.text,
            since=clause.until or clause.since,
        )


def _true_part(contrast: re.Match[str]) -> str:
    return contrast["true"] or contrast["true2"] or ""


def _read_of_another(clause: SaidClause) -> Iterator[EndedClaim]:
    """Endings for a relative or friend, read as if they said it themselves."""
    if not clause.of_another or (read := read_as_own(clause.plain)) is None:
        return
    subject, plain = read
    theirs = replace(clause, plain=plain, of_another=False)
    found = [*_read_stages(theirs), *_read_move_of_another(theirs)]
    if theirs.is_stated:
        found += [*_read_clause(theirs), *_read_cessation(theirs)]
    for each in found:
        yield replace(each, of=subject)


def _read_move_of_another(clause: SaidClause) -> Iterator[EndedClaim]:
    """A new home or workplace takes the place of the old one."""
    for pattern, relation in _MOVES:
        if clause.is_stated and pattern.match(clause.plain):
            yield EndedClaim(
                relation=relation, what="", clause=clause.text, since=clause.until or clause.since
            )


def _read_stages(clause: SaidClause) -> Iterator[EndedClaim]:
    """Stages of life that are over. What was reached today is so for good."""
    if clause.is_asked or clause.is_unreal or clause.is_future or clause.of_another:
        return
    said = clause.plain
    if clause.text.rstrip(" !！。~～.").endswith(("啦", "咯", "喽")):
        said += "了"
    for stage in stages_ended(said):
        over = stage.over.search(said)
        before = said[: over.start()] if over else ""
        if _NOT_REACHED.search(before) or _NOT_REACHED_YET.search(clause.plain):
            continue
        is_own = clause.is_first_person or _DOES_IT.search(before) is not None
        yield EndedClaim(
            relation=FactRelation.STAGE,
            what=stage.name,
            around=clause.sentence,
            clause=clause.text,
            since=clause.until or clause.since,
            leads="" if is_own else _WHEN.sub(" ", before),
        )


def find_told_endings(fact: str) -> Sequence[EndedClaim]:
    """The same of a fact that a model has put into words: "no longer lives in Berlin"."""
    told = _USER.sub("", fact)
    if contains_han(told):
        return find_endings(f"我{told}")
    return find_endings(_THIRD_PERSON.sub(r"\1", f"I {told}"))


_USER = re.compile(r"^(?:the user|user|boss|they|用户|他|她)\s*", re.IGNORECASE)
_THIRD_PERSON = re.compile(
    r"(?<=no longer )(live|work|drink|eat|like|love|enjoy|prefer|use|smoke|play|learn|own)s\b"
    r"|(?<=no longer )(?:is )",
    re.IGNORECASE,
)
_RATHER = re.compile(r"\brather\b|宁愿|宁可")
_DENIAL = re.compile(
    r"\b(?:do|does|did|is|are|am|was|has|have|can|will)?(?:n't|not)\b|\bno longer\b"
)
_NOT_GIVEN_UP = re.compile(
    r"\b(?:won't|not|never|didn't|haven't|hasn't|wouldn't|don't|isn't)(?: \w+)?(?: to)? $"
    r"|(?:不|没|没有|别|不会|不想|不打算|绝不|从没)$"
)
_SOMEBODY = re.compile(r"(?:he|she|they)\b|[他她]")
_TOLD_ME = re.compile(r"\b(?:took|let|laid) me\b|(?:医生|大夫)让")
_BEGINS_WITH_NAME = re.compile(
    rf"(?!I\b|[A-Z][a-z]+(?:ed|ing)\b|(?:New|Got|Sold|Bought|Now|Went|The|My|Gave|Left"
    rf"|Back)\b)[A-Z][a-z]+ (?:(?:has|is|was|and) )?[a-z]+"
    rf"|{SURNAMES_ZH}[\u4e00-\u9fff]{{1,2}}(?=[把也已换改买搬])"
)
_DOES_NOT = re.compile(
    r"(?:i|we) (?:(?:do not|don't|no longer|never) (?P<what>[a-z]+(?: .{2,60})?))"
)
_DOES_IT = re.compile(r"\b(?:i|we|i'm|i've|me|us)\b|^(?:my|our)\b|我|咱")
_CONTRAST = re.compile(
    r"(?P<true>.{3,120}?),? (?:and )?not (?:to |in |at |for |on |with )?(?:the |a |an "
    r"|my )?(?P<en>[\w'-]+(?: [\w'-]+){0,2})"
    r"(?: any ?more)?[.!]*$"
    r"|(?P<true2>[^。！？]{3,60}?)，(?:而)?(?:不是"
    r"|不再是)(?:对)?(?P<zh>[^，。了吗]{1,12}?)(?:过敏)?[了。！!]*$",
    re.IGNORECASE,
)
_MOVES = (
    (
        re.compile(
            r"i (?:have )?(?:moved|relocated) (?:\w+ )?to |我.{0,4}搬(?:到|去"
            r"|来)"
        ),
        FactRelation.HOME,
    ),
    (
        re.compile(
            r"i (?:have )?(?:joined|started (?:at|work)|(?:now )?work(?:s)? (?:at|for) .+ now"
            r"|am (?:now )?at)\b"
            r"|我.{0,4}(?:跳槽|入职|换工作)"
        ),
        FactRelation.WORK,
    ),
)
_NOT_REACHED = re.compile(
    r"\b(?:not|\w+n't|never|nearly|almost|before|until|till|when|once|about|to"
    r"|can't wait)\b[\w ]{0,20}$"
    r"|(?:没|没有|不|未|别|快|等|才能|差点)[^，]{0,4}$"
)
_NOT_REACHED_YET = re.compile(r"\byet\b|还没|还不|快(?:要)?毕业")
_WHEN = re.compile(
    r"\b(?:on |last |this |since |in )?(?:(?:mon|tues|wednes|thurs|fri|satur|sun)days?"
    r"|week(?:end)?|month"
    r"|year|spring|summer|autumn|winter|easter|christmas)|(?:last|this) (?:night|morning)\b"
    r"|\b(?:yesterday|today|just"
    r"|finally|officially|(?:first|last) day|sadly|recently|ago|so)\b|上周[一二三四五六日天]?"
    r"|上个?月|昨[天晚]"
    r"|前[天几]天?|今[天早晚]"
    r"|去年|年初|上午|下午|刚刚?|终于|已经|正式|周[一二三四五六日末]"
)
_MAX_TOLD = 160
_SPEAKER = re.compile(r"\b(?:i|i'm|i've|my|me|mine|we|our|us)\b|我|咱|本人", re.IGNORECASE)
_DEICTIC = re.compile(r"(?:there|here|that|it|them|那儿|那里|那边|这儿|这里|那|这|它)")
_SWITCH_RELATIONS = (
    FactRelation.LIKES,
    FactRelation.USES,
    FactRelation.DRINKS,
    FactRelation.EATS,
    FactRelation.HOME,
    FactRelation.WORK,
    FactRelation.OWNS,
    FactRelation.MY,
)


def _read_clause(clause: SaidClause) -> Iterator[EndedClaim]:
    han = contains_han(clause.plain)
    for switch in switch_patterns(han=han):
        found = switch.fullmatch(clause.plain)
        if found is not None:
            for relation in _SWITCH_RELATIONS:
                yield EndedClaim(
                    relation=relation,
                    what=found["what"],
                    clause=clause.text,
                    since=clause.until or clause.since,
                )
            return
    for relation, pattern, flags in ending_patterns(han=han):
        found = pattern.fullmatch(clause.plain)
        if found is None:
            continue
        groups = found.groupdict()
        what = groups.get("what") or groups.get("what2") or groups.get("what3") or ""
        topic = groups.get("topic") or ""
        yield EndedClaim(
            relation=relation,
            what="" if _DEICTIC.fullmatch(what.strip()) else what.strip(),
            clause=clause.text,
            topic=topic.strip(),
            since=clause.until or clause.since,
            is_negative=flags.get("is_negative", False),
            was_so=flags.get("was_so", False),
        )
