"""Evaluates expressions in the scope that a stored run has, or had when one of its nodes began."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from bot.engine.workflow.definition import (
    ROOT_GRAPH,
    Workflow,
    WorkflowTopology,
    load_workflow,
)
from bot.engine.workflow.expressions.evaluator import evaluate, names_beside_unknown
from bot.engine.workflow.expressions.operations import ExpressionError, value_type
from bot.engine.workflow.node_runs import (
    BACK_EDGE_PREFIX,
    VARIABLES_PATH,
    ActivationPath,
    back_edge_path,
    enclosing_round,
    is_internal_key,
    parse_activation,
    scope_of,
    taken_edges,
)
from bot.engine.workflow.past_names import restore_variables
from bot.engine.workflow.rewind import find_activation
from bot.engine.workflow.run_state import TaskRunState
from cards.catalog import TextCatalog, catalog_for
from storage.records.dry_runs import EvaluatedExpression
from storage.records.people import Language
from storage.records.tasks import NodeRun, NodeStatus, RerunRefused, Task
from storage.tasks import TaskGraphRepo

_MAX_NAMES = 30
_EARLIEST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRunEvaluator:
    """Satisfies `handlers.ports_workflows.RunExpressionPort`. Read-only; `mask` removes secrets
    from what it returns.
    """

    graphs: TaskGraphRepo
    zone: ZoneInfo
    now: Callable[[], datetime]
    mask: Callable[[str], str]

    async def evaluate(
        self, task: Task, expression: str, language: Language, node: str = ""
    ) -> EvaluatedExpression:
        graph = await self.graphs.find_latest(task.id)
        if graph is None:
            raise RerunRefused("no_plan", id=task.id)
        workflow, runs = load_workflow(graph.body), await self.graphs.list_runs(task.id)
        words = catalog_for(language)

        def look() -> EvaluatedExpression:
            names = stored_names(task, workflow, runs, node, now=self.now(), zone=self.zone)
            return self._evaluate(expression, *names, words)

        return await asyncio.to_thread(look)

    def _evaluate(
        self,
        expression: str,
        place: ActivationPath | None,
        names: Mapping[str, Any],
        words: TextCatalog,
    ) -> EvaluatedExpression:
        path = place.path if place is not None else ""
        try:
            value = evaluate(expression, names)
        except ExpressionError as error:
            known = [self.mask(each) for each in names_beside_unknown(expression, names)]
            return EvaluatedExpression(
                path=path,
                error=self.mask(" ".join(error.in_words(words).split())),
                names=tuple(each for each in known if not is_internal_key(each))[:_MAX_NAMES],
            )
        return EvaluatedExpression(path=path, value=self._mask_all(value), type=value_type(value))

    def _mask_all(self, value: Any) -> Any:
        match value:
            case str():
                return self.mask(value)
            case Mapping():
                return {
                    self.mask(str(key)): self._mask_all(value[key])
                    for key in value
                    if not is_internal_key(key)
                }
            case list() | tuple():
                return [self._mask_all(each) for each in value]
            case _:
                return value


def stored_names(
    task: Task,
    workflow: Workflow,
    runs: Mapping[str, NodeRun],
    node: str = "",
    *,
    now: datetime,
    zone: ZoneInfo,
) -> tuple[ActivationPath | None, Mapping[str, Any]]:
    """The names that expressions see in the outermost scope now; or, for a node given by its id,
    title or path, those that it saw when it last began, with its activation. Raises RerunRefused if
    the node is unknown or did not run.
    """
    place = None
    if node.strip():
        topology = WorkflowTopology(workflow)
        place = find_activation(topology, runs, node)
        now = runs[place.path].started_at or now
        runs = dict(_runs_before(topology, runs, place, now))
        runs |= restore_variables(topology, runs)
    state = TaskRunState(
        task=task,
        runs=dict(runs),
        zone=zone,
        text=catalog_for(Language.ENGLISH),
        warn=lambda _warning: None,
    )
    state.adopt_plan(workflow, task.graph_version)
    scope = place.scope if place is not None else ""
    return place, state.scheduler.context(scope, now).names


def _runs_before(
    topology: WorkflowTopology, runs: Mapping[str, NodeRun], place: ActivationPath, at: datetime
) -> Iterator[tuple[str, NodeRun]]:
    """The runs as they were stored when that activation began. Of runs that ended at the same
    moment, those behind it in the graph count as later.
    """
    levels = tuple(_levels(topology, place))
    around = {level.activation for level in levels}
    taken: Counter[str] = Counter()
    for path, run in runs.items():
        activation, ended_at = parse_activation(path), run.ended_at
        if activation is None:
            if _is_note_before(path, ended_at, at):
                yield path, run
        elif activation in around or (ended_at is not None and ended_at > at):
            if (run.started_at or _EARLIEST) <= at and not _is_behind(path, levels, run, at):
                is_loop = activation.node in topology.scope_graphs
                status = NodeStatus.WAITING if is_loop else NodeStatus.RUNNING
                yield path, replace(run, status=status, output={}, error="", ended_at=None)
        elif (run.started_at or _EARLIEST) <= at and not _is_behind(path, levels, run, at):
            taken.update(back_edge_path(activation.scope, e) for e in taken_edges(run) or ())
            yield path, run
    # The store keeps how often an edge was taken in all, and each run which it took.
    for path in taken.keys() & runs.keys():
        times = min(taken[path], int(runs[path].output.get("times", 0)))
        yield path, replace(runs[path], output={"times": times})


def _is_note_before(path: str, ended_at: datetime | None, at: datetime) -> bool:
    if path.startswith(scope_of(path) + BACK_EDGE_PREFIX):
        return False
    return path.endswith(VARIABLES_PATH) or ended_at is None or ended_at <= at


@dataclass(frozen=True, slots=True)
class _Level:
    """An activation around the one that is looked at, or that one itself: the nodes that come after
    it in its round, and the scope of its own round that is looked into."""

    activation: ActivationPath
    behind: frozenset[str]
    inner: str


def _levels(topology: WorkflowTopology, place: ActivationPath) -> Iterator[_Level]:
    activation, inner = place, ""
    while True:
        graph = topology.scope_graphs[topology.container_of.get(activation.node, ROOT_GRAPH)]
        yield _Level(activation, graph.nodes_behind(activation.node), inner)
        above = enclosing_round(activation.scope)
        outer = parse_activation(above[0]) if above is not None else None
        if outer is None:
            return
        activation, inner = outer, activation.scope


def _is_behind(path: str, levels: Sequence[_Level], run: NodeRun, at: datetime) -> bool:
    if at not in {run.ended_at, run.started_at}:
        return False
    for level in levels:
        scope = level.activation.scope
        head = parse_activation(scope + path.removeprefix(scope).partition("[")[0])
        if not path.startswith(scope) or head is None:
            continue
        if head.round > level.activation.round:
            return True
        if head.round == level.activation.round and head.node in level.behind:
            return True
        if level.inner and head == level.activation and path != head.path:
            return _round_number(path, head) > _round_number(level.inner, head)
    return False


def _round_number(path: str, loop: ActivationPath) -> int:
    return int(path.removeprefix(f"{loop.path}[").partition("]")[0])
