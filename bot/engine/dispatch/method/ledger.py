"""The one way in which the working method writes: the task locked first, its order noted once."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from bot.engine.dispatch.method.clippings import Clippings
from bot.engine.dispatch.orders import Order, carried_out
from bot.engine.dispatch.port import Dispatcher
from bot.engine.dispatch.rights import Rights
from bot.engine.workflow.graph import Workflow, dump_workflow, linear, load_workflow
from bot.engine.workflow.shown.view import TaskViews
from bot.engine.workflow.store import WorkStore
from storage.db import Transaction
from storage.errors import WrongState
from storage.records.people import Language, Person
from storage.records.tasks import EventKind, Graph, NodeStatus, Task, TaskStatus
from storage.usage import UsageRepo


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A task that this transaction has locked. Not `fresh`: its source ordered this before, and
    nothing may change."""

    tx: Transaction
    task: Task
    fresh: bool
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What the working method writes with; `drop` takes away where a deleted task worked."""

    store: WorkStore
    usage: UsageRepo
    views: TaskViews
    rights: Rights
    dispatcher: Dispatcher
    clippings: Clippings
    language_of: Callable[[Task], Awaitable[Language]]
    drop: Callable[[Task], Awaitable[None]]
    now: Callable[[], datetime]


class Ledger:
    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._store = tools.store

    @asynccontextmanager
    async def _held(
        self, task: Task, kind: str, by: Person, source: str, *, said: str = ""
    ) -> AsyncGenerator[Held, None]:
        await self._tools.rights.check(task, by)
        async with self._store.db.write() as tx:
            held = await self._store.tasks.lock(tx, task.id)
            now = self._tools.now()
            payload = {"said": said} if said else None
            fresh = await self._store.journal.order(
                tx, task.id, kind, source=source, by=by.id, now=now, payload=payload
            )
            yield Held(tx=tx, task=held, fresh=fresh, now=now)
        self._tools.dispatcher.wake()

    async def _plan_of(self, held: Held) -> Workflow:
        graph = await self._store.graphs.latest(held.task.id, tx=held.tx)
        return load_workflow(graph.body) if graph else linear("", ())

    async def _replan(self, held: Held, workflow: Workflow, reason: str, by: Person) -> Task:
        version = held.task.graph_version + 1
        graph = Graph(
            task_id=held.task.id,
            version=version,
            body=dump_workflow(workflow),
            reason=reason,
            author=by.id,
        )
        await self._store.graphs.add(held.tx, graph, now=held.now)
        return await self._store.tasks.move(held.tx, held.task, graph_version=version)

    async def _carry_out(self, held: Held, order: Order | None) -> Task:
        if order is None:
            return held.task
        task = held.task
        if changes := carried_out(task, order, held.now):
            task = await self._store.tasks.move(held.tx, task, **changes)
        await self._event(held, order.event, order.text)
        return task

    async def _let_go(self, held: Held, why: str) -> None:
        """Steps that claim to be under way are not any more."""
        for run in (await self._store.graphs.runs(held.task.id, tx=held.tx)).values():
            if run.status is NodeStatus.RUNNING:
                await self._store.graphs.release(held.tx, run, why=why, now=held.now)

    async def _event(self, held: Held, kind: EventKind, text: str = "") -> None:
        await self._store.journal.append(held.tx, held.task.id, kind, now=held.now, text=text)


def runs_here(task: Task) -> bool:
    """True while Shiftboss itself is at work on it."""
    return task.status is TaskStatus.RUNNING and not task.outside


def refuse(task: Task) -> WrongState:
    return WrongState("task", task.id, task.status)
