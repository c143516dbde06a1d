"""What people order of tasks. Every order locks the task first, is noted once under the message
that gave it, and asks the person's right and the task's state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from bot.engine.dispatch import orders
from bot.engine.dispatch.orders import Order
from bot.engine.dispatch.port import Dispatcher
from bot.engine.dispatch.rights import Rights
from bot.engine.workflow.graph import (
    Workflow,
    dump_workflow,
    inserted,
    load_workflow,
    validated,
)
from bot.engine.workflow.logbook import Logbook
from bot.engine.workflow.shown.view import TaskViews
from bot.engine.workflow.store import WorkStore
from bot.engine.workflow.verdict import MOST_REPLANS
from storage.db import Transaction
from storage.errors import WrongState
from storage.records.people import Chat, ChatId, Person, Role
from storage.records.tasks import (
    EventKind,
    Graph,
    NewTask,
    NodeStatus,
    Phase,
    Priority,
    Task,
    TaskEvent,
    TaskId,
    TaskPage,
    TaskStatus,
    TaskView,
)


class Foreman:
    """Satisfies `handlers.ports.Tasks`."""

    def __init__(
        self,
        *,
        store: WorkStore,
        dispatcher: Dispatcher,
        views: TaskViews,
        chat_of: Callable[[ChatId], Awaitable[Chat]],
        now: Callable[[], datetime],
        new_id: Callable[[], str],
    ) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._views = views
        self._rights = Rights(chat_of)
        self._now = now
        self._new_id = new_id

    async def create(self, new: NewTask) -> Task:
        return await self._create(new, None)

    async def run_workflow(self, new: NewTask, workflow: Mapping[str, Any]) -> Task:
        return await self._create(new, validated(load_workflow(workflow)))

    async def _create(self, new: NewTask, workflow: Workflow | None) -> Task:
        async with self._store.db.write() as tx:
            tried: set[TaskId] = set()
            task = None
            while task is None:
                tried.add(task_id := TaskId(self._new_id()))
                task = await self._store.tasks.create(tx, new, id=task_id, now=self._now())
            if task.id in tried:
                await self._tell(tx, task, EventKind.CREATED)
                if new.outside:
                    task = await self._begin_outside(tx, task)
                if workflow is not None:
                    task = await self._give_plan(tx, task, workflow)
        self._dispatcher.wake()
        return task

    async def find(self, prefix: str, *, by: Person, chat: ChatId) -> Task:
        return await self._store.tasks.find(prefix, await self._rights.sight(by, chat))

    async def page(
        self, *, by: Person, chat: ChatId, status: TaskStatus | None, page: int, size: int
    ) -> TaskPage:
        sight = await self._rights.sight(by, chat)
        return await self._store.tasks.page(sight, status, page, size)

    async def view(self, task_id: TaskId) -> TaskView:
        return await self._views.view(task_id)

    async def events(self, task_id: TaskId, limit: int) -> Sequence[TaskEvent]:
        return await self._store.journal.latest(task_id, limit)

    async def pause(self, task: Task, *, by: Person, source: str, reason: str = "") -> Task:
        return await self._give(task, "pause", by, source, lambda held: orders.pause(held, reason))

    async def resume(self, task: Task, *, by: Person, source: str, said: str = "") -> Task:
        return await self._give(task, "resume", by, source, orders.resume, said=said)

    async def stop(self, task: Task, *, by: Person, source: str) -> Task:
        stopped = await self._give(
            task, "stop", by, source, lambda held: orders.stop(held, self._now())
        )
        # An order handled again may meet a task that was retried since.
        if stopped.status.is_final:
            self._dispatcher.abort(task.id)
        return stopped

    async def retry(self, task: Task, *, by: Person, source: str) -> Task:
        return await self._give(task, "retry", by, source, orders.retry)

    async def set_priority(
        self, task: Task, priority: Priority, *, by: Person, source: str
    ) -> Task:
        return await self._give(
            task, "priority", by, source, lambda held: orders.reorder(held, priority)
        )

    async def tell(self, task: Task, text: str, *, by: Person, source: str) -> Task:
        return await self._give(
            task, "message", by, source, lambda held: orders.tell(held, text), said=text
        )

    async def let_in(self, task: Task, *, by: Person, source: str) -> Task:
        return await self._give(task, "let_in", by, source, orders.let_in)

    async def replan(self, task: Task, why: str, *, by: Person, source: str) -> Task:
        return await self._give(
            task, "replan", by, source, lambda held: orders.replan(held, why), said=why
        )

    async def inject(self, task: Task, titles: Sequence[str], *, by: Person, source: str) -> Task:
        await self._rights.check(task, by)
        async with self._store.db.write() as tx:
            held = await self._store.tasks.lock(tx, task.id)
            noted = await self._store.journal.order(
                tx, task.id, "inject", source=source, by=by.id, now=self._now()
            )
            if noted:
                held = await self._insert(tx, held, titles, by)
        self._dispatcher.wake()
        self._dispatcher.look_again(task.id)
        return held

    async def is_in_rounds(self, task: Task, titles: Sequence[str]) -> bool:
        graph = await self._store.graphs.latest(task.id)
        if graph is None:
            return False
        workflow = load_workflow(graph.body)
        inner = {name for node in workflow.nodes for name in node.body}
        return any(n.given and n.title in titles and n.id in inner for n in workflow.nodes)

    async def _insert(self, tx: Transaction, task: Task, titles: Sequence[str], by: Person) -> Task:
        """A new version of the plan with these steps next; the one under way is not touched."""
        graph = await self._store.graphs.latest(task.id, tx=tx)
        if task.status.is_final or graph is None:
            raise WrongState("task", task.id, task.status)
        workflow = load_workflow(graph.body)
        runs = await self._store.graphs.runs(task.id, tx=tx)
        version = task.graph_version + 1
        changed = Graph(
            task_id=task.id,
            version=version,
            body=dump_workflow(inserted(workflow, runs, titles)),
            reason="inject",
            author=by.id,
        )
        await self._store.graphs.add(tx, changed, now=self._now())
        await self._tell(tx, task, EventKind.INJECTED, " → ".join(titles))
        return await self._store.tasks.move(tx, task, graph_version=version)

    async def _give(
        self,
        task: Task,
        kind: str,
        by: Person,
        source: str,
        decide: Callable[[Task], Order | None],
        *,
        said: str = "",
    ) -> Task:
        await self._rights.check(task, by)
        async with self._store.db.write() as tx:
            held = await self._store.tasks.lock(tx, task.id)
            now = self._now()
            payload = {"said": said}
            answers = kind == "resume" and said and held.status is TaskStatus.BLOCKED
            if answers and by.role is Role.OWNER:
                payload["answers"] = await self._asking_step(tx, held)
            noted = await self._store.journal.order(
                tx, task.id, kind, source=source, by=by.id, now=now, payload=payload
            )
            if not noted:
                return held
            order = decide(held)
            if order is None:
                return held
            if order.frees is not None:
                await self._free(tx, task.id, order, kind, now)
            if changes := orders.carried_out(held, order, now):
                held = await self._store.tasks.move(tx, held, **changes)
            await self._tell(tx, held, order.event, order.text)
        self._dispatcher.wake()
        self._dispatcher.look_again(task.id)
        return held

    async def _asking_step(self, tx: Transaction, task: Task) -> str:
        """The step that could not go on without a person; empty where none was tried."""
        runs = (await self._store.graphs.runs(task.id, tx=tx)).values()
        stuck = [run for run in runs if run.status is NodeStatus.PENDING and run.error]
        last = max(stuck, key=lambda run: run.ended_at or task.created_at, default=None)
        return last.path if last else ""

    async def _give_plan(self, tx: Transaction, task: Task, workflow: Workflow) -> Task:
        """It begins with this plan, and nobody has to make one."""
        graph = Graph(
            task_id=task.id,
            version=1,
            body=dump_workflow(workflow),
            reason="workflow",
            author=task.created_by,
        )
        await self._store.graphs.add(tx, graph, now=self._now())
        logbook = Logbook(self._store.logs)
        await logbook.planned(tx, task, workflow, graph.version, self._now())
        await self._tell(tx, task, EventKind.PLANNED, workflow.plan)
        # No planner may put another in its place, unless people ask for that.
        return await self._store.tasks.move(
            tx,
            task,
            graph_version=graph.version,
            summary=workflow.answer,
            replans=MOST_REPLANS,
        )

    async def _begin_outside(self, tx: Transaction, task: Task) -> Task:
        """Whoever keeps it here is at work on it already."""
        now = self._now()
        await self._tell(tx, task, EventKind.STARTED)
        return await self._store.tasks.move(
            tx, task, status=TaskStatus.RUNNING, phase=Phase.DOING, started_at=now
        )

    async def _free(
        self, tx: Transaction, task_id: TaskId, order: Order, kind: str, now: datetime
    ) -> None:
        """An attempt that the order ends is closed with its name: no error would read as done."""
        for run in (await self._store.graphs.runs(task_id, tx=tx)).values():
            if run.status is order.frees:
                await self._store.graphs.release(tx, run, why=run.error or kind, now=now)

    async def _tell(self, tx: Transaction, task: Task, kind: EventKind, text: str = "") -> None:
        await self._store.journal.append(tx, task.id, kind, now=self._now(), text=text)
