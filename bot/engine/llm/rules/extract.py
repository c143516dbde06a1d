"""A text's most telling sentences, and counts: English by words, Chinese by pairs of characters."""

from __future__ import annotations

import re
from collections import Counter

from bot.engine.llm.rules.acts import Unit

KEPT = 3
MAX_SENTENCES = 2_000

_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])\s*|\n+")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9'-]*|[\u4e00-\u9fff]+")
_CHINESE = re.compile(r"[\u4e00-\u9fff]")
_COUNTED = re.compile(r"[\u4e00-\u9fff]|[^\W\u4e00-\u9fff]+(?:['’-][^\W\u4e00-\u9fff]+)*")
_ENGLISH = (
    "a an and are as at be been but by can could did do for from had has have he her his i if in"
    " into is it its may more most not of on one or our out she so than that the their them then"
    " there these they this to up was we were what when which who will with would you your"
)
_PAIRS = "我们 你们 他们 这个 那个 一个 可以 就是 因为 所以 但是 没有 什么 自己 这样 如果"
_COMMON = frozenset(f"{_ENGLISH} {_PAIRS}".split())


def summary(text: str, kept: int = KEPT) -> tuple[str, ...]:
    """At most `kept` sentences of `text`, word for word and in its order."""
    sentences = sentences_of(text)[:MAX_SENTENCES]
    if len(sentences) <= kept:
        return tuple(sentences)
    weights = Counter(term for sentence in sentences for term in set(_terms(sentence)))
    scores = [_score(sentence, weights) for sentence in sentences]
    best = sorted(range(len(sentences)), key=lambda at: (-scores[at], at))[:kept]
    return tuple(sentences[at] for at in sorted(best))


def sentences_of(text: str) -> list[str]:
    """Sentences and lines; headings and list marks lose their signs."""
    bare = (re.sub(r"^\s*(?:#+|[-*•]|\d+[.)])\s+", "", part) for part in _SENTENCE.split(text))
    return [part.strip() for part in bare if re.search(r"\w", part)]


def count(text: str, unit: Unit) -> int:
    """A Chinese character counts as a word, as word processors do."""
    match unit:
        case Unit.WORDS:
            return sum(1 for _ in _COUNTED.finditer(text))
        case Unit.LINES:
            return len(text.splitlines())
        case Unit.CHARACTERS:
            return len(text)


def _score(sentence: str, weights: Counter[str]) -> float:
    """Shared terms weigh; very short sentences say little, very long ones share by chance."""
    terms = _terms(sentence)
    return sum(weights[term] - 1 for term in set(terms)) / (len(terms) + 4)


def _terms(sentence: str) -> list[str]:
    terms: list[str] = []
    for word in _WORD.findall(sentence):
        if _CHINESE.match(word):
            terms += (word[at : at + 2] for at in range(len(word) - 1))
        else:
            terms.append(word.lower())
    return [term for term in terms if term not in _COMMON]
