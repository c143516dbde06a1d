"""The repositories a task moves through, handed around as one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Self

from storage.db import Database
from storage.prompt_versions import PromptVersionRepo
from storage.subagents import SubagentRepo
from storage.task_logs import TaskLogRepo
from storage.task_queue import TaskQueue
from storage.tasks import TaskEventRepo, TaskGraphRepo, TaskRepo

LEASE_DURATION = timedelta(seconds=90)
"""How long a claim lives without being renewed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStore:
    db: Database
    tasks: TaskRepo
    queue: TaskQueue
    graphs: TaskGraphRepo
    events: TaskEventRepo
    logs: TaskLogRepo
    subagents: SubagentRepo
    versions: PromptVersionRepo

    @classmethod
    def from_database(cls, db: Database) -> Self:
        return cls(
            db=db,
            tasks=TaskRepo(db),
            queue=TaskQueue(db),
            graphs=TaskGraphRepo(db),
            events=TaskEventRepo(db),
            logs=TaskLogRepo(db),
            subagents=SubagentRepo(db),
            versions=PromptVersionRepo(db),
        )
