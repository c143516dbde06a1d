"""An expression cut into its words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from bot.engine.workflow.expressions.wrong import BadExpression

_MOST = 2_000
_WORD = re.compile(
    r"""\s*(?:(?P<number>(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<name>[^\W\d]\w*)
    |(?P<sign>===|!==|==|!=|<=|>=|&&|\|\||\*\*|[-+*/%<>!?:.,()\[\]^]))""",
    re.VERBOSE,
)
_ONE_MEANING = {"===": "==", "!==": "!=", "&&": "and", "||": "or", "!": "not", "**": "^"}
_WORDS_AS_SIGNS = {"and", "or", "not", "in"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


class Kind(StrEnum):
    NUMBER = "number"
    TEXT = "text"
    NAME = "name"
    SIGN = "sign"
    END = "end"


@dataclass(frozen=True, slots=True)
class Word:
    """`said` is a number as it was written, a text without its quotes, or a sign, of which those
    that mean the same have one form. `named` is how it reads behind a point."""

    kind: Kind
    said: str
    named: str = ""


END = Word(Kind.END, "the end")


def words_of(text: str) -> Sequence[Word]:
    """Raises BadExpression."""
    if len(text) > _MOST:
        raise BadExpression("it is too long")
    words: list[Word] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        found = _WORD.match(text, at)
        if found is None:
            raise BadExpression(f"{text[at : at + 10].strip()!r} is not part of the language")
        at = found.end()
        words.append(_word(found))
    return [*words, END]


def _word(found: re.Match[str]) -> Word:
    if found["number"]:
        return Word(Kind.NUMBER, found["number"])
    if found["text"]:
        return Word(Kind.TEXT, _unquoted(found["text"]))
    if name := found["name"]:
        return Word(Kind.SIGN if name in _WORDS_AS_SIGNS else Kind.NAME, name, name)
    sign = found["sign"]
    return Word(Kind.SIGN, _ONE_MEANING.get(sign, sign))


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text[1:-1])
