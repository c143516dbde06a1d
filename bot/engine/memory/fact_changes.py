"""Tells which known facts the words end by which people say that something is no longer so. The
words alone end nothing: a known fact must be about the same thing, so that the patterns of
`said_endings` may be generous."""

from __future__ import annotations

import re

from bot.engine.memory.ending_patterns import (
    FactRelation,
)
from bot.engine.memory.ending_words import (
    AGAIN,
    GIVEN_UP,
)
from bot.engine.memory.fact_relations import (
    FACT_PATTERNS,
    KEY_RELATIONS,
    has_relation,
    relations_in,
)
from bot.engine.memory.fact_terms import (
    canonical_terms,
    content_terms,
    is_kind_of,
    same_words,
)
from bot.engine.memory.life_stages import ends_stage, is_of_family
from bot.engine.memory.said_endings import EndedClaim
from bot.engine.memory.thing_kinds import (
    has_other_thing,
    named_slot,
    preferred_slot,
)
from bot.engine.memory.told_subjects import is_about
from bot.engine.memory.value_changes import has_other_value
from storage.records.memory import MemoryCategory, MemoryEntry, MemoryKind
from storage.search.chinese import contains_han, simplify_han

_USED_UP = re.compile(r"\b(?:is|are|was) (?:over|finished|gone|closed)\b(?! (?:for|to) me)")
_STOPPED = re.compile(r"\bstopp(?:ed|ing)\b")
_NAME_IN_FACT = re.compile(r"(?<=[\w,] )(?:[A-Z][\w-]+ )*([A-Z][\w-]{2,})(?! [A-Z])")
_OF_IT = re.compile(
    r"\b[\w-]+['’]s (?!gone|over|dead|history|done|closed|finished|no\b|not\b|left|been)\w+"
)
_HEAD_OBJECT = re.compile(
    r"(?:the user |user )?[a-z]+s (?:an? |the |his |her "
    r"|their )?(?P<what>[a-z]\w+(?: [a-z]\w+)??)(?= \d| (?:with|for|at|in"
    r"|on|by|to|from|since|of|twice|once|every|daily|named|called)\b)",
    re.IGNORECASE,
)
_LAST_WORD = re.compile(r"[A-Za-z][\w-]+$")
_CALLED = re.compile(r"(?:\b(?:named|called)\b|名?叫)\s*([\w-]+)")


def ends_fact(ended: EndedClaim, entry: MemoryEntry) -> bool:
    """Whether the entry states what has ended."""
    if entry.kind not in _ENDED_KINDS or entry.category in _HISTORY_CATEGORIES:
        return False
    told = entry.text.removeprefix(f"{entry.sender}: ")
    is_anyones = ended.relation is FactRelation.VALUE or (
        ended.relation is FactRelation.STAGE and is_of_family(ended.what)
    )
    if not is_anyones and not is_about(ended.of, told):
        return False
    match ended.relation:
        case FactRelation.VALUE:
            is_ended = has_other_value(ended.what, ended.around, told)
        case FactRelation.STAGE:
            leads = content_terms(ended.leads) - content_terms(told)
            is_ended = ends_stage(ended.what, ended.around, told, leads)
        case FactRelation.THING:
            is_ended = has_other_thing(ended.what, told)
        case FactRelation.DOES:
            is_ended = same_words(ended.what, told)
        case FactRelation.ANY:
            return _is_named_over(ended, entry)
        case _:
            return _ends_diet(ended, entry) or _is_claimed(ended, entry)
    return is_ended and (ended.relation is FactRelation.STAGE or not is_negated_fact(entry))


def _is_claimed(ended: EndedClaim, entry: MemoryEntry) -> bool:
    if is_negated_fact(entry) != ended.is_negative:
        return False
    related = _COMPATIBLE.get(ended.relation, (ended.relation,))
    if not any(has_relation(each, entry) for each in related):
        return False
    if ended.topic and not same_words(ended.topic, f"{entry.key} {entry.text}"):
        return False
    return _is_about_it(ended, entry)


def _is_named_over(ended: EndedClaim, entry: MemoryEntry) -> bool:
    """Of words that only say that something is over: whether the sentence names all that the fact
    is about, and the clause speaks of nothing else than the fact does."""
    about = _value_terms(entry)
    if ended.leads and _USED_UP.search(ended.clause) and _is_of_taste(entry):
        return False  # "winter is over" says nothing of who likes it
    if is_negated_fact(entry) != ended.is_negative or not _names_it(about, entry, ended.what):
        return False
    known = about | content_terms(entry.text)
    if any(
        not each[0].isdigit() and not each.endswith("ly") and each not in known
        for each in content_terms(ended.leads)
    ):
        return False
    is_itself = ended.is_thing and _is_given_up_itself(about, ended.clause)
    # "Got tired of it" is about no thing that one has.
    rest = AGAIN.sub(" ", GIVEN_UP.sub(" ", ended.clause))
    spoken = relations_in(rest) - {FactRelation.OWNS}
    if not about:
        return any(each in _SINGLE_RELATIONS and has_relation(each, entry) for each in spoken)
    related = {near for each in spoken for near in _COMPATIBLE.get(each, (each,))}
    if not spoken or is_itself:
        return ended.is_thing or content_terms(_STOPPED.sub(" ", rest)) <= known
    return any(has_relation(each, entry) for each in related)


def _is_given_up_itself(about: frozenset[str], clause: str) -> bool:
    """Whether the words that give up are followed by the thing, whatever else is told after it."""
    found = GIVEN_UP.search(clause)
    return found is not None and bool(
        about & content_terms(" ".join(clause[found.end() :].split()[:3]))
    )


def _is_of_taste(entry: MemoryEntry) -> bool:
    return any(has_relation(each, entry) for each in _TASTES)


def _names_it(about: frozenset[str], entry: MemoryEntry, said: str) -> bool:
    """Whether the words name what the fact is about, or the one that it calls by name. What is done
    with it need not be named: it is the first word of an English fact, and of a Chinese one what
    comes before the last two characters."""
    told = content_terms(_OF_IT.sub(" ", said))
    named = _CALLED.search(entry.text)
    if about <= told or (named is not None and content_terms(named[1]) <= told):
        return True
    if (name := _NAME_IN_FACT.search(entry.text)) and content_terms(name[1]) <= told:
        return True
    text = entry.text.removeprefix(f"{entry.sender}: ").rstrip("了啦的 。.")
    if (last := _LAST_WORD.search(text)) and re.search(
        rf"\b(?:the|my|our) (?:\w+ )?{re.escape(last[0])}\b(?! \w+ (?:is|was|are|were|has|got"
        rf"|went)\b)",
        said,
        re.IGNORECASE,
    ):
        return True
    if contains_han(text):
        tail = content_terms(text[-2:])
        return len(tail) > 1 and tail <= told and 2 * len(about & told) >= len(about)
    head = None if _is_of_taste(entry) else _HEAD_OBJECT.match(text)
    if head is not None and (thing := content_terms(head["what"])) and thing <= told:
        return True
    begins = _VERB.match(text)
    verb = content_terms(begins[0] if begins else "")
    return bool(about - verb) and about - verb <= told


def _value_terms(entry: MemoryEntry) -> frozenset[str]:
    """The subject of a fact, without the words that say how."""
    topic = entry.key.partition(":")[2].split("@")[0]
    for name in KEY_RELATIONS:
        if topic.startswith(f"{name} ") and name not in {"prefers", "favourite"}:
            return content_terms(topic.removeprefix(name))
    text = simplify_han(entry.text.removeprefix(f"{entry.sender}: "))
    text = _OFFICE.sub(r"\1", _ROLE.sub(" ", text))
    for pattern in FACT_PATTERNS.values():
        text = pattern.sub(" ", text)
    if not (about := content_terms(text)) and _SINGLE_RELATIONS.isdisjoint(
        relations_in(_ROLE.sub(" ", entry.text))
    ):
        return content_terms(_ROLE.sub(" ", entry.text))
    return about


def _is_about_it(ended: EndedClaim, entry: MemoryEntry) -> bool:
    if not ended.what:
        return ended.relation in _SINGLE_RELATIONS
    if ended.relation is FactRelation.DIET:
        return bool(canonical_terms(ended.what) & canonical_terms(entry.text))
    return same_words(ended.what, entry.text) or is_kind_of(
        *((ended.what, entry.text) if ended.is_negative else (entry.text, ended.what))
    )


def excludes(key: str, text: str, entry: MemoryEntry, *, is_switch: bool = False) -> bool:
    """Whether a new statement with this key replaces the entry, which has another key: only one
    home, diet, or preferred thing of its kind is true at a time. `is_switch`: of what was used,
    this is used instead."""
    if entry.kind not in _ENDED_KINDS or entry.category in _HISTORY_CATEGORIES:
        return False
    if not is_about("", entry.text.removeprefix(f"{entry.sender}: ")):
        return False
    topic = key.partition(":")[2].split("@")[0]
    relation = _SINGLE_BY_TOPIC.get(topic)
    if relation is not None:
        return not is_negated_fact(entry) and has_relation(relation, entry)
    if is_switch and (slot := named_slot(text)) and has_relation(FactRelation.USES, entry):
        return named_slot(entry.text) == slot
    slot = preferred_slot(text)
    return bool(slot) and topic.startswith("prefers") and preferred_slot(entry.text) == slot


def denied_by(key: str) -> EndedClaim | None:
    """The opposite claim, which a new statement with this key ends."""
    topic = key.partition(":")[2].split("@")[0]
    for name, relation in KEY_RELATIONS.items():
        if name not in {"not eaten", "prefers"} and (topic == name or topic.startswith(f"{name} ")):
            what = topic.removeprefix(name).strip()
            return EndedClaim(relation=relation, what=what, clause="", is_negative=True)
    return None


def is_negated_fact(entry: MemoryEntry) -> bool:
    """Whether the entry says that something is not so, or no longer."""
    return says_it_is_not_so(entry.text)


def says_it_is_not_so(text: str) -> bool:
    return _NEGATED_FACT.search(simplify_han(text)) is not None


_ROLE = re.compile(
    r"\b(?:a )?(?:member|part|fan|subscriber|customer) of\b|\b(?:subscriber|customer|member)\b"
    r"|的(?:会员|成员)"
    r"|\b(?:in the (?:morning|afternoon|evening)s?|(?:before|after) (?:work|breakfast|lunch"
    r"|dinner|bed)|at night)\b"
    r"|\b(?:on (?:mon|tues|wednes|thurs|fri|satur|sun)days|every \w+|daily)\b"
    r"|每(?:天|周末|周|个?月|年|晚)"
)
_VERB = re.compile(r"(?:is \w+ing(?= )|\S*)", re.IGNORECASE)
_OFFICE = re.compile(r"^((?:Is )?(?:the|a|an) \w+) of .*")
_ENDED_KINDS = frozenset({MemoryKind.FACT, MemoryKind.PROFILE, MemoryKind.LONGTERM})
_HISTORY_CATEGORIES = frozenset(
    {MemoryCategory.EVENTS, MemoryCategory.CASES, MemoryCategory.LESSONS, MemoryCategory.PITFALLS}
)
_SINGLE_RELATIONS = frozenset(
    {
        FactRelation.HOME,
        FactRelation.WORK,
        FactRelation.JOB,
        FactRelation.DIET,
        FactRelation.SMOKES,
        FactRelation.RELATIONSHIP,
    }
)
_SINGLE_BY_TOPIC = {
    "home": FactRelation.HOME,
    "work": FactRelation.WORK,
    "diet": FactRelation.DIET,
}
_TASTES = (FactRelation.LIKES, FactRelation.EATS, FactRelation.DRINKS)
_COMPATIBLE = {
    FactRelation.EATS: (FactRelation.EATS, FactRelation.LIKES),
    FactRelation.DRINKS: (FactRelation.DRINKS, FactRelation.LIKES),
    FactRelation.LIKES: (FactRelation.LIKES,),
    FactRelation.USES: (FactRelation.USES, FactRelation.LIKES),
    FactRelation.PLAYS: (FactRelation.PLAYS, FactRelation.LIKES, FactRelation.LEARNS),
    FactRelation.LEARNS: (FactRelation.LEARNS, FactRelation.PLAYS),
    FactRelation.STATE: (FactRelation.JOB, FactRelation.DIET, FactRelation.STATE),
    FactRelation.DIET: (FactRelation.DIET,),
    FactRelation.WORK: (FactRelation.WORK, FactRelation.JOB),
}
_MEAT = re.compile(
    r"\b(?:meat|chicken|beef|pork|steaks?|burgers?|lamb|bacon|sausages?|fish)\b|肉|荤|鱼|鸡"
)


def _ends_diet(ended: EndedClaim, entry: MemoryEntry) -> bool:
    """Who eats meat again is no vegetarian, but may like it without eating it."""
    eats = ended.is_negative and ended.relation is FactRelation.EATS
    if not eats or _MEAT.search(ended.what) is None or is_negated_fact(entry):
        return False
    return {"=vegetarian", "=vegan"} & canonical_terms(entry.text) != set()


_NEGATED_FACT = re.compile(
    r"\b(?:no longer|not|never|n['’]t|cannot|stopped|quit|gave up|given up|dislikes?|hates?|avoids?"
    r"|used to|left|sold|gone off|former(?:ly)?|ex)\b|n['’]t\b"
    r"|(?<!从)不(?!过敏原|断|同|错|锈)|没(?!有关系)|戒|讨厌|已离|离开|离职|辞职|放弃|停止|再也",
    re.IGNORECASE,
)
