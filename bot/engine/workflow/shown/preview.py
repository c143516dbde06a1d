"""What a task's worker would be told next, without telling anybody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from zoneinfo import ZoneInfo

from bot.engine.workflow import prompts
from bot.engine.workflow.asking import Asked, Granted, Refused, as_heard
from bot.engine.workflow.graph import HUMAN, Node, load_workflow
from bot.engine.workflow.known import MOST_AT_ONCE
from bot.engine.workflow.routing.flow import Flow
from bot.engine.workflow.routing.seen import as_done, seen_from
from bot.engine.workflow.running.here import Leaves
from bot.engine.workflow.store import WorkStore
from cards.words import words_for
from storage.db import Transaction
from storage.records.people import Language
from storage.records.tasks import Task

# Nothing is stored of what a preview finds, and no time of it is shown.
_ZONE = ZoneInfo("UTC")


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """`kind` is what the call would be for: a plan, a new plan, one step; `ask` and `end` call
    no model: a person is asked what `prompt` says, or nothing is left to do. `step` is the step's
    title, `word` what makes it a risk."""

    task: Task
    kind: Literal["plan", "replan", "step", "ask", "end"]
    system: str = ""
    prompt: str = ""
    step: str = ""
    word: str = ""


async def preview(
    tx: Transaction,
    store: WorkStore,
    task: Task,
    language: Language,
    recalled: Sequence[str] = (),
    *,
    leaves: Leaves,
    now: datetime,
    team: Mapping[str, str] | None = None,
) -> Preview:
    """For a task just claimed, as `runner` would go about it: to be taken back with all that
    `leaves` asks. `team` is whom a step may name."""
    orders = await store.journal.orders(tx, task.id)
    graph = await store.graphs.latest(task.id, tx=tx)
    if not task.graph_version or graph is None:
        prompt = prompts.plan_prompt(task, said=orders.said, recalled=recalled)
        system = prompts.plan_system(language, team)
        return Preview(task=task, kind="plan", system=system, prompt=prompt)
    workflow = load_workflow(graph.body)
    runs = await store.graphs.runs(task.id, tx=tx)
    flow = Flow(
        task.id, workflow, runs, zone=_ZONE, say=words_for(language), warn=lambda _warning: None
    )
    flow.settle(now, MOST_AT_ONCE)
    free = next(flow.steps(), None)
    if free is None:
        return Preview(task=task, kind="end")
    place, found = free
    node, runs = as_done(flow, place, found, now), seen_from(flow, place, runs)
    leave = await leaves.leave(tx, task, as_heard(node, orders, runs), flow.may_wait)
    if not isinstance(leave, Granted):
        return _stopped(task, node, leave)
    if orders.replan > workflow.served:
        prompt = prompts.replan_prompt(task, workflow, runs, orders.replan_why, orders.said)
        system = prompts.plan_system(language, team)
        return Preview(task=task, kind="replan", system=system, prompt=prompt, step=node.title)
    if node.type == HUMAN:
        return Preview(task=task, kind="ask", step=node.title)
    prompt = prompts.step_prompt(
        task,
        workflow,
        runs,
        node,
        trouble=runs[node.id].error if node.id in runs else "",
        said=orders.said,
    )
    system = prompts.step_system(language)
    return Preview(task=task, kind="step", system=system, prompt=prompt, step=node.title)


def _stopped(task: Task, node: Node, leave: Asked | Refused) -> Preview:
    if isinstance(leave, Refused):
        return Preview(task=task, kind="end", step=node.title)
    asked = leave.approval
    word = str(asked.payload.get("word", ""))
    return Preview(task=task, kind="ask", prompt=asked.detail, step=node.title, word=word)
