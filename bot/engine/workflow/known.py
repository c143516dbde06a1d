"""A task's plan and runs as the store has them, read once for as long as a lease is held."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from zoneinfo import ZoneInfo

from bot.engine.workflow.graph import Workflow, linear, load_workflow
from bot.engine.workflow.routing.flow import Flow
from bot.engine.workflow.routing.track import Say
from storage.db import Transaction
from storage.records.tasks import NodeRun, NodeStatus, Task
from storage.work.graphs import GraphRepo
from storage.work.journal import Journal, Orders

log = logging.getLogger(__name__)

MOST_AT_ONCE = 500
"""Runs that one transaction makes of what goes on by itself."""

_UNREAD = -1
_NO_ORDERS = Orders(said=(), replan=0, replan_why="")


class Known:
    """Under the lease nobody else writes a task's runs, and a new plan has a new version: what
    was read once stays true until a transaction fails, which is when to `forget`."""

    def __init__(self, graphs: GraphRepo, journal: Journal, zone: ZoneInfo, say: Say) -> None:
        self._zone, self._say = zone, say
        self._graphs = graphs
        self._journal = journal
        self._orders = _NO_ORDERS
        self._ordered: int | None = 0
        self._version = _UNREAD
        self._workflow = linear("", ())
        self._runs: dict[str, NodeRun] | None = None
        self._unheard = False
        self._flow: Flow | None = None
        self.left: tuple[Task, int] | None = None

    def forget(self) -> None:
        self._version, self._runs, self._flow, self.left = _UNREAD, None, None, None
        self._orders, self._ordered, self._unheard = _NO_ORDERS, 0, False

    def leave(self, task: Task) -> None:
        """As it is now, and with the newest order of now, it is `left` until the next boundary,
        unless somebody else moves it or gives an order."""
        self.left = None if self._ordered is None else (task, self._ordered)

    def ordered(self, last: int | None) -> None:
        """`last` is the number of the newest order, None if nobody knows."""
        if last is None or last != self._ordered:
            self._unheard = True
        self._ordered, self.left = last, None

    async def orders(self, tx: Transaction, task: Task) -> Orders:
        """What people have ordered, as it was when the task was locked."""
        if self._unheard:
            self._orders = await self._journal.orders(tx, task.id)
            self._unheard = self._ordered is None
        return self._orders

    async def state(self, tx: Transaction, task: Task) -> tuple[Workflow, Mapping[str, NodeRun]]:
        """The runs go on with what is noted here; whoever keeps them takes a copy."""
        if self._version != task.graph_version:
            graph = await self._graphs.latest(task.id, tx=tx)
            self._workflow = load_workflow(graph.body) if graph else linear("", ())
            self._version, self._flow = task.graph_version, None
        return self._workflow, await self._read(tx, task)

    async def flow(self, tx: Transaction, task: Task) -> Flow:
        """The same under way."""
        workflow, runs = await self.state(tx, task)
        if self._flow is None:
            warn = partial(log.warning, "task %s: %s", task.id)
            self._flow = Flow(task.id, workflow, runs, zone=self._zone, say=self._say, warn=warn)
        return self._flow

    async def settle(self, tx: Transaction, task: Task, now: datetime) -> Sequence[NodeRun]:
        """Go on with what costs nothing, as far as one boundary may; the runs that it made."""
        flow = await self.flow(tx, task)
        made = flow.settle(now, MOST_AT_ONCE)
        for run in made:
            await self._graphs.put(tx, run)
            if self._runs is not None:
                self._runs[run.path] = run
        return made

    async def put(self, tx: Transaction, run: NodeRun) -> None:
        """Store how far a node is, without an attempt."""
        await self._graphs.put(tx, run)
        self._note(run)

    async def start(
        self, tx: Transaction, task: Task, path: str, *, session_id: str, now: datetime
    ) -> NodeRun:
        before = (await self._read(tx, task)).get(path)
        attempt = 1 + (before.attempt if before else 0)
        run = await self._graphs.start(
            tx, task.id, path, attempt=attempt, session_id=session_id, now=now
        )
        return self._note(run)

    async def finish(self, tx: Transaction, run: NodeRun, *, again: bool = False) -> None:
        """Store how an attempt ended; `again` lets the step run once more, while the attempt
        keeps its error."""
        left = replace(run, status=NodeStatus.PENDING) if again else self._told(run)
        await self._graphs.finish(tx, left)
        self._note(left)

    async def release(self, tx: Transaction, run: NodeRun, *, why: str, now: datetime) -> None:
        """Close the attempt with its reason and let the step run again."""
        await self.finish(tx, replace(run, error=why, ended_at=now), again=True)

    async def shelve(
        self, tx: Transaction, run: NodeRun, before: NodeRun | None, *, why: str, now: datetime
    ) -> None:
        """Close an attempt that was never made: its step is as far as it was before."""
        await self._graphs.finish(tx, replace(run, error=why, ended_at=now))
        unbegun = replace(run, started_at=None, ended_at=None)
        back = replace(before or unbegun, attempt=run.attempt, status=NodeStatus.PENDING)
        await self._graphs.put(tx, back)
        self._note(back)

    def _told(self, run: NodeRun) -> NodeRun:
        """With the way that is taken behind it."""
        if self._flow is None or run.ended_at is None:
            return run
        return self._flow.ended(run, run.ended_at)

    async def _read(self, tx: Transaction, task: Task) -> dict[str, NodeRun]:
        if self._runs is None:
            self._runs = dict(await self._graphs.runs(task.id, tx=tx))
        return self._runs

    def _note(self, run: NodeRun) -> NodeRun:
        if self._runs is not None:
            self._runs[run.path] = run
        if self._flow is not None:
            self._flow.note(run)
        return run
