"""Nodes a second of large workflows, in memory and through the real store, and how that grows."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path

from pydantic import JsonValue

from benchmarks.core import RealClock, Worker
from benchmarks.figures import held
from bot.engine.workflow.model.nodes import Assign, Assignment, Foreach
from bot.engine.workflow.model.shape import Edge, Node, Workflow
from bot.engine.workflow.model.validate import validated
from storage.records.tasks import TaskStatus
from tests.bot.engine.workflow.routing.sim import Sim
from tests.engine_world import engine

_SIZES = (10, 100, 1_000, 10_000)
_ROUNDS = 3
_BAR = 2.0
_A_STEP_IN = 10
_STORED_STEPS_IN = 50
_STEPPED = (100, 1_000, 4_000)
_ITEMS = 1_000
_LOOK_EVERY = 0.01

_SET = Assign(assignments=(Assignment(variable="v", value="variables.v + 1", is_expression=True),))


async def measure() -> list[str]:
    """The best of each size's rounds: a busy machine only ever slows."""
    memory = {n: min(_in_memory(graph(n)) for _ in range(_ROUNDS)) for n in _SIZES}
    through = {n: await _stored(graph(n, steps_in=n)) for n in _SIZES[1:]}
    mixed = {n: await _stored(graph(n, steps_in=_STORED_STEPS_IN)) for n in _STEPPED}
    return [
        _growth("in memory", memory),
        held("in memory, a node at 10,000 against 100", _ratio(memory), "×", _BAR),
        _rate("in memory, foreach over 1,000 items", _ITEMS, _in_memory(each(_ITEMS))),
        _growth("through the store", through),
        held("through the store, a node at 10,000 against 100", _ratio(through), "×", _BAR),
        _growth("through the store, one in 50 a step of a worker", mixed),
        held("the same, a node at 4,000 against 1,000", _ratio(mixed, least=1_000), "×", _BAR),
        _rate("through the store, foreach over 1,000 items", _ITEMS, await _stored(each(_ITEMS))),
        f"load {os.getloadavg()[0]:.1f}",
    ]


def graph(n: int, *, steps_in: int = _A_STEP_IN) -> Workflow:
    """`n` nodes in blocks: a choice, two branches of which one is taken, and where they meet; one
    node in so many is a step."""
    nodes = [Node(id="n0", title="n0", type="start")]
    edges: list[Edge] = []
    while len(nodes) < n:
        at = len(nodes)
        kinds = ("condition", "assign", "other", "join")[: n - at]
        for offset, kind in enumerate(kinds):
            name = f"n{at + offset}"
            is_step = (at + offset) % steps_in == 0
            nodes.append(_node(name, "task" if is_step else kind))
        first = f"n{at}"
        edges.append(Edge(source=f"n{at - 1}", target=first))
        edges += _block(at, len(kinds))
    return validated(Workflow(plan="", nodes=tuple(nodes), edges=tuple(edges), variables={"v": 0}))


def _block(at: int, size: int) -> list[Edge]:
    first, one, other, meet = (f"n{at + offset}" for offset in range(4))
    edges = [
        Edge(source=first, target=one, condition="variables.v >= 0"),
        Edge(source=first, target=other),
        Edge(source=one, target=meet),
        Edge(source=other, target=meet),
    ]
    known = {f"n{at + offset}" for offset in range(size)}
    return [edge for edge in edges if {edge.source, edge.target} <= known]


def _node(name: str, kind: str) -> Node:
    if kind in {"assign", "other"}:
        return Node(id=name, title=name, type="assign", config=_SET)
    return Node(id=name, title=name, type=kind)


def each(items: int) -> Workflow:
    config = Foreach(collection="variables.items", body=("set",), max_iterations=items)
    nodes = (
        Node(id="each", title="each", type="foreach", config=config),
        Node(id="set", title="set", type="assign", config=_SET),
    )
    variables: dict[str, JsonValue] = {"items": list(range(items)), "v": 0}
    return validated(Workflow(plan="", nodes=nodes, variables=variables))


def _in_memory(workflow: Workflow) -> float:
    begun = time.perf_counter()
    sim = Sim(workflow)
    if (end := sim.run(1_000_000)) != "done":
        raise AssertionError(end)
    return time.perf_counter() - begun


async def _stored(workflow: Workflow) -> float:
    with tempfile.TemporaryDirectory() as folder:
        async with engine(Path(folder), Worker(), slots=1, clock=RealClock()) as world:
            begun = time.perf_counter()
            task = await world.run_workflow(workflow)
            # Only the task is looked at: what reads its runs would be a part of what is measured.
            while not (ended := await world.store.tasks.get(task.id)).status.is_final:
                await asyncio.sleep(_LOOK_EVERY)
            assert ended.status is TaskStatus.COMPLETED
            return time.perf_counter() - begun


def _growth(where: str, seconds: dict[int, float]) -> str:
    told = ", ".join(f"{n:,} nodes {_a_second(n, took)}/s" for n, took in seconds.items())
    return f"{where}: {told}"


def _rate(what: str, n: int, seconds: float) -> str:
    return f"{what}: {_a_second(n, seconds)} nodes/s"


def _a_second(n: int, seconds: float) -> str:
    return f"{n / seconds:,.0f}"


def _ratio(seconds: dict[int, float], *, least: int = 100) -> float:
    """A node of the largest against one of a smaller."""
    most = max(seconds)
    return (seconds[most] / most) / (seconds[least] / least)
