"""JSON that is nearly right, as models write it, without what JSON does not allow."""

from __future__ import annotations

import json
import re

_TOKEN = re.compile(
    r"(?P<skip>\s+|//[^\n]*|\#[^\n]*)|(?P<comment>/\*)|(?P<sign>[{}\[\],:])"
    r"|(?P<quote>[\"'“”])|(?P<word>[^\s{}\[\],:\"'“”]+)"
)
_ENDS_TEXT = re.compile(r"\s*(?:[,:}\]]|//|/\*|\Z)")
_CLOSING = {'"': '"', "'": "'", "“": '”"', "”": '”"'}
_WORDS = {"True": "true", "False": "false", "None": "null", "undefined": "null"}
_PLAIN = re.compile(r"true|false|null|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_SPECIAL = re.compile(r"""\\(?:["'\\/bfnrt]|u[0-9a-fA-F]{4})|[\\"\x00-\x1f]""")


def mended_text(text: str) -> str:
    """Without comments and commas too many, with the right quotes and without characters that
    have to be escaped. Raises ValueError; what it returns need not be JSON either."""
    made: list[str] = []
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        assert token is not None  # one of them fits any character
        at = token.end()
        if token["comment"]:
            at = text.index("*/", at) + 2
        elif token["quote"]:
            end = end_of(text, at, _CLOSING[token["quote"]])
            made.append(_text(text[at:end]))
            at = end + 1
        elif token["word"]:
            made.append(_word(token["word"]))
        elif token["sign"]:
            if token["sign"] in "}]" and made and made[-1] == ",":
                made.pop()
            made.append(token["sign"])
    return "".join(made)


def end_of(text: str, at: int, closing: str) -> int:
    """Where a text that began before `at` ends: at a quote behind which other things go on."""
    while at < len(text):
        if text[at] == "\\":
            at += 1
        elif text[at] in closing and _ENDS_TEXT.match(text, at + 1):
            return at
        at += 1
    return len(text)


def _text(inside: str) -> str:
    """As JSON writes it; what is escaped as it should be stays."""
    return f'"{_SPECIAL.sub(_escaped, inside)}"'


def _escaped(found: re.Match[str]) -> str:
    special = found[0]
    if special == "\\'":
        return "'"
    return special if len(special) > 1 else json.dumps(special)[1:-1]


def _word(word: str) -> str:
    word = _WORDS.get(word, word)
    return word if _PLAIN.fullmatch(word) else json.dumps(word, ensure_ascii=False)
