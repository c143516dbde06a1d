"""Stored plans, and their changes while a task runs: replanning and inserted steps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count, pairwise

from bot.engine.workflow.definition import (
    ROOT_GRAPH,
    Workflow,
    WorkflowEdge,
    WorkflowNode,
    WorkflowTopology,
)
from bot.engine.workflow.expressions.evaluator import escape_placeholders, references
from bot.engine.workflow.node_runs import (
    ActivationPath,
    compensated_path,
    enclosing_round,
    is_left_out,
    parse_activation,
    taken_edges,
)
from bot.engine.workflow.nodes.contract import BodyConfig, NodeRole
from bot.engine.workflow.nodes.registry import NodeType
from bot.engine.workflow.validation import validate_workflow
from storage.records.tasks import NodeRun, NodeStatus

_REFERENCE = re.compile(r"""\b(outputs|nodeStates)(\s*\.\s*|\s*\[\s*["'])(\w[\w-]*)""")


def graft_workflow(
    new: Workflow,
    *,
    finished: Sequence[WorkflowNode],
    leading: Sequence[WorkflowNode],
    taken_ids: Iterable[str],
) -> Workflow:
    """Put `new` behind nodes of an earlier plan.

    `finished` nodes stay without outgoing edges; `leading` nodes run in order before all of `new`.
    Nodes of `new` whose id is in `taken_ids` are renamed. The start of `new` is dropped.
    """
    taken = {*taken_ids, *(node.id for node in (*finished, *leading))}
    names = taken | {node.id for node in new.nodes}
    conflicts = [node.id for node in new.nodes if node.id in taken]
    whole = rename_nodes(new, {name: _unused_name(name[:56], names) for name in conflicts})
    starts = {node.id for node in whole.nodes if node.role is NodeRole.START}
    roots = [edge.target for edge in whole.edges if edge.source in starts] or _root_nodes(whole)
    edges = [edge for edge in whole.edges if edge.source not in starts]
    if leading:
        joints = [WorkflowEdge(source=leading[-1].id, target=root) for root in roots]
        edges = [*_chain_edges(leading), *joints, *edges]
    # The nodes that a finished loop or switch refers to are gone.
    past = [
        replace(node, type=NodeType.TASK, config=None) if node.body or node.targets else node
        for node in finished
        if not node.role.is_terminal
    ]
    nodes = [*past, *leading, *(node for node in whole.nodes if node.id not in starts)]
    return replace(whole, nodes=tuple(nodes), edges=tuple(edges))


def _chain_edges(nodes: Sequence[WorkflowNode]) -> tuple[WorkflowEdge, ...]:
    return tuple(WorkflowEdge(source=one.id, target=two.id) for one, two in pairwise(nodes))


def rename_nodes(workflow: Workflow, names: Mapping[str, str]) -> Workflow:
    """Rename nodes, including references in expressions."""
    return replace(
        workflow,
        nodes=tuple(_rename_in_node(node, names) for node in workflow.nodes),
        edges=tuple(
            replace(
                edge,
                source=names.get(edge.source, edge.source),
                target=names.get(edge.target, edge.target),
                condition=_rename_in_text(edge.condition, names),
                id="",
            )
            for edge in workflow.edges
        ),
        outputs={name: _rename_in_text(text, names) for name, text in workflow.outputs.items()},
    )


def _unused_name(name: str, taken: set[str]) -> str:
    return next(f"{name}_{n}" for n in count(2) if f"{name}_{n}" not in taken)


def _rename_in_node(node: WorkflowNode, names: Mapping[str, str]) -> WorkflowNode:
    return replace(
        node,
        id=names.get(node.id, node.id),
        on_cancel=names.get(node.on_cancel, node.on_cancel),
        title=_rename_in_text(node.title, names),
        detail=_rename_in_text(node.detail, names),
        deliverables=tuple(_rename_in_text(name, names) for name in node.deliverables),
        config=node.config
        and node.spec.rewrite(
            node.config,
            lambda text: _rename_in_text(text, names),
            lambda other: names.get(other, other),
        ),
    )


def _rename_in_text(text: str, names: Mapping[str, str]) -> str:
    """Expressions may write the dashes of an id as underscores."""
    aliases = {name.replace("-", "_"): other.replace("-", "_") for name, other in names.items()}

    def put(found: re.Match[str]) -> str:
        bracket, name = "[" in found[2], found[3]
        own, _, rest = (name, "", "") if bracket else name.partition("-")
        other = names.get(own) if bracket else aliases.get(own)
        rest = f"-{rest}" if not bracket and "-" in name else ""
        return found[0] if other is None else f"{found[1]}{found[2]}{other}{rest}"

    return _REFERENCE.sub(put, text) if names else text


_EARLIEST = datetime.min.replace(tzinfo=UTC)


def inject_into_graph(
    workflow: Workflow, runs: Mapping[str, NodeRun], new: Sequence[WorkflowNode]
) -> Workflow:
    """Insert steps behind the running node, or else behind the one finished last, or else at the
    start. The node's successors move behind the new steps, and their conditions refer to the last
    new step. Behind an end they get an end of their own, because a workflow is complete at its
    ends."""
    if not new:
        return workflow
    node, run = _last_begun(workflow, runs)
    if node is not None and node.role is NodeRole.END:
        taken = {each.id for each in (*workflow.nodes, *new)}
        new = (*new, replace(node, id=_unused_name(node.id[:56], taken)))
    if node is None:
        first = [WorkflowEdge(source=new[-1].id, target=each) for each in _root_nodes(workflow)]
        edges = (*workflow.edges, *_chain_edges(new), *first)
        return replace(workflow, nodes=(*new, *workflow.nodes), edges=edges)
    if run is not None and run.status is NodeStatus.DONE:
        around = _edges_after_done(workflow, node, run, new, runs)
    else:
        around = _edges_after_running(workflow, node, new)
    at = workflow.nodes.index(node) + 1
    nodes = (*workflow.nodes[:at], *new, *workflow.nodes[at:])
    edges = (*around, *_chain_edges(new))
    return _extend_body(replace(workflow, nodes=nodes, edges=edges), node, new)


def _last_begun(
    workflow: Workflow, runs: Mapping[str, NodeRun]
) -> tuple[WorkflowNode | None, NodeRun | None]:
    """The node that started last, with its run; otherwise the start node, if there is one."""
    known = workflow.nodes_by_id
    begun = [
        (known[place.node], run)
        for path, run in runs.items()
        if (place := parse_activation(path)) is not None
        and place.node in known
        and run.status in {NodeStatus.RUNNING, NodeStatus.DONE}
        and not _is_in_finished_round(place, runs)
    ]
    if begun:
        return max(reversed(begun), key=lambda each: _recency(each[1]))
    return next((node for node in workflow.nodes if node.role is NodeRole.START), None), None


def _is_in_finished_round(place: ActivationPath, runs: Mapping[str, NodeRun]) -> bool:
    """Steps inserted into a finished round would never run."""
    around = enclosing_round(place.scope)
    run = None if around is None else runs.get(around[0])
    return run is not None and run.status.is_settled


def _recency(run: NodeRun) -> tuple[bool, datetime]:
    return run.status is NodeStatus.RUNNING, run.ended_at or run.started_at or _EARLIEST


def _edges_after_running(
    workflow: Workflow, node: WorkflowNode, new: Sequence[WorkflowNode]
) -> Sequence[WorkflowEdge]:
    last = new[-1].id

    def moved(edge: WorkflowEdge) -> WorkflowEdge:
        condition = _rename_in_condition(edge.condition, node.id, last)
        return replace(edge, id=edge.name, source=last, condition=condition)

    edges = [moved(edge) if edge.source == node.id else edge for edge in workflow.edges]
    return [*edges, WorkflowEdge(source=node.id, target=new[0].id)]


def _edges_after_done(
    workflow: Workflow,
    node: WorkflowNode,
    run: NodeRun,
    new: Sequence[WorkflowNode],
    runs: Mapping[str, NodeRun],
) -> Sequence[WorkflowEdge]:
    """The edges of a finished node are already decided. Those that were taken lead to the new steps
    first, unless their target has started.
    """
    chosen, edges = taken_edges(run), list[WorkflowEdge]()
    moved: list[WorkflowEdge] = []
    for edge in workflow.edges:
        taken = edge.name in chosen if chosen is not None else not edge.condition
        begun = edge.target in runs and runs[edge.target].status is not NodeStatus.PENDING
        if edge.source != node.id or not taken or begun:
            edges.append(edge)
        else:
            moved.append(edge)
    if not moved:
        return [*edges, WorkflowEdge(source=node.id, target=new[0].id)]
    first = replace(moved[0], id=moved[0].name, target=new[0].id)
    behind = [WorkflowEdge(source=new[-1].id, target=edge.target) for edge in moved]
    return [*edges, first, *behind]


def _rename_in_condition(condition: str, old: str, new: str) -> str:
    plain = re.sub(rf"\boutputs\.{re.escape(old)}\b", f"outputs.{new}", condition)
    return re.sub(rf"""outputs\[(["']){re.escape(old)}\1\]""", f"outputs['{new}']", plain)


def _root_nodes(workflow: Workflow) -> Sequence[str]:
    scope = WorkflowTopology(workflow).scope_graphs[ROOT_GRAPH]
    return [node for node in scope.nodes if not scope.incoming.get(node)]


def _extend_body(workflow: Workflow, node: WorkflowNode, new: Sequence[WorkflowNode]) -> Workflow:
    """Add the new steps to the body that contains `node`."""
    names = tuple(each.id for each in new)

    def grown(each: WorkflowNode) -> WorkflowNode:
        if isinstance(each.config, BodyConfig) and node.id in each.config.body:
            return replace(each, config=replace(each.config, body=(*each.config.body, *names)))
        return each

    return replace(workflow, nodes=tuple(map(grown, workflow.nodes)))


HUMAN = NodeType.HUMAN


def linear_workflow(plan: str, nodes: Iterable[WorkflowNode]) -> Workflow:
    """A workflow that runs the nodes one after the other, as in plans without branches."""
    chain = tuple(nodes)
    return validate_workflow(Workflow(plan=plan, nodes=chain, edges=_chain_edges(chain)))


def is_chain(workflow: Workflow) -> bool:
    """Whether the plan consists only of steps, without loops or choices."""
    return all(node.role.is_step for node in workflow.nodes) and not any(
        edge.condition or edge.max_loops for edge in workflow.edges
    )


def merge_with_finished(old: Workflow, runs: Mapping[str, NodeRun], new: Workflow) -> Workflow:
    """Replace the rest of a plan. Settled nodes come first, then pending steps that people added,
    then the new plan under unused ids. Branches that were not reached are dropped; so are cancelled
    ones, except for what was undone.
    """
    over = [node for node in old.nodes if _status_at(runs, node.id).is_settled]
    undone = {compensated_path(path) for path in runs}
    settled = [node for node in over if node.id in undone or not is_left_out(runs[node.id])]
    undoing = {node.on_cancel for node in settled}
    settled += [node for node in old.nodes if node.id in undoing]
    given = pending_injected_nodes(old, runs)
    kept = {name: text for name, text in old.outputs.items() if _refers_only_to(text, settled)}
    new = replace(
        new,
        served=old.served,
        name=new.name or old.name,
        timeout=old.timeout if new.timeout is None else new.timeout,
        compensation_timeout=old.compensation_timeout,
        variables={**old.variables, **new.variables},
        inputs=old.inputs,
        values=old.values,
        past=_past_loops(old, runs),
    )
    if is_chain(old) and is_chain(new):
        names = zip(new.nodes, _unused_ids(old), strict=False)
        return _as_chain(new, [*settled, *given, *(replace(node, id=name) for node, name in names)])
    # In a plan with branches, settled nodes lose their outgoing edges.
    whole = graft_workflow(
        new,
        finished=settled,
        leading=given,
        taken_ids=[node.id for node in (*old.nodes, *old.past)],
    )
    return replace(whole, outputs={**kept, **whole.outputs})


def _past_loops(old: Workflow, runs: Mapping[str, NodeRun]) -> tuple[WorkflowNode, ...]:
    """The loops that have run and in whose rounds something may have to be undone, with all that
    is inside them."""
    outermost = {path.partition("[")[0].partition("#")[0] for path in runs if "[" in path}
    known, kept = old.nodes_by_id, {node.id: node for node in old.past}
    for name in outermost & known.keys():
        inside = old.nodes_inside([name])
        if any(known[each].on_cancel for each in inside):
            kept |= {node.id: node for node in old.nodes if node.id == name or node.id in inside}
    return tuple(kept.values())


def repeats_open_steps(new: Workflow, old: Workflow, runs: Mapping[str, NodeRun]) -> bool:
    """Whether a new plan consists of exactly the steps that it should replace."""
    open_ = [node.title for node in old.nodes if not _status_at(runs, node.id).is_settled]
    return len(open_) > 1 and [node.title for node in new.nodes] == open_


def _refers_only_to(text: str, kept: Sequence[WorkflowNode]) -> bool:
    """Whether the expression can still be evaluated if only these nodes are left."""
    known = {name for node in kept for name in (node.id, node.id.replace("-", "_"))}
    members = [part for name, part in references(text) if name in {"outputs", "nodeStates"}]
    return all(part is None or part in known for part in members)


def pending_injected_nodes(
    workflow: Workflow, runs: Mapping[str, NodeRun]
) -> tuple[WorkflowNode, ...]:
    """Steps that people added and that have not started yet."""
    places = (parse_activation(path) for path, run in runs.items() if run.started_at)
    begun = {place.node for place in places if place is not None}
    return tuple(node for node in workflow.nodes if node.given and node.id not in begun)


def insert_steps(
    workflow: Workflow, runs: Mapping[str, NodeRun], titles: Iterable[str]
) -> Workflow:
    """Insert steps after all that have started and before all others."""
    new = [
        WorkflowNode(id=name, title=escape_placeholders(title), given=True)
        for title, name in zip(titles, _unused_ids(workflow), strict=False)
    ]
    if not is_chain(workflow):
        return validate_workflow(inject_into_graph(workflow, runs, new))
    begun = [node for node in workflow.nodes if _status_at(runs, node.id) is not NodeStatus.PENDING]
    others = [node for node in workflow.nodes if node not in begun]
    return _as_chain(workflow, [*begun, *new, *others])


def _as_chain(workflow: Workflow, nodes: Sequence[WorkflowNode]) -> Workflow:
    """Chain the nodes; compensations stay outside the chain."""
    whole = Workflow(plan="", nodes=tuple(nodes))
    chain = [node for node in nodes if node.id not in whole.compensations]
    linked = validate_workflow(replace(whole, edges=_chain_edges(chain)))
    return replace(workflow, nodes=whole.nodes, edges=linked.edges)


def _unused_ids(workflow: Workflow) -> Iterator[str]:
    taken = {node.id for node in (*workflow.nodes, *workflow.past)}
    return (f"s{n}" for n in count(1) if f"s{n}" not in taken)


def _status_at(runs: Mapping[str, NodeRun], path: str) -> NodeStatus:
    return runs[path].status if path in runs else NodeStatus.PENDING
