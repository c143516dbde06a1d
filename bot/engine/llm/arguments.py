"""Checks a tool call's arguments against its JSON schema, as far as our tools' schemas go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def problem(schema: Mapping[str, Any], value: object) -> str:
    """What is wrong with `value`, for the model to read; empty if nothing is. Understands type,
    enum, properties, required, additionalProperties, items, minimum, maximum and maxLength."""
    return next(_problems(schema, value, ""), "")


def _problems(schema: Mapping[str, Any], value: object, at: str) -> Iterator[str]:
    name = at or "the arguments"
    if "type" in schema and not _is(value, schema["type"]):
        yield f"{name} must be of type {schema['type']}"
    elif "enum" in schema and value not in schema["enum"]:
        yield f"{name} must be one of {', '.join(map(str, schema['enum']))}"
    elif isinstance(value, dict):
        yield from _in_object(schema, value, at)
    elif isinstance(value, list):
        for n, one in enumerate(value):
            yield from _problems(schema.get("items", {}), one, f"{name}[{n}]")
    elif isinstance(value, int | float):
        if value < schema.get("minimum", value):
            yield f"{name} must be at least {schema['minimum']}"
        if value > schema.get("maximum", value):
            yield f"{name} must be at most {schema['maximum']}"
    elif isinstance(value, str) and len(value) > schema.get("maxLength", len(value)):
        yield f"{name} must not be longer than {schema['maxLength']} characters"


def _in_object(schema: Mapping[str, Any], value: Mapping[str, Any], at: str) -> Iterator[str]:
    known: Mapping[str, Any] = schema.get("properties", {})
    missing = [name for name in schema.get("required", ()) if name not in value]
    if missing:
        yield f"missing: {', '.join(missing)}"
    extra = [name for name in value if name not in known]
    if extra and schema.get("additionalProperties") is False:
        yield f"unknown: {', '.join(extra)}; known are {', '.join(known) or 'none'}"
    for name, one in value.items():
        if name in known:
            yield from _problems(known[name], one, f"{at}.{name}" if at else name)


def _is(value: object, kind: str | list[str]) -> bool:
    kinds = [kind] if isinstance(kind, str) else kind
    if isinstance(value, bool):
        return "boolean" in kinds
    return any(isinstance(value, _TYPES[one]) for one in kinds)
