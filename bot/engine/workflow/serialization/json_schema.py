"""The JSON Schema of workflow files, for completion and hover in editors. The parser itself reads
from a reader that records every field it asks for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from inspect import cleandoc
from pathlib import Path
from typing import Any, TypeVar

from pydantic import JsonValue

from bot.engine.workflow.expressions.operations import fold_name
from bot.engine.workflow.field_reader import MAX_TEXT, FieldReader, unit_names
from bot.engine.workflow.input_fields import KIND_NAMES, read_input
from bot.engine.workflow.nodes.contract import NodeTypeSpec
from bot.engine.workflow.nodes.registry import NodeType
from bot.engine.workflow.serialization.reader import (
    COMPENSATION_NAMES,
    read_edge,
    read_limit_fields,
    read_node,
    read_retry_fields,
    read_top,
)

_SCHEMA_FILE = Path(__file__).with_name("workflow.schema.json")
_TITLE = "Shiftboss workflow"
_Word = TypeVar("_Word", bound=str)
_SCALAR = ["string", "number", "boolean", "null"]
_NUMBER_TEXT = r"^\s*[-+]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)([eE][-+]?\d+)?\s*$"


class _SchemaReader(FieldReader):
    """Records each field that is asked for and its possible values, and returns the defaults."""

    def __init__(self) -> None:
        super().__init__({}, [])
        self.properties: dict[str, Any] = {}

    def _note(self, names: Iterable[str], schema: Mapping[str, Any]) -> None:
        for name in names:
            self.properties.setdefault(name, dict(schema))

    def take(self, *names: str) -> Any:
        # Read as it is: anything may stand there, whatever is asked of it later.
        self._note(names, {})
        return None

    def text(self, *names: str, default: str = "", limit: int = MAX_TEXT) -> str:
        self._note(names, {"type": _SCALAR, "maxLength": limit})
        return default

    def expression(self, *names: str, default: str = "") -> str:
        self._note(names, {"type": [*_SCALAR, "array"]})
        return default

    def number(self, *names: str, default: float) -> float:
        self._note(names, _text_or("number", _NUMBER_TEXT))
        return default

    def integer(self, *names: str, default: int) -> int:
        self._note(names, _text_or("integer", _NUMBER_TEXT))
        return default

    def boolean(self, *names: str, default: bool) -> bool:
        words = _words_pattern(("true", "yes", "false", "no"))
        self._note(names, _text_or("boolean", words))
        return default

    def duration(self, *names: str) -> float | None:
        self._note(names, _text_or("number", _duration_pattern()))
        return None

    def one_of(self, choices: Sequence[_Word], *names: str, default: _Word) -> _Word:
        self._note(names, _enum(choices))
        return default

    def value(self, *names: str) -> JsonValue:
        self._note(names, {})
        return None

    def mapping(self, *names: str) -> Mapping[str, Any] | None:
        self._note(names, {"type": ["object", "null"]})
        return None

    def items(self, *names: str) -> list[Any] | None:
        self._note(names, {"type": ["array", "null"]})
        return None

    def word_list(self, *names: str) -> tuple[str, ...]:
        words = {"type": "array", "items": {"type": _SCALAR[:3]}}
        self._note(names, {"anyOf": [{"type": ["string", "null"]}, words]})
        return ()

    def mappings(self, *names: str, key: str = "") -> Iterator[FieldReader]:
        each = _SchemaReader()
        yield each
        self._note(names, {"type": ["array", "null"], "items": each.schema})

    def named_mappings(self, *names: str, key: str, plain: str = "") -> Iterator[FieldReader]:
        each = _SchemaReader()
        yield each
        items = {"type": "array", "items": each.schema}
        # With `plain` any value may stand there; the first two are for completion in editors.
        by_name = each.schema if not plain else {"anyOf": [each.schema, {"type": _SCALAR}, {}]}
        by_key = {"type": "object", "additionalProperties": by_name}
        self._note(names, {"anyOf": [items, by_key, {"type": "null"}]})

    def pairs(self, name: str, key: str, value: str) -> Iterator[FieldReader]:
        each = _SchemaReader()
        yield each
        items = {"type": "array", "items": each.schema}
        self._note((name,), {"anyOf": [items, {"type": ["object", "null"]}]})

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "object", "properties": self.properties}


def read_schema_file() -> str:
    """The schema as it is shipped. Blocking."""
    return _SCHEMA_FILE.read_text(encoding="utf-8")


def render_schema() -> str:
    """The text of the shipped file, which must be generated anew when a node type changes."""
    return f"{json.dumps(workflow_schema(), ensure_ascii=False, separators=(',', ':'))}\n"


def workflow_schema() -> dict[str, Any]:
    """The schema of a file in JSON or YAML. It does not check references; only the parser knows
    whether a node or an input exists.
    """
    top = _read(read_top)
    properties = top.properties
    node, edge, each_input = _node_schema(), _edge_schema(), _input_schema()
    named: dict[str, Any] = {"type": "object", "additionalProperties": {"$ref": "#/$defs/node"}}
    nodes = {"anyOf": [_list_of("node"), named]}
    properties |= {
        "nodes": nodes,
        "steps": nodes,
        "edges": {"type": ["array", "null"], "items": {"$ref": "#/$defs/edge"}},
        "inputs": {"anyOf": [_list_of("input"), {"type": ["object", "null"]}]},
        "settings": {"type": ["object", "null"], "properties": top.nested["settings"]},
        "outputs": {
            "type": ["object", "null"],
            "additionalProperties": {"type": [*_SCALAR, "array"]},
        },
    }
    whole = {
        "type": "object",
        "properties": properties,
        "allOf": [
            {"anyOf": [{"required": ["name"]}, {"required": ["title"]}]},
            {"anyOf": [{"required": [each]} for each in ("nodes", "steps", "answer")]},
        ],
    }
    wrapped = {
        "type": "object",
        "required": ["workflow"],
        "maxProperties": 1,
        "properties": {"workflow": {"$ref": "#/$defs/workflow"}},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": _TITLE,
        "anyOf": [{"$ref": "#/$defs/workflow"}, wrapped],
        "$defs": {"workflow": whole, "node": node, "edge": edge, "input": each_input},
    }


def _list_of(name: str) -> dict[str, Any]:
    return {"type": "array", "items": {"$ref": f"#/$defs/{name}"}}


class _TopReader(_SchemaReader):
    def __init__(self) -> None:
        super().__init__()
        self.nested: dict[str, Any] = {}

    def nested_reader(self, values: Mapping[str, Any], path: str) -> FieldReader:
        inside = _SchemaReader()
        self.nested[path] = inside.properties
        return inside


def _read(read: Any) -> _TopReader:
    reader = _TopReader()
    read(reader)
    return reader


def _node_schema() -> dict[str, Any]:
    common = _read(read_node)
    retry, limits = _SchemaReader(), _SchemaReader()
    read_retry_fields(retry)
    read_limit_fields(limits)
    tries = {"anyOf": [retry.schema, _text_or("integer", _NUMBER_TEXT)]}
    properties = common.properties | {
        "type": _type_schema(),
        "id": {"type": _SCALAR},
        "limits": {"type": ["object", "null"], "properties": limits.properties},
        "retry": tries,
        "retries": tries,
        "output": {},
        **{
            name: {"anyOf": [{"type": _SCALAR}, {"$ref": "#/$defs/node"}]}
            for name in COMPENSATION_NAMES
        },
    }
    kinds = [_kind_schema(kind.spec) for kind in NodeType if kind.spec.config is not None]
    return {"type": "object", "properties": properties, "allOf": kinds}


def _type_schema() -> dict[str, Any]:
    """One choice for each type, with its documentation for editors."""
    documented = [
        {"const": kind.value, "description": cleandoc(kind.spec.__doc__ or "")} for kind in NodeType
    ]
    names = [name for kind in NodeType for name in (kind.value, *kind.spec.aliases)]
    others = {"type": "string", "pattern": _names_pattern(names)}
    return {"anyOf": [*documented, others, {"type": "null"}]}


def _kind_schema(spec: NodeTypeSpec[Any]) -> dict[str, Any]:
    """The settings of a type that has any, in their block or directly in the node."""
    block = _SchemaReader()
    spec.read(block)
    assert spec.config is not None
    documented = {**block.schema, "description": cleandoc(spec.config.__doc__ or "")}
    given: dict[str, Any] = {"anyOf": [documented, {"type": "null"}]}
    if spec.shorthand:
        kinds = [*_SCALAR, "array"] if spec.shorthand_takes_list else _SCALAR
        given["anyOf"].append({"type": kinds})
    inside = {
        name: block.properties[name]
        for name in (*spec.fields, *spec.inline_fields)
        if name in block.properties and name != spec.name
    }
    names = [spec.name, *spec.aliases]
    is_kind = {"properties": {"type": {"pattern": _names_pattern(names)}}, "required": ["type"]}
    return {"if": is_kind, "then": {"properties": {**inside, spec.name: given, "config": given}}}


def _edge_schema() -> dict[str, Any]:
    ends = [
        {"anyOf": [{"required": [one]}, {"required": [other]}]}
        for one, other in (("from", "source"), ("to", "target"))
    ]
    return {**_read(read_edge).schema, "allOf": ends}


def _input_schema() -> dict[str, Any]:
    schema = _read(read_input).schema
    kind = {
        "anyOf": [
            {"enum": sorted(set(KIND_NAMES.values()))},
            {"type": "string", "pattern": _names_pattern(KIND_NAMES)},
            {"type": "null"},
        ]
    }
    schema["properties"] |= {"type": kind, "kind": kind}
    return schema


def _text_or(kind: str, pattern: str) -> dict[str, Any]:
    return {"anyOf": [{"type": [kind, "null"]}, {"type": "string", "pattern": pattern}]}


def _enum(choices: Iterable[str]) -> dict[str, Any]:
    words = list(choices)
    others = {"type": "string", "pattern": _words_pattern(words)}
    return {"anyOf": [{"enum": words}, others, {"type": "null"}]}


def _words_pattern(words: Iterable[str]) -> str:
    """A pattern for these words in any case, with white space around them."""
    return rf"^\s*({'|'.join(map(_any_case, words))})\s*$"


def _names_pattern(names: Iterable[str]) -> str:
    """Like `_words_pattern`, with `-` and `_` anywhere."""
    folded = dict.fromkeys(fold_name(name) for name in names)
    spaced = ("[-_]*".join(_any_case(each) for each in name) for name in folded if name)
    return rf"^\s*[-_]*({'|'.join(spaced)})[-_]*\s*$"


def _any_case(word: str) -> str:
    return "".join(
        f"[{each.lower()}{each.upper()}]" if each.isascii() and each.isalpha() else re.escape(each)
        for each in word
    )


def _duration_pattern() -> str:
    units = "|".join(
        _any_case(each) for each in sorted(unit_names(), key=lambda each: (-len(each), each))
    )
    return rf"^\s*(\d{{1,12}}(\.\d{{1,6}})?\s*({units})?\s*)+$"


if __name__ == "__main__":
    _SCHEMA_FILE.write_text(render_schema(), encoding="utf-8")
