"""The words of a text as indexes know them: the same for what is stored and what is asked."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, tzinfo

from storage.memory.lexicon.asking import whose
from storage.memory.lexicon.chinese import FRAMES, is_filler
from storage.memory.lexicon.dates import Mention, mentions
from storage.memory.lexicon.english import ASKING, STOP, stem
from storage.memory.lexicon.synonyms import KIN_WEIGHT, kin, kin_of_text

# Scripts that write no spaces between words, or glue endings on: Thai and its neighbours, kana,
# Chinese characters, Hangul.
_UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff"
    r"\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_RUN = re.compile(rf"([{_UNSPACED}]+)|(?:(?![{_UNSPACED}])[^\W_])+(?:['’](?:s|t|re|ve|ll|d|m)\b)?")
_LONGEST = 40
_MOST_TEXT = 20_000
"""Characters of a text that are looked at: an entry's text is half as long at most."""
_MOST_ASKED = 1_000
DATE_WEIGHT = 4.0
SENDER_WEIGHT = 1.0
WHEN_WEIGHT = 1.0
"""What a day counts that is asked for, beside a word; and a sender's name; and, where somebody
asks when, that any day is named."""
SOME_DAY = "=when"
_WHEN = re.compile(
    r"\bwhen\b|\bwhat (?:day|date|time|month|year)\b|什么时候|哪天|哪一天|几号|何时", re.IGNORECASE
)


def terms(text: str) -> Iterator[str]:
    """Stems of words, and numbers as they are; of scripts without spaces every character and every
    pair. English fillers are left out. Never more than one for each character, of 40 at most."""
    for run in _RUN.finditer(_plain(text, _MOST_TEXT)):
        if run[1]:
            yield from run[1]
            yield from (run[1][at : at + 2] for at in range(len(run[1]) - 1))
        elif (word := _bare(run[0])) not in STOP:
            yield stem(word)


def asked(query: str, *, now: datetime, zone: tzinfo) -> Mapping[str, float]:
    """What to look for, and what each counts: words without the fillers of both languages, and
    the days that the query names, as their tokens (`dates`)."""
    query = query[:_MOST_ASKED]
    days = mentions(query, now.astimezone(zone).date())
    telling = list(_telling(_without(query, days)))
    found = dict.fromkeys(telling, 1.0)
    others = dict.fromkeys((t for word in kin_of_text(query) for t in terms(word)), KIN_WEIGHT)
    found = others | dict(kin(telling, query)) | found
    found.update({name: SENDER_WEIGHT for term in telling for name in names(term)})
    if _WHEN.search(query):
        found[SOME_DAY] = WHEN_WEIGHT
    for mention in days:
        found.update(dict.fromkeys(mention.tokens, DATE_WEIGHT))
    if person := whose(query):
        found[person] = 0.0
    return found


def sender_tokens(sender: str) -> Iterator[str]:
    """By these an entry is found by the name of whoever said it; no word of a text looks so."""
    for term in terms(sender):
        yield from names(term)


def names(term: str) -> Iterator[str]:
    """What a sender is known by if that is a part of the name: no single character."""
    if len(term) > 1:
        yield f"@{term}"


def same(text: str) -> str:
    """A hash that two texts share if they differ in nothing but case, spaces and punctuation."""
    plain = unicodedata.normalize("NFKC", text).lower()
    letters = "".join(each for each in plain if each.isalnum())
    return hashlib.sha256((letters or plain).encode()).hexdigest()


def _telling(query: str) -> Iterator[str]:
    """A query of nothing but fillers is meant as it stands."""
    everything = list(terms(_FRAMES.sub(" ", query)))
    telling = [term for term in everything if term not in ASKING and not is_filler(term)]
    yield from telling or everything or terms(query)


def _without(query: str, days: Sequence[Mention]) -> str:
    """A day is asked for by its token; a weekday and a bare year are words besides."""
    for day in reversed(days):
        if not day.tokens[0].startswith("=w") and not query[day.start : day.end].isdigit():
            query = f"{query[: day.start]} {query[day.end :]}"
    return query


_FRAMES = re.compile("|".join(FRAMES))


def _plain(text: str, most: int) -> str:
    text = text[:most]
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)[: 2 * most]
    return text.lower()


def _bare(word: str) -> str:
    """Without its 's and its accents, and no longer than anybody would type it."""
    cut = re.split("['’]", word, maxsplit=1)[0][:_LONGEST]
    if cut.isascii():
        return cut
    apart = unicodedata.normalize("NFKD", cut)
    return unicodedata.normalize("NFC", "".join(c for c in apart if not _is_mark(c)))[:_LONGEST]


def _is_mark(letter: str) -> bool:
    return unicodedata.combining(letter) != 0
