"""Previews the prompt of the next task: the call that its worker would get next, without making
it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

from bot.engine.tasks.queue import release_running
from bot.engine.workflow import checkpoint_events as events
from bot.engine.workflow import prompts
from bot.engine.workflow.definition import load_workflow
from bot.engine.workflow.run_state import LeaseMemory, TaskRunState
from bot.engine.workflow.step_approvals import StepApprovalRequester, answer_calls
from bot.engine.workflow.task_store import LEASE_DURATION, TaskStore
from bot.engine.workflow.transitions import transition
from cards.catalog import catalog_for
from storage.approvals import find_approval
from storage.db import Transaction
from storage.records.people import Language
from storage.records.tasks import EventKind, Task, TaskControl, TaskStatus


class _RollbackSignal(Exception):
    """Rolls the transaction back."""


async def preview_next_prompt(
    store: TaskStore,
    *,
    language_of: Callable[[Task], Awaitable[Language]],
    recall: Callable[[Task], Awaitable[Sequence[str]]],
    now: datetime,
    patience: timedelta,
    without_dispatcher: bool,
    step_approvals: StepApprovalRequester,
    team: Mapping[str, str],
) -> CallPreview | None:
    """The prompt that the first queued task would get; None if none can start. The claim is rolled
    back. With `without_dispatcher`, tasks marked as running count as interrupted and come first."""
    async with _rolled_back_write(store) as tx:
        for orphan in await store.queue.list_orphans(tx) if without_dispatcher else ():
            await _requeue_orphan(tx, store, orphan.task, now)
        claimed = await store.queue.claim(
            tx, owner="dry run", now=now, lease=LEASE_DURATION, aging_after=patience
        )
        if claimed is None:
            return None
        recalled = await recall(claimed)
        language = await language_of(claimed)
        return await preview_call(
            tx,
            store,
            claimed,
            language,
            recalled,
            step_approvals=step_approvals,
            now=now,
            team=team,
        )


@asynccontextmanager
async def _rolled_back_write(store: TaskStore) -> AsyncGenerator[Transaction, None]:
    with suppress(_RollbackSignal):
        async with store.db.write() as tx:
            yield tx
            raise _RollbackSignal


async def _requeue_orphan(tx: Transaction, store: TaskStore, task: Task, now: datetime) -> None:
    await release_running(store, tx, task.id, reason="", now=now)
    await store.tasks.update(
        tx, task, status=TaskStatus.PENDING, control=TaskControl.RUN, resumed_first=0
    )


# Nothing is stored of what a preview finds, and no time of it is shown.
_ZONE = ZoneInfo("UTC")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPreview:
    """`kind` is the purpose of the call: a plan, a new plan, one step. `ask` and `end` call no
    model: people are asked what `prompt` says, or nothing is left to do. `step` is the step's
    title, `word` what makes it a risk."""

    task: Task
    kind: Literal["plan", "replan", "step", "ask", "end"]
    system: str = ""
    prompt: str = ""
    step: str = ""
    word: str = ""


async def preview_call(
    tx: Transaction,
    store: TaskStore,
    task: Task,
    language: Language,
    memories: Sequence[str] = (),
    *,
    step_approvals: StepApprovalRequester,
    now: datetime,
    team: Mapping[str, str] | None = None,
) -> CallPreview:
    """For a task just claimed, from its first transition, whose requests have to be rolled back.
    `team` are the personas that a step may name."""
    orders = await store.events.get_worker_input(task.id, tx=tx)
    graph = await store.graphs.find_latest(task.id, tx=tx)
    plan_system = prompts.plan_system(language, team)
    if not task.graph_version or graph is None:
        prompt = prompts.plan_prompt(task, messages=orders.messages, memories=memories)
        return CallPreview(task=task, kind="plan", system=plan_system, prompt=prompt)
    runs = dict(await store.graphs.list_runs(task.id, tx=tx))
    words = catalog_for(language)
    state = TaskRunState(task=task, runs=runs, zone=_ZONE, text=words, orders=orders)
    state.adopt_plan(load_workflow(graph.body), graph.version)

    async def answer(call: events.StoreCall) -> object:
        match call:
            case events.CountSubagents():
                return await store.subagents.count_unfinished(tx, task=task.id)
            case events.RequestToolCall() | events.HasSuspendedCalls():
                return None
            case events.RequestBudget():
                raise AssertionError(call)  # only after a call that has reached a cap
            case _:
                return await step_approvals.answer(tx, task, call)

    started = transition(
        state, LeaseMemory(), events.Started(), rules=step_approvals.rules, session_id="", now=now
    )
    outcome = await answer_calls(started, answer)
    if isinstance(outcome.next, events.StepsStarted) and outcome.next.steps:
        step = outcome.next.steps[0]
        if step.replan is not None:
            return _preview_replan(step, step.replan, plan_system)
        return _preview_step(step, prompts.step_system(language))
    for event, approval_id in outcome.changes.events:
        if event is EventKind.WAITING and (it := await find_approval(tx, approval_id, now=now)):
            word = str(it.payload.get("word", ""))
            return CallPreview(task=task, kind="ask", prompt=it.detail, step=it.title, word=word)
    return CallPreview(task=task, kind="end")


def _preview_replan(
    step: events.StartedStep, asked: events.ReplanRequest, system: str
) -> CallPreview:
    prompt = prompts.replan_prompt(
        step.task,
        step.workflow,
        step.runs,
        asked.reason,
        step.messages,
        partial_runs=asked.partial_runs,
    )
    return CallPreview(
        task=step.task, kind="replan", system=system, prompt=prompt, step=step.node.title
    )


def _preview_step(step: events.StartedStep, system: str) -> CallPreview:
    prompt = prompts.step_prompt(
        step.task,
        step.workflow,
        step.runs,
        step.node,
        last_error=step.last_error,
        messages=step.prompt_messages,
    )
    return CallPreview(
        task=step.task, kind="step", system=system, prompt=prompt, step=step.node.title
    )
