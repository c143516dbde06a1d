"""What an entry is found by: its own words, who said it and when, and what was said around it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import date, tzinfo
from functools import lru_cache

from storage.memory.lexicon.dates import day_tokens, mentions
from storage.memory.words import SOME_DAY, sender_tokens, terms
from storage.records.memory.entries import Entry

BODY, META, BEFORE, AFTER, FACTS = 1.0, 0.5, 0.5, 0.25, 1.0
"""What a word counts in an entry's own text, in its sender and date, in what was said before and
after it, and in the facts that were drawn from it."""
DAY = "day"
"""Of what an entry has besides (`extra`): the day it was said, as whoever said it wrote it."""


def words_of(
    entry: Entry, zone: tzinfo, *, before: str = "", after: str = "", facts: str = ""
) -> Mapping[str, float]:
    around = weighted([(before, BEFORE), (after, AFTER), (facts, FACTS)])
    return added(own_words(entry, zone), around)


def own_words(entry: Entry, zone: tzinfo) -> Mapping[str, float]:
    day = _day_of(entry, zone)
    besides = " ".join((*entry.keywords, entry.abstract))
    found = dict(weighted([(entry.text, BODY), (besides, META)]))
    named = {token for each in mentions(entry.text, day) for token in each.tokens}
    # A weekday that is only mentioned is a word like others.
    dates = {token for token in named if not token.startswith("=w")}
    found.update(dict.fromkeys([*day_tokens(day), *dates, *sender_tokens(entry.sender)], META))
    if named:
        found[SOME_DAY] = BODY
    return found


def weighted(texts: Iterable[tuple[str, float]]) -> Mapping[str, float]:
    found: defaultdict[str, float] = defaultdict(float)
    for text, weight in texts:
        for term, times in _counted(text).items():
            found[term] += weight * times
    return found


def get_ready(texts: Iterable[str]) -> None:
    """Count the words of so many texts (some hundreds) before anybody has to wait for it."""
    for text in texts:
        _counted(text)


@lru_cache(maxsize=600)
def _counted(text: str) -> Mapping[str, int]:
    """Of a conversation every text is asked for three times: for itself and for those around."""
    return Counter(terms(text))


def added(
    one: Mapping[str, float], other: Mapping[str, float], sign: int = 1
) -> Mapping[str, float]:
    return {
        term: one.get(term, 0.0) + sign * other.get(term, 0.0) for term in one.keys() | other.keys()
    }


def _day_of(entry: Entry, zone: tzinfo) -> date:
    try:
        return date.fromisoformat(str(entry.extra.get(DAY, "")))
    except ValueError:
        return entry.said_at.astimezone(zone).date()
