"""Safe parsing of JSON and YAML into bounded plain data."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Never

import yaml

from bot.engine.workflow.field_reader import InvalidGraph, ValidationIssue

# --- JSON and YAML, bounded, without aliases or tags

YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_YAML_INTEGER = re.compile(r"[-+]?\d{1,18}")
_YAML_FLOAT = re.compile(r"[-+]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][-+]?\d{1,3})?")
_TEXT_TAG = "tag:yaml.org,2002:str"
_MAX_PARSE_ISSUES = 20
_YAML_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def parse_yaml_events(
    text: str, *, max_depth: int, max_values: int
) -> tuple[Any, list[ValidationIssue]]:
    """Return the parsed value, and what is wrong with it although it can be read. Raises
    InvalidGraph if it can't.

    Scalars follow YAML 1.2: `no` is a string, and so is a date. Tags and aliases are refused, so
    nothing is constructed or copied.
    """
    making = _YamlBuilder(max_depth=max_depth, max_values=max_values)
    try:
        for event in yaml.parse(text, Loader=YAML_LOADER):
            making.take(event)
    except InvalidGraph:
        raise
    except yaml.YAMLError as error:
        raise InvalidGraph([_yaml_issue(error, text)]) from error
    except (RecursionError, ValueError) as error:
        raise InvalidGraph(
            [ValidationIssue(key="bad_yaml", facts={"line": 1, "why": ""})]
        ) from error
    return making.value, making.issues


@dataclass(slots=True)
class _OpenContainer:
    """An unfinished mapping or list; `name` is the key of the next value."""

    content: dict[str, Any] | list[Any]
    name: str | None = None


@dataclass(slots=True)
class _YamlBuilder:
    max_depth: int
    max_values: int
    value: Any = None
    issues: list[ValidationIssue] = field(default_factory=list)
    _containers: list[_OpenContainer] = field(default_factory=list)
    _value_count: int = 0
    _documents: int = 0

    def take(self, event: Any) -> None:
        match event:
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    _refuse_yaml("several_documents", event)
            case yaml.AliasEvent():
                self._note("yaml_alias", event)
                self._add(None, event)
            case yaml.ScalarEvent():
                if event.tag is not None and event.tag != _TEXT_TAG:
                    self._note("yaml_tag", event)
                self._add(_yaml_scalar(event), event)
            case yaml.MappingStartEvent():
                self._begin({}, event)
            case yaml.SequenceStartEvent():
                self._begin([], event)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._containers.pop()
            case _:
                pass

    def _begin(self, holds: dict[str, Any] | list[Any], event: Any) -> None:
        if event.tag is not None and not event.implicit:
            self._note("yaml_tag", event)
        if len(self._containers) >= self.max_depth:
            _refuse_yaml("too_nested", event, most=self.max_depth)
        self._add(holds, event)
        self._containers.append(_OpenContainer(holds))

    def _add(self, value: Any, event: Any) -> None:
        self._value_count += 1
        if self._value_count > self.max_values:
            _refuse_yaml("too_many_values", event)
        if not self._containers:
            self.value = value
            return
        inside = self._containers[-1]
        if isinstance(inside.content, list):
            inside.content.append(value)
        elif inside.name is None:
            inside.name = self._name(value, event)
            if inside.name in inside.content:
                self._note("given_twice", event, field=inside.name[:60])
        else:
            inside.content.setdefault(inside.name, value)
            inside.name = None

    def _note(self, key: str, event: Any, *, field: str = "") -> None:
        if len(self.issues) < _MAX_PARSE_ISSUES:
            self.issues.append(ValidationIssue(key=key, field=field, facts=_event_place(event)))

    def _name(self, value: Any, event: Any) -> str:
        if isinstance(value, dict | list):
            _refuse_yaml("yaml_key", event)
        return str(getattr(event, "value", value))


_YAML_MISTAKES = (
    ("yaml_alias", re.compile(r"alias|anchor")),
    ("yaml_tag", re.compile(r"\btag\b")),
    ("yaml_tab", re.compile("tab character")),
    ("yaml_name", re.compile("simple key")),
    ("yaml_start", re.compile("cannot start any token")),
    ("yaml_colon", re.compile("mapping values are not allowed")),
    ("yaml_quote", re.compile("quoted scalar")),
    ("yaml_bracket", re.compile("flow (?:mapping|sequence)")),
    ("yaml_indent", re.compile("block (?:mapping|collection|sequence)")),
)
"""Kinds of mistakes, by the words of the parser."""


def _yaml_issue(error: yaml.YAMLError, text: str) -> ValidationIssue:
    if (offset := getattr(error, "position", None)) is not None:
        # Of a character that YAML does not allow; it may count bytes.
        above = text.encode()[:offset].decode("utf-8", "replace").splitlines() or [""]
        facts = {"line": len(above), "column": len(above[-1]) + 1}
        return ValidationIssue(key="yaml_control", facts=facts)
    why = str(getattr(error, "problem", "") or "").strip()[:100]
    about = f"{getattr(error, 'context', None) or ''} {why}"
    key = next((key for key, words in _YAML_MISTAKES if words.search(about)), "bad_yaml")
    mark = getattr(error, "problem_mark", None)
    if key in {"yaml_quote", "yaml_bracket", "yaml_name"}:
        # Where it was opened: the end of the text says nothing.
        mark = getattr(error, "context_mark", None) or mark
    if key == "yaml_start" and mark and text.split("\n")[mark.line][mark.column :][:1] == "\t":
        key = "yaml_tab"
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    return ValidationIssue(key=key, facts={"line": line, "column": column, "why": why})


def _yaml_scalar(event: yaml.ScalarEvent) -> Any:
    text: str = event.value
    if event.style not in {None, ""} or event.tag is not None:
        return text
    if text in _YAML_WORDS:
        return _YAML_WORDS[text]
    if _YAML_INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _YAML_FLOAT.fullmatch(text) else text


class _YamlDumper(yaml.SafeDumper):
    """Quotes every string that `parse_yaml_events` would read as another type, such as `1E5`."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    is_plain = text not in _YAML_WORDS and not (
        _YAML_INTEGER.fullmatch(text) or _YAML_FLOAT.fullmatch(text)
    )
    return dumper.represent_scalar(_TEXT_TAG, text, style=None if is_plain else "'")


_YamlDumper.add_representer(str, _represent_text)


def dump_yaml(data: Any) -> str:
    """Dump YAML in the order of `data`, so that `parse_yaml_events` returns the same data."""
    return yaml.dump(data, Dumper=_YamlDumper, allow_unicode=True, sort_keys=False, width=100)


class _DocumentDumper(_YamlDumper):
    """Writes texts of several lines as blocks."""


def _represent_block(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    if "\n" in text:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|")
    return _represent_text(dumper, text)


_DocumentDumper.add_representer(str, _represent_block)


def dump_yaml_document(data: Any) -> str:
    """Like `dump_yaml`, for data with whole texts in it."""
    return yaml.dump(
        data, Dumper=_DocumentDumper, allow_unicode=True, sort_keys=False, width=1_000_000
    )


def _refuse_yaml(key: str, event: Any, **facts: object) -> None:
    raise InvalidGraph([ValidationIssue(key=key, facts={**_event_place(event), **facts})])


def _event_place(event: Any) -> Mapping[str, object]:
    mark = event.start_mark
    return {"line": mark.line + 1, "column": mark.column + 1} if mark else {"line": 1}


MAX_BYTES = 1_000_000
_MAX_VALUES = 200_000
_MAX_DEPTH = 40
_MAX_NUMBER = 10**18
_TOO_NESTED = ValidationIssue(key="too_nested", facts={"most": _MAX_DEPTH})
_FENCED = re.compile(
    r"\A\s*(?P<fence>`{3,}|~{3,})[ \t]*[\w-]*[ \t]*\r?\n(?P<inside>.*?)\r?\n?(?P=fence)\s*\Z",
    re.DOTALL,
)


def strip_fence(text: str) -> str:
    """Remove a code fence around the text. Raises InvalidGraph if the text is too long."""
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise InvalidGraph([ValidationIssue(key="too_long", facts={"most": MAX_BYTES})])
    text = text.removeprefix("\ufeff")
    fenced = _FENCED.match(text)
    return fenced["inside"] if fenced else text


def parse_data(text: str) -> tuple[Any, list[ValidationIssue]]:
    """Parse JSON or YAML; also return what is wrong with it although it can be read. Raises
    InvalidGraph if it can't."""
    if text.lstrip().startswith(("{", "[")):
        try:
            return parse_json_draft(text)
        except InvalidGraph as bad:
            if bad.issues[0].key != "bad_json":
                raise
            try:
                return _parse_yaml_draft(text)
            except InvalidGraph:
                raise bad from None
    return _parse_yaml_draft(text)


def parse_json(text: str) -> Any:
    """Raises InvalidGraph."""
    return _without_issues(*parse_json_draft(text))


def parse_json_draft(text: str) -> tuple[Any, list[ValidationIssue]]:
    twice: list[str] = []

    def group(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for name, value in pairs:
            if name in mapping:
                twice.append(name)
            mapping.setdefault(name, value)
        return mapping

    try:
        value = json.loads(text, object_pairs_hook=group, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        facts = {"line": error.lineno, "column": error.colno, "why": error.msg}
        raise InvalidGraph([ValidationIssue(key="bad_json", facts=facts)]) from error
    except RecursionError as error:
        raise InvalidGraph([_TOO_NESTED]) from error
    except ValueError as error:
        raise InvalidGraph([ValidationIssue(key="bad_number")]) from error
    faults = [ValidationIssue(key="given_twice", field=name[:60]) for name in twice]
    cleaned, others = _clean_draft(value)
    return cleaned, [*faults[:_MAX_PARSE_ISSUES], *others]


def parse_yaml(text: str) -> Any:
    """Raises InvalidGraph."""
    return _without_issues(*_parse_yaml_draft(text))


def _parse_yaml_draft(text: str) -> tuple[Any, list[ValidationIssue]]:
    value, issues = parse_yaml_events(text, max_depth=_MAX_DEPTH, max_values=_MAX_VALUES)
    cleaned, others = _clean_draft(value)
    return cleaned, [*issues, *others]


def clean_data(value: Any) -> Any:
    """Return the value with storable strings. Raises InvalidGraph for too much data."""
    return _without_issues(*_clean_draft(value))


def _clean_draft(value: Any) -> tuple[Any, list[ValidationIssue]]:
    cleaning = _DataCleaner()
    cleaned = cleaning.clean(value, 0)
    return cleaned, list(cleaning.issues.values())


def _without_issues(value: Any, issues: Sequence[ValidationIssue]) -> Any:
    if issues:
        raise InvalidGraph(issues)
    return value


class _DataCleaner:
    def __init__(self) -> None:
        self.issues: dict[str, ValidationIssue] = {}
        self._value_count = 0

    def clean(self, value: Any, deep: int) -> Any:
        self._value_count += 1
        if deep > _MAX_DEPTH or self._value_count > _MAX_VALUES:
            issue = _TOO_NESTED if deep > _MAX_DEPTH else ValidationIssue(key="too_many_values")
            self.issues[issue.key] = issue
            return None
        match value:
            case dict():
                return {
                    _clean_text(name): self.clean(each, deep + 1) for name, each in value.items()
                }
            case list():
                return [self.clean(each, deep + 1) for each in value]
            case str():
                return _clean_text(value)
            case int() | float() if not abs(value) <= _MAX_NUMBER:
                self.issues["bad_number"] = ValidationIssue(key="bad_number")
        return value


def _clean_text(text: str) -> str:
    """Remove lone surrogates and NUL characters, which the store does not accept."""
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")


def _refuse_constant(name: str) -> Never:
    raise ValueError(name)
