"""The repositories a task moves through, handed around as one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Self

from storage.agents.helpers import HelperRepo
from storage.db import Database
from storage.work.graphs import GraphRepo
from storage.work.journal import Journal
from storage.work.logs import LogRepo
from storage.work.queue import TaskQueue
from storage.work.tasks import TaskRepo

LEASE = timedelta(seconds=90)
"""How long a claim lives without being renewed."""

PATIENCE = timedelta(hours=12)
"""Who has waited for longer goes first, whatever its priority."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkStore:
    db: Database
    tasks: TaskRepo
    queue: TaskQueue
    graphs: GraphRepo
    journal: Journal
    logs: LogRepo
    helpers: HelperRepo

    @classmethod
    def on(cls, db: Database) -> Self:
        return cls(
            db=db,
            tasks=TaskRepo(db),
            queue=TaskQueue(db),
            graphs=GraphRepo(db),
            journal=Journal(db),
            logs=LogRepo(db),
            helpers=HelperRepo(db),
        )
