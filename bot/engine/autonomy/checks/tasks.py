"""Checks for tasks that are stuck: without a runner, asleep for too long, or never started."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from storage.errors import LostLease, WrongState
from storage.records.autonomy import HealthFinding
from storage.records.tasks import Task
from storage.self_checks import HealthFigures

_LEASE_GRACE = timedelta(minutes=5)
_PATIENCE = timedelta(minutes=15)
REQUEUE, WAKE = "requeue_task", "wake_tasks"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskHealthCheck:
    """`requeue` queues a task that lost its runner, or raises LostLease if it has one again. `wake`
    has the queue looked at."""

    name = "tasks"

    figures: HealthFigures
    requeue: Callable[[Task], Awaitable[None]]
    wake: Callable[[], None]
    now: Callable[[], datetime]

    async def find(self) -> Sequence[HealthFinding]:
        now = self.now()
        found = [
            HealthFinding(
                text="task_no_lease",
                subject=task.id,
                points=20,
                facts={"id": task.id, "title": task.title},
                repair=REQUEUE,
            )
            for task in await self.figures.list_without_lease(now - _LEASE_GRACE)
        ]
        if n := await self.figures.count_overslept(now - _PATIENCE):
            found.append(
                HealthFinding(text="task_overslept", points=15, facts={"n": n}, repair=WAKE)
            )
        standing = await self.figures.find_standing_queue(now - _PATIENCE)
        if standing.count:
            facts = {"n": standing.count}
            found.append(HealthFinding(text="queue_stands", points=20, facts=facts, repair=WAKE))
        if n := await self.figures.count_orphaned_steps():
            found.append(HealthFinding(text="orphaned_steps", points=5, facts={"n": n}))
        return found

    async def repair(self, repair: str, findings: Sequence[HealthFinding]) -> int:
        if repair == WAKE:
            self.wake()
            return len(findings)
        wanted = {each.subject for each in findings}
        count = 0
        for task in await self.figures.list_without_lease(self.now() - _LEASE_GRACE):
            if task.id in wanted:
                try:
                    await self.requeue(task)
                except (LostLease, WrongState):
                    continue
                count += 1
        if count:
            self.wake()
        return count
