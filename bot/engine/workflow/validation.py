"""Validation of workflows: whether one can run, whether references and comparisons fit the declared
outputs, and authoring mistakes. All issues are found, not only the first.

Authoring mistakes can run but are surely unintended; they are not checked in plans that change
while they run.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any

from bot.config.values import SECONDS_RANGE, TOKENS_RANGE, TURNS_RANGE
from bot.engine.llm.answer_schemas import MAX_DELIVERABLES
from bot.engine.llm.workspace_files import is_workspace_path
from bot.engine.workflow.compensation import find_compensation_issues
from bot.engine.workflow.definition import (
    ROOT_GRAPH,
    ScopeGraph,
    Workflow,
    WorkflowEdge,
    WorkflowNode,
    WorkflowTopology,
    cancels_others,
    find_branches,
    find_cycles,
    find_retreating_edges,
    reachable,
)
from bot.engine.workflow.expressions.evaluator import (
    CONSTANTS,
    find_placeholders,
    references,
    replace_placeholders,
    syntax_tree,
    without_placeholders,
)
from bot.engine.workflow.expressions.operations import (
    TEXT_KEY,
    ExpressionError,
    Flag,
    fold_name,
    read_flag,
)
from bot.engine.workflow.expressions.parser import ExpressionNode, ExpressionOp, walk_nodes
from bot.engine.workflow.field_reader import (
    InvalidGraph,
    ValidationIssue,
    duration_issues,
    range_issues,
    shorten_value,
    similar_name,
    unknown_node_issue,
    usable_id,
    variable_name_issues,
)
from bot.engine.workflow.nodes.contract import BodyConfig, LoopTypeSpec, NodeRole
from bot.engine.workflow.nodes.registry import NodeType, foreign_type_name
from bot.engine.workflow.nodes.shared_settings import expression_issues
from bot.engine.workflow.output_schema import OutputField, OutputKind, output_issues

_GLOBAL_NAMES = frozenset({"outputs", "variables", "inputs", "nodeStates", "loopCount"})
_MAX_SHOWN = 60
_ESCAPE_HINT_KEYS = {"unknown_name": "unknown_hole", "bad_expression": "bad_hole"}
_COMMON_FIELDS = {TEXT_KEY, "result", "summary", "files", "error"}
_NUMERIC = {OutputKind.INTEGER, OutputKind.NUMBER}
_MAX_KNOWN = 200


def find_unknown_references(workflow: Workflow) -> Iterator[ValidationIssue]:
    """Yield an issue for each name that is not defined in its scope, and for unclosed placeholders.
    Dynamic references like `outputs[name]` and invalid expressions are skipped."""
    checker = _ReferenceChecker(workflow)
    for node in workflow.nodes:
        if node.settings is not None:
            for field, text in node.spec.expressions(node.settings):
                yield from checker.issues(text, node.id, node.id, f"{node.type}.{field}")
            compared, values = node.spec.compared_values(node.settings)
            for issue in checker.comparison_issues(compared, values):
                yield replace(issue, where=node.id, field=f"{node.type}.cases")
        yield from checker.template_issues(node)
    for edge in workflow.edges:
        yield from checker.issues(edge.condition, edge.source, edge.name, "condition")
    for name, text in workflow.outputs.items():
        yield from checker.issues(text, "", "", f"outputs.{name}")


def with_escape_hint(issue: ValidationIssue, expression: str, template: str) -> ValidationIssue:
    """Explain how to escape the placeholder, if it may be a shell variable."""
    key = _ESCAPE_HINT_KEYS.get(issue.key)
    if key is None or f"${{{expression}}}" not in template:
        return issue
    return replace(
        issue, key=key, facts={**issue.facts, "written": f"$${{{expression[:_MAX_SHOWN]}}}"}
    )


class _ReferenceChecker:
    def __init__(self, workflow: Workflow) -> None:
        ids = {node.id for node in workflow.nodes}
        outputs = ids | {name.replace("-", "_") for name in ids}
        assigned = {
            name
            for node in workflow.nodes
            if node.settings is not None
            for name in node.spec.assigned_variables(node.settings)
        }
        self._outputs = _OutputChecker(workflow.nodes)
        self._nodes = workflow.nodes_by_id
        owner = self._owner = _body_owners(workflow)
        owner |= {n.on_cancel: owner[n.id] for n in workflow.nodes if n.id in owner}
        self._members: Mapping[str, tuple[str, AbstractSet[str]]] = {
            "outputs": ("unknown_output", outputs),
            "nodeStates": ("unknown_output", outputs),
            "inputs": ("unknown_input", {e.name for e in workflow.inputs} | workflow.values.keys()),
            "variables": ("unknown_variable", workflow.variables.keys() | assigned),
        }

    def template_issues(self, node: WorkflowNode) -> Iterator[ValidationIssue]:
        for field, template in node.templates:
            for expression in dict.fromkeys(find_placeholders(template)):
                for fault in self.issues(expression, node.id, node.id, field):
                    yield with_escape_hint(fault, expression, template)
            if (at := (plain := without_placeholders(template)).find("{{")) >= 0:
                written = plain[at:].splitlines()[0][:_MAX_SHOWN].strip()
                yield ValidationIssue(key="open_hole", where=node.id, field=field, written=written)

    def issues(self, text: str, node: str, where: str, field: str) -> Iterator[ValidationIssue]:
        """Check the expression in the scope of `node`."""
        try:
            found = sorted(references(text), key=str) if text.strip() else []
        except ExpressionError:
            return
        names = self._names_in_scope(node) if found else frozenset()
        for name, part in found:
            key, members = self._members.get(name, ("", frozenset()))
            if name not in names and part is None:
                key = "unknown_name"
            elif name not in names or part is None or not key or part in members:
                continue
            reference = name if part is None else f"{name}.{part}"
            if part is None:
                suggestion = similar_name(name, names) or self._owner_of(name)
            elif suggestion := similar_name(part, members):
                suggestion = f"{name}.{suggestion.replace('-', '_')}"
            yield ValidationIssue(
                key=key,
                where=where,
                field=field,
                facts={"reference": reference[:_MAX_SHOWN]},
                written=text,
                at=_find_reference(text, name, part),
                suggestion=suggestion,
            )
        if found:
            for issue in self._outputs.issues(text):
                at = max(0, text.find(str(issue.facts.get("reference", ""))))
                yield replace(issue, where=where, field=field, written=text, at=at)

    def comparison_issues(self, text: str, values: Iterable[object]) -> Iterator[ValidationIssue]:
        """Check the values that a field is compared with. The issues have no place yet."""
        with suppress(ExpressionError):
            yield from self._outputs.comparison_issues(text, values)

    def _owner_of(self, name: str) -> str:
        """The group where a bare name would be found: `topic` may be the input `inputs.topic`."""
        for kind in ("inputs", "variables", "outputs"):
            if name in self._members[kind][1]:
                return f"{kind}.{name}"
        return ""

    def _names_in_scope(self, node: str) -> AbstractSet[str]:
        """Global names and the names of every enclosing round."""
        around = [self._nodes[name] for name in _containers(node, self._owner)]
        return _GLOBAL_NAMES.union(
            *(each.spec.round_variables(each.settings) for each in around if each.settings)
        )


def _find_reference(text: str, name: str, part: str | None) -> int:
    """The offset of a name, or of its member, in an expression; 0 if it is not found."""
    pattern = rf"(?<![\w.]){re.escape(name)}(?!\w)"
    if part is not None:
        pattern += rf"\s*(?:\.\s*|\[\s*[\"']){re.escape(part)}(?!\w)"
    found = re.search(pattern, text)
    return found.start() if found else 0


_NODE_ID = re.compile(r"[^\W\d][\w-]{0,63}")
MAX_NODES = 10_000
MAX_EDGES = 50_000
_MAX_BODY_DEPTH = 4
_MAX_PARALLEL = 20
_MAX_LOOPS = 1_000
_MAX_ATTEMPTS, _MAX_BACKOFF_MS, _MAX_MULTIPLIER = 20, 3_600_000, 10


def validate_workflow(workflow: Workflow) -> Workflow:
    """Return the workflow. Raises InvalidGraph."""
    if faults := tuple(find_issues(workflow)):
        raise InvalidGraph(faults)
    return workflow


def find_issues(workflow: Workflow) -> Iterator[ValidationIssue]:
    if len(workflow.nodes) > MAX_NODES or len(workflow.edges) > MAX_EDGES:
        yield ValidationIssue(key="too_large", facts={"nodes": MAX_NODES, "edges": MAX_EDGES})
        return
    yield from _check_names(workflow)
    known = workflow.nodes_by_id
    for node in workflow.nodes:
        yield from _check_node(node, known)
    for edge in workflow.edges:
        yield from _check_edge(edge, known)
    yield from find_compensation_issues(workflow)
    owner = _body_owners(workflow)
    circular = _circular_bodies(owner)
    yield from _check_bodies(workflow, circular)
    if not circular:
        yield from _check_nesting(workflow, owner)
    yield from _check_settings(workflow)
    # With circular bodies there are no scopes to check, without all edges no paths.
    if len(known) == len(workflow.nodes) and not circular:
        is_whole = all(edge.source in known and edge.target in known for edge in workflow.edges)
        for name, scope in WorkflowTopology(workflow).scope_graphs.items():
            yield from _check_scope_graph(name, scope, is_whole=is_whole)


def _check_names(workflow: Workflow) -> Iterator[ValidationIssue]:
    ids = Counter(node.id for node in workflow.nodes)
    for each, n in ids.items():
        if n > 1:
            yield ValidationIssue(key="twice", where=each, field="id")
        if not _NODE_ID.fullmatch(each):
            alike = usable_id(each, ids)
            yield ValidationIssue(key="bad_id", where=each[:40], field="id", suggestion=alike)
    for name, n in Counter(edge.name for edge in workflow.edges).items():
        if n > 1:
            yield ValidationIssue(key="twice", where=name, field="id")
    for node in workflow.nodes:
        if node.type not in set(NodeType):
            facts = {"type": str(node.type)[:40], "known": ", ".join(sorted(NodeType))}
            alike = foreign_type_name(node.type) or similar_name(node.type, NodeType)
            yield ValidationIssue(
                key="unknown_type", where=node.id, field="type", facts=facts, suggestion=alike
            )


def _check_node(node: WorkflowNode, known: Mapping[str, WorkflowNode]) -> Iterator[ValidationIssue]:
    yield from _check_common_fields(node)
    spec = node.spec
    if node.config is None:
        if spec.config is not None and spec.default is None:
            facts = {"known": ", ".join((*spec.fields, *spec.inline_fields))}
            yield ValidationIssue(key="no_config", where=node.id, field=spec.name, facts=facts)
    elif spec.config is None or not isinstance(node.config, spec.config):
        yield ValidationIssue(key="wrong_config", where=node.id, field=node.config.kind)
    else:
        for fault in spec.check(node.config, known):
            yield replace(fault, where=node.id, field=f"{spec.name}.{fault.field}")


def _check_limits(node: WorkflowNode) -> Iterator[ValidationIssue]:
    for name, value, (least, most) in (
        ("turns", node.limits.turns, TURNS_RANGE),
        ("tokens", node.limits.tokens, TOKENS_RANGE),
        ("seconds", node.limits.seconds, SECONDS_RANGE),
    ):
        if value is not None:
            yield from range_issues(value, f"limits.{name}", least, most, where=node.id)
    if node.limits and node.role is not NodeRole.TASK:
        yield ValidationIssue(key="no_limits_here", where=node.id, field="limits")


def _check_deliverables(node: WorkflowNode) -> Iterator[ValidationIssue]:
    if len(node.deliverables) > MAX_DELIVERABLES:
        facts = {"least": 0, "most": MAX_DELIVERABLES}
        yield ValidationIssue(key="out_of_range", where=node.id, field="deliverables", facts=facts)
    for name in node.deliverables:
        # What a placeholder brings is looked for in the workspace only.
        if not is_workspace_path(replace_placeholders(name, lambda _hole, _expression: "x")):
            yield ValidationIssue(
                key="bad_deliverable",
                where=node.id,
                field="deliverables",
                facts={"path": name[:_MAX_SHOWN]},
                written=name,
            )
    if node.deliverables and node.role is not NodeRole.TASK:
        yield ValidationIssue(key="no_deliverables_here", where=node.id, field="deliverables")


def _check_common_fields(node: WorkflowNode) -> Iterator[ValidationIssue]:
    yield from duration_issues(node.timeout, "timeout", where=node.id)
    yield from _check_limits(node)
    yield from _check_deliverables(node)
    for issue in output_issues(node.output):
        yield replace(issue, where=node.id)
    if node.output and node.role is not NodeRole.TASK:
        yield ValidationIssue(key="no_output_here", where=node.id, field="output")
    if node.retry is not None and not (
        1 <= node.retry.max_attempts <= _MAX_ATTEMPTS
        and 0 <= node.retry.backoff_ms <= _MAX_BACKOFF_MS
        and 1 <= node.retry.multiplier <= _MAX_MULTIPLIER
    ):
        yield ValidationIssue(key="bad_retry", where=node.id, field="retry")
    for field, template in node.templates:
        for expression in find_placeholders(template):
            for fault in expression_issues(expression, field):
                yield with_escape_hint(replace(fault, where=node.id), expression, template)


def _check_edge(edge: WorkflowEdge, known: Mapping[str, WorkflowNode]) -> Iterator[ValidationIssue]:
    for field in ("source", "target"):
        name = getattr(edge, field)
        if name and name not in known:
            yield unknown_node_issue(name, field, known, where=edge.name)
    if edge.condition.strip():
        for fault in expression_issues(edge.condition, "condition"):
            yield replace(fault, where=edge.name)
    if edge.max_loops is not None:
        yield from range_issues(edge.max_loops, "maxLoops", 1, _MAX_LOOPS, where=edge.name)


def _check_bodies(workflow: Workflow, circular: AbstractSet[str]) -> Iterator[ValidationIssue]:
    """Check that bodies consist of existing nodes, each in at most one body."""
    known = workflow.nodes_by_id
    seen: set[str] = set()
    for node in workflow.nodes:
        field = f"{node.type}.bodyNodes"
        runs_workflow = isinstance(node.spec, LoopTypeSpec) and node.spec.runs_workflow
        if isinstance(node.config, BodyConfig) and not node.body and not runs_workflow:
            yield ValidationIssue(key="missing", where=node.id, field=field)
        for inner in node.body:
            facts = {"node": inner[:60]}
            if inner not in known:
                yield unknown_node_issue(inner, field, known, where=node.id)
            elif inner in seen or inner in circular:
                yield ValidationIssue(key="in_two_bodies", where=node.id, field=field, facts=facts)
            elif known[inner].role.is_terminal and not runs_workflow:
                yield ValidationIssue(key="not_in_body", where=node.id, field=field, facts=facts)
            seen.add(inner)


def _check_nesting(workflow: Workflow, owner: Mapping[str, str]) -> Iterator[ValidationIssue]:
    for name in owner:
        if next(islice(_containers(name, owner), _MAX_BODY_DEPTH, None), None) is not None:
            yield ValidationIssue(key="too_deep", where=name, facts={"most": _MAX_BODY_DEPTH})
    # Edges leave a body only through its loop.
    for edge in workflow.edges:
        one, two = owner.get(edge.source), owner.get(edge.target)
        if one not in {two, edge.target} and two != edge.source:
            yield ValidationIssue(key="crosses_body", where=edge.name)


def _body_owners(workflow: Workflow) -> dict[str, str]:
    """The first container of each node."""
    owner: dict[str, str] = {}
    for node in workflow.nodes:
        for inner in node.body:
            owner.setdefault(inner, node.id)
    return owner


def _circular_bodies(owner: Mapping[str, str]) -> AbstractSet[str]:
    """Nodes that contain themselves through bodies."""
    edges = [WorkflowEdge(source=inner, target=outer) for inner, outer in owner.items()]
    return find_cycles(owner, edges).keys()


def _containers(name: str, owner: Mapping[str, str]) -> Iterator[str]:
    """The containers of a node from the innermost outwards, each once."""
    seen: set[str] = set()
    while name in owner and (name := owner[name]) not in seen:
        seen.add(name)
        yield name


def _check_settings(workflow: Workflow) -> Iterator[ValidationIssue]:
    yield from duration_issues(workflow.timeout, "settings.timeout")
    yield from duration_issues(workflow.compensation_timeout, "settings.compensationTimeout")
    yield from range_issues(workflow.parallel, "settings.maxParallel", 1, _MAX_PARALLEL)
    for name in workflow.variables:
        yield from variable_name_issues(name, "variables")
    for name, text in workflow.outputs.items():
        yield from expression_issues(text, f"outputs.{name}")
    for name, n in Counter(each.name for each in workflow.inputs).items():
        yield from variable_name_issues(name, "inputs") if name else ()
        if n > 1:
            yield ValidationIssue(key="twice", where=name, field="inputs")
    for each in workflow.inputs:
        if each.kind == "choice" and not each.options:
            yield ValidationIssue(key="missing", where=each.name, field="inputs.options")


def _check_scope_graph(
    name: str, scope: ScopeGraph, *, is_whole: bool
) -> Iterator[ValidationIssue]:
    """Check that every cycle has a bound and that every node is reachable."""
    targets = {node: [edge.target for edge in scope.edges_from(node)] for node in scope.nodes}
    out = [edge for edges in scope.outgoing.values() for edge in edges]
    inside = [edge for edge in out if {edge.source, edge.target} <= scope.nodes.keys()]
    cycles = find_cycles(scope.nodes, inside)
    for n in sorted(set(cycles.values())):
        names = [node for node in scope.nodes if cycles.get(node) == n]
        facts = {"nodes": " → ".join(names[:10])}
        around = [edge for edge in inside if {edge.source, edge.target} <= {*names}]
        back = find_retreating_edges(names[:1], around)[-1]
        yield ValidationIssue(key="unbounded", where=back.name, facts=facts)
    if name == ROOT_GRAPH and is_whole:
        yield from _check_reachability(scope, targets)
    # Every target in the settings needs an edge.
    for node in scope.nodes.values():
        for target in node.targets:
            if target in scope.nodes and target not in targets[node.id]:
                yield ValidationIssue(
                    key="no_edge", where=node.id, field=node.type, facts={"node": target}
                )


def _check_reachability(
    scope: ScopeGraph, targets: Mapping[str, Sequence[str]]
) -> Iterator[ValidationIssue]:
    starts = [node.id for node in scope.nodes.values() if node.role is NodeRole.START]
    if len(starts) > 1:
        yield ValidationIssue(key="several_starts", where=starts[1])
    if not starts:
        return
    reached = reachable(starts, lambda node: targets.get(node, ()))
    for node in scope.nodes:
        if node not in reached:
            yield ValidationIssue(key="unreachable", where=node)
    if scope.end_nodes and reached.isdisjoint(scope.end_nodes):
        yield ValidationIssue(key="no_way_to_end")


_SUPPORTED_VERSIONS = ("1", "1.0", "2", "2.0")
_UNSAFE_PERSONA = re.compile(r"[/\\\x00-\x1f]|^\.")


def find_authoring_mistakes(workflow: Workflow) -> Iterator[ValidationIssue]:
    if workflow.version not in _SUPPORTED_VERSIONS:
        facts = {"given": workflow.version, "known": ", ".join(_SUPPORTED_VERSIONS)}
        yield ValidationIssue(key="not_one_of", field="version", facts=facts)
    coming = Counter(edge.target for edge in workflow.edges)
    for node in workflow.nodes:
        if node.settings is not None:
            for fault in node.spec.check_incoming(node.settings, coming[node.id]):
                yield replace(fault, where=node.id, field=f"{node.type}.{fault.field}")
        if _UNSAFE_PERSONA.search(node.persona):
            yield ValidationIssue(key="bad_persona", where=node.id, field="persona")
    if any(cancels_others(node) for node in workflow.nodes):
        for graph in WorkflowTopology(workflow).scope_graphs.values():
            for node in filter(cancels_others, graph.nodes.values()):
                yield from _check_cancelled_branches(graph, node.id)


def _check_cancelled_branches(graph: ScopeGraph, join: str) -> Iterator[ValidationIssue]:
    """Branches that a join cancels begin at one `parallel` node and end at the join."""
    nodes = tuple(graph.nodes.values())
    edges = [edge for each in graph.nodes for edge in graph.edges_from(each)]
    forward = (edge for each in graph.nodes for edge in graph.outgoing.get(each, ()))
    fork, branches = find_branches(nodes, forward, join)
    if not branches:
        yield ValidationIssue(key="no_common_fork", where=join, field="join.cancelOthers")
        return
    for edge in edges:
        facts = {"source": edge.source, "target": edge.target, "fork": fork}
        if edge.source in branches and edge.target not in {*branches, join}:
            yield ValidationIssue(key="edge_leaves_branch", where=edge.name, facts=facts)
        elif edge.target in branches and edge.source not in {*branches, fork}:
            yield ValidationIssue(key="edge_enters_branch", where=edge.name, facts=facts)


class _OutputChecker:
    """Finds uses of declared outputs that can never be right."""

    def __init__(self, nodes: Sequence[WorkflowNode]) -> None:
        self._fields: dict[str, Mapping[str, OutputField]] = {}
        for node in nodes:
            if node.output:
                fields = {fold_name(each.name): each for each in node.output}
                self._fields[node.id] = self._fields[node.id.replace("-", "_")] = fields

    def issues(self, text: str) -> Iterator[ValidationIssue]:
        """Check a valid expression. The issues have no place yet."""
        if not self._fields:
            return
        for node in walk_nodes(syntax_tree(text)):
            if node.op is ExpressionOp.MEMBER:
                yield from self._unknown_field(node)
            elif node.op is ExpressionOp.COMPARE:
                operands = node.operands
                for sign, one, two in zip(node.value, operands, operands[1:], strict=False):
                    yield from self._comparison(sign, one, two)

    def comparison_issues(self, text: str, values: Iterable[object]) -> Iterator[ValidationIssue]:
        if text and self._fields and (field := self._field(syntax_tree(text))) is not None:
            for value in values:
                for issue in _mismatch(field, "==", value, loose=True):
                    yield replace(issue, written=value if isinstance(value, str) else "")

    def _unknown_field(self, node: ExpressionNode) -> Iterator[ValidationIssue]:
        name, part = _output_member(node)
        known = self._fields.get(name)
        if known is None or not part or part in _COMMON_FIELDS or fold_name(part) in known:
            return
        names = [each.name for each in known.values()]
        facts = {"reference": f"outputs.{name}.{part}"[:60], "known": ", ".join(names)[:_MAX_KNOWN]}
        yield ValidationIssue(
            key="unknown_output_field", facts=facts, suggestion=similar_name(part, names)
        )

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
            yield ValidationIssue(
                key="not_an_option",
                facts={**facts, "known": known},
                suggestion=similar_name(value, field.options),
            )
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
    """Whether the text is a number where a number is expected."""
    try:
        return field.kind in _NUMERIC and float(value) == float(value)
    except (TypeError, ValueError):
        return False
