"""Diagnostics of a workflow's text: its issues with their places in it, and warnings about a valid
one that surely does not do what its author meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from bot.engine.workflow.definition import Workflow, WorkflowEdge, WorkflowNode
from bot.engine.workflow.expressions.evaluator import syntax_tree
from bot.engine.workflow.expressions.operations import TEXT_KEY, ExpressionError, fold_name
from bot.engine.workflow.expressions.parser import ExpressionNode, ExpressionOp, walk_nodes
from bot.engine.workflow.field_reader import ValidationIssue, similar_name
from bot.engine.workflow.nodes.contract import EdgeRule, NodeRole
from storage.records.workflows import Diagnostic, DiagnosticSeverity

_OWN_FIELDS = {TEXT_KEY, "result", "summary", "files", "error"}
_APPROVAL_WORDS = re.compile(
    r"review|approv|accept|verdict|sign.?off|lgtm|审|通过|批准|同意|验收", re.IGNORECASE
)
_SKILL = re.compile(
    r"\bskills?\s+[`\"“'](?P<after>[\w.-]{1,64})[`\"”']"
    r"|[`\"“'](?P<before>[\w.-]{1,64})[`\"”']\s+skill\b"
    r"|技能\s*[`“「'\"](?P<zh>[\w.-]{1,64})[`”」'\"]"
    r"|[`“「'\"](?P<zh_before>[\w.-]{1,64})[`”」'\"]\s*(?:这个)?技能",
    re.IGNORECASE,
)
"""A skill that a prompt names in quotes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownWorkers:
    """The names of the personas and skills that exist; None if they were not looked up."""

    personas: AbstractSet[str] | None = None
    skills: AbstractSet[str] | None = None


NO_KNOWN_WORKERS = KnownWorkers()


def to_diagnostics(
    issues: Sequence[ValidationIssue],
    text: str = "",
    *,
    file: str = "",
    severity: DiagnosticSeverity = DiagnosticSeverity.ERROR,
) -> tuple[Diagnostic, ...]:
    """Add to each issue its place in the text. Blocking."""
    if not issues:
        return ()
    # Imported on first use, with the parser.
    from bot.engine.workflow.serialization.positions import find_places

    return tuple(
        Diagnostic(
            code=each.key,
            severity=severity,
            file=file,
            location=each.where,
            field=place.field or each.field,
            line=place.line,
            column=place.column,
            written=place.written,
            suggestion=each.suggestion,
            # Of the whole file, not of a text in a fence.
            facts={**each.facts, "line": place.line} if "line" in each.facts else each.facts,
        )
        for each, place in zip(issues, find_places(text, issues), strict=True)
    )


def find_warnings(
    workflow: Workflow, text: str, workers: KnownWorkers = NO_KNOWN_WORKERS, *, file: str = ""
) -> tuple[Diagnostic, ...]:
    """Find what a valid workflow surely does not mean. Blocking."""
    issues = (
        *_find_unread_lines(text),
        *_find_doubtful_settings(workflow),
        *_find_unasked_fields(workflow),
        *_find_untaken_ways(workflow),
        *_find_unknown_workers(workflow, workers),
    )
    return to_diagnostics(issues, text, file=file, severity=DiagnosticSeverity.WARNING)


def _find_unread_lines(text: str) -> Iterator[ValidationIssue]:
    # Imported on first use, with the parser.
    from bot.engine.workflow.serialization import markdown_parser
    from bot.engine.workflow.serialization.data_parser import strip_fence

    if text and markdown_parser.is_markdown(inside := strip_fence(text)):
        yield from markdown_parser.find_unread_lines(inside)


def _find_doubtful_settings(workflow: Workflow) -> Iterator[ValidationIssue]:
    for node in workflow.nodes:
        if node.settings is not None:
            for issue in node.spec.warnings(node.settings):
                yield replace(issue, where=node.id)


def _find_unasked_fields(workflow: Workflow) -> Iterator[ValidationIssue]:
    """Find branches on a value that the prompt of its step never asks for."""
    nodes = {name: node for node in workflow.nodes for name in (node.id, node.id.replace("-", "_"))}
    seen: set[tuple[str, str]] = set()
    for where, field, expression in _branching_expressions(workflow):
        for name, part in _output_fields(expression):
            node = nodes.get(name)
            if node is None or node.role is not NodeRole.TASK or node.output:
                continue
            if part in _OWN_FIELDS or (node.id, part) in seen or _asks_for(node, part):
                continue
            seen.add((node.id, part))
            facts = {"field": part, "node": node.id, "step": (node.title or node.id)[:60]}
            yield ValidationIssue(
                key="not_asked", where=where, field=field, facts=facts, written=expression
            )


def _branching_expressions(workflow: Workflow) -> Iterator[tuple[str, str, str]]:
    for edge in workflow.edges:
        if edge.condition:
            yield edge_name(edge), "condition", edge.condition
    for node in workflow.nodes:
        if node.settings is not None:
            for field, text in node.spec.deciding_expressions(node.settings):
                yield node.id, f"{node.type}.{field}", text


def _output_fields(expression: str) -> Iterator[tuple[str, str]]:
    """The node and the field of each `outputs.node.field` in an expression. References that have a
    fallback for a missing value are left out.
    """
    try:
        tree = syntax_tree(expression)
    except ExpressionError:
        return
    for node in walk_nodes(tree):
        if node.op is not ExpressionOp.MEMBER or node.operands[1].op is not ExpressionOp.VALUE:
            continue
        inner, key = node.operands
        if inner.op is ExpressionOp.MEMBER and inner.operands[1].op is ExpressionOp.VALUE:
            root, name = inner.operands
            if root.op is ExpressionOp.NAME and root.value == "outputs":
                yield str(name.value), str(key.value)


def _asks_for(node: WorkflowNode, part: str) -> bool:
    text = f"{node.title}\n{node.detail}"
    if fold_name(part) == "approved" and _APPROVAL_WORDS.search(text):
        return True
    return fold_name(part) in fold_name(text) or part.casefold() in text.casefold()


def _find_untaken_ways(workflow: Workflow) -> Iterator[ValidationIssue]:
    """Find edges that are never taken, nodes that only such edges lead to, and nodes without any
    edge.
    """
    never = {id(edge) for edge in _untaken_edges(workflow)}
    for edge in workflow.edges:
        if id(edge) in never:
            yield ValidationIssue(
                key="never_taken", where=edge_name(edge), field="condition", written=edge.condition
            )
    coming: dict[str, list[WorkflowEdge]] = {}
    for edge in workflow.edges:
        coming.setdefault(edge.target, []).append(edge)
    for node in workflow.nodes:
        before = coming.get(node.id, ())
        if before and all(id(edge) in never for edge in before):
            yield ValidationIssue(key="never_reached", where=node.id)
    yield from _unconnected_nodes(workflow, coming)


def _untaken_edges(workflow: Workflow) -> Iterator[WorkflowEdge]:
    known = workflow.nodes_by_id
    seen: set[tuple[str, str]] = set()
    for edge in workflow.edges:
        condition = " ".join(edge.condition.split())
        if not condition:
            continue
        source = known.get(edge.source)
        takes_first = source is not None and source.spec.edge_rule is EdgeRule.FIRST_HOLDING
        if _is_literally_false(condition) or (takes_first and (edge.source, condition) in seen):
            yield edge
        seen.add((edge.source, condition))


def _is_literally_false(condition: str) -> bool:
    try:
        tree: ExpressionNode = syntax_tree(condition)
    except ExpressionError:
        return False
    return tree.op is ExpressionOp.NAME and tree.value in {"false", "False"}


def _unconnected_nodes(
    workflow: Workflow, coming: Mapping[str, Sequence[WorkflowEdge]]
) -> Iterator[ValidationIssue]:
    """Nodes without an incoming edge in a workflow whose edges are written: they start at once."""
    known = workflow.nodes_by_id
    terminal = {node.id for node in workflow.nodes if node.role.is_terminal}
    written = [e for e in workflow.edges if e.source not in terminal and e.target not in terminal]
    if not written:
        return
    inside = {name for node in workflow.nodes for name in node.body} | workflow.compensations
    for node in workflow.nodes:
        before = [edge for edge in coming.get(node.id, ()) if edge.source != node.id]
        behind = [edge for edge in workflow.edges if edge.source == node.id]
        others = (
            *(known[edge.source] for edge in before if edge.source in known),
            *(known[edge.target] for edge in behind if edge.target in known),
        )
        is_alone = all(each.role.is_terminal for each in others)
        if is_alone and not node.role.is_terminal and node.id not in inside:
            yield ValidationIssue(key="unconnected", where=node.id)


def _find_unknown_workers(workflow: Workflow, workers: KnownWorkers) -> Iterator[ValidationIssue]:
    for node in workflow.nodes:
        if workers.personas is not None and node.persona:
            folded = {name.casefold() for name in workers.personas}
            if node.persona.casefold() not in folded:
                facts = {"name": node.persona}
                alike = similar_name(node.persona, workers.personas)
                yield ValidationIssue(
                    key="unknown_persona",
                    where=node.id,
                    field="persona",
                    facts=facts,
                    written=node.persona,
                    suggestion=alike,
                )
        if workers.skills is not None:
            yield from _unknown_skills(node, workers.skills)


def _unknown_skills(node: WorkflowNode, skills: Iterable[str]) -> Iterator[ValidationIssue]:
    known = set(skills)
    for found in _SKILL.finditer(f"{node.title}\n{node.detail}"):
        name = next(filter(None, found.groups()))
        if name.casefold() not in {each.casefold() for each in known}:
            yield ValidationIssue(
                key="unknown_skill",
                where=node.id,
                field="prompt",
                facts={"name": name},
                written=name,
                suggestion=similar_name(name, known),
            )


def edge_name(edge: WorkflowEdge) -> str:
    """The edge as its author knows it: by its id, or by its two nodes if the program has chosen the
    id.
    """
    return f"{edge.source}→{edge.target}"[:100]
