"""Flags in front of a command's text, as on a command line. Pure, and it never raises."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

# Phones make one long dash of two short ones.
_NAME = re.compile(r"[-–—]{1,2}(?P<name>[A-Za-z][A-Za-z-]*)(?P<bound>=|\s+|$)")
_VALUE = re.compile(r'\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>\S+))(?:\s+|$)', re.DOTALL)
_END = re.compile(r"--(?:\s+|$)")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flagged:
    """`options` by name without dashes, "" for one that takes no value; `text` is what follows.
    `ended` says that a `--` came before it: then it is to be taken as it is."""

    text: str
    options: Mapping[str, str] = field(default_factory=dict)
    ended: bool = False


def flags_of(text: str, *, valued: Collection[str] = (), bare: Collection[str] = ()) -> Flagged:
    """Take off the flags that the text begins with: `-p urgent`, `--title "two words"`,
    `--self`. The first word that is none of them begins the text, and so does what follows
    `--`. The last of a flag given twice counts."""
    options: dict[str, str] = {}
    while True:
        if end := _END.match(text):
            return Flagged(text=text[end.end() :].strip(), options=options, ended=True)
        found = _NAME.match(text)
        name = found["name"].lower() if found else ""
        if found is None or (name not in valued and name not in bare):
            return Flagged(text=text.strip(), options=options)
        if name in bare:
            options[name], text = "", text[found.end() :]
            continue
        value = _VALUE.match(text, found.end())
        if value is None:
            return Flagged(text="", options={**options, name: ""})
        options[name], text = _meant(value), text[value.end() :]


def quoted(value: str, *, always: bool = False) -> str:
    """The value as `flags_of` reads it back unchanged, whatever is in it."""
    if not always and value and '"' not in value and not re.search(r"\s", value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _meant(value: re.Match[str]) -> str:
    if value["quoted"] is None:
        return value["plain"]
    return _ESCAPED.sub(r"\1", value["quoted"])
