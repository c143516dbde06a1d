"""Settings that several node types share: expressions, paths and variable assignments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from pydantic import JsonValue

from bot.engine.llm.workspace_files import is_workspace_path
from bot.engine.workflow.expressions.evaluator import (
    check_expression,
    fill_template,
    replace_placeholders,
    template_expressions,
)
from bot.engine.workflow.expressions.operations import (
    ExpressionError,
    ExpressionSyntaxError,
)
from bot.engine.workflow.field_reader import (
    FieldReader,
    ValidationIssue,
    range_issues,
    scalar_text,
    strip_placeholder,
    variable_name_issues,
)
from bot.engine.workflow.nodes.contract import EvaluationContext, NodeDone, NodeFailure

_MAX_ROUNDS = 10_000
_MAX_SHOWN = 80
_MAX_PATH_SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableAssignment:
    """A variable and its value: a literal, or the text of an expression."""

    variable: str
    value: JsonValue
    is_expression: bool = False


def max_rounds_issues(rounds: int) -> Iterator[ValidationIssue]:
    return range_issues(rounds, "maxIterations", 1, _MAX_ROUNDS)


def assign_variables(
    assignments: Iterable[VariableAssignment], context: EvaluationContext
) -> NodeDone | NodeFailure:
    """Set the variables in order; later expressions see earlier variables. The output contains them
    too."""
    values: dict[str, Any] = {}
    for each in assignments:
        try:
            values[each.variable] = (
                context.evaluate(str(each.value)) if each.is_expression else each.value
            )
        except ExpressionError as error:
            return NodeFailure(key="workflow.no_value", facts={"name": each.variable, "why": error})
        variables = {**context.names.get("variables", {}), **values}
        context = replace(context, names={**context.names, "variables": variables})
    return NodeDone(output=values, variables=values)


def fill_text(template: str, context: EvaluationContext) -> str:
    """The template with its placeholders filled in. Raises ExpressionError if one has no value:
    what is called must not differ from what was meant."""
    problems: list[str] = []
    text = fill_template(template, context.names, problems.append)
    if problems:
        raise ExpressionError(problems[0])
    return text


def fill_value(value: JsonValue, context: EvaluationContext) -> Any:
    """A text that is one placeholder has the value of its expression, other texts are filled in.
    Raises ExpressionError."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    inside = strip_placeholder(text)
    return context.evaluate(inside) if inside != text else fill_text(value, context)


def workspace_path_issues(path: str) -> Iterator[ValidationIssue]:
    """Check the path of a file, which may have placeholders."""
    if not path:
        yield ValidationIssue(key="missing", field="path")
    elif not is_workspace_path(replace_placeholders(path, lambda _hole, _expression: "x")):
        facts = {"path": path[:_MAX_PATH_SHOWN]}
        yield ValidationIssue(key="bad_deliverable", field="path", facts=facts)
    for name, text in template_expressions(path=path):
        yield from expression_issues(text, name)


def expression_issues(text: str, field: str) -> Iterator[ValidationIssue]:
    """Check that an expression is present and valid."""
    if not text.strip():
        yield ValidationIssue(key="missing", field=field)
        return
    try:
        check_expression(text)
    except ExpressionSyntaxError as error:
        facts = {"text": text[:_MAX_SHOWN], "reason": error.key, "why": str(error), **error.facts}
        yield ValidationIssue(
            key="bad_expression",
            field=field,
            facts={**facts, "word": error.written},
            written=text,
            at=error.at,
            suggestion=error.suggestion,
        )


def read_assignments(block: FieldReader) -> Iterator[VariableAssignment]:
    """Read the field `assignments`: a list of mappings, or one mapping from names to values."""
    for each in block.pairs("assignments", "variable", "value"):
        is_expression = each.boolean("isExpression", default=False)
        value = each.value("value")
        if is_expression:
            value = strip_placeholder((scalar_text(value) or "").strip())
        variable = each.word("variable", "name")
        each.check_unknown_names()
        yield VariableAssignment(variable=variable, value=value, is_expression=is_expression)


def assignments_to_data(assignments: Iterable[VariableAssignment]) -> list[dict[str, Any]]:
    """The assignments in file format."""
    return [
        {"variable": each.variable, "value": each.value}
        | ({"isExpression": True} if each.is_expression else {})
        for each in assignments
    ]


def assignment_issues(assignments: Iterable[VariableAssignment]) -> Iterator[ValidationIssue]:
    for each in assignments:
        yield from variable_name_issues(each.variable, "variable")
        if each.is_expression:
            yield from expression_issues(str(each.value), "value")


def assignment_expressions(
    assignments: Iterable[VariableAssignment],
) -> Iterator[tuple[str, str]]:
    """The values that are expressions, each with its field name."""
    return (("value", str(each.value)) for each in assignments if each.is_expression)


def rewrite_assignments(
    assignments: Iterable[VariableAssignment], text: Callable[[str], str]
) -> tuple[VariableAssignment, ...]:
    """Return the assignments with `text` applied to every expression."""
    return tuple(
        replace(each, value=text(str(each.value))) if each.is_expression else each
        for each in assignments
    )
