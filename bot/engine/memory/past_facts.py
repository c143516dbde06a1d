"""Facts of the past: which questions ask for them, and how an entry's times are said."""

from __future__ import annotations

import re
from datetime import datetime, tzinfo

from bot.engine.memory.ending_patterns import FactRelation
from bot.engine.memory.fact_relations import relations_in
from bot.engine.memory.fact_terms import same_words
from bot.engine.memory.said_dates import find_spans
from bot.engine.memory.thing_kinds import things_asked_for, things_named
from storage.records.memory import MemoryEntry, MemoryKind, MemoryState
from storage.search.chinese import HAN

PAST_KINDS = (MemoryKind.FACT, MemoryKind.PROFILE, MemoryKind.LONGTERM)

_ASKS_PAST = re.compile(
    r"\b(?:before(?! (?:you|i|we|it|the|that|this|my|a)\b)|previous(?:ly)?|used to|formerly"
    r"|former|in the past|back then|at that time|historically|at first"
    r"|originally|until when|since when|no longer|any ?more|any longer|old (?:address|job|home"
    r"|flat|apartment|city|employer|company|place|phone|number|editor|car|diet|favou?rite)"
    r"|last (?:address|job|home|employer|company|city|place)|did i (?:use to |ever )?\w+"
    r"|have i (?:ever )?\w+(?:ed|en|t)\b|(?:was|were) (?:my|i)\b|had i\b|i (?:lived|worked|used"
    r"|liked|ate|drank|preferred|was)\b"
    r"|(?:in|during|back in) (?:19|20)\d\d|last (?:year|month|week|spring|summer|autumn|fall"
    r"|winter)|years ago|until|till|change[ds]?|history"
    r"|ex-\w+|my ex|in (?:january|february|march|april|may|june|july|august|september|october"
    r"|november"
    r"|december)|(?:did|were) (?:we|i)\b|no longer)\b"
    r"|以前|之前|曾经|过去|原来|从前|前一[个份家]|上一[个份家]|住过|做过|用过|喝过|吃过|干过|待过"
    r"|喜欢过|旧的?|那时|当时|去年|前年|[几\d一二两三四五六七八九十]+年前|(?:19|20)\d\d年|民国"
    r"|到什么时候|搬来之前|搬家前|换过|前任|上个?(?:月|季度|学期)"
    r"|[一二三四五六七八九十\d]+月(?:份|时候|之前|以前)|读过|学过|养过|叫过|待过",
    re.IGNORECASE,
)


def asks_about_past(question: str) -> bool:
    return _ASKS_PAST.search(question) is not None


def answers_about_past(question: str, entry: MemoryEntry, now: datetime) -> bool:
    """Whether the entry was true once, when the question asks for if it names a time, and is about
    what it asks."""
    if entry.state is not MemoryState.SUPERSEDED or entry.kind not in PAST_KINDS:
        return False
    if not _was_true_then(question, entry, now):
        return False
    told = f"{entry.key} {entry.text}"
    asked = relations_in(question) | {
        relation for relation, pattern in _ASKED.items() if pattern.search(question)
    }
    if asked & relations_in(told) or (things_asked_for(question) & things_named(entry.text)):
        return True
    return any(same_words(word, entry.text) for word in _TOPIC_WORDS.findall(question))


def _was_true_then(question: str, entry: MemoryEntry, now: datetime) -> bool:
    """Of a fact without a beginning it is not known when it began."""
    began = entry.valid_from if entry.valid_from < entry.said_at else None
    ended = entry.held_until
    for span in find_spans(question, now.date()):
        if span.first is None or span.last is None:
            continue
        if span.is_until:
            # "Until May" and "before 2020" ask for what was so before.
            if began is not None and began.date() >= span.first:
                return False
            continue
        if began is not None and began.date() > span.last:
            return False
        if ended is not None and ended.date() < span.first:
            return False
    return True


_ASKED = {
    FactRelation.HOME: re.compile(
        r"\b(?:where (?:was|were|am) (?:i|we)\b(?! work)|(?:city|town|address|flat|apartment"
        r"|country|place)\b)"
        r"|地址|城市|住处|家在|哪个?城|哪里?住",
        re.IGNORECASE,
    ),
    FactRelation.WORK: re.compile(
        r"\b(?:employer|company|firm|workplace|job|employed|career|office)\b|公司|单位|东家|任职"
        r"|职位|就职|打工",
        re.IGNORECASE,
    ),
    FactRelation.LEARNS: re.compile(
        r"\b(?:stud(?:y|ied|ying)|degree|university|college|school|course|major\w*)\b|学校|专业"
        r"|读什么|读书|念",
        re.IGNORECASE,
    ),
    FactRelation.DIET: re.compile(r"\b(?:diet|eat|eating|food)\b|饮食|吃", re.IGNORECASE),
    FactRelation.OWNS: re.compile(r"\b(?:pets?|cars?|drive|drove)\b|宠物|开什么", re.IGNORECASE),
    FactRelation.RELATIONSHIP: re.compile(
        r"\b(?:dating|girlfriend|boyfriend|ex|partner|relationship|with whom|together)\b|前任"
        r"|对象|交往",
        re.IGNORECASE,
    ),
}
"""Words by which one asks for a relation, beside those that tell it."""
_TOPIC_WORDS = re.compile(rf"[A-Za-z]{{4,}}|[{HAN}]{{2}}")


def validity_mark(entry: MemoryEntry, ended_at: datetime | None, zone: tzinfo) -> str:
    """`until 2026-05-03`, `since 2025-01-01`, `from 2027-01-01`; empty for what holds since it was
    said. `ended_at` is when what a turn says ended to be so."""
    told = []
    if ended_at is not None:
        return f"no longer so since {ended_at.astimezone(zone):%Y-%m-%d}"
    until = entry.held_until
    if entry.valid_from > entry.said_at:
        told.append(f"from {entry.valid_from.astimezone(zone):%Y-%m-%d}")
    elif entry.valid_from < entry.said_at and entry.valid_from != until:
        told.append(f"since {entry.valid_from.astimezone(zone):%Y-%m-%d}")
    if until is not None:
        told.append(f"until {until.astimezone(zone):%Y-%m-%d}")
    if entry.state is MemoryState.SUPERSEDED:
        told.append("no longer so")
    return ", ".join(told)
