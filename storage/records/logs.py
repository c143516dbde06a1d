"""What is written down while a task is worked on: typed, short, and found again later."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from storage.records.people import PersonId
from storage.records.tasks import TaskId

MOST_TEXT = 500
"""Characters of one log; a longer one is cut, and the whole of it goes to a file."""


class LogKind(StrEnum):
    PLAN = "plan"
    FINDING = "finding"
    DECISION = "decision"
    ERROR = "error"
    RESOURCE = "resource"
    MILESTONE = "milestone"
    PROGRESS = "progress"
    CHECKPOINT = "checkpoint"
    REPLAN = "replan"
    BLOCKED = "blocked"

    @classmethod
    def named(cls, word: str) -> LogKind | None:
        """The kind a person means by `word`, in either language, or None."""
        return _WORDS.get(word.strip().lower())


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLog:
    """`source` names the message or attempt that writes it: the same source writes it once.
    `file` is relative to the data directory."""

    task_id: TaskId
    source: str
    kind: LogKind
    text: str
    stage: str = ""
    attempt: int = 0
    file: str = ""
    person_id: PersonId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    id: int
    task_id: TaskId
    kind: LogKind
    text: str
    stage: str
    attempt: int
    file: str
    person_id: PersonId | None
    at: datetime


_WORDS = {
    **{kind.value: kind for kind in LogKind},
    "计划": LogKind.PLAN,
    "规划": LogKind.PLAN,
    "发现": LogKind.FINDING,
    "决策": LogKind.DECISION,
    "决定": LogKind.DECISION,
    "错误": LogKind.ERROR,
    "资源": LogKind.RESOURCE,
    "里程碑": LogKind.MILESTONE,
    "进展": LogKind.PROGRESS,
    "进度": LogKind.PROGRESS,
    "检查点": LogKind.CHECKPOINT,
    "重新规划": LogKind.REPLAN,
    "阻塞": LogKind.BLOCKED,
}
