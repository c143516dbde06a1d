"""JSON as models write it: found in what they say, and mended where it is nearly right."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from bot.engine.workflow.forms.parsing import MOST_BYTES, clean, from_json
from bot.engine.workflow.model.faults import BadGraph, Fault

_FENCED = re.compile(r"^[ \t]*```[ \t]*(\w*)[ \t]*\r?\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
_TOKEN = re.compile(
    r"(?P<skip>\s+|//[^\n]*|/\*.*?\*/|\#[^\n]*)|(?P<sign>[{}\[\],:])"
    r"|(?P<quote>[\"'“”])|(?P<word>[^\s{}\[\],:\"'“”]+)",
    re.DOTALL,
)
_ENDS_TEXT = re.compile(r"\s*(?:[,:}\]]|//|/\*|\Z)")
_CLOSING = {'"': '"', "'": "'", "“": '”"', "”": '”"'}
_WORDS = {"True": "true", "False": "false", "None": "null", "undefined": "null"}
_PLAIN = re.compile(r"true|false|null|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_ESCAPED = re.compile(r'["\\/bfnrt]|u[0-9a-fA-F]{4}')
_MOST_PLACES = 200


def found_in(text: str) -> Any:
    """The last group of values in a text: fenced, the whole, or somewhere within; None where there
    is none. Raises BadGraph where there is one that cannot be mended."""
    text = text[:MOST_BYTES]
    fenced = [(mark[1].casefold(), mark[2].strip()) for mark in _FENCED.finditer(text)]
    for word, inside in reversed(fenced):
        if inside.startswith("{") and word in {"", "json", "json5", "jsonc"}:
            return mended(inside)
    whole = text.strip()
    if whole.startswith("{") and whole.endswith("}"):
        return mended(whole)
    return _within(whole)


def mended(text: str) -> Any:
    """What it holds as it stands, or without what JSON does not allow. Raises BadGraph."""
    try:
        return from_json(text)
    except BadGraph as bad:
        if bad.faults[0].key not in {"bad_json", "bad_number"}:
            raise
        try:
            return clean(json.loads(_mended(text)))
        except (ValueError, RecursionError) as error:
            raise bad from error


def _within(text: str) -> Any:
    """The longest of those that stand between words and can be read."""
    places = sorted(_balanced(text), key=lambda place: place[0] - place[1])
    for start, end in places[:_MOST_PLACES]:
        try:
            value = mended(text[start:end])
        except BadGraph:
            continue
        if value:
            return value
    return None


def _balanced(text: str) -> Iterator[tuple[int, int]]:
    """Where outermost braces open and close; those within texts do not count."""
    depth = start = at = 0
    while at < len(text):
        char = text[at]
        if char == '"' and depth:
            at = _end_of(text, at + 1, '"')
        elif char == "{":
            start = at if not depth else start
            depth += 1
        elif char == "}" and depth:
            depth -= 1
            if not depth:
                yield start, at + 1
        at += 1


def _mended(text: str) -> str:
    made: list[str] = []
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:  # a comment that does not end
            raise BadGraph([Fault(key="bad_json", facts={"line": 1, "column": 1, "why": ""})])
        at = token.end()
        if token["quote"]:
            end = _end_of(text, at, _CLOSING[token["quote"]])
            made.append(_text(text[at:end]))
            at = end + 1
        elif token["word"]:
            made.append(_word(token["word"]))
        elif token["sign"]:
            if token["sign"] in "}]" and made and made[-1] == ",":
                made.pop()
            made.append(token["sign"])
    return "".join(made)


def _end_of(text: str, at: int, closing: str) -> int:
    """Where a text ends: at a quote behind which something else can go on."""
    while at < len(text):
        if text[at] == "\\":
            at += 1
        elif text[at] in closing and _ENDS_TEXT.match(text, at + 1):
            return at
        at += 1
    return len(text)


def _text(inside: str) -> str:
    """Without characters that have to be written otherwise."""
    made: list[str] = []
    at = 0
    while at < len(inside):
        char = inside[at]
        if char == "\\":
            escaped = _ESCAPED.match(inside, at + 1)
            made.append(f"\\{escaped[0]}" if escaped else "\\\\")
            at += len(escaped[0]) + 1 if escaped else 1
            continue
        made.append(json.dumps(char, ensure_ascii=False)[1:-1])
        at += 1
    return f'"{"".join(made)}"'


def _word(word: str) -> str:
    word = _WORDS.get(word, word)
    return word if _PLAIN.fullmatch(word) else json.dumps(word, ensure_ascii=False)
