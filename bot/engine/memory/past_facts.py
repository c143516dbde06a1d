"""Facts of the past: which questions ask for them, and how an entry's times are said."""

from __future__ import annotations

import re
from datetime import datetime, tzinfo

from bot.engine.memory.fact_changes import relations_in
from bot.engine.memory.fact_terms import same_words
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
    r"|(?:in|during|back in) (?:19|20)\d\d|last year|years ago|change[ds]?|history)\b"
    r"|以前|之前|曾经|过去|原来|从前|前一[个份家]|上一[个份家]|住过|做过|用过|喝过|吃过|干过|待过"
    r"|喜欢过|旧的?|那时|当时|去年|前年|[几\d一二两三四五六七八九十]+年前|(?:19|20)\d\d年|民国"
    r"|到什么时候|搬来之前|搬家前|换过",
    re.IGNORECASE,
)


def asks_about_past(question: str) -> bool:
    return _ASKS_PAST.search(question) is not None


def answers_about_past(question: str, entry: MemoryEntry) -> bool:
    """Whether the entry was true once and is about what the question asks."""
    if entry.state is not MemoryState.SUPERSEDED or entry.kind not in PAST_KINDS:
        return False
    asked = relations_in(question)
    return bool(asked & relations_in(f"{entry.key} {entry.text}")) or any(
        same_words(word, entry.text) for word in _TOPIC_WORDS.findall(question)
    )


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
