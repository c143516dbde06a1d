"""Detects tool calls that an answer only quotes from a file, a page or a person."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from bot.engine.llm.written_calls import CALL_TAGS, NAME_KEYS, WrittenCalls

_LAYOUT = re.compile(
    rf"^(?:\d+\t)?[ \t>]*```.*$|^[ \t]*\d+\t|\\+n\d+\\+t|</?(?:{CALL_TAGS})>|\\+[nrt]",
    re.MULTILINE,
)
"""Code fences, line numbers, call tags and escaped white space."""
_ESCAPED = re.compile(r"\\+u([0-9a-fA-F]{4})")
_BARE_NAME = re.compile(r"[\w.:-]*")
_NOISE = re.compile(r"[\s\\]+")
_MAX_PIECES = 100
_NEAR = 40
"""Characters between a key and its value, at most: quotes, signs and tags."""
_MARGIN = 2000


def is_quoted(found: WrittenCalls, sources: Iterator[str]) -> bool:
    """Whether a source has one of these calls, in any written form and layout."""
    written = _compact(found.text)
    is_telling = not _BARE_NAME.fullmatch(written)
    return any(
        (is_telling and written in source) or any(_has_call(source, *call) for call in found.calls)
        for source in map(_compact, sources)
    )


def _compact(text: str) -> str:
    decoded = _ESCAPED.sub(lambda code: chr(int(code[1], 16)), html.unescape(text))
    plain = _NOISE.sub("", _LAYOUT.sub("", decoded))
    return plain.replace("'", '"').casefold()


def _has_call(source: str, name: str, arguments: Mapping[str, Any] | str) -> bool:
    """Return True if the name is that of a call there, with each key and its value around it."""
    pieces = [] if isinstance(arguments, str) else [*_pieces(arguments)][:_MAX_PIECES]
    if not pieces:
        return False
    forms = [_form(key, lines[0]) for key, lines in pieces]
    lines = [line for _, each in pieces for line in each][:_MAX_PIECES]
    reach = _MARGIN + 3 * sum(len(key) + sum(map(len, each)) for key, each in pieces)
    done = -1
    for mark in _name_form(name).finditer(source):
        if mark.start() <= done:
            continue
        # What is skipped next lies in this part too, so each part is looked at three times at most.
        done = mark.start() + reach
        part = source[max(0, mark.start() - reach) : done + reach]
        if all(line in part for line in lines) and all(form.search(part) for form in forms):
            return True
    return False


def _name_form(name: str) -> re.Pattern[str]:
    keys, own = "|".join(NAME_KEYS), re.escape(_compact(name))
    return re.compile(
        rf'\b(?:{keys})"?:"(?:[\w-]+\.)*{own}"|(?:<function=|<invokename=)"?{own}"?>|<{own}>'
        rf"|\b{own}(?:\(|\{{|<arg_key>)|action:`?{own}"
    )


def _form(key: str, value: str) -> re.Pattern[str]:
    """The key before the value; a call in code may leave the key out."""
    near = rf'(?:{re.escape(key)}["=:></_a-z]{{0,{_NEAR}}}?|[(,\[]"?)' if key else ""
    return re.compile(near + re.escape(value))


def _pieces(value: Any, key: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield the keys and the lines of their values, compact; a value has at least one line."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _pieces(inner, _compact(str(name)))
    elif isinstance(value, list):
        for inner in value:
            yield from _pieces(inner)
    else:
        text = value if isinstance(value, str) else json.dumps(value)
        yield key, [line for each in text.splitlines() if (line := _compact(each))] or [""]
