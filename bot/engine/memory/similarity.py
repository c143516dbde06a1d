"""Word-based text similarity that respects numbers and negations."""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet

from storage.records.memory import text_hash
from storage.search.terms import tokenize

NEAR_DUPLICATE_SHARE = 0.85

_NEGATION = re.compile(
    r"\b(?:not|no|never|without|none|nobody|nothing|neither|nor|cannot|hardly|stop(?:s|ped)?"
    r"|avoid(?:s|ed)?|refuses?|unless|except)\b|n['’]t\b"
    r"|[不没無无别莫勿非未]|禁止|拒绝|避免|停止|除非|除了",
    re.IGNORECASE,
)
# Words that contain a negation character but negate nothing, such as 非常.
_NOT_NEGATION_OR_NUMBER = re.compile(
    r"非常|非洲|特别|分别|区别|类别|级别|性别|个别|差别|识别|辨别|鉴别|告别|别人|别的|别墅|别名|未来"
    r"|无锡|无线|无论|莫斯科|不过|不仅|不但|不断|差不多"
    r"|一般|一起|一直|一样|一定|一些|一下|一点(?!钟|[半过到])|一切|一旦|一致|一向|一律|一边|统一|唯一|万一"
    r"|十分(?!钟)|百度|四川|三亚|千万(?=别|不)"
)
_NUMBER = re.compile(r"\d+(?:[.,:/-]\d+)*|[零〇一二三四五六七八九十百千万两]")
_DAY = re.compile(
    r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b"
    r"|\b(?:january|february|march|april|june|july|august|september|october|november|december)\b",
    re.IGNORECASE,
)


def term_jaccard(one: str, other: str) -> float:
    """Share of words that both texts have in common."""
    left, right = set(tokenize(one)), set(tokenize(other))
    return len(left & right) / len(left | right) if left and right else 0.0


def is_near_duplicate(one: str, other: str) -> bool:
    """Whether both say the same in the same or nearly the same words."""
    if text_hash(one) == text_hash(other):
        return True
    return (
        term_jaccard(one, other) >= NEAR_DUPLICATE_SHARE
        and _only_adds_words(one, other)
        and details_agree(one, other)
    )


def subsumes(longer: str, shorter: str) -> bool:
    """Whether `longer` contains all words of `shorter` and more."""
    left, right = set(tokenize(longer)), set(tokenize(shorter))
    return right < left and details_agree(longer, shorter)


def details_agree(one: str, other: str) -> bool:
    """Whether both contain the same numbers, days and negations: "never on Fridays" shares nearly
    all words with "always on Fridays"."""
    one, other = (_NOT_NEGATION_OR_NUMBER.sub(" ", each) for each in (one, other))
    if len(_NEGATION.findall(one)) != len(_NEGATION.findall(other)):
        return False
    return all(
        {each.casefold() for each in pattern.findall(one)}
        == {each.casefold() for each in pattern.findall(other)}
        for pattern in (_NUMBER, _DAY)
    )


def merge_lines(one: str, other: str) -> str:
    """All lines of both; of two near duplicates the longer one, in its place."""
    kept: list[str] = []
    for line in (*_lines(one), *_lines(other)):
        for at, held in enumerate(kept):
            if is_near_duplicate(held, line) or subsumes(held, line) or subsumes(line, held):
                kept[at] = max(held, line, key=len)
                break
        else:
            kept.append(line)
    return "\n".join(kept)


def is_grounded_in(text: str, *sources: str, share: float) -> bool:
    """Whether at least `share` of the words, and every number, occurs in the sources."""
    words, known = set(tokenize(text)), {term for each in sources for term in tokenize(each)}
    figures = {each for source in sources for each in _numbers_in(source)}
    if not words or not set(_numbers_in(text)) <= figures:
        return False
    return len(words & known) / len(words) >= share


def _numbers_in(text: str) -> list[str]:
    return _NUMBER.findall(_NOT_NEGATION_OR_NUMBER.sub(" ", text))


def _only_adds_words(one: str, other: str) -> bool:
    """Whether one only adds words to the other; replaced words may refer to something else."""
    left, right = _single_terms(one), _single_terms(other)
    return left <= right or right <= left


def _single_terms(text: str) -> set[str]:
    """Words, and single characters of scripts without spaces."""
    return {term for term in tokenize(text) if len(term) == 1 or term.isascii()}


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def jaccard(one: AbstractSet[str], other: AbstractSet[str]) -> float:
    both = len(one & other)
    return both / (len(one) + len(other) - both) if both else 0.0
