"""A node that evaluates an expression."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from bot.engine.workflow.expressions.operations import ExpressionError
from bot.engine.workflow.field_reader import FieldReader, ValidationIssue, variable_name_issues
from bot.engine.workflow.nodes.contract import (
    EvaluationContext,
    NodeConfig,
    NodeDone,
    NodeEffect,
    NodeFailure,
    NodeInput,
    NodeRole,
    NodeShape,
    NodeTypeSpec,
)
from bot.engine.workflow.nodes.shared_settings import (
    VariableAssignment,
    assign_variables,
    assignment_expressions,
    assignment_issues,
    assignments_to_data,
    expression_issues,
    read_assignments,
    rewrite_assignments,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptConfig(NodeConfig):
    """Evaluates an expression into a variable, or makes several assignments. It runs no code."""

    kind: Literal["script"] = "script"
    expression: str = ""
    output: str = ""
    assignments: tuple[VariableAssignment, ...] = ()


class ScriptNode(NodeTypeSpec[ScriptConfig]):
    """Evaluates an expression. The value is the output, and is stored in a variable if one is
    named."""

    name = "script"
    role = NodeRole.VALUE
    shape = NodeShape.BOX
    config = ScriptConfig
    markdown_names = ("脚本",)
    foreign_names = ("code", "expression", "eval", "function")
    shorthand = "expression"
    fields = ("expression", "outputVar")
    inline_fields = ("assignments",)
    example = """\
nodes:
  - {id: sum, type: script, expression: "variables.n * 2", outputVar: twice}
variables: {n: 3}
"""

    def read(self, block: FieldReader) -> ScriptConfig:
        return ScriptConfig(
            expression=block.expression("expression"),
            output=block.word("outputVar", "output"),
            assignments=tuple(read_assignments(block)),
        )

    def write(self, config: ScriptConfig) -> dict[str, Any]:
        data: dict[str, Any] = {"expression": config.expression, "outputVar": config.output}
        data["assignments"] = assignments_to_data(config.assignments)
        return {name: value for name, value in data.items() if value}

    def check(self, config: ScriptConfig, node_ids: Collection[str]) -> Iterator[ValidationIssue]:
        if config.expression:
            yield from expression_issues(config.expression, "expression")
        elif not config.assignments:
            yield ValidationIssue(key="missing", field="expression")
        if config.output:
            yield from variable_name_issues(config.output, "outputVar")
        yield from assignment_issues(config.assignments)

    def expressions(self, config: ScriptConfig) -> Iterable[tuple[str, str]]:
        if config.expression:
            return (("expression", config.expression),)
        return assignment_expressions(config.assignments)

    def assigned_variables(self, config: ScriptConfig) -> Iterable[str]:
        return (*(each.variable for each in config.assignments), config.output)

    def rewrite(
        self, config: ScriptConfig, text: Callable[[str], str], node: Callable[[str], str]
    ) -> ScriptConfig:
        values = rewrite_assignments(config.assignments, text)
        return replace(config, expression=text(config.expression), assignments=values)

    def enter(self, node: NodeInput[ScriptConfig], context: EvaluationContext) -> NodeEffect:
        config = node.settings
        if not config.expression:
            return assign_variables(config.assignments, context)
        try:
            value = context.evaluate(config.expression)
        except ExpressionError as error:
            facts = {"name": config.output or node.id, "why": error}
            return NodeFailure(key="workflow.no_value", facts=facts)
        variables = {config.output: value} if config.output else {}
        return NodeDone(output={"_raw": value, **variables}, variables=variables)
