"""A workflow run to its end in this process, on this home, without a chat."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from bot.app.build import Core
from bot.app.lifecycle import App, stop_on_signals
from bot.app.parts import settings_language
from bot.app.terminal.dispatch import held, opened
from bot.app.workers.traces import build_traces
from bot.config.settings import Settings
from bot.engine.workflow.expressions.language import ExpressionError
from bot.engine.workflow.graph import Workflow, load_workflow
from bot.engine.workflow.model.layout import Layout
from bot.engine.workflow.routing.flow import Flow
from bot.engine.workflow.routing.paths import place_of
from bot.engine.workflow.routing.results import plain
from bot.engine.workflow.shown.titles import Titles
from bot.transports.web.ports import PLACE, SENDER
from cards.words import words_for
from storage.records.approvals import Approval, ApprovalKind
from storage.records.helping import HELPERS_WORK
from storage.records.people import Language, Person
from storage.records.tasks import NewTask, NodeRun, NodeStatus, Priority, Task, TaskStatus, TaskView
from storage.records.workers.spans import Trace
from storage.records.workers.workflows import ReadyWorkflow

_LOOK_EVERY = 0.05
_ROUNDS = re.compile(r"(?<=[\[#])\d+")
_LATER = datetime.max.replace(tzinfo=UTC)
_STANDS = {TaskStatus.PAUSED, TaskStatus.BLOCKED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One activation of a node: `id` is the node's, `path` says in which round of what. `state` is
    how far it is: `failed` or `stopped` where the run knows only that nobody has finished it."""

    path: str
    id: str
    type: str
    title: str
    state: str
    run: NodeRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How far it came. `nodes` are in the order in which they began; `outputs` are what it gives
    back, `missing` why one of them cannot be told, by name; `waits_for` are people's decisions
    that it waits for, `trace` what its run was made of."""

    view: TaskView
    nodes: tuple[Node, ...]
    outputs: Mapping[str, Any]
    missing: Mapping[str, str]
    waits_for: tuple[Approval, ...]
    trace: Trace


async def run(settings: Settings, ready: ReadyWorkflow, announce: Callable[[str], None]) -> Ran:
    """To its end, times that are waited for included, or to where nothing but a person's decision
    helps; `announce` is told until when it waits by itself. Raises StartFailure, and HomeBusy."""
    with held(settings):
        stop = stop_on_signals()
        async with opened(settings) as core:
            task = await _queued(core, ready)
            core.engine.dispatcher.only = task.id
            async with App(core.engine.workers) as app:
                watching = asyncio.create_task(
                    _watch(core, task, stop, announce), name="watch the task"
                )
                await app.run(stop)
                await watching
            return await _told(settings, core, task)


async def _queued(core: Core, ready: ReadyWorkflow) -> Task:
    """As the local owner's, in their conversation."""
    now, source = core.clock.now(), f"terminal:{uuid4().hex}"
    async with core.store.db.write() as tx:
        chat = await core.store.chats.meet(tx, PLACE, SENDER, now)
    owner = await _owner(core)
    new = NewTask(
        title=ready.title,
        instruction=ready.instruction,
        priority=Priority.IMPORTANT,
        chat_id=chat.id,
        created_by=owner.id,
        source=source,
    )
    return await core.engine.foreman.run_workflow(new, ready.body)


async def _owner(core: Core) -> Person:
    owner = await core.store.people.who(PLACE.channel, SENDER.external_id)
    assert owner is not None  # made when the core was built
    return owner


async def _watch(
    core: Core, task: Task, stop: asyncio.Event, announce: Callable[[str], None]
) -> None:
    """Until nothing goes on any more without a person, or somebody stops it all."""
    try:
        await _follow(core, task, stop, announce)
    finally:
        # Whatever became of it, nobody else would end the program.
        stop.set()


async def _follow(
    core: Core, task: Task, stop: asyncio.Event, announce: Callable[[str], None]
) -> None:
    told = None
    while not stop.is_set():
        seen = await core.store.work.tasks.get(task.id)
        if await _is_over(core, seen):
            return
        if seen.wake_at is not None and seen.wake_at != told and seen.status is TaskStatus.WAITING:
            told = seen.wake_at
            asked = " or ".join(each.title for each in await _open(core, seen))
            unless = f", though nobody has decided: {asked}" if asked else ""
            announce(f"{seen.id} goes on by itself at {told:%Y-%m-%d %H:%M:%S} UTC{unless}")
        await asyncio.sleep(_LOOK_EVERY)


async def _is_over(core: Core, task: Task) -> bool:
    if task.status.is_final or task.status in _STANDS:
        return True
    if task.status is not TaskStatus.WAITING or task.status_reason == HELPERS_WORK:
        return False
    asked = await _open(core, task)
    if not asked or await _has_its_time(core, task, asked):
        return False
    # Read one after the other: it may have gone on meanwhile.
    return await core.store.work.tasks.get(task.id) == task


async def _has_its_time(core: Core, task: Task, asked: Sequence[Approval]) -> bool:
    """Whether it goes on without these decisions. The time of the whole workflow alone is no such
    thing: it would only break it off."""
    if task.wake_at is None:
        return False
    runs = await core.store.work.graphs.runs(task.id)
    timed = (each.wake_at for each in runs.values() if each.status is NodeStatus.WAITING)
    return any(timed) or any(each.kind is ApprovalKind.BUDGET for each in asked)


async def _open(core: Core, task: Task) -> Sequence[Approval]:
    waiting = await core.store.approvals.waiting(by=await _owner(core), chat=None)
    return [each for each in waiting if each.task_id == task.id]


async def _told(settings: Settings, core: Core, task: Task) -> Ran:
    seen = await core.store.work.tasks.get(task.id)
    graph = await core.store.work.graphs.latest(task.id)
    assert graph is not None  # it was made with one
    workflow = load_workflow(graph.body)
    runs = await core.store.work.graphs.runs(task.id)
    words = words_for(settings_language(settings) or Language.ENGLISH)
    flow = Flow(
        task.id, workflow, dict(runs), zone=settings.zone, say=words, warn=lambda _warning: None
    )
    sight = flow.sight("", core.clock.now())
    outputs: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for name, expression in workflow.outputs.items() if seen.status.is_final else ():
        try:
            outputs[name] = plain(sight.value(expression))
        except ExpressionError as error:
            missing[name] = str(error)
    return Ran(
        view=await core.engine.foreman.view(task.id),
        nodes=tuple(nodes_of(seen, workflow, runs)),
        outputs=outputs,
        missing=missing,
        waits_for=tuple(await _open(core, seen)) if not seen.status.is_final else (),
        trace=await build_traces(settings, core.store, core.clock).trace_of(task.id),
    )


def nodes_of(task: Task, workflow: Workflow, runs: Mapping[str, NodeRun]) -> Iterator[Node]:
    """In the order in which they began; those of one moment in the plan's, round after round."""
    known = workflow.by_id
    written = {node.id: n for n, node in enumerate(workflow.nodes)}
    titles = Titles(Layout(workflow), runs)
    places = {path: place for path in runs if (place := place_of(path)) and place.node in known}

    def when(path: str) -> tuple[datetime, int, list[int]]:
        rounds = [int(n) for n in _ROUNDS.findall(path)]
        return runs[path].started_at or _LATER, written[places[path].node], rounds

    for path in sorted(places, key=when):
        node, place = known[places[path].node], places[path]
        yield Node(
            path=path,
            id=node.id,
            type=str(node.type),
            title=titles.of(place.scope, place.node),
            state=_state(task, path, runs),
            run=runs[path],
        )


def _state(task: Task, path: str, runs: Mapping[str, NodeRun]) -> str:
    status = runs[path].status
    stands = task.status.is_final or task.status in _STANDS
    if status.is_settled or not stands:
        return status.value
    inside = (run for each, run in runs.items() if each.startswith(f"{path}["))
    if _has_failed(runs[path]) or any(map(_has_failed, inside)):
        return NodeStatus.FAILED.value
    return "stopped" if runs[path].started_at and task.status.is_final else status.value


def _has_failed(run: NodeRun) -> bool:
    return run.status is NodeStatus.FAILED or (bool(run.error) and not run.status.is_settled)
