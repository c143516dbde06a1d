"""Checks expressions against the declared outputs of the tasks whose results they use."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from bot.engine.workflow.definition import WorkflowNode
from bot.engine.workflow.expressions.evaluator import CONSTANTS, syntax_tree
from bot.engine.workflow.expressions.flags import Flag, read_flag
from bot.engine.workflow.expressions.operations import TEXT_KEY
from bot.engine.workflow.expressions.parser import ExpressionNode, ExpressionOp, walk_nodes
from bot.engine.workflow.field_reader import ValidationIssue, fold_name, shorten_value
from bot.engine.workflow.nodes.switch import SwitchConfig
from bot.engine.workflow.output_schema import OutputField, OutputKind

_COMMON_FIELDS = {TEXT_KEY, "result", "summary", "files", "error"}
_NUMERIC = {OutputKind.INTEGER, OutputKind.NUMBER}
_MAX_KNOWN = 200


class OutputChecker:
    """Finds uses of declared outputs that can never be right."""

    def __init__(self, nodes: Sequence[WorkflowNode]) -> None:
        self._fields: dict[str, Mapping[str, OutputField]] = {}
        for node in nodes:
            if node.output:
                fields = {fold_name(each.name): each for each in node.output}
                self._fields[node.id] = self._fields[node.id.replace("-", "_")] = fields

    def issues(self, text: str) -> Iterator[ValidationIssue]:
        """Check a valid expression; the issues have no place."""
        if not self._fields:
            return
        for node in walk_nodes(syntax_tree(text)):
            if node.op is ExpressionOp.MEMBER:
                yield from self._unknown_field(node)
            elif node.op is ExpressionOp.COMPARE:
                operands = node.operands
                for sign, one, two in zip(node.value, operands, operands[1:], strict=False):
                    yield from self._comparison(sign, one, two)

    def switch_issues(self, config: SwitchConfig) -> Iterator[ValidationIssue]:
        """Check the cases of a switch over a declared field."""
        tree = syntax_tree(config.expression) if self._fields else ExpressionNode(ExpressionOp.NAME)
        if (field := self._field(tree)) is not None:
            for case in config.cases:
                yield from _mismatch(field, "==", case.value, loose=True)

    def _unknown_field(self, node: ExpressionNode) -> Iterator[ValidationIssue]:
        name, part = _output_member(node)
        known = self._fields.get(name)
        if known is None or not part or part in _COMMON_FIELDS or fold_name(part) in known:
            return
        names = [each.name for each in known.values()]
        alike = get_close_matches(part, names, n=1)
        facts = {"reference": f"outputs.{name}.{part}"[:60], "known": ", ".join(names)[:_MAX_KNOWN]}
        if alike:
            yield ValidationIssue(key="misspelt_output_field", facts={**facts, "meant": alike[0]})
        else:
            yield ValidationIssue(key="unknown_output_field", facts=facts)

    def _comparison(
        self, sign: str, one: ExpressionNode, two: ExpressionNode
    ) -> Iterator[ValidationIssue]:
        for ours, other in ((one, two), (two, one)):
            field = self._field(ours)
            if field is None:
                continue
            if sign in {"in", "not in"}:
                parts = other.operands if other.op is ExpressionOp.LIST and ours is one else ()
                for part in filter(_is_literal, parts):
                    yield from _mismatch(field, "==", _literal(part))
            elif _is_literal(other):
                yield from _mismatch(field, sign, _literal(other))

    def _field(self, node: ExpressionNode) -> OutputField | None:
        name, part = _output_member(node)
        return self._fields.get(name, {}).get(fold_name(part))


def _output_member(node: ExpressionNode) -> tuple[str, str]:
    """The node and the field of `outputs.node.field`; empty for anything else."""
    if node.op is not ExpressionOp.MEMBER or node.operands[1].op is not ExpressionOp.VALUE:
        return "", ""
    whole, key = node.operands
    if whole.op is not ExpressionOp.MEMBER or whole.operands[1].op is not ExpressionOp.VALUE:
        return "", ""
    root, name = whole.operands
    is_output = root.op is ExpressionOp.NAME and root.value == "outputs"
    return (str(name.value), str(key.value)) if is_output else ("", "")


def _is_literal(node: ExpressionNode) -> bool:
    named = node.op is ExpressionOp.NAME and node.value in CONSTANTS
    return named or node.op is ExpressionOp.VALUE


def _literal(node: ExpressionNode) -> Any:
    return CONSTANTS[node.value] if node.op is ExpressionOp.NAME else node.value


def _mismatch(
    field: OutputField, sign: str, value: Any, *, loose: bool = False
) -> Iterator[ValidationIssue]:
    """An issue if the field can never be compared like that with the value. With `loose` its text
    may be compared too, in any case."""
    shown = shorten_value(json.dumps(value, ensure_ascii=False))
    facts = {"field": field.name, "given": shown}
    if value is None:
        return
    options = {each.casefold() if loose else each for each in field.options}
    if isinstance(value, str) and options and sign in {"==", "!="}:
        if (value.strip().casefold() if loose else value) not in options:
            known = ", ".join(field.options)[:_MAX_KNOWN]
            yield ValidationIssue(key="not_an_option", facts={**facts, "known": known})
    elif not (_is_comparable(field, sign, value) or (loose and _names_value(field, value))):
        yield ValidationIssue(key="wrong_comparison", facts={**facts, "kind": field.kind.value})


def _is_comparable(field: OutputField, sign: str, value: Any) -> bool:
    if isinstance(value, bool):
        return field.kind is OutputKind.BOOLEAN and sign in {"==", "!="}
    if isinstance(value, int | float):
        return field.kind in _NUMERIC
    if field.kind is OutputKind.BOOLEAN:
        return sign in {"==", "!="} and read_flag(value) in {Flag.YES, Flag.NO}
    return field.kind is OutputKind.STRING


def _names_value(field: OutputField, value: Any) -> bool:
    """Whether the text names a number, where one is expected."""
    try:
        return field.kind in _NUMERIC and float(value) == float(value)
    except (TypeError, ValueError):
        return False
