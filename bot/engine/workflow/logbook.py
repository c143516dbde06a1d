"""What the engine itself writes down at each boundary, in the transaction that makes it true."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from bot.engine.llm.answers import StepAnswer
from bot.engine.workflow.graph import Workflow
from bot.engine.workflow.steps import Attempt
from cards import formats
from cards.views.backends import without_note
from storage.db import Transaction
from storage.records.logs import LogKind, NewLog
from storage.records.tasks import NodeStatus, Task
from storage.work.logs import LogRepo

_LINE = 300
_NOTE = 100
MOST_KEPT: Mapping[LogKind, int] = {
    LogKind.FINDING: 5,
    LogKind.DECISION: 3,
    LogKind.RESOURCE: 5,
}
"""Notes of each kind that a task's worker may leave behind."""


class Logbook:
    """Each line names the attempt or version it comes from, so that nothing is written twice."""

    def __init__(self, logs: LogRepo) -> None:
        self._logs = logs

    async def planned(
        self, tx: Transaction, task: Task, plan: Workflow, version: int, now: datetime
    ) -> None:
        steps = " → ".join(node.title for node in plan.nodes)
        text = "\n".join(filter(None, (without_note(plan.plan), steps)))
        await self._add(tx, task, f"plan:{version}", LogKind.PLAN, text, now=now)

    async def replanning(
        self, tx: Transaction, task: Task, version: int, why: str, now: datetime
    ) -> None:
        await self._add(tx, task, f"replan:{version}", LogKind.REPLAN, why, now=now)

    async def tried(self, tx: Transaction, task: Task, attempt: Attempt, now: datetime) -> None:
        """One try of a step: how it went, and what its worker wants remembered."""
        run = attempt.run
        source = f"{run.path}:{run.attempt}"
        if run.status is NodeStatus.DONE:
            said = f"{attempt.title}: {run.output.get('summary', '')}"
            await self._add(tx, task, source, LogKind.PROGRESS, said, now=now)
        elif run.error:
            await self._add(tx, task, source, LogKind.ERROR, run.error, now=now)
        for kind, n, text in _kept(attempt.notes):
            if await self._logs.count(task.id, kind, tx=tx) < MOST_KEPT[kind]:
                await self._add(tx, task, f"{source}:{kind}:{n}", kind, text, now=now)

    async def parked(self, tx: Transaction, task: Task, now: datetime) -> None:
        text = task.status_reason or task.title
        await self._add(tx, task, f"park:{task.epoch}", LogKind.CHECKPOINT, text, now=now)

    async def ended(
        self, tx: Transaction, task: Task, kind: LogKind, text: str, now: datetime
    ) -> None:
        await self._add(tx, task, f"end:{task.epoch}", kind, text, now=now)

    async def _add(
        self,
        tx: Transaction,
        task: Task,
        source: str,
        kind: LogKind,
        text: str,
        *,
        now: datetime,
    ) -> None:
        told = formats.cut(without_note(text) or task.title, _LINE)
        log = NewLog(task_id=task.id, source=f"task:{task.id}:{source}", kind=kind, text=told)
        await self._logs.note(tx, log, now=now)


def _kept(notes: StepAnswer | None) -> Iterator[tuple[LogKind, int, str]]:
    if notes is None:
        return
    for kind, texts in (
        (LogKind.FINDING, notes.findings),
        (LogKind.DECISION, notes.decisions),
        (LogKind.RESOURCE, notes.resources),
    ):
        for n, text in enumerate(texts):
            if text:
                yield kind, n, text[:_NOTE]
