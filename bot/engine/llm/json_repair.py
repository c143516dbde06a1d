"""Repairs almost valid JSON as written by models."""

from __future__ import annotations

import json
import re

_TOKEN = re.compile(
    r"(?P<skip>\s+|//[^\n]*|\#[^\n]*)|(?P<comment>/\*)|(?P<sign>[{}\[\],:])"
    r"|(?P<quote>[\"'“”])|(?P<word>[^\s{}\[\],:\"'“”]+)"
)
_AFTER_STRING = re.compile(r"\s*(?:[,:}\]]|//|/\*|\Z)")
_CLOSING = {'"': '"', "'": "'", "“": '”"', "”": '”"'}
_LITERALS = {"True": "true", "False": "false", "None": "null", "undefined": "null"}
_PLAIN = re.compile(r"true|false|null|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_SPECIAL = re.compile(r"""\\(?:["'\\/bfnrt]|u[0-9a-fA-F]{4})|[\\"\x00-\x1f]""")


def repair_json(text: str) -> str:
    """Remove comments and trailing commas, fix quotes and escape characters.

    Raises ValueError. The result may still be invalid JSON."""
    parts: list[str] = []
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        assert token is not None  # the groups cover every character
        at = token.end()
        if token["comment"]:
            at = text.index("*/", at) + 2
        elif token["quote"]:
            end = find_string_end(text, at, _CLOSING[token["quote"]])
            parts.append(_quoted(text[at:end]))
            at = end + 1
        elif token["word"]:
            parts.append(_bare_word(token["word"]))
        elif token["sign"]:
            if token["sign"] in "}]" and parts and parts[-1] == ",":
                parts.pop()
            parts.append(token["sign"])
    return "".join(parts)


def find_string_end(text: str, start: int, closing: str) -> int:
    """Return the end of the string that contains `start`: a quote followed by JSON syntax."""
    while start < len(text):
        if text[start] == "\\":
            start += 1
        elif text[start] in closing and _AFTER_STRING.match(text, start + 1):
            return start
        start += 1
    return len(text)


def _quoted(inside: str) -> str:
    """Quote the text, keeping valid escapes."""
    return f'"{_SPECIAL.sub(_escaped, inside)}"'


def _escaped(found: re.Match[str]) -> str:
    special = found[0]
    if special == "\\'":
        return "'"
    return special if len(special) > 1 else json.dumps(special)[1:-1]


def _bare_word(word: str) -> str:
    word = _LITERALS.get(word, word)
    return word if _PLAIN.fullmatch(word) else json.dumps(word, ensure_ascii=False)
