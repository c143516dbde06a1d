"""The declared output of a task: its fields, their JSON schema for the worker, and the check of
what the worker hands in."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, ClassVar, cast

from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from bot.engine.llm.answer_schemas import StepAnswer
from bot.engine.workflow.expressions.operations import fold_name, get_item, read_flag
from bot.engine.workflow.field_reader import (
    FieldReader,
    ValidationIssue,
    range_issues,
    scalar_text,
    shorten_value,
    similar_name,
)
from bot.engine.workflow.node_runs import RESERVED_NAMES, parse_answer_values

MAX_FIELDS = 20
_MAX_OPTIONS = 30
_MAX_OPTION = 100
_MAX_DESCRIPTION = 300
_MAX_ITEMS = 200
_MAX_VALUE = 20_000
_MAX_DEPTH = 8
_MAX_NUMBER = 1e15
_MAX_NAMED = 8
_FIELD_NAME = re.compile(r"[^\W\d]\w{0,39}")
_RESERVED = RESERVED_NAMES | {"result", "status", "findings", "decisions", "resources"}


class OutputKind(StrEnum):
    """The type of a field, by its name in files."""

    STRING = "string"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    NUMBER = "number"
    LIST = "list"
    OBJECT = "object"

    @property
    def json_type(self) -> str:
        return "array" if self is OutputKind.LIST else self.value


_KIND_NAMES = {
    **{kind.value: kind for kind in OutputKind},
    "text": OutputKind.STRING, "str": OutputKind.STRING, "enum": OutputKind.STRING,
    "choice": OutputKind.STRING, "bool": OutputKind.BOOLEAN, "flag": OutputKind.BOOLEAN,
    "int": OutputKind.INTEGER, "float": OutputKind.NUMBER, "array": OutputKind.LIST,
    "map": OutputKind.OBJECT, "dict": OutputKind.OBJECT, "文本": OutputKind.STRING,
    "布尔": OutputKind.BOOLEAN, "是否": OutputKind.BOOLEAN, "整数": OutputKind.INTEGER,
    "数字": OutputKind.NUMBER, "列表": OutputKind.LIST, "对象": OutputKind.OBJECT,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputField:
    """One field. `options` lists the values that a string may have; any if empty. A field that is
    not required and not given is null."""

    name: str
    kind: OutputKind = OutputKind.STRING
    options: tuple[str, ...] = ()
    required: bool = True
    description: str = ""


# --- the file format


def read_output(node: FieldReader) -> tuple[OutputField, ...]:
    """Read `output`: a mapping from names to types or to mappings, a list of mappings, a JSON
    schema of an object, or one line such as `approved: bool, verdict: good | bad, notes?: text`.
    Issues are added to the reader."""
    given = node.take("output")
    if given is None:
        return ()
    if isinstance(given, str):
        given = _parse_line(given)
    if isinstance(given, Mapping) and isinstance(given.get("properties"), Mapping):
        given = _from_json_schema(given)
    if isinstance(given, Mapping):
        given = [_named(str(name), each) for name, each in given.items()]
    if not isinstance(given, list) or not all(isinstance(each, Mapping) for each in given):
        node.add("not_a_group", "output")
        return ()
    if not 1 <= len(given) <= MAX_FIELDS:
        node.add("out_of_range", "output", least=1, most=MAX_FIELDS)
        return ()
    return tuple(_read_field(node, each) for each in given)


def _named(name: str, given: Any) -> dict[str, Any]:
    if isinstance(given, Mapping):
        return {"name": name, **given}
    if isinstance(given, list):
        return {"name": name, "options": given}
    kind = str(given or "string")
    return (
        {"name": name, "options": kind.split("|")} if "|" in kind else {"name": name, "type": kind}
    )


def _parse_line(text: str) -> dict[str, Any]:
    plain = text.replace("：", ":").replace("？", "?").replace("｜", "|")
    parts = (each.partition(":") for each in re.split(r"[,，、;；\n]", plain) if each.strip())
    return {name.strip(" `*"): kind.strip(" `*") for name, _, kind in parts}


def _from_json_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    required = schema.get("required")
    names = required if isinstance(required, list) else list(schema["properties"])
    return {
        name: {"required": name in names, **each} if isinstance(each, Mapping) else each
        for name, each in schema["properties"].items()
    }


def _read_field(node: FieldReader, given: Mapping[str, Any]) -> OutputField:
    written = (scalar_text(given.get("name")) or "").strip()
    name = written.rstrip("?").strip()
    each = FieldReader(given, node.issues, where=node.where, path=f"output.{name[:40]}".strip("."))
    each.take("name")
    options = each.word_list("enum", "options", "choices", "values")
    word = each.word("type", "kind", default="string").rstrip("?")
    kind = _KIND_NAMES.get(fold_name(word))
    if kind is None:
        each.add(
            "not_one_of",
            "type",
            suggestion=similar_name(word, (*_KIND_NAMES, *OutputKind)),
            given=shorten_value(word),
            known=", ".join(OutputKind),
        )
    required = each.boolean("required", default=not written.endswith("?"))
    description = each.word("description", "title", limit=_MAX_DESCRIPTION)
    each.check_unknown_names()
    return OutputField(
        name=name,
        kind=kind or OutputKind.STRING,
        options=tuple(dict.fromkeys(options)),
        required=required,
        description=" ".join(description.split()),
    )


def output_to_data(fields: Sequence[OutputField]) -> dict[str, Any]:
    """The fields in the format that `read_output` accepts."""
    return {each.name: _field_data(each) for each in fields}


def _field_data(field: OutputField) -> dict[str, Any]:
    data: dict[str, Any] = {"type": field.kind.value}
    if field.options:
        data["enum"] = list(field.options)
    if not field.required:
        data["required"] = False
    return data | ({"description": field.description} if field.description else {})


def output_issues(fields: Sequence[OutputField]) -> Iterator[ValidationIssue]:
    """Check the names, their number and the options."""
    yield from range_issues(len(fields), "output", 0, MAX_FIELDS)
    seen: set[str] = set()
    for each in fields:
        place = f"output.{each.name[:40]}".strip(".")
        if not _FIELD_NAME.fullmatch(each.name):
            yield ValidationIssue(key="bad_name", field=place, facts={"name": each.name[:40]})
        elif each.name.casefold() in _RESERVED:
            yield ValidationIssue(key="reserved_name", field=place, facts={"name": each.name})
        if fold_name(each.name) in seen:
            yield ValidationIssue(key="twice", field=place)
        seen.add(fold_name(each.name))
        if each.options and each.kind is not OutputKind.STRING:
            facts = {"given": each.kind.value, "known": OutputKind.STRING.value}
            yield ValidationIssue(key="not_one_of", field=f"{place}.type", facts=facts)
        if len(each.options) > _MAX_OPTIONS:
            yield ValidationIssue(
                key="out_of_range", field=f"{place}.enum", facts={"least": 1, "most": _MAX_OPTIONS}
            )
        if any(not 1 <= len(option) <= _MAX_OPTION for option in each.options):
            yield ValidationIssue(
                key="too_long", field=f"{place}.enum", facts={"most": _MAX_OPTION}
            )


# --- the worker's side


def json_schema(fields: Sequence[OutputField]) -> dict[str, Any]:
    """The JSON schema of the output."""
    properties: dict[str, Any] = {}
    for each in fields:
        own = properties[each.name] = {"type": each.kind.json_type}
        if each.options:
            own["enum"] = list(each.options)
        if each.kind is OutputKind.LIST:
            own["items"] = {}
        if each.description:
            own["description"] = each.description
    return {
        "type": "object",
        "description": "The result of the step by name; required if the status is done.",
        "properties": properties,
        "required": [each.name for each in fields if each.required],
    }


class TypedStepAnswer(StepAnswer):
    """The outcome of one step. `done` means that the step's work really is done."""

    output: dict[str, Any] = Field(default_factory=dict)
    output_fields: ClassVar[tuple[OutputField, ...]] = ()

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        form = handler.resolve_ref_schema(handler(core_schema))
        form["properties"]["output"] = json_schema(cls.output_fields)
        form["required"] = [*form["required"], "output"]
        return form

    @model_validator(mode="before")
    @classmethod
    def _take_values(cls, given: Any) -> Any:
        """Accept values that stand beside `output`, or only in the summary."""
        if not isinstance(given, Mapping):
            return given
        if given.get("status") != "done":
            return {**given, "output": {}}
        own, summary = given.get("output"), given.get("summary")
        own = parse_answer_values(own) if isinstance(own, str) else own
        told = parse_answer_values(summary) if isinstance(summary, str) else {}
        sources = [dict(each) for each in (own, given, told) if isinstance(each, Mapping)]
        return {**given, "output": check_output(cls.output_fields, sources)}


@lru_cache(maxsize=64)
def answer_type(fields: tuple[OutputField, ...]) -> type[StepAnswer]:
    """The form of a step's answer with this output. A `done` whose output does not fit is refused
    with the reason.
    """
    if not fields:
        return StepAnswer
    # Models read the name and the description.
    made = type(
        StepAnswer.__name__,
        (TypedStepAnswer,),
        {"output_fields": fields, "__doc__": StepAnswer.__doc__, "__module__": __name__},
    )
    return cast("type[StepAnswer]", made)


def check_output(
    fields: Sequence[OutputField], sources: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the values of all fields, each from the first source that has it. Words become the
    booleans and numbers that they name. Raises ValueError that names each missing or wrong field.
    """
    values: dict[str, Any] = {}
    wrong: list[str] = []
    for each in fields:
        given = next(filter(lambda value: value is not None, _given(sources, each.name)), None)
        try:
            values[each.name] = None if given is None else convert_value(each, given)
        except (ValueError, ArithmeticError, RecursionError):
            values[each.name] = None
        if values[each.name] is None and (each.required or given is not None):
            wrong.append(describe_field(each))
    if wrong:
        raise ValueError(f"output: missing or wrong: {', '.join(wrong)}")
    return values


def describe_field(field: OutputField) -> str:
    """The field's name, and what values it may have."""
    return describe_choice(field.name, field.options, field.kind.value)


def describe_choice(name: str, options: Sequence[str], kind: str) -> str:
    shown = options[:_MAX_NAMED]
    more = " | …" if len(options) > len(shown) else ""
    return f"{name} ({' | '.join(shown) + more or kind})"


def _given(sources: Sequence[Mapping[str, Any]], name: str) -> Iterator[Any]:
    for each in sources:
        with suppress(KeyError):
            yield get_item(each, name)


def convert_value(field: OutputField, given: Any) -> Any:
    """Return the value that is meant. Raises ValueError if it is too large or does not fit the
    field's kind.
    """
    if isinstance(given, str) and field.kind in {OutputKind.LIST, OutputKind.OBJECT}:
        given = json.loads(given[:_MAX_VALUE])
    value = _CONVERSIONS[field.kind](given)
    if field.options:
        word = str(value).strip().casefold()
        value = next(option for option in (*field.options, None) if _fits(option, word))
    if value is None or _is_too_large(value):
        raise ValueError(field.name)
    return value


def _fits(option: str | None, word: str) -> bool:
    return option is None or option.casefold() == word


def _is_too_large(value: Any) -> bool:
    try:
        # NaN and infinities cannot be stored.
        size = len(json.dumps(value, allow_nan=False))
    except RecursionError:
        return True
    return size > _MAX_VALUE or _depth(value) > _MAX_DEPTH


def _depth(value: Any) -> int:
    parts = value.values() if isinstance(value, Mapping) else value
    if not isinstance(value, Mapping | list):
        return 0
    return 1 + max(map(_depth, parts), default=0)


def _string(given: Any) -> str:
    text = scalar_text(given)
    if text is None:
        raise ValueError
    return text


def _boolean(given: Any) -> bool:
    if isinstance(given, str):
        flag = read_flag(given)
        given = None if flag is None else flag.value
    if given not in (True, False):
        raise ValueError
    return bool(given)


def _number(given: Any) -> int | float:
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        raise ValueError  # noqa: TRY004 - callers expect this one
    value = float(given)
    if not abs(value) < _MAX_NUMBER:
        raise ValueError
    return given if isinstance(given, int) else value


def _integer(given: Any) -> int:
    value = _number(given)
    if value != int(value):
        raise ValueError
    return int(value)


def _list(given: Any) -> list[Any]:
    if not isinstance(given, list) or len(given) > _MAX_ITEMS:
        raise ValueError
    return given


def _object(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ValueError  # noqa: TRY004 - callers expect this one
    return given


_CONVERSIONS: Mapping[OutputKind, Callable[[Any], Any]] = {
    OutputKind.STRING: _string,
    OutputKind.BOOLEAN: _boolean,
    OutputKind.INTEGER: _integer,
    OutputKind.NUMBER: _number,
    OutputKind.LIST: _list,
    OutputKind.OBJECT: _object,
}
