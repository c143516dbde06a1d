"""A node that sets variables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from bot.engine.workflow.field_reader import FieldReader, ValidationIssue
from bot.engine.workflow.nodes.contract import (
    EvaluationContext,
    NodeConfig,
    NodeEffect,
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
    read_assignments,
    rewrite_assignments,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignConfig(NodeConfig):
    kind: Literal["assign"] = "assign"
    assignments: tuple[VariableAssignment, ...]


class AssignNode(NodeTypeSpec[AssignConfig]):
    """Sets variables of the workflow, in order."""

    name = "assign"
    role = NodeRole.VALUE
    shape = NodeShape.BOX
    config = AssignConfig
    markdown_names = ("赋值",)
    foreign_names = ("set", "variable", "variables")
    inline_fields = ("assignments",)
    example = """\
nodes:
  - {id: count, type: assign, assignments: [{variable: n, value: variables.n + 1, isExpression: true}]}
variables: {n: 0}
"""  # noqa: E501 - one node, one line

    def read(self, block: FieldReader) -> AssignConfig:
        return AssignConfig(assignments=tuple(read_assignments(block)))

    def write(self, config: AssignConfig) -> dict[str, Any]:
        return {"assignments": assignments_to_data(config.assignments)}

    def check(self, config: AssignConfig, node_ids: Collection[str]) -> Iterator[ValidationIssue]:
        if not config.assignments:
            yield ValidationIssue(key="missing", field="assignments")
        yield from assignment_issues(config.assignments)

    def expressions(self, config: AssignConfig) -> Iterable[tuple[str, str]]:
        return assignment_expressions(config.assignments)

    def assigned_variables(self, config: AssignConfig) -> Iterable[str]:
        return (each.variable for each in config.assignments)

    def rewrite(
        self, config: AssignConfig, text: Callable[[str], str], node: Callable[[str], str]
    ) -> AssignConfig:
        return replace(config, assignments=rewrite_assignments(config.assignments, text))

    def enter(self, node: NodeInput[AssignConfig], context: EvaluationContext) -> NodeEffect:
        return assign_variables(node.settings.assignments, context)
