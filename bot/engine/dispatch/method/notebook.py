"""The working method: logs by which work is done, and the plan they are held against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bot.engine.dispatch.method.ledger import Held, refuse, runs_here
from bot.engine.dispatch.method.lookup import Lookup
from bot.engine.dispatch.method.subtasks import appended, left_of, node_and_rest, node_named
from bot.engine.dispatch.method.upkeep import Upkeep
from bot.engine.workflow.graph import Node
from cards import formats
from cards.words import words_for
from handlers.services.notebook import Jotting
from storage.records.logs import MOST_TEXT, LogKind, NewLog
from storage.records.notebook import MOST_ERRORS, Marked, Noted
from storage.records.people import Person, Role
from storage.records.tasks import EventKind, NodeRun, NodeStatus, Task, TaskStatus

_LINE = 200
_IDLE = {TaskStatus.PENDING, TaskStatus.PAUSED}
_SETTLING = {*_IDLE, TaskStatus.BLOCKED}


class Notebook(Lookup, Upkeep):
    """Satisfies `handlers.services.notebook.Notebook`."""

    async def note(self, task: Task, jotting: Jotting, *, by: Person, source: str) -> Noted:
        is_plan = jotting.kind is LogKind.PLAN
        # Who plans here is told; what is planned already is not planned again by a log.
        for_planner = is_plan and not task.outside and not task.graph_version
        said = jotting.text if for_planner else ""
        async with self._held(task, "log", by, source, said=said) as held:
            if not held.fresh:
                return await self._kept(held, jotting, source)
            if jotting.kind is LogKind.ERROR and held.task.status.is_final:
                raise refuse(held.task)
            number = 1 + await self._store.logs.count(task.id, tx=held.tx)
            new = NewLog(
                task_id=task.id,
                source=source,
                kind=jotting.kind,
                text=jotting.text,
                stage=jotting.stage or held.task.stage,
                attempt=jotting.attempt,
                file=await self._tools.clippings.keep(
                    held.task, number, jotting, trusted=by.role is Role.OWNER
                ),
                person_id=by.id,
            )
            await self._store.logs.add(held.tx, new, now=held.now)
            moved = held.task
            if jotting.kind is LogKind.ERROR:
                moved = await self._count_error(held, jotting.text)
            elif is_plan and task.outside and not moved.status.is_final:
                moved = await self._plan_by(held, jotting.text, by)
            noted = await self._kept(replace(held, task=moved), jotting, source)
        blocked = moved.status is TaskStatus.BLOCKED and held.task.status is not moved.status
        return replace(noted, blocked=blocked)

    async def plan(self, task: Task, text: str, *, by: Person, source: str) -> Noted:
        return await self.note(task, Jotting(kind=LogKind.PLAN, text=text), by=by, source=source)

    async def add_subtasks(
        self, task: Task, titles: Sequence[str], *, by: Person, source: str
    ) -> Task:
        async with self._held(task, "subtasks", by, source) as held:
            if not held.fresh:
                return held.task
            being_planned = runs_here(held.task) and not held.task.graph_version
            if held.task.status.is_final or being_planned:
                raise refuse(held.task)
            workflow = appended(await self._plan_of(held), titles)
            await self._event(held, EventKind.INJECTED, " → ".join(titles))
            return await self._replan(held, workflow, "subtasks", by)

    async def finish_subtask(
        self, task: Task, name: str, summary: str, *, by: Person, source: str
    ) -> Marked:
        async with self._held(task, "subtask", by, source) as held:
            workflow = await self._plan_of(held)
            runs = await self._store.graphs.runs(task.id, tx=held.tx)
            node = node_named(workflow, runs, name)
            already = node not in left_of(workflow, runs)
            moved = held.task
            if held.fresh and not already:
                runs = {**runs, node.id: await self._settle(held, node, runs, summary)}
                if not left_of(workflow, runs):
                    await self._let_go(held, "done")
                    moved = await self._complete(held, summary or node.title)
        return Marked(
            task=moved,
            title=node.title,
            left=len(left_of(workflow, runs)),
            already=already and held.fresh,
        )

    async def stage_subtask(
        self, task: Task, said: str, *, by: Person, source: str, name: str = ""
    ) -> Marked:
        async with self._held(task, "subtask", by, source) as held:
            workflow = await self._plan_of(held)
            runs = await self._store.graphs.runs(task.id, tx=held.tx)
            node, text = (
                (node_named(workflow, runs, name), said)
                if name
                else node_and_rest(workflow, runs, said)
            )
            left = left_of(workflow, runs)
            moved = held.task
            if held.fresh and node in left:
                if held.task.status.is_final:
                    raise refuse(held.task)
                if held.task.outside:
                    await self._mark_begun(held, runs, node)
                moved = await self._staged(held, f"{node.title}：{text}" if text else node.title)
        return Marked(task=moved, title=node.title, left=len(left), already=node not in left)

    async def _kept(self, held: Held, jotting: Jotting, source: str) -> Noted:
        logs = self._store.logs
        entry = await logs.by_source(source, tx=held.tx)
        if entry is None:
            raise LookupError(source)
        plans = await logs.count(held.task.id, LogKind.PLAN, tx=held.tx)
        return Noted(
            task=held.task,
            entry=entry,
            number=await logs.count(held.task.id, tx=held.tx),
            cut=len(jotting.text) > MOST_TEXT,
            planless=not plans and not held.task.graph_version,
        )

    async def _count_error(self, held: Held, text: str) -> Task:
        task, errors = held.task, held.task.errors + 1
        open_to_us = task.status in _IDLE or (
            task.outside and task.status in {TaskStatus.RUNNING, TaskStatus.WAITING}
        )
        if errors < MOST_ERRORS or not open_to_us:
            return await self._store.tasks.move(held.tx, task, errors=errors)
        words = words_for(await self._tools.language_of(task))
        reason = words("logbook.too_many_errors", n=errors, error=formats.line(text, _LINE))
        await self._event(held, EventKind.BLOCKED, reason)
        return await self._store.tasks.move(
            held.tx,
            task,
            errors=errors,
            status=TaskStatus.BLOCKED,
            status_reason=reason,
            resumed_first=0,
        )

    async def _plan_by(self, held: Held, text: str, by: Person) -> Task:
        """A new plan is another approach: errors count from here."""
        workflow = replace(await self._plan_of(held), plan=text)
        await self._event(held, EventKind.PLANNED, formats.line(text, _LINE))
        task = await self._replan(held, workflow, "plan", by)
        return await self._store.tasks.move(held.tx, task, errors=0)

    async def _settle(
        self, held: Held, node: Node, runs: Mapping[str, NodeRun], summary: str
    ) -> NodeRun:
        task = held.task
        if not (task.outside and not task.status.is_final) and task.status not in _SETTLING:
            raise refuse(task)
        run = runs.get(node.id) or _not_begun(task, node)
        if run.status is NodeStatus.WAITING:
            raise refuse(task)
        done = replace(
            run,
            status=NodeStatus.DONE,
            output={"summary": summary},
            error="",
            started_at=run.started_at or held.now,
            ended_at=held.now,
        )
        await self._store.graphs.put(held.tx, done)
        await self._event(held, EventKind.STEP_DONE, node.title)
        return done

    async def _mark_begun(self, held: Held, runs: Mapping[str, NodeRun], node: Node) -> None:
        """One subtask is worked on at a time: the one before it was put aside."""
        for run in runs.values():
            if run.status is NodeStatus.RUNNING and run.path != node.id:
                await self._store.graphs.put(held.tx, replace(run, status=NodeStatus.PENDING))
        run = runs.get(node.id) or _not_begun(held.task, node)
        begun = replace(run, status=NodeStatus.RUNNING, started_at=run.started_at or held.now)
        await self._store.graphs.put(held.tx, begun)


def _not_begun(task: Task, node: Node) -> NodeRun:
    return NodeRun(
        task_id=task.id,
        path=node.id,
        status=NodeStatus.PENDING,
        attempt=0,
        output={},
        error="",
        started_at=None,
        ended_at=None,
    )
