"""An expression cut into words and put together again as Python, to be parsed and not to be run."""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence

from bot.engine.workflow.expressions.wrong import BadExpression

_MOST = 2_000
_MOST_NESTED = 30
_WORD = re.compile(
    r"""\s*(?:(?P<number>\d+\.?\d*(?:[eE][+-]?\d{1,3})?)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<name>[^\W\d]\w*)
    |(?P<sign>===|!==|==|!=|<=|>=|&&|\|\||\*\*|[-+*/%<>!?:.,()\[\]^]))""",
    re.VERBOSE,
)
_SIGNS = {"===": "==", "!==": "!=", "&&": " and ", "||": " or ", "!": " not ", "^": "**"}
_PLAIN = {"and", "or", "not", "in"}
_OPEN, _CLOSE = "([", ")]"
_NAMESPACE = "Math"
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def python_of(text: str) -> str:
    """Raises BadExpression."""
    if len(text) > _MOST:
        raise BadExpression("it is too long")
    return _written(_words(text)).strip()


def _words(text: str) -> list[str]:
    words: list[str] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        found = _WORD.match(text, at)
        if found is None:
            raise BadExpression(f"{text[at : at + 10].strip()!r} is not part of the language")
        at = found.end()
        words.append(repr(_unquoted(found["text"])) if found["text"] else found[0].strip())
    return words


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text[1:-1])


def _written(words: Sequence[str], nested: int = 0) -> str:
    """Commas part first, then `? :`, then all the rest."""
    if nested > _MOST_NESTED:
        raise BadExpression("it is nested too deeply")
    parts = _parted(words, ",")
    if len(parts) > 1:
        return ", ".join(_written(part, nested + 1) for part in parts)
    choice = _choice(words)
    if choice is None:
        return _plain(words, nested)
    test, yes, no = (_written(each, nested + 1) for each in choice)
    return f"(({yes}) if ({test}) else ({no}))"


def _parted(words: Sequence[str], sign: str) -> list[Sequence[str]]:
    parts, start = [], 0
    for at in _outside(words):
        if words[at] == sign:
            parts.append(words[start:at])
            start = at + 1
    return [*parts, words[start:]] if parts else [words]


def _choice(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str], Sequence[str]] | None:
    """What stands before, in and behind the first `? :`."""
    first, open_ = None, 0
    for at in _outside(words):
        if words[at] == "?":
            first, open_ = at if first is None else first, open_ + 1
        elif words[at] == ":":
            open_ -= 1
            if not open_ and first is not None:
                return words[:first], words[first + 1 : at], words[at + 1 :]
    return None


def _outside(words: Sequence[str]) -> list[int]:
    """The places that no bracket encloses."""
    found, depth = [], 0
    for at, word in enumerate(words):
        depth -= word in _CLOSE
        if not depth:
            found.append(at)
        depth += word in _OPEN
        if depth < 0:
            raise BadExpression("a bracket is closed that was not opened")
    return found


def _plain(words: Sequence[str], nested: int) -> str:
    made: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        if word in _OPEN:
            close = _matching(words, at)
            made.append(word + _written(words[at + 1 : close], nested + 1) + words[close])
            at = close
        elif word == ".":
            made.append(_member(words, at))
            at += 1
        elif word == _NAMESPACE and words[at + 1 : at + 2] == ["."]:
            at += 1
        else:
            made.append(_SIGNS.get(word) or _name(word))
        at += 1
    return "".join(made)


def _member(words: Sequence[str], at: int) -> str:
    """`.name` as `["name"]`, so that no name is reserved; a method as it is."""
    name = words[at + 1] if at + 1 < len(words) else ""
    if not name.isidentifier():
        raise BadExpression("a name is missing behind a point")
    called = words[at + 2 : at + 3] == ["("]
    return f".{name}" if called else f"[{name!r}]"


def _name(word: str) -> str:
    if word in _PLAIN:
        return f" {word} "
    if word.isidentifier() and keyword.iskeyword(word) and word not in {"True", "False", "None"}:
        raise BadExpression(f"{word!r} is not part of the language")
    return word


def _matching(words: Sequence[str], at: int) -> int:
    depth = 0
    for n in range(at, len(words)):
        depth += (words[n] in _OPEN) - (words[n] in _CLOSE)
        if not depth:
            return n
    raise BadExpression("a bracket is not closed")
