"""Turns texts, queries and entries into index terms."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, tzinfo
from functools import lru_cache

from storage.records.memory import MemoryEntry
from storage.search.chinese import simplify_han
from storage.search.dates import DateMention, day_tokens, find_dates
from storage.search.lexicon import (
    CHINESE_QUESTION_PHRASES,
    ENGLISH_STOP_WORDS,
    QUESTION_STEMS,
    SYNONYM_WEIGHT,
    WORK_WORDS,
    chinese_synonyms,
    english_synonyms,
    is_chinese_filler,
    stem,
)

ASKS_ASSISTANT, ASKS_SELF = "=you", "=me"
"""Marks among a question's terms. No entry has them."""

_ENDS_AS_QUESTION = re.compile(r"[?？][^\w?？]{0,8}$")
_SENTENCE_END = re.compile(r"[.!?…]+[\"'”’)]*\s+|[。！？\n]+")


def split_trailing_questions(text: str) -> tuple[str, str]:
    """The text, and the questions at its end: the answers come from another speaker."""
    if not _ENDS_AS_QUESTION.search(text):
        return text, ""
    at = len(text)
    for start in reversed([0, *(end.end() for end in _SENTENCE_END.finditer(text))]):
        sentence = text[start:at]
        if any(map(str.isalnum, sentence)) and not _ENDS_AS_QUESTION.search(sentence):
            break
        at = start
    return text[:at], text[at:]


_REMINDER_PHRASE = re.compile(
    r"\b(?:do|can|could|would) you (?:still )?(?:remember|recall|know|tell|remind|find|see)\b"
    r"|[你您](?:还|是否)?(?:记得|知道)",
    re.IGNORECASE,
)
_SECOND_PERSON = re.compile(
    r"\b(?:did|do|have|had|were|are|would|could|should) you\b|\byours?\b|^[^我]*[你您]",
    re.IGNORECASE,
)
_FIRST_PERSON = re.compile(r"\b(?:i|me|my|mine)\b|我", re.IGNORECASE)
_ASSISTANT_NAMES = frozenset(["assistant", "ai", "bot", "chatbot", "agent", "助手", "助理"])


def requested_speaker(query: str) -> str | None:
    """The speaker a question to an assistant asks about: `ASKS_ASSISTANT` for "what did you
    say", `ASKS_SELF` for "what did I say"."""
    query = _REMINDER_PHRASE.sub(" ", query)
    if _SECOND_PERSON.search(query):
        return ASKS_ASSISTANT
    return ASKS_SELF if _FIRST_PERSON.search(query) else None


def is_assistant(sender: str) -> bool:
    return sender.casefold() in _ASSISTANT_NAMES


# Scripts without spaces between words, or with attached endings: Thai and its neighbours, kana,
# Chinese characters, Hangul.
_UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff"
    r"\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_WORD_RUN = re.compile(
    rf"([{_UNSPACED}]+)|(?:(?![{_UNSPACED}])[^\W_])+(?:['’](?:s|t|re|ve|ll|d|m)\b)?"
)
_MAX_WORD_LENGTH = 40
_MAX_TEXT = 20_000
"""Characters of a text that are indexed, twice the limit of an entry's text."""
_MAX_QUERY = 1_000
_WORK_TERMS = frozenset(map(stem, WORK_WORDS))
DATE_WEIGHT = 4.0
SENDER_WEIGHT = 1.0
ANY_DATE_WEIGHT = 1.0
"""Weight of a requested date relative to a word; of a sender's name; and, for "when" questions, of
any date."""
ANY_DATE_TERM = "=when"
_ASKS_WHEN = re.compile(
    r"\bwhen\b|\bwhat (?:day|date|time|month|year)\b|什么时候|哪天|哪一天|几号|何时", re.IGNORECASE
)


def tokenize(text: str) -> Iterator[str]:
    """Stems of words, and numbers unchanged; for scripts without spaces every character and pair,
    traditional Chinese ones as their simplified forms.
    English stop words are skipped. Never more terms than characters, each at most 40 long."""
    for run in _WORD_RUN.finditer(_normalize(text, _MAX_TEXT)):
        if run[1]:
            yield from run[1]
            yield from (run[1][at : at + 2] for at in range(len(run[1]) - 1))
        elif (word := _bare_word(run[0])) not in ENGLISH_STOP_WORDS:
            yield stem(word)


def query_terms(query: str, *, now: datetime, zone: tzinfo) -> Mapping[str, float]:
    """Weighted terms of a query: words without stop words of both languages, and tokens for its
    dates."""
    query = simplify_han(query[:_MAX_QUERY])
    days = find_dates(query, now.astimezone(zone).date())
    telling = list(_content_terms(_without_dates(query, days)))
    found = dict.fromkeys(telling, 1.0)
    others = dict.fromkeys(
        (t for word in chinese_synonyms(query) for t in tokenize(word)), SYNONYM_WEIGHT
    )
    found = others | dict(english_synonyms(telling, query)) | found
    found.update({name: SENDER_WEIGHT for term in telling for name in name_terms(term)})
    if _ASKS_WHEN.search(query):
        found[ANY_DATE_TERM] = ANY_DATE_WEIGHT
    for mention in days:
        found.update(dict.fromkeys(mention.tokens, DATE_WEIGHT))
    if person := requested_speaker(query):
        found[person] = 0.0
    return found


def without_work_words(terms: Mapping[str, float]) -> Mapping[str, float]:
    """The terms that say what a query is about; all of them if none does."""
    found = _WORK_TERMS & terms.keys()
    # Chinese words are indexed by their characters too.
    left_out = found.union(*(term for term in found if not term.isascii()))
    telling = {term: weight for term, weight in terms.items() if term not in left_out}
    return telling or terms


def shared_subject(one: str, other: str) -> float:
    """How much of the shorter text's subject the other has too, from 0 to 1: of its words but for
    those of nearly every order."""
    subjects = [without_work_words(dict.fromkeys(tokenize(text), 1.0)) for text in (one, other)]
    least = min(map(len, subjects))
    return len(subjects[0].keys() & subjects[1].keys()) / least if least else 0.0


def sender_terms(sender: str) -> Iterator[str]:
    """Terms by which a sender's entries are found; no word of a text looks like them."""
    for term in tokenize(sender):
        yield from name_terms(term)


def name_terms(term: str) -> Iterator[str]:
    """Parts of a sender's name that identify it, without single characters."""
    if len(term) > 1:
        yield f"@{term}"


def _content_terms(query: str) -> Iterator[str]:
    """A query of stop words only is searched as it is."""
    everything = list(tokenize(_QUESTION_PHRASES.sub(" ", query)))
    telling = [
        term for term in everything if term not in QUESTION_STEMS and not is_chinese_filler(term)
    ]
    yield from telling or everything or tokenize(query)


def _without_dates(query: str, days: Sequence[DateMention]) -> str:
    """Remove dates, which are searched by their tokens; weekdays and bare years stay as words."""
    for day in reversed(days):
        if not day.tokens[0].startswith("=w") and not query[day.start : day.end].isdigit():
            query = f"{query[: day.start]} {query[day.end :]}"
    return query


_QUESTION_PHRASES = re.compile("|".join(CHINESE_QUESTION_PHRASES))


def _normalize(text: str, limit: int) -> str:
    text = text[:limit]
    if not text.isascii():
        text = simplify_han(unicodedata.normalize("NFKC", text)[: 2 * limit])
    return text.lower()


def _bare_word(word: str) -> str:
    """The word without possessive and accents, cut to a plausible length."""
    cut = re.split("['’]", word, maxsplit=1)[0][:_MAX_WORD_LENGTH]
    if cut.isascii():
        return cut
    apart = unicodedata.normalize("NFKD", cut)
    return unicodedata.normalize("NFC", "".join(c for c in apart if not _is_combining(c)))[
        :_MAX_WORD_LENGTH
    ]


def _is_combining(letter: str) -> bool:
    return unicodedata.combining(letter) != 0


BODY_WEIGHT, META_WEIGHT, FACTS_WEIGHT = 1.0, 0.5, 1.0
NEIGHBOUR_WEIGHTS: Mapping[int, float] = {-2: 0.25, -1: 0.5, 1: 0.25}
"""Weight of a word in an entry's own text, sender, date and facts (0), and in turns this far before
(-) or after."""
_QUESTION_WEIGHT, _ANSWERED_WEIGHT = 0.25, 1.0
"""The same for the questions that end a turn: they concern the next turn."""
SAID_DAY_KEY = "day"
"""Key in `extra`: the day an entry was said, as its source wrote it."""


def entry_terms(
    entry: MemoryEntry,
    zone: tzinfo,
    *,
    neighbour_texts: Mapping[int, str] | None = None,
    fact_text: str = "",
) -> Mapping[str, float]:
    """An entry's weighted terms. `neighbour_texts` are by distance in turns
    (`NEIGHBOUR_WEIGHTS`)."""
    found = dict(own_terms(entry, zone))
    for place, text in (neighbour_texts or {}).items():
        add_weights(found, neighbour_terms(text, place))
    add_weights(found, _weigh_terms(fact_text, FACTS_WEIGHT))
    return found


def own_terms(entry: MemoryEntry, zone: tzinfo) -> Mapping[str, float]:
    day = _said_day(entry, zone)
    besides = " ".join((*entry.keywords, entry.abstract))
    found = dict(_weigh_terms(entry.text, BODY_WEIGHT, _QUESTION_WEIGHT))
    add_weights(found, _weigh_terms(besides, META_WEIGHT))
    named = {token for each in find_dates(entry.text, day) for token in each.tokens}
    # A weekday that is merely mentioned is an ordinary word.
    dates = {token for token in named if not token.startswith("=w")}
    found.update(
        dict.fromkeys([*day_tokens(day), *dates, *sender_terms(entry.sender)], META_WEIGHT)
    )
    if named:
        found[ANY_DATE_TERM] = BODY_WEIGHT
    return found


def neighbour_terms(text: str, place: int) -> Mapping[str, float]:
    """The terms this text adds to an entry at this distance."""
    weight = NEIGHBOUR_WEIGHTS[place]
    return _weigh_terms(text, weight, _ANSWERED_WEIGHT if place == -1 else weight)


def _weigh_terms(text: str, said: float, asked: float | None = None) -> Mapping[str, float]:
    counts, of_questions = _count_terms(text)
    found = {term: said * times for term, times in counts.items()}
    if of_questions:
        for term, times in of_questions.items():
            found[term] = found.get(term, 0.0) + (said if asked is None else asked) * times
    return found


def count_terms_ahead(texts: Iterable[str]) -> None:
    """Count some hundreds of texts in advance, outside a transaction."""
    for text in texts:
        _count_terms(text)


@lru_cache(maxsize=600)
def _count_terms(text: str) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Term counts of the statement and of the questions at its end. Cached because each text of a
    conversation is needed four times: for itself and its neighbours."""
    said, asked = split_trailing_questions(text)
    return Counter(tokenize(said)), Counter(tokenize(asked))


def add_weights(found: dict[str, float], more: Mapping[str, float]) -> None:
    for term, times in more.items():
        found[term] = found.get(term, 0.0) + times


def combine_weights(
    one: Mapping[str, float], other: Mapping[str, float], sign: int = 1
) -> Mapping[str, float]:
    return {
        term: one.get(term, 0.0) + sign * other.get(term, 0.0) for term in one.keys() | other.keys()
    }


def _said_day(entry: MemoryEntry, zone: tzinfo) -> date:
    try:
        return date.fromisoformat(str(entry.extra.get(SAID_DAY_KEY, "")))
    except ValueError:
        return entry.said_at.astimezone(zone).date()
