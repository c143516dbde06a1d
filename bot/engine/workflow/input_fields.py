"""Typed fields that people fill in: the inputs of a workflow, and the fields of a form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from typing import Any

from pydantic import JsonValue

from bot.engine.workflow.expressions.operations import Flag, fold_name, read_flag, value_as_text
from bot.engine.workflow.field_reader import FieldReader, scalar_text, shorten_value, similar_name
from storage.records.workflows import InputKind

KIND_NAMES: Mapping[str, InputKind] = {
    "text": "text", "string": "text", "number": "number", "integer": "number", "float": "number",
    "bool": "bool", "boolean": "bool", "choice": "choice", "select": "choice", "enum": "choice",
    "date": "date",
}  # fmt: skip
_KNOWN_KINDS = ", ".join(dict.fromkeys(KIND_NAMES.values()))
_MAX_TITLE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class InputDefinition:
    """One field. `options` lists the allowed values of a choice; a field without a `default` must
    be given. A date is a text like 2026-11-27."""

    name: str
    title: str = ""
    kind: InputKind = "text"
    options: tuple[str, ...] = ()
    default: JsonValue = None
    required: bool = True

    @property
    def must_be_given(self) -> bool:
        return self.required and self.default is None


def read_input(each: FieldReader) -> InputDefinition:
    """Read one field; issues are added to the reader."""
    name = each.word("name", "id", limit=100)
    if not name:
        each.add("missing", "name")
    written = fold_name(each.word("type", "kind", default=_guess_kind(each)))
    kind = KIND_NAMES.get(written)
    if kind is None:
        each.add(
            "not_one_of",
            "type",
            suggestion=similar_name(written, KIND_NAMES.values()),
            given=shorten_value(written),
            known=_KNOWN_KINDS,
        )
    default = each.value("default")
    read_ = InputDefinition(
        name=name,
        title=" ".join(each.word("title", "label", "description").split())[:_MAX_TITLE],
        kind=kind or "text",
        options=each.word_list("options", "choices", "enum"),
        default=default,
        required=each.boolean("required", default=default is None),
    )
    each.check_unknown_names()
    if default is not None and not fits_input(read_, default):
        each.add("bad_default", "default", given=shorten_value(default))
    return read_


def input_to_data(each: InputDefinition) -> dict[str, Any]:
    """The field in the format that `read_input` accepts."""
    data: dict[str, Any] = {"name": each.name, "type": each.kind, "required": each.required}
    if each.title:
        data["title"] = each.title
    if each.options:
        data["options"] = list(each.options)
    return data if each.default is None else data | {"default": each.default}


def fits_input(definition: InputDefinition, value: JsonValue) -> bool:
    match definition.kind:
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "bool":
            return isinstance(value, bool)
        case "choice":
            return scalar_text(value) in definition.options
        case "date":
            return isinstance(value, str) and _is_date(value)
        case "text":
            return scalar_text(value) is not None


def convert_input(definition: InputDefinition, value: Any) -> JsonValue:
    """Convert a computed value to the field's type: an output becomes its text, `"8"` a number,
    `yes` true. None if it does not fit.
    """
    text = value_as_text(value)
    converted: JsonValue = None
    match definition.kind:
        case "number":
            converted = _as_number(text)
        case "bool":
            flag = read_flag(text)
            converted = None if flag in {None, Flag.UNSURE} else flag is Flag.YES
        case "choice":
            word = text.strip().casefold()
            options = (each for each in definition.options if each.casefold() == word)
            converted = next(options, None)
        case "date":
            converted = text.strip() if _is_date(text.strip()) else None
        case "text":
            converted = text
    return converted


def _as_number(text: str) -> int | float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() else number


def _guess_kind(each: FieldReader) -> str:
    default = each.value("default")
    if each.has("options", "choices", "enum"):
        return "choice"
    if isinstance(default, bool):
        return "bool"
    return "number" if isinstance(default, int | float) else "text"


def _is_date(text: str) -> bool:
    with suppress(ValueError):
        return date.fromisoformat(text).isoformat() == text
    return False
