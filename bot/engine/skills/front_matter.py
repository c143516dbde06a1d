"""The YAML that a SKILL.md begins with: strings, lists and maps, and nothing that expands."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.events import AliasEvent

from storage.records.workers.skills import SkillNote

MAX_FRONT = 16 * 1024
_MOST_DEPTH = 8
_FENCE = re.compile(r"-{3,}[ \t]*")
_PLAIN = re.compile(r"(?P<key>[A-Za-z][\w-]*):[ \t]+(?P<value>[^\s\"'|>\[{&*!#%@`].*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """What was read: `values` as they are written, scalars all strings. Empty where `faults` say
    why; `body` is there all the same."""

    values: Mapping[str, Any] = field(default_factory=dict)
    body: str = ""
    faults: tuple[SkillNote, ...] = ()
    notes: tuple[SkillNote, ...] = ()


def read_front(text: str) -> Front:
    """Never raises, whatever it is given."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if not _FENCE.fullmatch(lines[0]):
        return _bad("no_front", body="\n".join(lines))
    end = next((n for n, line in enumerate(lines) if n and _FENCE.fullmatch(line)), 0)
    if not end:
        return _bad("open_front", body="\n".join(lines[1:]))
    front, body = "\n".join(lines[1:end]), "\n".join(lines[end + 1 :]).strip("\n")
    if len(front) > MAX_FRONT:
        return _bad("long_front", str(MAX_FRONT // 1024), body=body)
    try:
        return Front(values=_loaded(front), body=body)
    except _Unreadable as error:
        mended = "\n".join(map(_quoted, lines[1:end]))
        try:
            values = _loaded(mended)
        except _Unreadable:
            return _bad("yaml", str(error), body=body)
        return Front(values=values, body=body, notes=(SkillNote(key="unquoted"),))


class _Unreadable(Exception):
    """Says why, in YAML's own words and with the line in the file."""


class _Loader(yaml.BaseLoader):
    """Aliases are refused: a few of them can mean more than any machine holds."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(AliasEvent):
            raise _Unreadable("aliases are not allowed: write the value out")
        return super().compose_node(parent, index)


def _loaded(front: str) -> Mapping[str, Any]:
    try:
        found = yaml.load(front, Loader=_Loader)  # noqa: S506 - a BaseLoader: makes strings only
        deep = _depth(found) > _MOST_DEPTH
    except yaml.YAMLError as error:
        raise _Unreadable(_told(error)) from error
    except (RecursionError, ValueError) as error:
        raise _Unreadable("nested too deeply, or not a text") from error
    if found in (None, ""):
        return {}
    if not isinstance(found, dict):
        raise _Unreadable("line 2: must hold values by name, such as `name: my-skill`")
    if deep:
        raise _Unreadable("nested too deeply")
    return {str(key): value for key, value in found.items()}


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max((_depth(each) for each in inner), default=0)


def _told(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = str(getattr(error, "problem", "") or getattr(error, "reason", "") or "not YAML")
    # The front matter begins in the file's second line.
    return f"line {mark.line + 2}: {problem}" if mark else problem


def _quoted(line: str) -> str:
    """`description: Use it: now` is not YAML, but everybody knows what is meant."""
    found = _PLAIN.fullmatch(line)
    if found is None or not re.search(r":(\s|$)| #", found["value"]):
        return line
    return f"{found['key']}: {json.dumps(found['value'].rstrip(), ensure_ascii=False)}"


def _bad(key: str, detail: str = "", *, body: str) -> Front:
    return Front(body=body, faults=(SkillNote(key=key, detail=detail),))
