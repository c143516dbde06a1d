"""Random workflows that can be run: nodes of all types, bodies within bodies, edges back."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from hypothesis import strategies as st

from bot.engine.workflow.model import nodes
from bot.engine.workflow.model.nodes import NodeType, OnError, OnLimit
from bot.engine.workflow.model.shape import Edge, Node, Workflow

_T = TypeVar("_T")
_CONDITIONS = (
    "true",
    "false",
    "loopCount < 1",
    "loopCount < 2",
    "outputs.n0.n > 1",
    "outputs.n1.n > 1 || outputs.n2.ok",
    "variables.v > 2",
    "index == 1",
    "nobody",
)
_EXPRESSIONS = ("variables.v + 1", "loopCount", "outputs.n1.n", "len(outputs)", "1 / 0", "[1, 2]")
_COLLECTIONS = ("[]", "[1]", "['a', 'b', 'c']", "variables.group", "outputs.n1.list", "5")
_JOINS = (nodes.Join(mode="all"), nodes.Join(mode="any"), nodes.Join(mode="n"))
_MOST_DEEP = 2

Draw = Callable[[st.SearchStrategy[Any]], Any]


@st.composite
def workflows(draw: Draw, *, parallel: int = 1) -> Workflow:
    """Not all are valid: see `faults_of`."""
    made = _Made(draw)
    made.ring(0)
    return Workflow(
        plan="",
        nodes=tuple(made.nodes),
        edges=tuple(made.edges),
        variables={"v": draw(st.integers(0, 3)), "group": {"a": 1, "b": 2}},
        parallel=parallel,
    )


def by_path(node: Node, _names: Mapping[str, Any], path: str) -> Mapping[str, Any] | str:
    """Work that depends on nothing but which activation it is."""
    n = hashlib.sha256(path.encode()).digest()[0]
    if n % 9 == 0:
        return "!it failed"
    return {"summary": f"did {path}", "n": n % 4, "ok": n % 2 == 0, "list": [1] * (n % 3)}


def told(workflow: Workflow) -> str:
    """It in a few lines, for who has to find out why an example fails."""
    lines = [f"{each.id}: {each.type} {each.on_error} {each.config}" for each in workflow.nodes]
    for edge in workflow.edges:
        bound = f" at most {edge.max_loops}, then {edge.on_limit}" if edge.max_loops else ""
        lines.append(f"{edge.name} [{edge.condition}]{bound}")
    return "\n".join(lines)


class _Made:
    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self.nodes: list[Node] = []
        self.edges: list[Edge] = []
        self._n = 0

    def ring(self, deep: int) -> tuple[str, ...]:
        """The ids of its nodes, in an order that its edges follow but for those that lead back."""
        size = self._draw(st.integers(1, 5 if not deep else 3))
        ids = [self._id() for _ in range(size)]
        if not deep and self._draw(st.booleans()):
            ids = ["begin", *ids, "finish"]
        for name in ids:
            self.nodes.append(self._node(name, deep, ids))
        self._forward(ids)
        for _ in range(self._draw(st.integers(0, 2))):
            self._back(ids)
        return tuple(ids)

    def _id(self) -> str:
        self._n += 1
        return f"n{self._n}"

    def _forward(self, ids: Sequence[str]) -> None:
        for at, target in enumerate(ids[1:], 1):
            n = 1 if self._draw(st.booleans()) else min(at, 2)
            sources = {ids[at - 1 - self._draw(st.integers(0, min(at - 1, 2)))] for _ in range(n)}
            for source in sorted(sources):
                condition = self._one(("", "", *_CONDITIONS))
                bound = self._one((None, None, None, 1, 2))
                self._edge(source, target, condition=condition, max_loops=bound)

    def _back(self, ids: Sequence[str]) -> None:
        at = self._draw(st.integers(0, len(ids) - 1))
        target = ids[self._draw(st.integers(0, at))]
        if target == "begin" or ids[at] == "finish":
            return
        self._edge(
            ids[at],
            target,
            condition=self._one(("", *_CONDITIONS)),
            max_loops=self._one((1, 2, None)),
            on_limit=self._one(tuple(OnLimit)),
        )

    def _edge(self, source: str, target: str, **told: Any) -> None:
        if not any(edge.source == source and edge.target == target for edge in self.edges):
            self.edges.append(Edge(source=source, target=target, **told))

    def _node(self, name: str, deep: int, ids: Sequence[str]) -> Node:
        if name in {"begin", "finish"}:
            return Node(id=name, title=name, type="start" if name == "begin" else "end")
        kinds = [kind for kind in NodeType if kind not in {NodeType.START, NodeType.END}]
        kinds += [NodeType.TASK] * 6
        if deep >= _MOST_DEEP:
            kinds = [kind for kind in kinds if kind not in {NodeType.LOOP, NodeType.FOREACH}]
        kind = self._one(tuple(kinds))
        node = Node(id=name, title=name, type=kind, on_error=self._one(tuple(OnError)))
        return replace(node, config=self._config(kind, name, deep, ids))

    def _config(
        self, kind: NodeType, name: str, deep: int, ids: Sequence[str]
    ) -> nodes.Config | None:
        match kind:
            case NodeType.JOIN:
                join = self._one(_JOINS)
                return replace(join, n=self._draw(st.integers(1, 3)))
            case NodeType.HUMAN:
                timeout = self._one((None, 60.0))
                return nodes.Human(timeout=timeout, auto_approve=self._draw(st.booleans()))
            case NodeType.DELAY:
                return nodes.Delay(seconds=self._one((0.0, 5.0)))
            case NodeType.SCHEDULE:
                return nodes.Schedule(cron="*/5 * * * *")
            case NodeType.LOOP:
                return self._loop(deep)
            case NodeType.FOREACH:
                return self._foreach(deep)
            case NodeType.SWITCH:
                return self._switch(name, ids)
            case NodeType.ASSIGN:
                given = nodes.Assignment(
                    variable="v", value=self._one(_EXPRESSIONS), is_expression=True
                )
                return nodes.Assign(assignments=(given,))
            case NodeType.SCRIPT:
                return nodes.Script(expression=self._one(_EXPRESSIONS), output="w")
            case _:
                return None

    def _loop(self, deep: int) -> nodes.Loop:
        return nodes.Loop(
            mode=self._one(("while", "until", "for")),
            body=self.ring(deep + 1),
            condition=self._one(_CONDITIONS),
            end=self._one(("1", "2", "variables.v")),
            step=self._one(("1", "1", "-1")),
            max_iterations=self._draw(st.integers(1, 3)),
            on_limit=self._one(tuple(OnLimit)),
        )

    def _foreach(self, deep: int) -> nodes.Foreach:
        return nodes.Foreach(
            collection=self._one(_COLLECTIONS),
            body=self.ring(deep + 1),
            mode=self._one(("sequential", "parallel")),
            max_parallel=self._draw(st.integers(1, 3)),
            max_iterations=self._draw(st.integers(2, 3)),
        )

    def _switch(self, name: str, ids: Sequence[str]) -> nodes.Switch:
        behind = list(ids[ids.index(name) + 1 :]) or [name]
        target, default = self._one(tuple(behind)), self._one(("", *behind))
        for each in {target, default} - {"", name}:
            self._edge(name, each)
        return nodes.Switch(
            expression=self._one(_EXPRESSIONS),
            cases=(nodes.Case(value=1, target=target),),
            default=default,
        )

    def _one(self, of: tuple[_T, ...]) -> _T:
        one: _T = self._draw(st.sampled_from(of))
        return one
