"""Reads and writes the flags of commands. Loads nothing, since every shell command needs it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

_END = re.compile(r"--(?:\s+|$)")
# Phones turn two hyphens into one long dash.
_NAME = re.compile(r"[-–—]{1,2}(?P<name>[A-Za-z][A-Za-z-]*)(?P<bound>=|\s+|$)")
_VALUE = re.compile(r'\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>\S+))(?:\s+|$)', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedFlags:
    """`options` are by name without dashes, with "" for a flag without a value; `text` is the rest.
    `terminated`: a `--` preceded the text, which must not be parsed further."""

    text: str
    options: Mapping[str, str] = field(default_factory=dict)
    terminated: bool = False


def parse_flags(
    text: str, *, valued: Collection[str] = (), bare: Collection[str] = ()
) -> ParsedFlags:
    """Split off leading flags: `-p urgent`, `--title "two words"`, `--self`.

    The first other word, or `--`, starts the text. A repeated flag takes its last value.
    """
    options: dict[str, str] = {}
    while True:
        if end := _END.match(text):
            return ParsedFlags(text=text[end.end() :].strip(), options=options, terminated=True)
        flag = _NAME.match(text)
        name = flag["name"].lower() if flag else ""
        if flag is None or (name not in valued and name not in bare):
            return ParsedFlags(text=text.strip(), options=options)
        if name in bare:
            options[name], text = "", text[flag.end() :]
            continue
        value = _VALUE.match(text, flag.end())
        if value is None:
            return ParsedFlags(text="", options={**options, name: ""})
        options[name], text = _flag_value(value), text[value.end() :]


def quote_value(value: str, *, always: bool = False) -> str:
    """Quote a value so that `parse_flags` returns it unchanged."""
    if not always and value and '"' not in value and not re.search(r"\s", value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _flag_value(value: re.Match[str]) -> str:
    if value["quoted"] is None:
        return value["plain"]
    return _ESCAPED.sub(r"\1", value["quoted"])
