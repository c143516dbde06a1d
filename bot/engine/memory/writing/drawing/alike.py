"""Whether two texts say the same, by their words; what turns a sense round is never overlooked."""

from __future__ import annotations

import re

from storage.memory.words import same, terms

ALIKE = 0.85

_NOT = re.compile(
    r"\b(?:not|no|never|without|none|nobody|nothing|neither|nor|cannot|hardly|stop(?:s|ped)?"
    r"|avoid(?:s|ed)?|refuses?|unless|except)\b|n['’]t\b"
    r"|[不没無无别莫勿非未]|禁止|拒绝|避免|停止|除非|除了",
    re.IGNORECASE,
)
# None of these denies anything or counts anything: “非常” is no “非”.
_OTHER_WORDS = re.compile(
    r"非常|非洲|特别|分别|区别|类别|级别|性别|个别|差别|识别|辨别|鉴别|告别|别人|别的|别墅|别名|未来"
    r"|无锡|无线|无论|莫斯科|不过|不仅|不但|不断|差不多"
    r"|一般|一起|一直|一样|一定|一些|一下|一点(?!钟|[半过到])|一切|一旦|一致|一向|一律|一边|统一|唯一|万一"
    r"|十分(?!钟)|百度|四川|三亚|千万(?=别|不)"
)
_FIGURE = re.compile(r"\d+(?:[.,:/-]\d+)*|[零〇一二三四五六七八九十百千万两]")
_DAY = re.compile(
    r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b"
    r"|\b(?:january|february|march|april|june|july|august|september|october|november|december)\b",
    re.IGNORECASE,
)


def jaccard(one: str, other: str) -> float:
    """How much two texts share, by their words."""
    left, right = set(terms(one)), set(terms(other))
    return len(left & right) / len(left | right) if left and right else 0.0


def is_twin(one: str, other: str) -> bool:
    """Whether they say the same in the same words, or nearly."""
    if same(one) == same(other):
        return True
    return jaccard(one, other) >= ALIKE and _is_fuller(one, other) and agree(one, other)


def contains(longer: str, shorter: str) -> bool:
    """Whether the longer text says all that the shorter one says, in its words, and more."""
    left, right = set(terms(longer)), set(terms(shorter))
    return right < left and agree(longer, shorter)


def agree(one: str, other: str) -> bool:
    """Whether they name the same figures and days, and deny as much: “never on Fridays” shares
    nearly all words with “always on Fridays”, and every word with “on Fridays”."""
    one, other = (_OTHER_WORDS.sub(" ", each) for each in (one, other))
    if len(_NOT.findall(one)) != len(_NOT.findall(other)):
        return False
    return all(
        {each.casefold() for each in pattern.findall(one)}
        == {each.casefold() for each in pattern.findall(other)}
        for pattern in (_FIGURE, _DAY)
    )


def united(one: str, other: str) -> str:
    """Every line of both once: of two that are nearly the same the longer one, in its place."""
    kept: list[str] = []
    for line in (*_lines(one), *_lines(other)):
        for at, held in enumerate(kept):
            if is_twin(held, line) or contains(held, line) or contains(line, held):
                kept[at] = max(held, line, key=len)
                break
        else:
            kept.append(line)
    return "\n".join(kept)


def rests_on(text: str, *sources: str, share: float) -> bool:
    """Whether at least this share of its words, and each of its figures, stands in the sources."""
    words, known = set(terms(text)), {term for each in sources for term in terms(each)}
    figures = {each for source in sources for each in _figures(source)}
    if not words or not set(_figures(text)) <= figures:
        return False
    return len(words & known) / len(words) >= share


def _figures(text: str) -> list[str]:
    return _FIGURE.findall(_OTHER_WORDS.sub(" ", text))


def _is_fuller(one: str, other: str) -> bool:
    """Whether one only adds words to the other: where a word stands in place of another, they may
    tell of two things."""
    left, right = _single(one), _single(other)
    return left <= right or right <= left


def _single(text: str) -> set[str]:
    """Words, and of scripts without spaces characters."""
    return {term for term in terms(text) if len(term) == 1 or term.isascii()}


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]
