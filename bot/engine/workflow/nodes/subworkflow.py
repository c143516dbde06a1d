"""A node that runs a named workflow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import JsonValue

from bot.engine.workflow.expressions.evaluator import template_expressions
from bot.engine.workflow.expressions.operations import ExpressionError, value_as_text
from bot.engine.workflow.field_reader import FieldReader, ValidationIssue
from bot.engine.workflow.input_fields import InputDefinition, convert_input
from bot.engine.workflow.nodes.contract import (
    BodyConfig,
    EvaluationContext,
    LoopTypeSpec,
    NodeDone,
    NodeEffect,
    NodeFailure,
    NodeInput,
    NodeWait,
    RoundProgress,
)
from bot.engine.workflow.nodes.shared_settings import expression_issues, fill_value

_MAX_VERSION = 1_000_000
_MAX_SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class SubworkflowConfig(BodyConfig):
    """Runs the named workflow with these inputs; texts among them may have placeholders.

    Everything else is filled in when a task is created: the body with the nodes of the workflow,
    its `parameters`, first `variables`, the expressions of its `outputs`, and the seconds that it
    may take. `version` is None for the file as it is; `used` is the number of the version with its
    text, None if that is not known."""

    kind: Literal["subworkflow"] = "subworkflow"
    workflow: str
    version: int | None = None
    inputs: Mapping[str, JsonValue] = field(default_factory=dict)
    body: tuple[str, ...] = ()
    parameters: tuple[InputDefinition, ...] = ()
    variables: Mapping[str, JsonValue] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None
    used: int | None = None


class SubworkflowNode(LoopTypeSpec[SubworkflowConfig]):
    """Runs a named workflow inside this one, with inputs, variables and outputs of its own. Its
    nodes are those of the task: they share its cost, pause, stop and limits."""

    name = "subworkflow"
    config = SubworkflowConfig
    runs_workflow = True
    aliases = ("workflow",)
    markdown_names = ("子流程",)
    foreign_names = ("call", "invoke", "subflow")
    shorthand = "workflow"
    telling_fields = ("workflow",)
    fields = ("workflow", "version")
    body_fields: tuple[str, ...] = ()
    inline_fields = ("inputs",)
    example = """\
nodes:
  - {id: write, name: Write}
  - {id: publish, type: subworkflow, workflow: publish, inputs: {note: "{{outputs.write}}"}}
"""

    def read(self, block: FieldReader) -> SubworkflowConfig:
        has_version = block.has("version")
        version = block.integer("version", default=0)
        return SubworkflowConfig(
            workflow=block.word("workflow", limit=64),
            version=version if has_version else None,
            inputs=dict(block.mapping("inputs") or {}),
        )

    def write(self, config: SubworkflowConfig) -> dict[str, Any]:
        data: dict[str, Any] = {"workflow": config.workflow}
        if config.version is not None:
            data["version"] = config.version
        return data | ({"inputs": dict(config.inputs)} if config.inputs else {})

    def check(
        self, config: SubworkflowConfig, node_ids: Collection[str]
    ) -> Iterator[ValidationIssue]:
        if not config.workflow:
            yield ValidationIssue(key="missing", field="workflow")
        if config.version is not None and not 0 <= config.version <= _MAX_VERSION:
            facts = {"least": 0, "most": _MAX_VERSION}
            yield ValidationIssue(key="out_of_range", field="version", facts=facts)
        for name, text in self.expressions(config):
            yield from expression_issues(text, name)

    def expressions(self, config: SubworkflowConfig) -> Iterable[tuple[str, str]]:
        templates = {name: value for name, value in config.inputs.items() if isinstance(value, str)}
        return ((f"inputs.{name}", text) for name, text in template_expressions(**templates))

    def rewrite(
        self, config: SubworkflowConfig, text: Callable[[str], str], node: Callable[[str], str]
    ) -> SubworkflowConfig:
        return replace(
            config,
            inputs={
                name: text(value) if isinstance(value, str) else value
                for name, value in config.inputs.items()
            },
            body=tuple(map(node, config.body)),
            outputs={name: text(value) for name, value in config.outputs.items()},
        )

    def named_workflow(self, config: SubworkflowConfig) -> str:
        return config.workflow

    def used_version(self, config: SubworkflowConfig) -> tuple[str, int] | None:
        return (config.workflow, config.used) if config.used else None

    def time_limit(self, config: SubworkflowConfig) -> float | None:
        return config.timeout

    def enter(self, node: NodeInput[SubworkflowConfig], context: EvaluationContext) -> NodeEffect:
        config = node.settings
        if not config.body:
            facts = {"name": node.title, "workflow": config.workflow}
            return NodeFailure(key="workflow.not_inserted", facts=facts)
        values: dict[str, JsonValue] = {}
        for each in config.parameters:
            try:
                value = fill_value(config.inputs.get(each.name), context)
            except ExpressionError as error:
                return NodeFailure(key="workflow.no_value", facts={"name": each.name, "why": error})
            if value is None or value == "":
                values[each.name] = each.default
                continue
            values[each.name] = convert_input(each, value)
            if values[each.name] is None:
                facts = {
                    "name": each.name,
                    "workflow": config.workflow,
                    "given": value_as_text(value)[:_MAX_SHOWN],
                }
                return NodeFailure(key="workflow.wrong_input", facts=facts)
        empty = [each.name for each in config.parameters if each.required]
        if lacking := [name for name in empty if values[name] is None]:
            facts = {"name": ", ".join(lacking), "workflow": config.workflow}
            return NodeFailure(key="workflow.missing_input", facts=facts)
        return NodeWait(iteration={"inputs": values})

    def round_names(
        self, node: NodeInput[SubworkflowConfig], iteration: Mapping[str, Any], index: int
    ) -> Mapping[str, Any]:
        return {"inputs": iteration["inputs"], "variables": dict(node.settings.variables)}

    def round_result(
        self, node: NodeInput[SubworkflowConfig], result: Any, context: EvaluationContext
    ) -> Any:
        """The declared outputs beside the result of the last node; only the latter without any."""
        own = result if isinstance(result, Mapping) else {"result": result}
        values: dict[str, Any] = {}
        for name, expression in node.settings.outputs.items():
            try:
                values[name] = context.evaluate(expression)
            except ExpressionError as error:
                context.warn(f"output {name!r} is left empty: {error}")
                values[name] = None
        if not values:
            return own
        text = own.get("result", own.get("summary", ""))
        return {"result": text, "_raw": text, **values}

    def next_action(
        self,
        node: NodeInput[SubworkflowConfig],
        rounds: RoundProgress,
        context: EvaluationContext,
    ) -> NodeEffect | None:
        if rounds.results:
            return NodeDone(output=self.partial_output(rounds.iteration, rounds.results))
        return None if rounds.opened_rounds else NodeWait()

    def partial_output(
        self, iteration: Mapping[str, Any], results: Mapping[int, Any]
    ) -> Mapping[str, Any]:
        result = results.get(0)
        return result if isinstance(result, Mapping) else {}

    def total_rounds(self, config: SubworkflowConfig, iteration: Mapping[str, Any]) -> int | None:
        return 1
