"""What was found by its own words, and what only because it stands near such."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, tzinfo

from cards.views.memory.lines import spoken
from storage.memory.words import asked, terms
from storage.records.memory.shown import FoundEntry

_WHOLE = 1.0


def marked(
    found: Iterable[FoundEntry], query: str, *, now: datetime, zone: tzinfo
) -> Sequence[FoundEntry]:
    """Each with `near` as it is: without any word of the query itself."""
    wanted = _words(query, now, zone)
    return [replace(hit, near=wanted.isdisjoint(terms(spoken(hit.entry)))) for hit in found]


def _words(query: str, now: datetime, zone: tzinfo) -> frozenset[str]:
    """Of scripts without spaces two characters together, where the query has so many."""
    known = asked(query, now=now, zone=zone)
    bare = {term for term, weight in known.items() if weight == _WHOLE and term.isalnum()}
    longer = {term for term in bare if len(term) > 1 or term.isascii()}
    return frozenset(longer or bare)
