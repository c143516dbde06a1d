"""What is still to be done with what was said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from storage.records.memory.entries import EntryId, Scope


class JobState(StrEnum):
    """Turns gather until there are enough of them; then the job waits for its time, and is done,
    or given up."""

    GATHERING = "gathering"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Facts are to be drawn from these cells, all of one thread. `tries` counts those begun."""

    id: int
    scope: Scope
    thread: str
    cells: Sequence[EntryId]
    state: JobState
    tries: int
    due_at: datetime
    why: str
