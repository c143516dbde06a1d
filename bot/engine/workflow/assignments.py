"""Variable assignments, used by assign and script nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from pydantic import JsonValue

from bot.engine.workflow.field_reader import (
    FieldReader,
    scalar_text,
    strip_placeholder,
)
from bot.engine.workflow.issues import ValidationIssue, expression_issues, variable_name_issues


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableAssignment:
    """A variable and its value: a literal, or the text of an expression."""

    variable: str
    value: JsonValue
    is_expression: bool = False


def read(block: FieldReader) -> Iterator[VariableAssignment]:
    """Read the field `assignments`: a list of mappings, or one mapping from names to values."""
    for each in block.pairs("assignments", "variable", "value"):
        is_expression = each.boolean("isExpression", default=False)
        value = each.value("value")
        if is_expression:
            value = strip_placeholder((scalar_text(value) or "").strip())
        variable = each.word("variable", "name")
        each.check_unknown_names()
        yield VariableAssignment(variable=variable, value=value, is_expression=is_expression)


def to_data(assignments: Iterable[VariableAssignment]) -> list[dict[str, Any]]:
    """The assignments in file format."""
    return [
        {"variable": each.variable, "value": each.value}
        | ({"isExpression": True} if each.is_expression else {})
        for each in assignments
    ]


def issues(assignments: Iterable[VariableAssignment]) -> Iterator[ValidationIssue]:
    for each in assignments:
        yield from variable_name_issues(each.variable, "variable")
        if each.is_expression:
            yield from expression_issues(str(each.value), "value")


def expressions(
    assignments: Iterable[VariableAssignment],
) -> Iterator[tuple[str, str]]:
    """The values that are expressions, each with its field name."""
    return (("value", str(each.value)) for each in assignments if each.is_expression)


def rewrite(
    assignments: Iterable[VariableAssignment], text: Callable[[str], str]
) -> tuple[VariableAssignment, ...]:
    """Return the assignments with `text` applied to every expression."""
    return tuple(
        replace(each, value=text(str(each.value))) if each.is_expression else each
        for each in assignments
    )
