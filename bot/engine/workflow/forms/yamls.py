"""YAML read event by event: plain data only, no aliases, no tags, no deeper than it is told."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from bot.engine.workflow.model.faults import BadGraph, Fault

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INTEGER = re.compile(r"[-+]?\d{1,18}")
_FLOAT = re.compile(r"[-+]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][-+]?\d{1,3})?")
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def parsed(text: str, *, most_deep: int, most_values: int) -> tuple[Any, list[str]]:
    """What it holds, and the names that a group has twice. Raises BadGraph.

    Words are those of YAML 1.2: `no` is a word and a date is a text. Nothing is built from tags,
    and what an alias stands for is never copied: both are refused.
    """
    making = _Making(most_deep=most_deep, most_values=most_values)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            making.take(event)
    except BadGraph:
        raise
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        why = str(getattr(error, "problem", "") or "").strip()[:100]
        facts = {"line": mark.line + 1 if mark else 1, "why": why}
        raise BadGraph([Fault(key=_key_of(error, why), facts=facts)]) from error
    except (RecursionError, ValueError) as error:
        raise BadGraph([Fault(key="bad_yaml", facts={"line": 1, "why": ""})]) from error
    return making.value, making.twice


@dataclass(slots=True)
class _Open:
    """A group or list that has not ended; `name` is that of the value to come."""

    holds: dict[str, Any] | list[Any]
    name: str | None = None


@dataclass(slots=True)
class _Making:
    most_deep: int
    most_values: int
    value: Any = None
    twice: list[str] = field(default_factory=list)
    _open: list[_Open] = field(default_factory=list)
    _seen: int = 0
    _documents: int = 0

    def take(self, event: Any) -> None:
        match event:
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    _refuse("several_documents", event)
            case yaml.AliasEvent():
                _refuse("yaml_alias", event)
            case yaml.ScalarEvent():
                self._put(_plain(event), event)
            case yaml.MappingStartEvent():
                self._begin({}, event)
            case yaml.SequenceStartEvent():
                self._begin([], event)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._open.pop()
            case _:
                pass

    def _begin(self, holds: dict[str, Any] | list[Any], event: Any) -> None:
        if event.tag is not None and not event.implicit:
            _refuse("yaml_tag", event)
        if len(self._open) >= self.most_deep:
            _refuse("too_nested", event, most=self.most_deep)
        self._put(holds, event)
        self._open.append(_Open(holds))

    def _put(self, value: Any, event: Any) -> None:
        self._seen += 1
        if self._seen > self.most_values:
            _refuse("too_many_values", event)
        if not self._open:
            self.value = value
            return
        inside = self._open[-1]
        if isinstance(inside.holds, list):
            inside.holds.append(value)
        elif inside.name is None:
            inside.name = self._name(value, event)
        else:
            if inside.name in inside.holds:
                self.twice.append(inside.name)
            inside.holds[inside.name] = value
            inside.name = None

    def _name(self, value: Any, event: Any) -> str:
        if isinstance(value, dict | list):
            _refuse("yaml_key", event)
        return str(getattr(event, "value", value))


def _key_of(error: yaml.YAMLError, why: str) -> str:
    """An alias or a tag is refused as such, however badly it is written."""
    about = f"{getattr(error, 'context', None) or ''} {why}"
    if "alias" in about or "anchor" in about:
        return "yaml_alias"
    return "yaml_tag" if re.search(r"\btag\b", about) else "bad_yaml"


def _plain(event: yaml.ScalarEvent) -> Any:
    if event.tag is not None and event.tag != "tag:yaml.org,2002:str":
        _refuse("yaml_tag", event)
    text: str = event.value
    if event.style not in {None, ""} or event.tag is not None:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def _refuse(key: str, event: Any, **facts: object) -> None:
    line = event.start_mark.line + 1 if event.start_mark else 1
    raise BadGraph([Fault(key=key, facts={"line": line, **facts})])
