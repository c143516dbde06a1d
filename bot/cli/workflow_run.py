"""Runs a workflow to its end in this process and formats the result."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from bot.app.container import Container, open_container
from bot.app.lifecycle import ServiceGroup, stop_on_signals
from bot.app.preflight import hold_home
from bot.config.settings import Settings
from bot.engine.workflow.compensation import Compensations
from bot.engine.workflow.definition import (
    COMPENSATION_MARK,
    Workflow,
    WorkflowTopology,
    load_workflow,
)
from bot.engine.workflow.expressions.operations import ExpressionError
from bot.engine.workflow.node_runs import (
    VALUES_KEY,
    ActivationPath,
    is_internal_key,
    parse_activation,
    public_value,
    scope_of,
)
from bot.engine.workflow.presentation.node_display import NodeTitles
from bot.engine.workflow.scheduler import WorkflowScheduler
from bot.transports.web.ports import LOCAL_PLACE, LOCAL_SENDER
from cards.catalog import catalog_for
from storage.records.approvals import Approval, ApprovalKind
from storage.records.people import Language, Person
from storage.records.tasks import (
    SUBAGENTS_RUNNING_REASON,
    NewTask,
    NodeRun,
    NodeStatus,
    Task,
    TaskPriority,
    TaskStatus,
    TaskView,
)
from storage.records.traces import Trace
from storage.records.workflows import PreparedWorkflow

_POLL_INTERVAL = 0.05
_ROUND_NUMBERS = re.compile(r"(?<=[\[#])\d+")
_NOT_STARTED = datetime.max.replace(tzinfo=UTC)
_HALTED_STATUSES = {TaskStatus.PAUSED, TaskStatus.BLOCKED}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeActivation:
    """One activation of a node. `path` identifies the iteration; `state` is `failed` or `stopped`
    if the run ended before the node."""

    path: str
    id: str
    type: str
    title: str
    state: str
    run: NodeRun


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowRunResult:
    """Result of a run. `nodes` are in start order; `missing_outputs` gives reasons by output name;
    `waits_for` lists pending approvals."""

    view: TaskView
    nodes: tuple[NodeActivation, ...]
    outputs: Mapping[str, Any]
    missing_outputs: Mapping[str, str]
    waits_for: tuple[Approval, ...]
    trace: Trace


async def run_workflow(
    settings: Settings, ready: PreparedWorkflow, announce: Callable[[str], None]
) -> WorkflowRunResult:
    """Run until the workflow ends or only a decision can continue it. `announce` receives the time
    of each automatic wait. Raises StartFailure and DataDirectoryInUse."""
    with hold_home(settings):
        stop = stop_on_signals()
        async with open_container(settings) as core:
            task = await _enqueue_workflow(core, ready)
            core.engine.dispatcher.exclusive_task = task.id
            async with ServiceGroup(core.engine.services) as app:
                watching = asyncio.create_task(
                    _stop_when_over(core, task, stop, announce), name="watch the task"
                )
                await app.run(stop)
                await watching
            return await _collect_result(settings, core, task)


async def _enqueue_workflow(core: Container, ready: PreparedWorkflow) -> Task:
    """Queue the workflow in the local owner's chat."""
    chat = await core.get_local_chat()
    owner = await _local_owner(core)
    new = NewTask(
        title=ready.title,
        instruction=ready.instruction,
        priority=TaskPriority.IMPORTANT,
        chat_id=chat.id,
        created_by=owner.id,
        source=f"terminal:{uuid4().hex}",
    )
    return await core.engine.tasks.run_workflow(new, ready.body)


async def _local_owner(core: Container) -> Person:
    owner = await core.repositories.people.find_by_account(
        LOCAL_PLACE.channel, LOCAL_SENDER.external_id
    )
    assert owner is not None  # created with the core
    return owner


async def _stop_when_over(
    core: Container, task: Task, stop: asyncio.Event, announce: Callable[[str], None]
) -> None:
    """Stop once nothing continues without a person, or on a signal."""
    try:
        await _wait_until_over(core, task, stop, announce)
    finally:
        # Nothing else would end the process.
        stop.set()


async def _wait_until_over(
    core: Container, task: Task, stop: asyncio.Event, announce: Callable[[str], None]
) -> None:
    announced = None
    while not stop.is_set():
        seen = await core.repositories.work.tasks.get(task.id)
        if await _is_over(core, seen):
            return
        due = seen.wake_at if seen.status is TaskStatus.WAITING else None
        if due is not None and due != announced:
            announced = due
            asked = " or ".join(each.title for each in await _open_approvals(core, seen))
            unless = f", even without a decision on: {asked}" if asked else ""
            announce(f"{seen.id} continues at {due:%Y-%m-%d %H:%M:%S} UTC{unless}")
        await asyncio.sleep(_POLL_INTERVAL)


async def _is_over(core: Container, task: Task) -> bool:
    if task.status.is_final or task.status in _HALTED_STATUSES:
        return True
    if task.status is not TaskStatus.WAITING or task.status_reason == SUBAGENTS_RUNNING_REASON:
        return False
    asked = await _open_approvals(core, task)
    if not asked or await _continues_by_itself(core, task, asked):
        return False
    # Read in sequence, since the task may continue in between.
    return await core.repositories.work.tasks.get(task.id) == task


async def _continues_by_itself(core: Container, task: Task, approvals: Sequence[Approval]) -> bool:
    """Whether the run continues without these decisions. The timeout of the whole workflow does not
    count, as it only ends the run."""
    if task.wake_at is None:
        return False
    runs = await core.repositories.work.graphs.list_runs(task.id)
    timed = (each.wake_at for each in runs.values() if each.status is NodeStatus.WAITING)
    return any(timed) or any(each.kind is ApprovalKind.BUDGET for each in approvals)


async def _open_approvals(core: Container, task: Task) -> Sequence[Approval]:
    waiting = await core.repositories.approvals.list_waiting(by=await _local_owner(core), chat=None)
    return [each for each in waiting if each.task_id == task.id]


async def _collect_result(settings: Settings, core: Container, task: Task) -> WorkflowRunResult:
    seen = await core.repositories.work.tasks.get(task.id)
    graph = await core.repositories.work.graphs.find_latest(task.id)
    assert graph is not None  # the task was created with one
    workflow = load_workflow(graph.body)
    runs = await core.repositories.work.graphs.list_runs(task.id)
    words = catalog_for(settings.fixed_language or Language.ENGLISH)
    flow = WorkflowScheduler(
        task.id, workflow, dict(runs), zone=settings.zone, text=words, warn=lambda _warning: None
    )
    context = flow.context("", core.clock.now())
    outputs: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for name, expression in workflow.outputs.items() if seen.status.is_final else ():
        try:
            outputs[name] = public_value(context.evaluate(expression))
        except ExpressionError as error:
            missing[name] = str(error)
    waits_for = () if seen.status.is_final else tuple(await _open_approvals(core, seen))
    return WorkflowRunResult(
        view=await core.engine.tasks.view(task.id),
        nodes=(
            *list_activations(seen, workflow, runs),
            *list_other_nodes(seen, workflow, runs, [each.path for each in waits_for]),
        ),
        outputs=outputs,
        missing_outputs=missing,
        waits_for=waits_for,
        trace=await core.engine.traces.get_task_trace(task.id),
    )


def list_activations(
    task: Task, workflow: Workflow, runs: Mapping[str, NodeRun]
) -> Iterator[NodeActivation]:
    """Activations by start time, then in the plan's order and by iteration; what undoes one has a
    mark before its title."""
    topology = WorkflowTopology(workflow)
    known = topology.with_past.nodes
    written = {name: n for n, name in enumerate(known)}
    titles, undoing = NodeTitles(topology, runs), Compensations(topology, runs)
    places = {
        path: place
        for path in runs
        if (place := parse_activation(path)) and place.node in topology.nodes
    }
    undone = {
        run.path: ActivationPath(scope_of(run.path), undoing.node_of(run.path).id)
        for run in undoing.all
    }
    places |= undone

    def when(path: str) -> tuple[datetime, int, list[int]]:
        rounds = [int(n) for n in _ROUND_NUMBERS.findall(path)]
        return runs[path].started_at or _NOT_STARTED, written[places[path].node], rounds

    for path in sorted(places, key=when):
        node, place = known[places[path].node], places[path]
        yield NodeActivation(
            path=path,
            id=node.id,
            type=str(node.type),
            title=f"{COMPENSATION_MARK} {titles.title_of_undoing(path)}"
            if path in undone
            else titles.title_of(place.scope, place.node),
            state=_activation_state(task, path, runs),
            run=runs[path],
        )


def list_other_nodes(
    task: Task, workflow: Workflow, runs: Mapping[str, NodeRun], asked: Sequence[str]
) -> Iterator[NodeActivation]:
    """The nodes without a run: steps that wait for a person, by the paths `asked`, and nodes of the
    outermost scope that have not started."""
    inner = {name for node in workflow.nodes for name in node.body} | workflow.compensations
    begun = {place.node for path in runs if (place := parse_activation(path)) is not None}
    left = [node.id for node in workflow.nodes if node.id not in begun | inner]
    titles = NodeTitles(WorkflowTopology(workflow), runs)
    known = workflow.nodes_by_id
    over = NodeStatus.SKIPPED if task.status is TaskStatus.COMPLETED else NodeStatus.PENDING
    for path in dict.fromkeys((*asked, *left)):
        place = parse_activation(path)
        if place is None or place.node not in known or path in runs:
            continue
        run = NodeRun(
            task_id=task.id,
            path=path,
            status=NodeStatus.WAITING if path in asked else over,
            attempt=0,
            output={},
            error="",
            started_at=None,
            ended_at=None,
        )
        yield NodeActivation(
            path=path,
            id=place.node,
            type=str(known[place.node].type),
            title=titles.title_of(place.scope, place.node),
            state=run.status.value,
            run=run,
        )


def _activation_state(task: Task, path: str, runs: Mapping[str, NodeRun]) -> str:
    status = runs[path].status
    has_ended = task.status.is_final or task.status in _HALTED_STATUSES
    if status.is_settled or not has_ended:
        return status.value
    inside = (run for each, run in runs.items() if each.startswith(f"{path}["))
    if _has_failed(runs[path]) or any(map(_has_failed, inside)):
        return NodeStatus.FAILED.value
    return "stopped" if runs[path].started_at and task.status.is_final else status.value


def _has_failed(run: NodeRun) -> bool:
    return run.status is NodeStatus.FAILED or (bool(run.error) and not run.status.is_settled)


_MAX_LINE = 160
_MAX_SPANS = 60


def result_data(result: WorkflowRunResult) -> dict[str, Any]:
    """The result as JSON values."""
    from cards.json_data import task_view_data
    from cards.views.traces import trace_data

    return {
        "task": task_view_data(result.view),
        "nodes": [_node_data(each) for each in result.nodes],
        "outputs": dict(result.outputs),
        "missing_outputs": dict(result.missing_outputs),
        "waits_for": [{"id": each.id, "title": each.title} for each in result.waits_for],
        "spans": trace_data(result.trace)["spans"],
    }


def result_lines(result: WorkflowRunResult) -> Iterator[str]:
    """The result as text."""
    from cards.views.traces import tree_lines

    task = result.view.task
    yield f"{task.id}  {task.status}  {task.title}"
    if task.status_reason:
        yield f"  {_one_line(task.status_reason)}"
    for node in result.nodes:
        title = node.title if node.title != node.path else ""
        output = node.run.output
        result_text = node.run.error or output.get("summary") or output.get("value") or ""
        parts = (f"  {node.state:<8} {node.path}", title, _one_line(result_text))
        yield "  ".join(filter(None, parts))
    for name, value in result.outputs.items():
        yield f"{name} = {_one_line(value)}"
    for name, why in result.missing_outputs.items():
        yield f"{name} is empty: {_one_line(why)}"
    for each in result.waits_for:
        yield f"waiting for a decision: {each.title} (shiftboss approve {each.id})"
    if result.waits_for:
        yield "to continue after the decision, run `shiftboss dispatch` or `shiftboss run`"
    yield from ("", *tree_lines(result.trace, catalog_for(Language.ENGLISH), most=_MAX_SPANS))


def _node_data(node: NodeActivation) -> dict[str, Any]:
    return {
        "path": node.path,
        "node": node.id,
        "type": node.type,
        "title": node.title,
        "state": node.state,
        "attempt": node.run.attempt,
        "output": {
            "result" if name == "_raw" else name: public_value(value)
            for name, value in (*node.run.output.items(), *_values(node.run).items())
            if not is_internal_key(name)
        },
        "error": node.run.error,
    }


def _values(run: NodeRun) -> Mapping[str, Any]:
    values: Mapping[str, Any] = run.output.get(VALUES_KEY) or {}
    return values


def _one_line(value: object) -> str:
    whole = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = " ".join(whole.split())
    return text if len(text) <= _MAX_LINE else f"{text[:_MAX_LINE]}…"
