"""A choice by the value of an expression."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import JsonValue

from bot.engine.workflow.expressions.operations import (
    ExpressionError,
    UnclearAnswer,
    strictly_equal,
    to_text,
    value_as_text,
)
from bot.engine.workflow.field_reader import FieldReader, ValidationIssue, unknown_node_issue
from bot.engine.workflow.nodes.contract import (
    EdgeRule,
    EvaluationContext,
    NodeConfig,
    NodeDone,
    NodeEffect,
    NodeFailure,
    NodeInput,
    NodeRole,
    NodeShape,
    NodeTypeSpec,
    UndecidedCondition,
)
from bot.engine.workflow.nodes.shared_settings import expression_issues


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchCase:
    """`value` is compared with the value of the switch's expression."""

    value: JsonValue
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchConfig(NodeConfig):
    """Continues with the target of the first matching case, or else with `default`. Without a
    default, an unmatched value ends the path. About a value that a worker's answer leaves open, a
    person chooses one of the cases."""

    kind: Literal["switch"] = "switch"
    expression: str
    cases: tuple[SwitchCase, ...]
    default: str = ""


class SwitchNode(NodeTypeSpec[SwitchConfig]):
    """Takes only the edge to the target of the matching case."""

    name = "switch"
    role = NodeRole.CHOICE
    shape = NodeShape.DIAMOND
    config = SwitchConfig
    edge_rule = EdgeRule.CHOSEN
    markdown_names = ("分支",)
    foreign_names = ("router", "route", "case", "choice", "gateway")
    fields = ("expression", "defaultTarget")
    node_fields = ("defaultTarget",)
    inline_fields = ("cases", "default")
    telling_fields = ("cases",)
    example = """\
nodes:
  - {id: which, type: switch, expression: inputs.size, cases: {large: print}, defaultTarget: mail}
  - {id: print, name: Print}
  - {id: mail, name: Mail}
inputs: [{name: size}]
"""

    def read(self, block: FieldReader) -> SwitchConfig:
        cases, other = [], ""
        knows_default = block.take("defaultTarget", "default") is not None
        for case in block.pairs("cases", "value", "targetNode"):
            value, target = case.value("value", "case"), case.word("targetNode", "target", "to")
            case.check_unknown_names()
            if not target:
                case.add("missing", "targetNode")
            elif value == "default" and not knows_default:
                other = target
            elif isinstance(value, dict | list):
                case.add("not_plain", "value")
            else:
                cases.append(SwitchCase(value=value, target=target))
        return SwitchConfig(
            expression=block.expression("expression"),
            cases=tuple(cases),
            default=block.word("defaultTarget", "default", default=other),
        )

    def write(self, config: SwitchConfig) -> dict[str, Any]:
        cases = [{"value": each.value, "targetNode": each.target} for each in config.cases]
        return {"expression": config.expression, "cases": cases, "defaultTarget": config.default}

    def check(self, config: SwitchConfig, node_ids: Collection[str]) -> Iterator[ValidationIssue]:
        yield from expression_issues(config.expression, "expression")
        if not config.cases:
            yield ValidationIssue(key="missing", field="cases")
        targets = [("cases", case.target) for case in config.cases]
        targets += [("defaultTarget", config.default)] if config.default else []
        for field, target in targets:
            if target not in node_ids:
                yield unknown_node_issue(target, field, node_ids)

    def warnings(self, config: SwitchConfig) -> Iterator[ValidationIssue]:
        if not config.default:
            yield ValidationIssue(key="no_default", field=self.name)
        seen: set[str] = set()
        for case in config.cases:
            value = str(case.value).strip().casefold()
            if value in seen:
                facts = {"value": str(case.value)[:60]}
                yield ValidationIssue(key="repeated_case", field="switch.cases", facts=facts)
            seen.add(value)

    def expressions(self, config: SwitchConfig) -> Iterable[tuple[str, str]]:
        return (("expression", config.expression),)

    def deciding_expressions(self, config: SwitchConfig) -> Iterable[tuple[str, str]]:
        return self.expressions(config)

    def compared_values(self, config: SwitchConfig) -> tuple[str, tuple[JsonValue, ...]]:
        return config.expression, tuple(case.value for case in config.cases)

    def choices_of(self, config: SwitchConfig, subject: str) -> tuple[str, ...]:
        texts = tuple(dict.fromkeys(_case_text(case) for case in config.cases))
        return texts if subject == config.expression else ()

    def targets(self, config: SwitchConfig) -> tuple[str, ...]:
        targets = (*(case.target for case in config.cases), config.default)
        return tuple(dict.fromkeys(filter(None, targets)))

    def fallback_target(self, config: SwitchConfig) -> str:
        return config.default

    def target_label(self, config: SwitchConfig, target: str) -> str:
        values = (case.value for case in config.cases if case.target == target)
        return next((value for value in values if isinstance(value, str)), "")

    def rewrite(
        self, config: SwitchConfig, text: Callable[[str], str], node: Callable[[str], str]
    ) -> SwitchConfig:
        return replace(
            config,
            expression=text(config.expression),
            cases=tuple(replace(case, target=node(case.target)) for case in config.cases),
            default=node(config.default),
        )

    def enter(self, node: NodeInput[SwitchConfig], context: EvaluationContext) -> NodeEffect:
        config = node.settings
        try:
            value = context.evaluate_answer(config.expression)
        except UnclearAnswer as error:
            return _chosen_by_person(config, context, str(error))
        except ExpressionError as error:
            if config.default:
                context.warn(str(error))
                return NodeDone(output={"_raw": None}, next_node=config.default)
            return NodeFailure(key="workflow.no_value", facts={"name": node.id, "why": error})
        fits = (case.target for case in config.cases if _matches_case(case.value, value))
        return NodeDone(output={"_raw": value}, next_node=next(fits, config.default))


def _chosen_by_person(config: SwitchConfig, context: EvaluationContext, why: str) -> NodeDone:
    """The case that a person has chosen; the default if they say that it is none. Raises
    UndecidedCondition if nobody has."""
    said = context.answer(config.expression)
    if said is None:
        # Earlier releases asked about one case after the other.
        asked = {
            _case_text(case): context.answer(_case_subject(config, case)) for case in config.cases
        }
        said = next((text for text, is_so in asked.items() if is_so), None)
        if said is None and None in asked.values():
            raise UndecidedCondition(config.expression, why)
    chosen = next((case for case in config.cases if _case_text(case) == said), None)
    if chosen is None:
        return NodeDone(output={"_raw": None}, next_node=config.default)
    return NodeDone(output={"_raw": chosen.value}, next_node=chosen.target)


def _case_subject(config: SwitchConfig, case: SwitchCase) -> str:
    """The condition under which a case is taken."""
    return f"{config.expression} == {json.dumps(case.value, ensure_ascii=False)}"


def _case_text(case: SwitchCase) -> str:
    return value_as_text(case.value)


def _matches_case(wanted: Any, value: Any) -> bool:
    """Whether they are equal or have the same text: models write `"3"` for 3 and `"true"` for true.
    Outputs are compared by their text."""
    if strictly_equal(wanted, value):
        return True
    if not (isinstance(wanted, str) or isinstance(value, str | Mapping)):
        return False
    return _comparison_text(wanted) == _comparison_text(value)


def _comparison_text(value: Any) -> str:
    if value is None:
        return "null"
    try:
        return to_text(value).strip().casefold()
    except ExpressionError:
        return ""
