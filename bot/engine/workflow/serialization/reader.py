"""The file format of workflows: reads JSON, YAML or Markdown into valid workflows, with the
completion of partial ones (start and end nodes, missing edges, edge ids and loop limits), and
writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import count, pairwise
from typing import Any

from bot.engine.llm.limit_overrides import NO_OVERRIDES, LimitOverrides
from bot.engine.workflow.definition import (
    FORMAT_VERSION,
    OnError,
    RetryPolicy,
    Workflow,
    WorkflowEdge,
    WorkflowNode,
    find_back_edges,
    find_cycles,
    find_retreating_edges,
)
from bot.engine.workflow.expressions.operations import fold_name
from bot.engine.workflow.field_reader import (
    FieldReader,
    InvalidGraph,
    ValidationIssue,
)
from bot.engine.workflow.input_fields import InputDefinition, input_to_data, read_input
from bot.engine.workflow.nodes.contract import NodeConfig, NodeRole, NodeTypeSpec, OnLimit
from bot.engine.workflow.nodes.registry import NodeType
from bot.engine.workflow.output_schema import output_to_data, read_output
from bot.engine.workflow.serialization.data_parser import clean_data, parse_data, strip_fence
from bot.engine.workflow.serialization.markdown_parser import is_markdown, parse_markdown
from bot.engine.workflow.validation import (
    find_authoring_mistakes,
    find_issues,
    find_unknown_references,
)


def read_config(node: FieldReader, spec: NodeTypeSpec[Any]) -> NodeConfig | None:
    """Read the settings from the block named like the type, from `config`, or from the node
    itself."""
    _refuse_other_blocks(node, spec)
    block = _config_block(node, spec) if spec.config is not None else None
    if block is None:
        return None
    config: NodeConfig = spec.read(block)
    block.check_unknown_names()
    return config


def _config_block(node: FieldReader, spec: NodeTypeSpec[Any]) -> FieldReader | None:
    given = node.take(spec.name, "config", f"{spec.name}Config")
    if given is None:
        inside = [name for name in (*spec.fields, *spec.inline_fields) if node.has(name)]
        return node.subset(inside, path=spec.name) if inside else None
    is_short = spec.shorthand and (spec.shorthand_takes_list or not isinstance(given, list))
    if is_short and not isinstance(given, Mapping):
        # The other settings may stand beside it.
        others = (name for name in (*spec.fields, *spec.inline_fields) if name != spec.shorthand)
        beside = {name: node.take(name) for name in others if node.has(name)}
        given = {spec.shorthand: given, **beside}
    if isinstance(given, Mapping):
        return FieldReader(given, node.issues, where=node.where, path=spec.name)
    node.add("not_a_group", spec.name)
    return None


def _refuse_other_blocks(node: FieldReader, spec: NodeTypeSpec[Any]) -> None:
    """Report a block of another type, which would otherwise be ignored silently."""
    for kind in NodeType:
        other = kind.spec
        if other.config is not None and other is not spec and node.has(other.name):
            node.take(other.name)
            node.add("wrong_config", other.name)


_MAX_TITLE = 200
_MAX_NODE_ID = 64
COMPENSATION_NAMES = ("onCancel", "compensation")
_TYPE_NAMES = {name: kind for kind in NodeType for name in (kind.value, *kind.spec.aliases)}
_FOREIGN_NODE_FIELDS = {
    **dict.fromkeys(("needs", "depends", "dependson", "requires", "runafter"), "edges"),
    **dict.fromkeys(("next", "goto", "transitions", "connections"), "edges"),
    **dict.fromkeys(("if", "when", "condition", "onlyif", "runif"), "edges[].condition"),
    **dict.fromkeys(("uses", "function", "agenttype"), "type"),
    **dict.fromkeys(("message", "instructions", "systemprompt"), "prompt"),
}
"""What other programs write in a node, folded, and where it is said here."""
_FOREIGN_TOP_FIELDS = {
    **dict.fromkeys(("jobs", "tasks", "stages", "states", "activities"), "nodes"),
    **dict.fromkeys(("connections", "transitions", "links"), "edges"),
    **dict.fromkeys(("on", "trigger", "triggers"), "/trigger"),
    **dict.fromkeys(("schedule", "scheduleinterval", "cron"), "/schedule"),
    **dict.fromkeys(("env", "state", "vars"), "variables"),
}
_ELSE_WORDS = {"else", "default", "otherwise", "否则", "其他"}
_ANY_NAME = ("unknown_output", "unknown_variable", "unknown_name")
_UNSURE_REFERENCES: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("id", "nodes", "steps", "type"), _ANY_NAME),
    **dict.fromkeys(("assign", "script", "variables"), ("unknown_variable",)),
    **dict.fromkeys(("loop", "foreach"), ("unknown_name",)),
    "inputs": ("unknown_input", "unknown_name"),
}
"""Which references cannot be judged if a field could not be read."""
_NO_PERSONA = {"auto", "none", "default"}


def read_workflow(text: str) -> Workflow:
    """Read a complete, valid workflow. Blocks for some seconds if it is large. Raises InvalidGraph
    with all issues."""
    try:
        return _read_parsed(*_parse_draft(text))
    except InvalidGraph as bad:
        raise InvalidGraph(_find_issues_behind(text, bad.issues)) from bad


def _read_parsed(data: Any, issues: Iterable[ValidationIssue]) -> Workflow:
    workflow, faults = read_draft(data, issues)
    return complete_and_check(workflow, faults)


def _find_issues_behind(text: str, issues: Sequence[ValidationIssue]) -> Sequence[ValidationIssue]:
    """All issues of a text whose syntax is broken; the given ones if it is not."""
    # Imported with the first broken text.
    from bot.engine.workflow.serialization import syntax_recovery
    from bot.engine.workflow.serialization.positions import find_places

    if not any(map(syntax_recovery.is_broken, issues)):
        return issues
    readable = syntax_recovery.recover_text(strip_fence(text))
    if not readable.faults:
        return issues
    others: Sequence[ValidationIssue] = ()
    try:
        _read_parsed(*parse_data(readable.text))
    except InvalidGraph as bad:
        others = bad.issues
    placed = zip(others, find_places(readable.text, others), strict=True)
    return (
        *readable.faults,
        *(
            replace(
                each,
                field=place.field or each.field,
                written=place.written,
                facts={
                    **each.facts,
                    "line": place.line,
                    "column": place.column + readable.shifts.get(place.line, 0),
                },
            )
            for each, place in placed
            if readable.may_tell(each, place.line)
        ),
    )


def parse_text(text: str) -> Any:
    """Parse the text into data without reading it as a workflow. Raises InvalidGraph."""
    data, issues = _parse_draft(text)
    if issues:
        raise InvalidGraph(issues)
    return data


def _parse_draft(text: str) -> tuple[Any, list[ValidationIssue]]:
    inside = strip_fence(text)
    if is_markdown(inside):
        return clean_data(parse_markdown(inside)), []
    return parse_data(inside)


def workflow_from_data(data: Any, *, require_name: bool = True) -> Workflow:
    """Like `read_workflow`, for parsed data. `require_name` makes a missing name an issue. Raises
    InvalidGraph."""
    workflow, faults = read_draft(data, require_name=require_name)
    return complete_and_check(workflow, faults)


def complete_and_check(
    draft: Workflow, issues: Iterable[ValidationIssue] = (), *, default_max_loops: int | None = None
) -> Workflow:
    """Complete and validate; `default_max_loops` bounds unbounded back edges. Raises InvalidGraph
    with these issues and its own."""
    workflow = complete_workflow(draft)
    if default_max_loops is not None:
        workflow = with_loop_bounds(workflow, default_max_loops)
    # The author of an unnamed edge knows it by its two nodes.
    written = {edge.id for edge in draft.edges}
    ours = {
        edge.id: f"{edge.source}→{edge.target}"[:100]
        for edge in workflow.edges
        if edge.id not in written
    }
    before = {(each.key, each.where, each.field): each for each in issues}
    # If a definition could not be read, its name would falsely appear unknown.
    unsure = {
        key
        for each in before.values()
        for key in _UNSURE_REFERENCES.get(re.split(r"[.\[]", each.field)[0], ())
    }
    if any(node.type not in set(NodeType) for node in workflow.nodes):
        unsure |= {"unknown_variable", "unknown_name"}
    unknown = (each for each in find_unknown_references(workflow) if each.key not in unsure)
    found = [
        replace(each, where=ours.get(each.where, each.where))
        for each in (*find_issues(workflow), *find_authoring_mistakes(workflow), *unknown)
    ]
    places = {(where, field) for _, where, field in before}
    own = [each for each in found if (each.where, each.field) not in places]
    if before or own:
        raise InvalidGraph([*before.values(), *own])
    return workflow


def read_draft(
    data: Any, found: Iterable[ValidationIssue] = (), *, require_name: bool = True
) -> tuple[Workflow, list[ValidationIssue]]:
    """Return the readable parts and the issues of the others, after those already `found`."""
    issues = list(found)
    if isinstance(data, Mapping) and "nodes" not in data and len(data) == 1:
        data = data.get("workflow", data)
    if not isinstance(data, Mapping):
        raise InvalidGraph(issues or [ValidationIssue(key="no_workflow")])
    top = FieldReader(data, issues)
    workflow = read_top(top)
    told = {each.field for each in issues if not each.where}
    if not workflow.nodes and not workflow.answer and "nodes" not in told:
        top.add("missing", "nodes")
    if require_name and not workflow.name and "name" not in told:
        top.add("missing", "name")
    return workflow, issues


def read_top(top: FieldReader) -> Workflow:
    """Read the whole workflow; issues are added to the reader."""
    nodes = tuple(_read_nodes(top))
    edges = tuple(map(read_edge, top.mappings("edges", key="id")))
    if not top.has("edges"):
        edges = edges_in_order(nodes)
    among = top.nested_reader(top.mapping("settings") or {}, "settings")
    workflow = Workflow(
        plan=top.text("description", "plan", "background"),
        name=top.word("name", "title", limit=_MAX_TITLE),
        version=top.word("version", default=FORMAT_VERSION, limit=20),
        nodes=nodes,
        edges=edges,
        answer=top.text("answer"),
        variables=dict(top.mapping("variables") or {}),
        inputs=tuple(_read_inputs(top)),
        outputs=_read_outputs(top),
        timeout=among.duration("timeout"),
        compensation_timeout=among.duration("compensationTimeout"),
        parallel=among.integer("maxParallel", default=default_parallelism(nodes)),
    )
    top.check_unknown_names(_FOREIGN_TOP_FIELDS)
    among.check_unknown_names()
    return workflow


def _read_inputs(top: FieldReader) -> Iterator[InputDefinition]:
    for each in top.named_mappings("inputs", key="name", plain="default"):
        each.path = "inputs"
        yield read_input(each)


def _read_nodes(top: FieldReader) -> Iterator[WorkflowNode]:
    for node in top.named_mappings("nodes", "steps", key="id"):
        given = node.take("id")
        if given is None or not str(given).strip():
            node.add("missing", "id")
        inside = node.take(*COMPENSATION_NAMES)
        read_ = read_node(node)
        yield read_
        if isinstance(inside, Mapping):
            undoing = FieldReader(
                {"id": read_.on_cancel, **inside}, node.issues, where=read_.on_cancel
            )
            yield read_node(undoing)


def _refuse_settings_without_type(node: FieldReader) -> None:
    """Report settings in a node without a type: it would be a step for a worker, and the settings
    would be ignored.
    """
    for kind in NodeType:
        block = (kind.value,) if kind.spec.config is not None else ()
        for field in filter(node.has, (*kind.spec.telling_fields, *block)):
            node.add("wrong_config", field, suggestion=f"type: {kind.value}")
            return


def read_node(node: FieldReader) -> WorkflowNode:
    name = node.word("id", limit=200)
    written = node.word("type", limit=60)
    kind = _TYPE_NAMES.get(fold_name(written))
    if not written:
        _refuse_settings_without_type(node)
    config = read_config(node, kind.spec) if kind is not None else None
    timeout = node.duration("timeout")
    if kind is not None and timeout is not None:
        absorbed = kind.spec.absorb_timeout(config, timeout)
        config, timeout = (config, timeout) if absorbed is None else (absorbed, None)
    persona = node.word("persona", "agent", limit=64)
    read_ = WorkflowNode(
        id=name or node.where,
        title=_one_line(node.word("name", "title", default=name, limit=2_000)),
        detail=node.text("prompt", "detail", "description", "instruction"),
        type=kind.value if kind is not None else written,
        repeatable=node.boolean("repeatable", default=_is_repeatable(kind, config)),
        persona="" if persona.casefold() in _NO_PERSONA else persona,
        config=config,
        timeout=timeout,
        on_error=node.enum_value(OnError, "onError", default=OnError.FAIL),
        retry=_read_retry(node),
        auto_wait=node.boolean("autoWait", default=False),
        deliverables=node.word_list("deliverables"),
        output=read_output(node),
        limits=_read_limits(node),
        on_cancel=_read_compensation(node, name),
    )
    if kind is not None:
        node.check_unknown_names(_FOREIGN_NODE_FIELDS)
    return read_


def _read_compensation(node: FieldReader, name: str) -> str:
    """The id of the node that undoes this one. A compensation that is written inside the node gets
    an id.
    """
    given = node.take(*COMPENSATION_NAMES)
    if isinstance(given, Mapping):
        return str(given.get("id") or f"{name}_undo")[:_MAX_NODE_ID]
    return node.word(*COMPENSATION_NAMES, limit=_MAX_NODE_ID)


def _is_repeatable(kind: NodeType | None, config: NodeConfig | None) -> bool:
    """Whether a node is repeatable unless its author says otherwise."""
    return kind is None or config is None or kind.spec.is_repeatable(config)


def _read_retry(node: FieldReader) -> RetryPolicy | None:
    given = node.take("retry", "retries")
    if given is None:
        return None
    if not isinstance(given, Mapping):
        given = {"maxAttempts": given}
    return read_retry_fields(FieldReader(given, node.issues, where=node.where, path="retry"))


def read_retry_fields(retry: FieldReader) -> RetryPolicy:
    policy = RetryPolicy(
        max_attempts=retry.integer("maxAttempts", default=3),
        backoff_ms=retry.integer("backoffMs", default=2_000),
        multiplier=retry.number("backoffMultiplier", "multiplier", default=2.0),
    )
    retry.check_unknown_names()
    return policy


def _read_limits(node: FieldReader) -> LimitOverrides:
    given = node.mapping("limits")
    if given is None:
        return NO_OVERRIDES
    return read_limit_fields(FieldReader(given, node.issues, where=node.where, path="limits"))


def read_limit_fields(limits: FieldReader) -> LimitOverrides:
    def whole_number(name: str) -> int | None:
        is_given = limits.has(name)
        number = limits.integer(name, default=0)
        return number if is_given else None

    read_ = LimitOverrides(
        turns=whole_number("turns"),
        tokens=whole_number("tokens"),
        seconds=limits.duration("seconds"),
    )
    limits.check_unknown_names()
    return read_


def read_edge(edge: FieldReader) -> WorkflowEdge:
    name = edge.word("id", limit=64)
    source, target = edge.word("from", "source", limit=200), edge.word("to", "target", limit=200)
    if not name and source and target:
        edge.where = f"{source}→{target}"[:100]
    for field, given in (("source", source), ("target", target)):
        if not given:
            edge.add("missing", field)
    condition = edge.expression("condition", "when")
    is_bounded, bound = edge.has("maxLoops"), edge.integer("maxLoops", default=1)
    read_ = WorkflowEdge(
        id=name,
        source=source,
        target=target,
        condition="" if condition.casefold() in _ELSE_WORDS else condition,
        max_loops=bound if is_bounded else None,
        on_limit=edge.enum_value(OnLimit, "onLimit", default=OnLimit.CONTINUE),
        label=_one_line(edge.word("label")),
    )
    edge.check_unknown_names({"if": "condition"})
    return read_


def _read_outputs(top: FieldReader) -> Mapping[str, str]:
    given = top.mapping("outputs") or {}
    return {
        name: FieldReader({name: text}, top.issues, path="outputs").expression(name)
        for name, text in given.items()
    }


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_MAX_TITLE]


_DEFAULT_PARALLEL = 3


def complete_workflow(workflow: Workflow) -> Workflow:
    """Add everything implicit. Idempotent; invalid parts stay invalid."""
    if not workflow.nodes:
        return workflow
    # Edges between a loop and its own body are redundant.
    inside = {(node.id, inner) for node in workflow.nodes for inner in node.body}
    edges = [
        edge
        for edge in workflow.edges
        if not {(edge.source, edge.target), (edge.target, edge.source)} & inside
    ]
    nodes, edges = _add_start_and_end(workflow, [*edges, *_missing_target_edges(workflow, edges)])
    return replace(workflow, nodes=tuple(nodes), edges=tuple(_name_edges(edges)))


def edges_in_order(nodes: Sequence[WorkflowNode]) -> tuple[WorkflowEdge, ...]:
    """The implicit edges of a workflow without written edges: each node after the one before it, in
    bodies too. Empty if the nodes branch."""
    if any(node.role.is_branching for node in nodes):
        return ()
    owner = {inner: node.id for node in nodes for inner in node.body}
    scopes: dict[str, list[WorkflowNode]] = {}
    outside = {node.on_cancel for node in nodes}
    for node in (each for each in nodes if each.id not in outside):
        scopes.setdefault(owner.get(node.id, ""), []).append(node)
    return tuple(
        WorkflowEdge(source=one.id, target=two.id)
        for scope in scopes.values()
        for one, two in pairwise(scope)
    )


def default_parallelism(nodes: Iterable[WorkflowNode]) -> int:
    """The default number of concurrent steps."""
    is_parallel = any(node.role is NodeRole.FORK or node.has_parallel_rounds for node in nodes)
    return _DEFAULT_PARALLEL if is_parallel else 1


def with_loop_bounds(workflow: Workflow, limit: int) -> Workflow:
    """Give each unbounded back edge a limit."""
    names = [node.id for node in workflow.nodes]
    bounded = {edge.name for edge in find_back_edges(names, workflow.edges)}
    left = [edge for edge in workflow.edges if edge.name not in bounded]
    cycles = find_cycles(names, left)
    back = set(find_retreating_edges([node for node in names if node in cycles], left))
    return replace(
        workflow,
        edges=tuple(
            replace(edge, max_loops=limit) if edge in back and edge.max_loops is None else edge
            for edge in workflow.edges
        ),
    )


def _missing_target_edges(
    workflow: Workflow, edges: Iterable[WorkflowEdge]
) -> Iterator[WorkflowEdge]:
    ways = {(edge.source, edge.target) for edge in edges}
    known = {node.id for node in workflow.nodes}
    for node in workflow.nodes:
        for target in node.targets:
            if target in known and (node.id, target) not in ways:
                yield WorkflowEdge(source=node.id, target=target)


def _add_start_and_end(
    workflow: Workflow, edges: list[WorkflowEdge]
) -> tuple[list[WorkflowNode], list[WorkflowEdge]]:
    """Add a start before all nodes without incoming edges, and an end behind all without outgoing
    edges."""
    nodes = list(workflow.nodes)
    inner = {name for node in nodes for name in node.body} | workflow.compensations
    outer = {node.id: node.role for node in nodes if node.id not in inner}
    outer = outer or {node.id: node.role for node in nodes}
    taken, names = {node.id for node in nodes}, list(outer)
    back = {id(edge) for edge in find_back_edges(names, edges)}
    reached = {edge.target for edge in edges if id(edge) not in back}
    leading = {edge.source for edge in edges}
    if NodeRole.START not in outer.values():
        start = WorkflowNode(id=_unused_id("start", taken), title="start", type=NodeType.START)
        free = [name for name in names if name not in reached and outer[name] is not NodeRole.END]
        nodes = [start, *nodes]
        # Edges may name the node that is added here.
        first = free or ([] if start.id in leading else names[:1])
        edges = [*(WorkflowEdge(source=start.id, target=name) for name in first), *edges]
    if NodeRole.END not in outer.values():
        end = WorkflowNode(id=_unused_id("end", taken), title="end", type=NodeType.END)
        free = [name for name in names if name not in leading and outer[name] is not NodeRole.START]
        nodes = [*nodes, end]
        last = free or ([] if end.id in reached else names[-1:])
        edges = [*edges, *(WorkflowEdge(source=name, target=end.id) for name in last)]
    return nodes, edges


def _name_edges(edges: Sequence[WorkflowEdge]) -> Iterator[WorkflowEdge]:
    taken = {edge.id for edge in edges}
    free = (f"e{n}" for n in count(1) if f"e{n}" not in taken)
    for edge in edges:
        yield edge if edge.id else replace(edge, id=next(free))


def _unused_id(name: str, taken: set[str]) -> str:
    names = (name if n == 1 else f"{name}_{n}" for n in count(1))
    return next(each for each in names if each not in taken)


def workflow_to_data(workflow: Workflow) -> dict[str, Any]:
    """Data for JSON or YAML, without the state of a run such as input values."""
    settings: dict[str, Any] = {}
    if workflow.timeout is not None:
        settings["timeout"] = workflow.timeout
    if workflow.compensation_timeout is not None:
        settings["compensationTimeout"] = workflow.compensation_timeout
    if workflow.parallel != default_parallelism(workflow.nodes):
        settings["maxParallel"] = workflow.parallel
    return _without_empty(
        name=workflow.name,
        description=workflow.plan,
        version=workflow.version,
        inputs=[input_to_data(each) for each in workflow.inputs],
        variables=dict(workflow.variables),
    ) | {
        "nodes": [_node_data(node) for node in workflow.nodes],
        "edges": [_edge_data(edge) for edge in workflow.edges],
        **_without_empty(outputs=dict(workflow.outputs), settings=settings, answer=workflow.answer),
    }


def _node_data(node: WorkflowNode) -> dict[str, Any]:
    data: dict[str, Any] = {"id": node.id, "type": str(node.type), "name": node.title}
    data |= _without_empty(prompt=node.detail, persona=node.persona, timeout=node.timeout)
    if node.on_error is not OnError.FAIL:
        data["onError"] = node.on_error.value
    if node.retry is not None:
        data["retry"] = {
            "maxAttempts": node.retry.max_attempts,
            "backoffMs": node.retry.backoff_ms,
            "backoffMultiplier": node.retry.multiplier,
        }
    data |= _without_empty(
        autoWait=node.auto_wait,
        onCancel=node.on_cancel,
        deliverables=list(node.deliverables),
        output=output_to_data(node.output),
    )
    if limits := {name: value for name, value in asdict(node.limits).items() if value is not None}:
        data["limits"] = limits
    if node.repeatable != (node.config is None or node.spec.is_repeatable(node.config)):
        data["repeatable"] = node.repeatable
    if node.config is not None:
        data[node.config.kind] = node.spec.write(node.config)
    return data


def _edge_data(edge: WorkflowEdge) -> dict[str, Any]:
    data = _without_empty(id=edge.id) | {"from": edge.source, "to": edge.target}
    data |= _without_empty(condition=edge.condition, maxLoops=edge.max_loops, label=edge.label)
    if edge.on_limit is not OnLimit.CONTINUE:
        data["onLimit"] = edge.on_limit.value
    return data


def _without_empty(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}
