"""The time a node takes in large workflows, in memory and through the real store."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

from benchmarks.engine_runs import InstantBackend, RealClock
from benchmarks.figures import Figure, Measurement, Scale, at_most
from bot.engine.workflow.definition import Workflow, WorkflowEdge, WorkflowNode
from bot.engine.workflow.nodes.assign import AssignConfig
from bot.engine.workflow.nodes.foreach import ForeachConfig
from bot.engine.workflow.nodes.shared_settings import VariableAssignment
from bot.engine.workflow.validation import validate_workflow
from storage.records.tasks import TaskStatus
from tests.bot.engine.workflow.scheduler_simulator import SchedulerSimulator
from tests.engine_harness import run_engine

_SIZES = (10, 100, 1_000, 10_000)
_STEPPED_SIZES = (100, 1_000, 4_000)
_SMALL_SIZES = (10, 20, 40)
_ROUNDS = 3
_BAR = at_most(2)
_A_STEP_IN = 10
_STORED_STEPS_IN = 50
_ITEMS = 1_000
_LOOK_EVERY = 0.01

_SET = AssignConfig(
    assignments=(VariableAssignment(variable="v", value="variables.v + 1", is_expression=True),)
)


async def measure(scale: Scale) -> list[Measurement]:
    """A workflow of many nodes runs to its end: blocks of a condition, two branches and a join,
    with one worker step in so many nodes. The time a node takes must not grow with the workflow.
    In memory, the best of three rounds counts for each size."""
    sizes, stepped = scale.pick((_SIZES, _STEPPED_SIZES), (_SMALL_SIZES, _SMALL_SIZES))
    rounds, items = scale.pick(_ROUNDS, 1), scale.pick(_ITEMS, 10)
    memory = {n: min(_in_memory(graph(n)) for _ in range(rounds)) for n in sizes}
    stored = {n: await _stored(graph(n, steps_in=n)) for n in sizes[1:]}
    mixed = {n: await _stored(graph(n, steps_in=_STORED_STEPS_IN)) for n in stepped}
    mixed_name = f"through the store, one step in {_STORED_STEPS_IN} nodes"
    foreach = "foreach over"
    return [
        *_speeds("in memory", memory),
        _growth("in memory", memory, sizes[1]),
        *_speeds("through the store", stored),
        _growth("through the store", stored, sizes[1]),
        *_speeds(mixed_name, mixed),
        _growth(mixed_name, mixed, stepped[1]),
        _speed(f"in memory, {foreach} {items:,} items", items, _in_memory(each(items))),
        _speed(f"through the store, {foreach} {items:,} items", items, await _stored(each(items))),
    ]


def graph(n: int, *, steps_in: int = _A_STEP_IN) -> Workflow:
    """`n` nodes in blocks: a condition, two branches of which one is taken, and a join. One node in
    `steps_in` is a worker's step."""
    nodes = [WorkflowNode(id="n0", title="n0", type="start")]
    edges: list[WorkflowEdge] = []
    while len(nodes) < n:
        at = len(nodes)
        kinds = ("condition", "assign", "other", "join")[: n - at]
        for offset, kind in enumerate(kinds):
            name = f"n{at + offset}"
            is_step = (at + offset) % steps_in == 0
            nodes.append(_node(name, "task" if is_step else kind))
        first = f"n{at}"
        edges.append(WorkflowEdge(source=f"n{at - 1}", target=first))
        edges += _block(at, len(kinds))
    return validate_workflow(
        Workflow(plan="", nodes=tuple(nodes), edges=tuple(edges), variables={"v": 0})
    )


def _block(at: int, size: int) -> list[WorkflowEdge]:
    first, one, other, meet = (f"n{at + offset}" for offset in range(4))
    edges = [
        WorkflowEdge(source=first, target=one, condition="variables.v >= 0"),
        WorkflowEdge(source=first, target=other),
        WorkflowEdge(source=one, target=meet),
        WorkflowEdge(source=other, target=meet),
    ]
    known = {f"n{at + offset}" for offset in range(size)}
    return [edge for edge in edges if {edge.source, edge.target} <= known]


def _node(name: str, kind: str) -> WorkflowNode:
    if kind in {"assign", "other"}:
        return WorkflowNode(id=name, title=name, type="assign", config=_SET)
    return WorkflowNode(id=name, title=name, type=kind)


def each(items: int) -> Workflow:
    config = ForeachConfig(collection="variables.items", body=("set",), max_iterations=items)
    nodes = (
        WorkflowNode(id="each", title="each", type="foreach", config=config),
        WorkflowNode(id="set", title="set", type="assign", config=_SET),
    )
    variables: dict[str, JsonValue] = {"items": list(range(items)), "v": 0}
    return validate_workflow(Workflow(plan="", nodes=nodes, variables=variables))


def _in_memory(workflow: Workflow) -> float:
    begun = time.perf_counter()
    sim = SchedulerSimulator(workflow)
    if (end := sim.run(1_000_000)) != "done":
        raise AssertionError(end)
    return time.perf_counter() - begun


async def _stored(workflow: Workflow) -> float:
    with tempfile.TemporaryDirectory() as folder:
        async with run_engine(Path(folder), InstantBackend(), slots=1, clock=RealClock()) as world:
            begun = time.perf_counter()
            task = await world.run_workflow(workflow)
            # Reading the node runs as well would count as a part of the work.
            while not (ended := await world.store.tasks.get(task.id)).status.is_final:
                await asyncio.sleep(_LOOK_EVERY)
            assert ended.status is TaskStatus.COMPLETED
            return time.perf_counter() - begun


def _speeds(name: str, seconds: Mapping[int, float]) -> list[Figure]:
    return [_speed(f"{name}, {n:,} nodes", n, took) for n, took in seconds.items()]


def _speed(name: str, n: int, seconds: float) -> Figure:
    return Figure(name, n / seconds, "nodes/s")


def _growth(name: str, seconds: Mapping[int, float], least: int) -> Figure:
    """The time a node takes in the largest workflow against a smaller one."""
    most = max(seconds)
    ratio = (seconds[most] / most) / (seconds[least] / least)
    return Figure(f"{name}, a node of {most:,} against one of {least:,}", ratio, "×", _BAR)
