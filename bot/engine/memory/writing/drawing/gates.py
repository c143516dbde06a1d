"""How far something that was said may rise: from what was said (L0) to a profile (L1) to what is
kept for long (L2)."""

from __future__ import annotations

from enum import StrEnum

from bot.engine.memory.writing.drawing.facts import Fact
from bot.engine.memory.writing.noise import fact_noise, is_time_bound
from bot.engine.memory.writing.succession import is_by_hand
from storage.records.memory.entries import Category, Entry, EntryState, MemoryKind, ScopeKind
from storage.records.memory.support import UNKNOWN, support_of

PROFILE_SURE = 0.65
CANDIDATE_SURE, CANDIDATE_EVIDENCE = 0.8, 2
NARROW_SURE, NARROW_EVIDENCE, NARROW_LONGEST = 0.90, 3, 220
WIDE_SURE, WIDE_EVIDENCE, WIDE_LONGEST = 0.92, 4, 200

_PERSONAL = frozenset({Category.PROFILE, Category.PREFERENCES})
_NARROW = frozenset({ScopeKind.SKILL, ScopeKind.PROJECT, ScopeKind.AGENT})


class Rise(StrEnum):
    """Nothing happens, a person is asked, or it is kept for long at once."""

    STAY = "stay"
    ASK = "ask"
    KEEP = "keep"


def kind_of(fact: Fact) -> MemoryKind:
    """Who somebody is and what they want is their profile, once it is sure enough and known what
    it is about."""
    personal = fact.category in _PERSONAL and fact.by_user and bool(fact.key)
    sure = fact.confidence >= PROFILE_SURE
    return MemoryKind.PROFILE if personal and sure else MemoryKind.FACT


def rise_of(entry: Entry) -> Rise:
    """By how sure it is and how often it was said. What holds for a while only stays where it is;
    so does what a person wrote: it is where they want it."""
    risen = entry.kind not in {MemoryKind.FACT, MemoryKind.PROFILE}
    if risen or entry.state is not EntryState.ACTIVE or is_by_hand(entry):
        return Rise.STAY
    passing = entry.dynamic or entry.valid_until is not None or is_time_bound(entry.text)
    if passing or entry.category is Category.EVENTS or fact_noise(entry.text) is not None:
        return Rise.STAY
    if support_of(entry).strength < UNKNOWN:
        # It was contradicted more often than it was said again.
        return Rise.STAY
    said = len(set(entry.evidence))
    narrow = entry.scope.kind in _NARROW
    sure, often = (NARROW_SURE, NARROW_EVIDENCE) if narrow else (WIDE_SURE, WIDE_EVIDENCE)
    longest = NARROW_LONGEST if narrow else WIDE_LONGEST
    # What a whole person or group is told by has to be a rule or a trait.
    fits = narrow or entry.category in _PERSONAL
    if entry.confidence >= sure and said >= often and len(entry.text) <= longest and fits:
        return Rise.KEEP
    if entry.confidence >= CANDIDATE_SURE and said >= CANDIDATE_EVIDENCE:
        return Rise.ASK
    return Rise.STAY
