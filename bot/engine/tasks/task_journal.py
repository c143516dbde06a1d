"""The task journal: logs, plans and subtasks of tasks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from bot.engine.tasks.journal_recall import recall_logs
from bot.engine.tasks.journal_updates import (
    JournalOperations,
    LockedTask,
    TaskUpdates,
    is_run_by_worker,
    wrong_state,
)
from bot.engine.workflow.definition import Workflow, WorkflowEdge, WorkflowNode
from bot.engine.workflow.validation import validate_workflow
from cards import formats
from cards.catalog import catalog_for
from handlers.ports_workers import JournalDraft
from storage.errors import AmbiguousId, NotFound
from storage.records.people import ChatId, Person, PersonRole
from storage.records.task_logs import (
    MAX_ERRORS,
    MAX_LOG_TEXT,
    LogEntry,
    LogKind,
    LogMatch,
    LogPage,
    LogResult,
    NewLog,
    SubtaskProgress,
    TaskAgenda,
    TaskRecap,
)
from storage.records.tasks import EventKind, NodeRun, NodeStatus, Task, TaskStatus
from storage.tasks import TaskVisibility

_NUMBER = re.compile(r"#?(\d{1,4})[.。]?")
_QUOTED = re.compile(r'(?:"([^"]+)"|“([^”]+)”|「([^」]+)」|『([^』]+)』)\s*')
_MAX_CANDIDATES = 5
_ACTIONABLE = (TaskStatus.RUNNING, TaskStatus.PAUSED, TaskStatus.PENDING)
_STUCK = (TaskStatus.WAITING, TaskStatus.BLOCKED)
_RESUMABLE = (
    TaskStatus.PAUSED,
    TaskStatus.RUNNING,
    TaskStatus.BLOCKED,
    TaskStatus.PENDING,
    TaskStatus.WAITING,
)
_MAX_QUEUE = 5
_MAX_RECAP_ENTRIES = 5


def append_subtasks(workflow: Workflow, titles: Iterable[str]) -> Workflow:
    """The plan with new steps appended."""
    taken = {node.id for node in workflow.nodes}
    fresh = (f"s{n}" for n in range(1, 10_000) if f"s{n}" not in taken)
    new = [WorkflowNode(id=next(fresh), title=title, given=True) for title in titles]
    left = {edge.source for edge in workflow.edges}
    last = [node.id for node in workflow.nodes if node.id not in left]
    edges = list(workflow.edges)
    for node in new:
        edges += [WorkflowEdge(source=each, target=node.id) for each in last]
        last = [node.id]
    return validate_workflow(replace(workflow, nodes=(*workflow.nodes, *new), edges=tuple(edges)))


def unfinished_subtasks(
    workflow: Workflow, runs: Mapping[str, NodeRun]
) -> tuple[WorkflowNode, ...]:
    return tuple(node for node in workflow.nodes if not _settled(runs, node))


def find_subtask(workflow: Workflow, runs: Mapping[str, NodeRun], name: str) -> WorkflowNode:
    """Match an exact title, then a number, then an unambiguous prefix. Among equal titles, the
    first unfinished one."""
    wanted = _unquoted(name.strip())
    exact = _exact_matches(workflow, wanted)
    if exact:
        return next((node for node in exact if not _settled(runs, node)), exact[0])
    if (number := _number(wanted)) and number <= len(workflow.nodes):
        return workflow.nodes[number - 1]
    begun = [
        node
        for node in workflow.nodes
        if wanted and node.title.casefold().startswith(wanted.casefold())
    ]
    if len({node.title for node in begun}) > 1:
        raise AmbiguousId(wanted, tuple(node.title for node in begun[:_MAX_CANDIDATES]))
    if not begun:
        raise NotFound("subtask", wanted)
    return next((node for node in begun if not _settled(runs, node)), begun[0])


def split_subtask_name(
    workflow: Workflow, runs: Mapping[str, NodeRun], text: str
) -> tuple[WorkflowNode, str]:
    """Split off a subtask name: a quoted name, the longest matching title, or the first word."""
    text = text.strip()
    if quoted := _QUOTED.match(text):
        return find_subtask(workflow, runs, quoted[0]), text[quoted.end() :].strip()
    for title in sorted({node.title for node in workflow.nodes}, key=len, reverse=True):
        head, rest = text[: len(title)], text[len(title) :]
        if head.casefold() == title.casefold() and (not rest or rest[0].isspace()):
            return find_subtask(workflow, runs, title), rest.strip()
    first, *others = text.split(maxsplit=1) or [""]
    return find_subtask(workflow, runs, first), "".join(others).strip()


def _exact_matches(workflow: Workflow, wanted: str) -> Sequence[WorkflowNode]:
    same = [node for node in workflow.nodes if node.title == wanted]
    folded = wanted.casefold()
    return same or [node for node in workflow.nodes if node.title.casefold() == folded]


def _number(text: str) -> int:
    found = _NUMBER.fullmatch(text)
    return int(found[1]) if found else 0


def _unquoted(name: str) -> str:
    found = _QUOTED.fullmatch(name)
    return next(part for part in found.groups() if part).strip() if found else name


def _settled(runs: Mapping[str, NodeRun], node: WorkflowNode) -> bool:
    return node.id in runs and runs[node.id].status.is_settled


_MAX_LINE = 200
_NOT_RUNNING = {TaskStatus.PENDING, TaskStatus.PAUSED}
_COMPLETABLE = {*_NOT_RUNNING, TaskStatus.BLOCKED}


class JournalQueries(JournalOperations):
    async def logs(self, task: Task, kind: LogKind | None, limit: int) -> LogPage:
        kinds = () if kind is None else (kind,)
        entries = await self.store.logs.list_latest(task.id, limit, kinds=kinds)
        return LogPage(
            task=task,
            entries=tuple(entries),
            total=await self.store.logs.count(task.id, kind),
            sizes=await self.attachments.get_sizes([entry.file for entry in entries]),
        )

    async def search_logs(
        self, words: Sequence[str], *, by: Person, chat: ChatId, limit: int
    ) -> Sequence[LogMatch]:
        return await self.store.logs.search_all_words(
            await self._visibility(by, chat), words, limit
        )

    async def search_tasks(
        self, words: Sequence[str], *, by: Person, chat: ChatId, limit: int
    ) -> Sequence[Task]:
        return await self.store.logs.search_tasks(await self._visibility(by, chat), words, limit)

    async def agenda(self, *, by: Person, chat: ChatId, outside: bool | None = None) -> TaskAgenda:
        sight = await self._visibility(by, chat)
        to_do = await self.store.logs.list_tasks_to_do(
            sight, _ACTIONABLE, _MAX_QUEUE + 1, outside=outside
        )
        running = await self.store.logs.list_tasks_to_do(
            sight, (TaskStatus.RUNNING,), _MAX_QUEUE + 1, outside=outside
        )
        held = await self.store.logs.list_tasks_to_do(sight, _STUCK, _MAX_QUEUE, outside=outside)
        first = to_do[0] if to_do else None
        going_on = first is not None and first.status is TaskStatus.RUNNING
        return TaskAgenda(
            first=first,
            current=running[0] if running and not going_on else None,
            queue=tuple(to_do[1:]),
            needs_person=tuple(held),
        )

    async def recap(self, *, by: Person, chat: ChatId) -> TaskRecap | None:
        sight = await self._visibility(by, chat)
        for status in _RESUMABLE:
            for task in await self.store.logs.list_tasks_to_do(sight, (status,), 1):
                return await self._build_recap(task)
        return None

    async def recall(self, task: Task) -> Sequence[LogMatch]:
        return await recall_logs(self.store.logs, self.access, task)

    async def _build_recap(self, task: Task) -> TaskRecap:
        view = await self.views.view(task.id)
        plans = await self._latest_entries(task, 1, LogKind.PLAN)
        return TaskRecap(
            view=view,
            plan=plans[0].text if plans else view.plan,
            learned=await self._latest_entries(
                task, _MAX_RECAP_ENTRIES, LogKind.FINDING, LogKind.DECISION
            ),
            done=await self._latest_entries(
                task, _MAX_RECAP_ENTRIES, LogKind.MILESTONE, LogKind.PROGRESS
            ),
            recalled=tuple(await self.recall(task)),
        )

    async def _latest_entries(
        self, task: Task, limit: int, *kinds: LogKind
    ) -> tuple[LogEntry, ...]:
        return tuple(await self.store.logs.list_latest(task.id, limit, kinds=kinds))

    async def _visibility(self, by: Person, chat: ChatId) -> TaskVisibility:
        return await self.access.visibility_for(by, chat)


class TaskJournal(JournalQueries, TaskUpdates):
    """Implements `handlers.ports_workers.JournalPort`."""

    async def add_log(
        self, task: Task, draft: JournalDraft, *, by: Person, source: str
    ) -> LogResult:
        is_plan = draft.kind is LogKind.PLAN
        # The response lists subtasks to plan; a repeated log does not plan them again.
        for_planner = is_plan and not task.outside and not task.graph_version
        said = draft.text if for_planner else ""
        async with self._locked(task, "log", by, source, message=said) as held:
            if not held.is_new:
                return await self._note_result(held, draft, source)
            if draft.kind is LogKind.ERROR and held.task.status.is_final:
                raise wrong_state(held.task)
            number = 1 + await self.store.logs.count(task.id, tx=held.tx)
            new = NewLog(
                task_id=task.id,
                source=source,
                kind=draft.kind,
                text=draft.text,
                stage=draft.stage or held.task.stage,
                attempt=draft.attempt,
                file=await self.attachments.store(
                    held.task, number, draft, trusted=by.role is PersonRole.OWNER
                ),
                person_id=by.id,
            )
            await self.store.logs.add(held.tx, new, now=held.now)
            moved = held.task
            if draft.kind is LogKind.ERROR:
                moved = await self._count_error(held, draft.text)
            elif is_plan and task.outside and not moved.status.is_final:
                moved = await self._replace_plan(held, draft.text, by)
            noted = await self._note_result(replace(held, task=moved), draft, source)
        blocked = moved.status is TaskStatus.BLOCKED and held.task.status is not moved.status
        return replace(noted, blocked=blocked)

    async def write_plan(self, task: Task, text: str, *, by: Person, source: str) -> LogResult:
        return await self.add_log(
            task, JournalDraft(kind=LogKind.PLAN, text=text), by=by, source=source
        )

    async def add_subtasks(
        self, task: Task, titles: Sequence[str], *, by: Person, source: str
    ) -> Task:
        async with self._locked(task, "subtasks", by, source) as held:
            if not held.is_new:
                return held.task
            being_planned = is_run_by_worker(held.task) and not held.task.graph_version
            if held.task.status.is_final or being_planned:
                raise wrong_state(held.task)
            workflow = append_subtasks(await self._get_plan(held), titles)
            await self._append_event(held, EventKind.INJECTED, " → ".join(titles))
            return await self._store_plan(held, workflow, "subtasks", by)

    async def finish_subtask(
        self, task: Task, name: str, summary: str, *, by: Person, source: str
    ) -> SubtaskProgress:
        async with self._locked(task, "subtask", by, source) as held:
            workflow = await self._get_plan(held)
            runs = await self.store.graphs.list_runs(task.id, tx=held.tx)
            node = find_subtask(workflow, runs, name)
            already = node not in unfinished_subtasks(workflow, runs)
            moved = held.task
            if held.is_new and not already:
                runs = {**runs, node.id: await self._mark_done(held, node, runs, summary)}
                if not unfinished_subtasks(workflow, runs):
                    await self._release_running(held, "done")
                    moved = await self._complete(held, summary or node.title)
        return SubtaskProgress(
            task=moved,
            title=node.title,
            remaining=len(unfinished_subtasks(workflow, runs)),
            was_already_done=already and held.is_new,
        )

    async def set_subtask_phase(
        self, task: Task, phase: str, *, by: Person, source: str, name: str = ""
    ) -> SubtaskProgress:
        async with self._locked(task, "subtask", by, source) as held:
            workflow = await self._get_plan(held)
            runs = await self.store.graphs.list_runs(task.id, tx=held.tx)
            node, text = (
                (find_subtask(workflow, runs, name), phase)
                if name
                else split_subtask_name(workflow, runs, phase)
            )
            left = unfinished_subtasks(workflow, runs)
            moved = held.task
            if held.is_new and node in left:
                if held.task.status.is_final:
                    raise wrong_state(held.task)
                if held.task.outside:
                    await self._mark_started(held, runs, node)
                moved = await self._set_stage(held, f"{node.title}：{text}" if text else node.title)
        return SubtaskProgress(
            task=moved, title=node.title, remaining=len(left), was_already_done=node not in left
        )

    async def _note_result(self, held: LockedTask, jotting: JournalDraft, source: str) -> LogResult:
        logs = self.store.logs
        entry = await logs.find_by_source(source, tx=held.tx)
        if entry is None:
            raise LookupError(source)
        plans = await logs.count(held.task.id, LogKind.PLAN, tx=held.tx)
        return LogResult(
            task=held.task,
            entry=entry,
            log_count=await logs.count(held.task.id, tx=held.tx),
            is_truncated=len(jotting.text) > MAX_LOG_TEXT,
            has_no_plan=not plans and not held.task.graph_version,
        )

    async def _count_error(self, held: LockedTask, text: str) -> Task:
        task, errors = held.task, held.task.errors + 1
        open_to_us = task.status in _NOT_RUNNING or (
            task.outside and task.status in {TaskStatus.RUNNING, TaskStatus.WAITING}
        )
        if errors < MAX_ERRORS or not open_to_us:
            return await self.store.tasks.update(held.tx, task, errors=errors)
        words = catalog_for(await self.language_of(task))
        reason = words(
            "logbook.too_many_errors", n=errors, error=formats.single_line(text, _MAX_LINE)
        )
        await self._append_event(held, EventKind.BLOCKED, reason)
        return await self.store.tasks.update(
            held.tx,
            task,
            errors=errors,
            status=TaskStatus.BLOCKED,
            status_reason=reason,
            resumed_first=0,
        )

    async def _replace_plan(self, held: LockedTask, text: str, by: Person) -> Task:
        """A new plan is a new approach, so its errors count from zero."""
        workflow = replace(await self._get_plan(held), plan=text)
        await self._append_event(held, EventKind.PLANNED, formats.single_line(text, _MAX_LINE))
        task = await self._store_plan(held, workflow, "plan", by)
        return await self.store.tasks.update(held.tx, task, errors=0)

    async def _mark_done(
        self, held: LockedTask, node: WorkflowNode, runs: Mapping[str, NodeRun], summary: str
    ) -> NodeRun:
        task = held.task
        if not (task.outside and not task.status.is_final) and task.status not in _COMPLETABLE:
            raise wrong_state(task)
        run = runs.get(node.id) or _new_run(task, node)
        if run.status is NodeStatus.WAITING:
            raise wrong_state(task)
        done = replace(
            run,
            status=NodeStatus.DONE,
            output={"summary": summary},
            error="",
            started_at=run.started_at or held.now,
            ended_at=held.now,
        )
        await self.store.graphs.save_run(held.tx, done)
        await self._append_event(held, EventKind.STEP_DONE, node.title)
        return done

    async def _mark_started(
        self, held: LockedTask, runs: Mapping[str, NodeRun], node: WorkflowNode
    ) -> None:
        """Only one subtask is in progress; an earlier one is interrupted."""
        for run in runs.values():
            if run.status is NodeStatus.RUNNING and run.path != node.id:
                await self.store.graphs.save_run(held.tx, replace(run, status=NodeStatus.PENDING))
        run = runs.get(node.id) or _new_run(held.task, node)
        begun = replace(run, status=NodeStatus.RUNNING, started_at=run.started_at or held.now)
        await self.store.graphs.save_run(held.tx, begun)


def _new_run(task: Task, node: WorkflowNode) -> NodeRun:
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
