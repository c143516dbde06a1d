"""Random valid workflows: nodes of all types, nested bodies and back edges."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from hypothesis import strategies as st

from bot.engine.workflow.definition import OnError, Workflow, WorkflowEdge, WorkflowNode
from bot.engine.workflow.nodes.assign import AssignConfig
from bot.engine.workflow.nodes.contract import NodeConfig, OnLimit
from bot.engine.workflow.nodes.delay import DelayConfig
from bot.engine.workflow.nodes.foreach import ForeachConfig
from bot.engine.workflow.nodes.human import HumanConfig
from bot.engine.workflow.nodes.join import JoinConfig
from bot.engine.workflow.nodes.loop import LoopConfig
from bot.engine.workflow.nodes.registry import NodeType
from bot.engine.workflow.nodes.schedule import ScheduleConfig
from bot.engine.workflow.nodes.script import ScriptConfig
from bot.engine.workflow.nodes.shared_settings import VariableAssignment
from bot.engine.workflow.nodes.switch import SwitchCase, SwitchConfig
from bot.engine.workflow.serialization.data_parser import parse_yaml
from bot.engine.workflow.serialization.reader import workflow_from_data

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
_JOINS = (
    JoinConfig(mode="all"),
    JoinConfig(mode="any"),
    JoinConfig(mode="n"),
)
_MOST_DEEP = 2

Draw = Callable[[st.SearchStrategy[Any]], Any]


@st.composite
def workflows(draw: Draw, *, parallel: int = 1) -> Workflow:
    """Not all are valid: see `faults_of`."""
    made = _WorkflowGenerator(draw)
    made.ring(0)
    return Workflow(
        plan="",
        nodes=tuple(made.nodes),
        edges=tuple(made.edges),
        variables={"v": draw(st.integers(0, 3)), "group": {"a": 1, "b": 2}},
        parallel=parallel,
    )


def by_path(node: WorkflowNode, _names: Mapping[str, Any], path: str) -> Mapping[str, Any] | str:
    """Work that depends only on the activation."""
    n = hashlib.sha256(path.encode()).digest()[0]
    if n % 9 == 0:
        return "!it failed"
    return {"summary": f"did {path}", "n": n % 4, "ok": n % 2 == 0, "list": [1] * (n % 3)}


def dump_text(workflow: Workflow) -> str:
    """A short description for failing examples."""
    lines = [f"{each.id}: {each.type} {each.on_error} {each.config}" for each in workflow.nodes]
    for edge in workflow.edges:
        bound = f" at most {edge.max_loops}, then {edge.on_limit}" if edge.max_loops else ""
        lines.append(f"{edge.name} [{edge.condition}]{bound}")
    return "\n".join(lines)


class _WorkflowGenerator:
    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self.nodes: list[WorkflowNode] = []
        self.edges: list[WorkflowEdge] = []
        self._n = 0

    def ring(self, deep: int) -> tuple[str, ...]:
        """The ids of its nodes, in an order that all edges follow except back edges."""
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
            self.edges.append(WorkflowEdge(source=source, target=target, **told))

    def _node(self, name: str, deep: int, ids: Sequence[str]) -> WorkflowNode:
        if name in {"begin", "finish"}:
            return WorkflowNode(id=name, title=name, type="start" if name == "begin" else "end")
        kinds = [kind for kind in NodeType if kind not in {NodeType.START, NodeType.END}]
        kinds += [NodeType.TASK] * 6
        if deep >= _MOST_DEEP:
            kinds = [kind for kind in kinds if kind not in {NodeType.LOOP, NodeType.FOREACH}]
        kind = self._one(tuple(kinds))
        node = WorkflowNode(id=name, title=name, type=kind, on_error=self._one(tuple(OnError)))
        return replace(node, config=self._config(kind, name, deep, ids))

    def _config(
        self, kind: NodeType, name: str, deep: int, ids: Sequence[str]
    ) -> NodeConfig | None:
        match kind:
            case NodeType.JOIN:
                join = self._one(_JOINS)
                return replace(join, n=self._draw(st.integers(1, 3)))
            case NodeType.HUMAN:
                timeout = self._one((None, 60.0))
                return HumanConfig(timeout=timeout, auto_approve=self._draw(st.booleans()))
            case NodeType.DELAY:
                return DelayConfig(seconds=self._one((0.0, 5.0)))
            case NodeType.SCHEDULE:
                return ScheduleConfig(cron="*/5 * * * *")
            case NodeType.LOOP:
                return self._loop(deep)
            case NodeType.FOREACH:
                return self._foreach(deep)
            case NodeType.SWITCH:
                return self._switch(name, ids)
            case NodeType.ASSIGN:
                given = VariableAssignment(
                    variable="v", value=self._one(_EXPRESSIONS), is_expression=True
                )
                return AssignConfig(assignments=(given,))
            case NodeType.SCRIPT:
                return ScriptConfig(expression=self._one(_EXPRESSIONS), output="w")
            case _:
                return _example_config(kind)

    def _loop(self, deep: int) -> LoopConfig:
        return LoopConfig(
            mode=self._one(("while", "until", "for")),
            body=self.ring(deep + 1),
            condition=self._one(_CONDITIONS),
            end=self._one(("1", "2", "variables.v")),
            step=self._one(("1", "1", "-1")),
            max_iterations=self._draw(st.integers(1, 3)),
            on_limit=self._one(tuple(OnLimit)),
        )

    def _foreach(self, deep: int) -> ForeachConfig:
        return ForeachConfig(
            collection=self._one(_COLLECTIONS),
            body=self.ring(deep + 1),
            mode=self._one(("sequential", "parallel")),
            max_parallel=self._draw(st.integers(1, 3)),
            max_iterations=self._draw(st.integers(2, 3)),
        )

    def _switch(self, name: str, ids: Sequence[str]) -> SwitchConfig:
        behind = list(ids[ids.index(name) + 1 :]) or [name]
        target, default = self._one(tuple(behind)), self._one(("", *behind))
        for each in {target, default} - {"", name}:
            self._edge(name, each)
        return SwitchConfig(
            expression=self._one(_EXPRESSIONS),
            cases=(SwitchCase(value=1, target=target),),
            default=default,
        )

    def _one(self, of: tuple[_T, ...]) -> _T:
        one: _T = self._draw(st.sampled_from(of))
        return one


def _example_config(kind: NodeType) -> NodeConfig | None:
    """The settings in the example of a type; None for a type without settings."""
    if kind.spec.config is None:
        return None
    # The generated workflows have no inputs.
    text = kind.spec.example.replace("{{inputs.file}}", "data.csv")
    example = workflow_from_data(parse_yaml(text), require_name=False)
    return next(node.config for node in example.nodes if node.type == kind)
