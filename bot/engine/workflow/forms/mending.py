"""JSON as models write it: found in what they say, and mended where it is nearly right."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from bot.engine.llm.loop.mending import end_of, mended_text
from bot.engine.workflow.forms.parsing import MOST_BYTES, clean, from_json
from bot.engine.workflow.model.faults import BadGraph

_FENCED = re.compile(r"^[ \t]*```[ \t]*(\w*)[ \t]*\r?\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
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
            return clean(json.loads(mended_text(text)))
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
            at = end_of(text, at + 1, '"')
        elif char == "{":
            start = at if not depth else start
            depth += 1
        elif char == "}" and depth:
            depth -= 1
            if not depth:
                yield start, at + 1
        at += 1
