"""Defines runs of the heartbeat and what came of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from storage.records.people import ChatId


class WakeReason(StrEnum):
    """Why the heartbeat runs, the weightiest first."""

    COMMAND = "command"
    JOB = "job"
    INTERVAL = "interval"
    RETRY = "retry"
    REQUESTED = "requested"


def merge_reasons(reasons: Sequence[str]) -> tuple[WakeReason, ...]:
    """Each reason once, the weightiest first; unknown ones are left out."""
    return tuple(each for each in WakeReason if each.value in reasons)


class HeartbeatOutcome(StrEnum):
    """NOTHING_DUE, OUTSIDE_HOURS and NO_MODEL asked no model. NOTHING_TO_SAY asked one, which had
    nothing new to say. DID has evidence of work; it may also have said something."""

    RUNNING = "running"
    NOTHING_DUE = "nothing_due"
    NOTHING_TO_SAY = "nothing_to_say"
    SAID = "said"
    DID = "did"
    FAILED = "failed"
    OUTSIDE_HOURS = "outside_hours"
    CAP_REACHED = "cap_reached"
    NO_MODEL = "no_model"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatClaim:
    """A line of HEARTBEAT.md on which a run claims to have acted. `is_backed` says whether the
    evidence was found, `is_verified` whether it also names what the line names."""

    line: int
    text: str
    did: str
    evidence: str
    is_backed: bool
    is_verified: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRun:
    """`text` is what the owner was told, empty for nothing. `to_tick` are lines that are done but
    may not be ticked in the file yet. `note` is a text key or the reason of a failure."""

    id: int
    reasons: tuple[WakeReason, ...]
    outcome: HeartbeatOutcome
    started_at: datetime
    ended_at: datetime | None
    session_id: str
    text: str
    claims: tuple[HeartbeatClaim, ...]
    to_tick: tuple[str, ...]
    note: str


class TaskFileState(StrEnum):
    """How HEARTBEAT.md could be read."""

    READ = "read"
    MISSING = "missing"
    TOO_LARGE = "too_large"
    UNUSABLE = "unusable"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatTask:
    """A pending or done line; `line` counts from 1. Only one with a `checkbox` can be ticked: a
    plain bullet stands for something to look after always."""

    line: int
    text: str
    is_done: bool
    checkbox: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatStatus:
    """`every_minutes` is 0 if a setting has switched the heartbeat off. `hours` is as in the
    settings. `chat` is where it tells, None if no owner has written yet. Costs are of today."""

    is_on: bool
    every_minutes: int
    hours: str
    next_due: datetime | None
    chat: ChatId | None
    file_state: TaskFileState
    pending: tuple[HeartbeatTask, ...]
    runs: tuple[HeartbeatRun, ...]
    spent_micros: int
    cap_micros: int
