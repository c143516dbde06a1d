"""Defines the processes that share a store, and how long one may be silent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

HEARTBEAT_SECONDS = 2.0
DEAD_AFTER = timedelta(seconds=10)
"""A process whose last heartbeat is older is dead, by the store's clock: others take its work."""
STOPS_AFTER_SECONDS = 7.0
"""A process that could not store a heartbeat for so long, by its own clock, stops its work: well
before others take it."""

CLOCK_TOLERANCE = timedelta(seconds=1)
"""A machine's clock may differ by this much from the store's."""
CLOCK_AHEAD = "clock_ahead"
"""Of the abilities of a process: by how many seconds its machine's own clock is ahead of the
store's, which it goes by. Missing if it is not."""


class ProcessRole(StrEnum):
    """`run` does everything; `front` has the channels and all that must happen once; `worker` runs
    tasks."""

    RUN = "run"
    FRONT = "front"
    WORKER = "worker"

    @property
    def runs_tasks(self) -> bool:
        return self is not ProcessRole.FRONT

    @property
    def has_channels(self) -> bool:
        return self is not ProcessRole.WORKER


PLACE = "place"
"""Of the abilities of a process: what one process at a time can be. Another one in the same place
has come after its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerProcess:
    """A running process. `abilities` says what it can: its models, its sandbox, and the projects
    that it is bound to (none: all)."""

    id: str
    name: str
    host: str
    pid: int
    version: str
    role: ProcessRole
    slots: int
    abilities: Mapping[str, Any] = field(default_factory=dict)
    draining: bool = False
    started_at: datetime
    seen_at: datetime

    @property
    def clock_ahead(self) -> timedelta:
        return timedelta(seconds=float(self.abilities.get(CLOCK_AHEAD, 0.0)))

    def is_alive(self, now: datetime) -> bool:
        return now - self.seen_at <= DEAD_AFTER


HOME_SILENT_AFTER = timedelta(minutes=5)
"""A data directory that has not reported for so long is looked after by no process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingHome:
    """A data directory that still has what must be forgotten, asked for since `asked_at`; the
    object store if `place` is empty."""

    place: str
    seen_at: datetime | None
    asked_at: datetime
    erasures: int

    def fault(self, now: datetime) -> str:
        """Why it waits: `silent`, since nobody looks after it, `fails`, or `store`."""
        if not self.place:
            return "store"
        is_silent = self.seen_at is None or now - self.seen_at > HOME_SILENT_AFTER
        return "silent" if is_silent else "fails"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSituation:
    """The work of a process now, by the store. `store_now` is the store's time."""

    process: WorkerProcess
    tasks: tuple[tuple[str, str], ...]
    services: tuple[str, ...]
    store_now: datetime
