"""Defines the goals that the program pursues by itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from storage.records.schedules import Firing
from storage.records.tasks import Task
from storage.records.usage import SpendingCap


class GoalName(StrEnum):
    HEALTH_CHECK = "health-check"
    EVOLVE = "evolve"
    CLEANUP = "cleanup"

    @classmethod
    def parse(cls, word: str) -> GoalName | None:
        """The goal meant by `word` in either language, or None."""
        return _WORDS.get(word.strip().casefold())


_WORDS = {
    **{each.value: each for each in GoalName},
    "health": GoalName.HEALTH_CHECK,
    "体检": GoalName.HEALTH_CHECK,
    "健康": GoalName.HEALTH_CHECK,
    "进化": GoalName.EVOLVE,
    "清理": GoalName.CLEANUP,
}


class GoalState(StrEnum):
    """STOPPED goes on with the next start, of drive or of the program; DISABLED stays off until an
    owner enables it; UNAVAILABLE is not part of this version."""

    ON = "on"
    STOPPED = "stopped"
    DISABLED = "disabled"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalStatus:
    """`last` is its newest run."""

    name: GoalName
    every: timedelta
    state: GoalState
    next_due: datetime | None = None
    last: Firing | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveStatus:
    """`used` is what tasks of drive have spent or may still spend today, of `cap`. `tasks` are its
    newest."""

    goals: tuple[GoalStatus, ...]
    used: SpendingCap
    cap: SpendingCap
    tasks: tuple[Task, ...] = ()

    @property
    def is_stopped(self) -> bool:
        return any(each.state is GoalState.STOPPED for each in self.goals)
