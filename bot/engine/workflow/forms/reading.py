"""A workflow as somebody has written it, in JSON, YAML or Markdown, made one that can be run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

from pydantic import JsonValue

from bot.engine.workflow.forms.completing import bounded, completed, in_order, parallel_of
from bot.engine.workflow.forms.configs import config_of, expression
from bot.engine.workflow.forms.fields import Faults, Fields, as_written, brief, fold
from bot.engine.workflow.forms.markdown import data_of, is_markdown
from bot.engine.workflow.forms.parsing import clean, parsed, within_bounds
from bot.engine.workflow.forms.sense import not_meant
from bot.engine.workflow.model.faults import BadGraph, Fault
from bot.engine.workflow.model.nodes import Human, NodeType, OnError, OnLimit, Retry
from bot.engine.workflow.model.references import unknown_in
from bot.engine.workflow.model.shape import VERSION, Edge, Input, Node, Workflow
from bot.engine.workflow.model.validate import faults_of

_MOST_TITLE = 200
_TYPES = {
    "": NodeType.TASK, "work": NodeType.TASK, "agent": NodeType.TASK, "subtask": NodeType.TASK,
    "ask": NodeType.HUMAN, "approval": NodeType.HUMAN, "if": NodeType.CONDITION,
    "wait": NodeType.DELAY, "each": NodeType.FOREACH, **{kind.value: kind for kind in NodeType},
}  # fmt: skip
_KINDS: Mapping[str, Literal["text", "number", "bool", "choice"]] = {
    "text": "text", "string": "text", "number": "number", "integer": "number", "float": "number",
    "bool": "bool", "boolean": "bool", "choice": "choice", "select": "choice", "enum": "choice",
}  # fmt: skip
_ELSE = {"else", "default", "otherwise", "否则", "其他"}
_MAKES_KNOWN = {"id", "nodes", "type", "assign", "script", "loop", "foreach", "variables", "inputs"}
_NOBODY = {"auto", "none", "default"}


def read(text: str) -> Workflow:
    """The workflow that a text describes, complete and checked. Blocking: some seconds for
    the largest. Raises BadGraph with all its faults."""
    return from_data(data_in(text))


def data_in(text: str) -> Any:
    """The same, not yet looked at. Raises BadGraph."""
    inside = within_bounds(text)
    return clean(data_of(inside)) if is_markdown(inside) else parsed(inside)


def from_data(data: Any, *, named: bool = True) -> Workflow:
    """The same for what has been parsed already and is known to be data. `named` says that it has
    to have a name. Raises BadGraph."""
    workflow, faults = draft_of(data, named=named)
    return checked(workflow, faults)


def checked(
    draft: Workflow, faults: Iterable[Fault] = (), *, most_loops: int | None = None
) -> Workflow:
    """The workflow, complete; `most_loops` bounds the edges back that have no bound. Raises
    BadGraph with these faults and its own."""
    workflow = completed(draft)
    if most_loops is not None:
        workflow = bounded(workflow, most_loops)
    # Who wrote an edge without a name knows it by where it leads.
    written = {edge.id for edge in draft.edges}
    ours = {
        edge.id: f"{edge.source}→{edge.target}"[:100]
        for edge in workflow.edges
        if edge.id not in written
    }
    before = {(each.key, each.where, each.field): each for each in faults}
    # A name is not unknown because what makes it known could not be read.
    unread = any(re.split(r"[.\[]", each.field)[0] in _MAKES_KNOWN for each in before.values())
    spoken = () if unread else unknown_in(workflow)
    found = [
        replace(each, where=ours.get(each.where, each.where))
        for each in (*faults_of(workflow), *not_meant(workflow), *spoken)
    ]
    places = {(where, field) for _, where, field in before}
    own = [each for each in found if (each.where, each.field) not in places]
    if before or own:
        raise BadGraph([*before.values(), *own])
    return workflow


def draft_of(data: Any, *, named: bool = True) -> tuple[Workflow, list[Fault]]:
    """What could be read, and the faults of what could not."""
    faults = Faults([])
    data = _unwrapped(data)
    if not isinstance(data, Mapping):
        raise BadGraph([Fault(key="no_workflow")])
    top = Fields(data, faults)
    nodes = tuple(_nodes(top))
    edges = tuple(_edges(top))
    if not top.has("edges"):
        edges = in_order(nodes)
    settings = top.group("settings") or {}
    among = Fields(settings, faults, path="settings")
    workflow = Workflow(
        plan=top.text("description", "plan", "background"),
        name=top.word("name", "title", most=_MOST_TITLE),
        version=top.word("version", default=VERSION, most=20),
        nodes=nodes,
        edges=edges,
        answer=top.text("answer"),
        variables=_variables(top),
        inputs=tuple(_inputs(top)),
        outputs=_outputs(top),
        timeout=among.seconds("timeout"),
        parallel=among.whole("maxParallel", default=parallel_of(nodes)),
    )
    if not nodes and not workflow.answer:
        top.add("missing", "nodes")
    if named and not workflow.name:
        top.add("missing", "name")
    top.check_names()
    among.check_names()
    return workflow, faults.found


def _unwrapped(data: Any) -> Any:
    if isinstance(data, Mapping) and "nodes" not in data and len(data) == 1:
        return data.get("workflow", data)
    return data


def _nodes(top: Fields) -> Iterator[Node]:
    given = top.take("nodes", "steps")
    if isinstance(given, Mapping):
        listed = [
            {"id": name, **each} if isinstance(each, Mapping) else each
            for name, each in given.items()
        ]
        top = Fields({"nodes": listed}, top.faults)
    for n, each in enumerate(top.several("nodes", "steps") or (), start=1):
        if isinstance(each, Mapping):
            place = _called(each, "id") or f"nodes[{n}]"
            yield _node(Fields(each, top.faults, where=place))
        else:
            top.add("not_a_group", f"nodes[{n}]")


def _called(given: Mapping[str, Any], name: str) -> str:
    """What a fault in it is said to be in."""
    return (as_written(given.get(name)) or "").strip()[:64]


def _node(node: Fields) -> Node:
    name = node.word("id", most=200)
    given = node.take("id")
    if not name and (given is None or not str(given).strip()):
        node.add("missing", "id")
    written = node.word("type", most=60)
    kind = _TYPES.get(fold(written))
    config = config_of(node, kind or NodeType.TASK) if kind is not None else None
    timeout = node.seconds("timeout")
    if kind is NodeType.HUMAN and timeout is not None:
        config = _patient(config, timeout)
        timeout = None
    persona = node.word("persona", "agent", most=64)
    made = Node(
        id=name or node.where,
        title=_line(node.word("name", "title", default=name, most=2_000)),
        detail=node.text("prompt", "detail", "description", "instruction"),
        type=kind.value if kind is not None else written,
        repeatable=node.flag("repeatable", default=True),
        persona="" if persona.casefold() in _NOBODY else persona,
        config=config,
        timeout=timeout,
        on_error=node.choice(OnError, "onError", default=OnError.FAIL),
        retry=_retry(node),
        auto_wait=node.flag("autoWait", default=False),
    )
    if kind is not None:
        node.check_names()
    return made


def _patient(config: object, timeout: float) -> Human:
    """A person's time may stand in the node as well as in its block."""
    human = config if isinstance(config, Human) else Human()
    return human if human.timeout is not None else replace(human, timeout=timeout)


def _retry(node: Fields) -> Retry | None:
    given = node.take("retry", "retries")
    if given is None:
        return None
    if not isinstance(given, Mapping):
        given = {"maxAttempts": given}
    retry = Fields(given, node.faults, where=node.where, path="retry")
    made = Retry(
        max_attempts=retry.whole("maxAttempts", default=3),
        backoff_ms=retry.whole("backoffMs", default=2_000),
        multiplier=retry.number("backoffMultiplier", "multiplier", default=2.0),
    )
    retry.check_names()
    return made


def _edges(top: Fields) -> Iterator[Edge]:
    for n, each in enumerate(top.several("edges") or (), start=1):
        if isinstance(each, Mapping):
            yield _edge(Fields(each, top.faults, where=_called(each, "id") or f"edges[{n}]"))
        else:
            top.add("not_a_group", f"edges[{n}]")


def _edge(edge: Fields) -> Edge:
    name = edge.word("id", most=64)
    source, target = edge.word("from", "source", most=200), edge.word("to", "target", most=200)
    if not name and source and target:
        edge.where = f"{source}→{target}"[:100]
    for field, given in (("source", source), ("target", target)):
        if not given:
            edge.add("missing", field)
    condition = expression(edge, "condition", "when")
    made = Edge(
        id=name,
        source=source,
        target=target,
        condition="" if condition.casefold() in _ELSE else condition,
        max_loops=edge.whole("maxLoops", default=1) if edge.has("maxLoops") else None,
        on_limit=edge.choice(OnLimit, "onLimit", default=OnLimit.CONTINUE),
        label=_line(edge.word("label")),
    )
    edge.take("maxLoops")
    edge.check_names()
    return made


def _variables(top: Fields) -> Mapping[str, JsonValue]:
    return dict(top.group("variables") or {})


def _outputs(top: Fields) -> Mapping[str, str]:
    given = top.group("outputs") or {}
    made = {}
    for name in given:
        told = expression(Fields({name: given[name]}, top.faults, path="outputs"), name)
        made[name] = told
    return made


def _inputs(top: Fields) -> Iterator[Input]:
    given = top.take("inputs")
    if isinstance(given, Mapping):
        listed = [
            {"name": name, **(each if isinstance(each, Mapping) else {"default": each})}
            for name, each in given.items()
        ]
        top = Fields({"inputs": listed}, top.faults)
    for n, each in enumerate(top.groups("inputs"), start=1):
        name = each.word("name", "id", most=100)
        each.where, each.path = name or f"inputs[{n}]", "inputs"
        yield _input(each, name)


def _input(each: Fields, name: str) -> Input:
    told = fold(each.word("type", "kind", default=_kind_of(each)))
    kind = _KINDS.get(told)
    if kind is None:
        known = "text, number, bool, choice"
        each.add("not_one_of", "type", given=brief(told), known=known)
    default = each.value("default")
    made = Input(
        name=name,
        title=_line(each.word("title", "label", "description")),
        kind=kind or "text",
        options=each.words("options", "choices", "enum"),
        default=default,
        required=each.flag("required", default=default is None),
    )
    each.check_names()
    if default is not None and not _fits(made, default):
        each.add("bad_default", "default", given=brief(default))
    return made


def _kind_of(each: Fields) -> str:
    """The kind of an input for which none is given."""
    default = each.value("default")
    if each.has("options", "choices", "enum"):
        return "choice"
    if isinstance(default, bool):
        return "bool"
    return "number" if isinstance(default, int | float) else "text"


def _fits(made: Input, value: JsonValue) -> bool:
    match made.kind:
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "bool":
            return isinstance(value, bool)
        case "choice":
            return as_written(value) in made.options
        case "text":
            return as_written(value) is not None


def _line(text: str) -> str:
    return " ".join(text.split())[:_MOST_TITLE]
