"""What an entry is found by: its own words, who said it and when, and what was said around it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import date, tzinfo
from functools import lru_cache

from storage.memory.lexicon.asking import parted
from storage.memory.lexicon.dates import day_tokens, mentions
from storage.memory.words import SOME_DAY, sender_tokens, terms
from storage.records.memory.entries import Entry

BODY, META, FACTS = 1.0, 0.5, 1.0
AROUND: Mapping[int, float] = {-2: 0.25, -1: 0.5, 1: 0.25}
"""What a word counts in an entry's own text, in its sender and date and in the facts that were
drawn from it; and in what was said so many turns before it (-) and after it."""
_ASKED, _ANSWERED = 0.25, 1.0
"""The same for words of a question that a turn ends with: they are about what is said next."""
DAY = "day"
"""Of what an entry has besides (`extra`): the day it was said, as whoever said it wrote it."""


def words_of(
    entry: Entry, zone: tzinfo, *, around: Mapping[int, str] | None = None, facts: str = ""
) -> Mapping[str, float]:
    """`around` has the texts of its neighbours, by how far they are away (`AROUND`)."""
    found = dict(own_words(entry, zone))
    for place, text in (around or {}).items():
        add(found, beside(text, place))
    add(found, _weighted(facts, FACTS))
    return found


def own_words(entry: Entry, zone: tzinfo) -> Mapping[str, float]:
    day = _day_of(entry, zone)
    besides = " ".join((*entry.keywords, entry.abstract))
    found = dict(_weighted(entry.text, BODY, _ASKED))
    add(found, _weighted(besides, META))
    named = {token for each in mentions(entry.text, day) for token in each.tokens}
    # A weekday that is only mentioned is a word like others.
    dates = {token for token in named if not token.startswith("=w")}
    found.update(dict.fromkeys([*day_tokens(day), *dates, *sender_tokens(entry.sender)], META))
    if named:
        found[SOME_DAY] = BODY
    return found


def beside(text: str, place: int) -> Mapping[str, float]:
    """What this text adds to an entry of which it stands so far away."""
    weight = AROUND[place]
    return _weighted(text, weight, _ANSWERED if place == -1 else weight)


def _weighted(text: str, said: float, asked: float | None = None) -> Mapping[str, float]:
    counts, of_questions = _counted(text)
    found = {term: said * times for term, times in counts.items()}
    if of_questions:
        for term, times in of_questions.items():
            found[term] = found.get(term, 0.0) + (said if asked is None else asked) * times
    return found


def get_ready(texts: Iterable[str]) -> None:
    """Count the words of so many texts (some hundreds) before anybody has to wait for it."""
    for text in texts:
        _counted(text)


@lru_cache(maxsize=600)
def _counted(text: str) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Of what is said, and of the questions at its end. Of a conversation every text is asked for
    four times: for itself and for those around."""
    said, asked = parted(text)
    return Counter(terms(said)), Counter(terms(asked))


def add(found: dict[str, float], more: Mapping[str, float]) -> None:
    for term, times in more.items():
        found[term] = found.get(term, 0.0) + times


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
