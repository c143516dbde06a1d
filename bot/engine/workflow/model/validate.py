"""Whether a workflow can be run. Every fault is found, not only the first."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from bot.engine.workflow.expressions.language import ExpressionError, check
from bot.engine.workflow.expressions.templates import holes
from bot.engine.workflow.model import nodes
from bot.engine.workflow.model.faults import BadGraph, Fault
from bot.engine.workflow.model.layout import OUTERMOST, Layout, Ring, back_edges, circles
from bot.engine.workflow.model.nodes import CONFIGS, NodeType
from bot.engine.workflow.model.references import in_hole
from bot.engine.workflow.model.shape import Edge, Node, Workflow

_ID = re.compile(r"[^\W\d][\w-]{0,63}")
_NAME = re.compile(r"[^\W\d]\w{0,63}")
MOST_NODES = 10_000
MOST_EDGES = 50_000
_DEEPEST = 4
_ZONE = re.compile(r"[A-Za-z0-9_+-]{1,40}(?:/[A-Za-z0-9_+-]{1,40}){0,2}")
_FIRST_YEAR, _LAST_YEAR = 1970, 9000
_MOST_CRON = 200
_SOME_TIME = datetime(2026, 1, 1, tzinfo=UTC)
_MOST_SECONDS = 366 * 86_400
_MOST_AT_ONCE = 20
_MOST_LOOPS = 1_000
_MOST_TRIES, _MOST_BACKOFF_MS, _MOST_FACTOR = 20, 3_600_000, 10
_NEEDS = {kind for kind in CONFIGS if kind not in {NodeType.JOIN, NodeType.HUMAN}}


def validated(workflow: Workflow) -> Workflow:
    """The workflow itself. Raises BadGraph."""
    if faults := tuple(faults_of(workflow)):
        raise BadGraph(faults)
    return workflow


def faults_of(workflow: Workflow) -> Iterator[Fault]:
    if len(workflow.nodes) > MOST_NODES or len(workflow.edges) > MOST_EDGES:
        yield Fault(key="too_large", facts={"nodes": MOST_NODES, "edges": MOST_EDGES})
        return
    yield from _names(workflow)
    known = workflow.by_id
    for node in workflow.nodes:
        yield from _node(node, known)
    for edge in workflow.edges:
        yield from _edge(edge, known)
    yield from _bodies(workflow)
    yield from _settings(workflow)
    # Where bodies hold each other nothing can be said of ways.
    if len(known) == len(workflow.nodes) and not _in_circles(_owners(workflow)):
        for name, ring in Layout(workflow).rings.items():
            yield from _ring(name, ring)


def _names(workflow: Workflow) -> Iterator[Fault]:
    ids = Counter(node.id for node in workflow.nodes)
    for each, n in ids.items():
        if n > 1:
            yield Fault(key="twice", where=each, field="id")
        if not _ID.fullmatch(each):
            yield Fault(key="bad_id", where=each[:40], field="id")
    for name, n in Counter(edge.name for edge in workflow.edges).items():
        if n > 1:
            yield Fault(key="twice", where=name, field="id")
    known = {kind.value for kind in NodeType}
    for node in workflow.nodes:
        if node.type not in known:
            facts = {"type": str(node.type)[:40], "known": ", ".join(sorted(known))}
            yield Fault(key="unknown_type", where=node.id, field="type", facts=facts)


def _node(node: Node, known: Mapping[str, Node]) -> Iterator[Fault]:
    yield from _common(node)
    kind = NodeType(node.type) if node.type in set(NodeType) else NodeType.TASK
    wanted = CONFIGS.get(kind)
    if node.config is None:
        if kind in _NEEDS:
            yield Fault(key="no_config", where=node.id, field=kind.value)
        return
    if wanted is None or not isinstance(node.config, wanted):
        yield Fault(key="wrong_config", where=node.id, field=node.config.kind)
        return
    for fault in _config(node.config, known):
        yield replace(fault, where=node.id, field=f"{kind.value}.{fault.field}")


def _common(node: Node) -> Iterator[Fault]:
    yield from _seconds(node.timeout, node.id, "timeout")
    if node.retry is not None and not (
        1 <= node.retry.max_attempts <= _MOST_TRIES
        and 0 <= node.retry.backoff_ms <= _MOST_BACKOFF_MS
        and 1 <= node.retry.multiplier <= _MOST_FACTOR
    ):
        yield Fault(key="bad_retry", where=node.id, field="retry")
    template = f"{node.title}\n{node.detail}"
    for hole in holes(template):
        for fault in _expression(hole, "prompt"):
            yield in_hole(replace(fault, where=node.id), hole, template)


def _config(config: nodes.Config, known: Mapping[str, Node]) -> Iterator[Fault]:
    match config:
        case nodes.Join(mode="n", n=n) if n < 1:
            yield Fault(key="too_few", field="n", facts={"least": 1})
        case nodes.Human(timeout=timeout):
            yield from _seconds(timeout, "", "timeout")
        case nodes.Delay(seconds=seconds):
            yield from _seconds(seconds, "", "value", zero=True)
        case nodes.Schedule():
            yield from _schedule(config)
        case nodes.Loop():
            yield from _loop(config)
        case nodes.Foreach():
            yield from _foreach(config)
        case nodes.Switch():
            yield from _switch(config, known)
        case nodes.Assign(assignments=assignments):
            yield from _assignments(assignments)
        case nodes.Script():
            yield from _script(config)
        case _:
            pass


def _schedule(config: nodes.Schedule) -> Iterator[Fault]:
    if config.timezone and _zone(config.timezone) is None:
        facts = {"zone": config.timezone[:60]}
        yield Fault(key="unknown_zone", field="timezone", facts=facts)
    if bool(config.cron) == bool(config.at):
        yield Fault(key="cron_or_time", field="cron")
    elif config.at and not _is_time(config.at):
        yield Fault(key="bad_time", field="datetime", facts={"text": config.at[:60]})
    elif config.cron and not _is_cron(config.cron):
        yield Fault(key="bad_cron", field="cron", facts={"text": config.cron[:60]})


def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name) if _ZONE.fullmatch(name) else None
    except (KeyError, ValueError, OSError):
        return None


def _is_time(text: str) -> bool:
    """Also one that any zone can tell."""
    try:
        return _FIRST_YEAR <= datetime.fromisoformat(text).year <= _LAST_YEAR
    except ValueError:
        return False


def _is_cron(text: str) -> bool:
    """Also one whose time ever comes."""
    # Loaded where there is a schedule.
    from cronsim import CronSim, CronSimError

    try:
        next(CronSim(text[:_MOST_CRON], _SOME_TIME))
    except (CronSimError, StopIteration, ValueError, OverflowError):
        return False
    return len(text) <= _MOST_CRON


def _loop(config: nodes.Loop) -> Iterator[Fault]:
    yield from _rounds(config.max_iterations)
    if config.mode == "for":
        for name in ("init", "end", "step"):
            yield from _expression(getattr(config, name), name)
    elif not config.condition.strip():
        yield Fault(key="missing", field="condition")
    else:
        yield from _expression(config.condition, "condition")
    yield from _variable(config.var, "loopVar")


def _foreach(config: nodes.Foreach) -> Iterator[Fault]:
    yield from _rounds(config.max_iterations)
    yield from _expression(config.collection, "collection")
    yield from _variable(config.item_var, "itemVar")
    yield from _variable(config.index_var, "indexVar")
    if not 1 <= config.max_parallel <= _MOST_AT_ONCE:
        yield Fault(
            key="out_of_range", field="maxParallel", facts={"least": 1, "most": _MOST_AT_ONCE}
        )


def _rounds(n: int) -> Iterator[Fault]:
    if not 1 <= n <= MOST_NODES:
        facts = {"least": 1, "most": MOST_NODES}
        yield Fault(key="out_of_range", field="maxIterations", facts=facts)


def _switch(config: nodes.Switch, known: Mapping[str, Node]) -> Iterator[Fault]:
    yield from _expression(config.expression, "expression")
    if not config.cases:
        yield Fault(key="missing", field="cases")
    targets = [("cases", case.target) for case in config.cases]
    targets += [("defaultTarget", config.default)] if config.default else []
    for field, target in targets:
        if target not in known:
            yield Fault(key="unknown_node", field=field, facts={"node": target[:60]})


def _script(config: nodes.Script) -> Iterator[Fault]:
    if config.expression:
        yield from _expression(config.expression, "expression")
    elif not config.assignments:
        yield Fault(key="missing", field="expression")
    if config.output:
        yield from _variable(config.output, "outputVar")
    yield from _assignments(config.assignments, empty=True)


def _assignments(given: Iterable[nodes.Assignment], *, empty: bool = False) -> Iterator[Fault]:
    all_of_them = tuple(given)
    if not all_of_them and not empty:
        yield Fault(key="missing", field="assignments")
    for each in all_of_them:
        yield from _variable(each.variable, "variable")
        if each.is_expression:
            yield from _expression(str(each.value), "value")


def _expression(text: str, field: str) -> Iterator[Fault]:
    if not text.strip():
        yield Fault(key="missing", field=field)
        return
    try:
        check(text)
    except ExpressionError as error:
        facts = {"text": text[:80], "why": str(error)}
        yield Fault(key="bad_expression", field=field, facts=facts)


def _variable(name: str, field: str) -> Iterator[Fault]:
    if not _NAME.fullmatch(name):
        yield Fault(key="bad_name", field=field, facts={"name": name[:40]})


def _seconds(
    seconds: float | None, where: str, field: str, *, zero: bool = False
) -> Iterator[Fault]:
    if seconds is None or 0 < seconds <= _MOST_SECONDS or (zero and seconds == 0):
        return
    yield Fault(key="bad_duration", where=where, field=field)


def _edge(edge: Edge, known: Mapping[str, Node]) -> Iterator[Fault]:
    for field in ("source", "target"):
        name = getattr(edge, field)
        if name not in known:
            yield Fault(key="unknown_node", where=edge.name, field=field, facts={"node": name[:60]})
    if edge.condition.strip():
        for fault in _expression(edge.condition, "condition"):
            yield replace(fault, where=edge.name)
    if edge.max_loops is not None and not 1 <= edge.max_loops <= _MOST_LOOPS:
        facts = {"least": 1, "most": _MOST_LOOPS}
        yield Fault(key="out_of_range", where=edge.name, field="maxLoops", facts=facts)


def _bodies(workflow: Workflow) -> Iterator[Fault]:
    """A body is made of nodes that exist, and that no other body has."""
    known, owner = workflow.by_id, _owners(workflow)
    circular = _in_circles(owner)
    seen: set[str] = set()
    for node in workflow.nodes:
        field = f"{node.type}.bodyNodes"
        if node.config is not None and hasattr(node.config, "body") and not node.body:
            yield Fault(key="missing", where=node.id, field=field)
        for inner in node.body:
            facts = {"node": inner[:60]}
            if inner not in known:
                yield Fault(key="unknown_node", where=node.id, field=field, facts=facts)
            elif inner in seen or inner in circular:
                yield Fault(key="in_two_bodies", where=node.id, field=field, facts=facts)
            elif known[inner].type in {NodeType.START, NodeType.END}:
                yield Fault(key="not_in_body", where=node.id, field=field, facts=facts)
            seen.add(inner)
    if circular:
        return
    for name in owner:
        if _deep(name, owner) > _DEEPEST:
            yield Fault(key="too_deep", where=name, facts={"most": _DEEPEST})
    yield from _crossing(workflow, owner)


def _owners(workflow: Workflow) -> dict[str, str]:
    """By node, the first that has it in its body."""
    owner: dict[str, str] = {}
    for node in workflow.nodes:
        for inner in node.body:
            owner.setdefault(inner, node.id)
    return owner


def _in_circles(owner: Mapping[str, str]) -> frozenset[str]:
    """Nodes that are, by way of bodies, within themselves."""
    found: set[str] = set()
    seen: set[str] = set()
    for start in owner:
        way: list[str] = []
        name = start
        while name in owner and name not in seen:
            seen.add(name)
            way.append(name)
            name = owner[name]
        if name in way:
            found.update(way[way.index(name) :])
    return frozenset(found)


def _deep(name: str, owner: Mapping[str, str]) -> int:
    deep = 0
    while name in owner and deep <= _DEEPEST:
        name, deep = owner[name], deep + 1
    return deep


def _crossing(workflow: Workflow, owner: Mapping[str, str]) -> Iterator[Fault]:
    """Edges lead out of a body only through the loop itself."""
    for edge in workflow.edges:
        one, two = owner.get(edge.source), owner.get(edge.target)
        if one not in {two, edge.target} and two != edge.source:
            yield Fault(key="crosses_body", where=edge.name)


def _settings(workflow: Workflow) -> Iterator[Fault]:
    yield from _seconds(workflow.timeout, "", "settings.timeout")
    if not 1 <= workflow.parallel <= _MOST_AT_ONCE:
        facts = {"least": 1, "most": _MOST_AT_ONCE}
        yield Fault(key="out_of_range", field="settings.maxParallel", facts=facts)
    for name in workflow.variables:
        yield from _variable(name, "variables")
    for name, text in workflow.outputs.items():
        yield from _expression(text, f"outputs.{name}")
    for name, n in Counter(each.name for each in workflow.inputs).items():
        yield from _variable(name, "inputs")
        if n > 1:
            yield Fault(key="twice", where=name, field="inputs")
    for each in workflow.inputs:
        if each.kind == "choice" and not each.options:
            yield Fault(key="missing", where=each.name, field="inputs.options")


def _ring(name: str, ring: Ring) -> Iterator[Fault]:
    """No circle without a bound, and nothing that no branch can reach."""
    inside = [edge for edges in (*ring.out.values(), *ring.back_out.values()) for edge in edges]
    inside = [edge for edge in inside if edge.target in ring.nodes]
    bounded = {edge.name for edge in back_edges(ring.nodes, inside)}
    circle = circles(ring.nodes, (edge for edge in inside if edge.name not in bounded))
    for n in sorted(set(circle.values())):
        names = [node for node in ring.nodes if circle.get(node) == n]
        yield Fault(key="unbounded", where=names[0], facts={"nodes": " → ".join(names[:10])})
    if name == OUTERMOST:
        yield from _reach(ring)
    for node in ring.nodes.values():
        if node.type == NodeType.SWITCH and isinstance(node.config, nodes.Switch):
            yield from _ways(node, node.config, ring)


def _reach(ring: Ring) -> Iterator[Fault]:
    starts = [node for node in ring.nodes if ring.nodes[node].type == NodeType.START]
    if len(starts) > 1:
        yield Fault(key="several_starts", where=starts[1])
    if not starts:
        return
    seen, open_ = set(starts), list(starts)
    while open_:
        node = open_.pop()
        for edge in (*ring.out.get(node, ()), *ring.back_out.get(node, ())):
            if edge.target not in seen:
                seen.add(edge.target)
                open_.append(edge.target)
    for node in ring.nodes:
        if node not in seen:
            yield Fault(key="unreachable", where=node)
    if ring.ends and not seen & set(ring.ends):
        yield Fault(key="no_way_to_end")


def _ways(node: Node, config: nodes.Switch, ring: Ring) -> Iterator[Fault]:
    ways = {edge.target for edge in ring.out.get(node.id, ())}
    ways |= {edge.target for edge in ring.back_out.get(node.id, ())}
    for target in {case.target for case in config.cases} | {config.default} - {""}:
        if target in ring.nodes and target not in ways:
            yield Fault(key="no_edge", where=node.id, field="switch", facts={"node": target})
