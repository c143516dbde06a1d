"""What follows from the way a step ended: a pure table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from bot.engine.llm.answers import StepAnswer
from bot.engine.llm.base import BackendDenied, BackendError, BackendUnavailable, LimitReached
from cards.words import Words
from storage.records.tasks import NodeStatus, Task, TaskStatus

MOST_TRIES = 3
"""Tries of one step in a row before the plan is made anew, or the task fails."""

MOST_ERRORS = 5
"""Failed tries under one plan, whichever its steps, before a person is asked."""

MOST_REPLANS = 1
"""How often a plan is made anew without anybody having asked for it."""

_MOST_TRIES_WHEN_UNAVAILABLE = 6
"""An outage costs no money and passes by itself: worth a minute's patience."""

_MOST_TRIES_AT_A_LIMIT = 2
"""Each such try has cost all that was allowed."""

_BASE_DELAY = 2.0
_MOST_DELAY = 60.0
_MOST_PATIENCE = 900.0
"""How long the service itself may send us away, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`wait` is seconds before the next try; `stop` ends the task's run with a status and a
    reason for the Boss; `replan` asks for a new end of the plan. `away` says that it is the model
    that is waited for: it could not be reached; `hopeless` that no other step would do better."""

    status: NodeStatus
    error: str = ""
    again: bool = False
    wait: float = 0.0
    stop: tuple[TaskStatus, str] | None = None
    replan: bool = False
    away: bool = False
    hopeless: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What went wrong before: tries of this step in a row, and all since the plan was made.
    `may_replan` is False once the plan has been made anew."""

    in_row: int = 0
    errors: int = 0
    may_replan: bool = True

    @classmethod
    def of(cls, task: Task) -> Record:
        return cls(
            in_row=task.failures_in_row,
            errors=task.errors,
            may_replan=task.replans < MOST_REPLANS,
        )


def of_answer(
    answer: StepAnswer, *, missing: tuple[str, ...], before: Record, words: Words
) -> Verdict:
    """`missing` are files the worker claims and nobody finds."""
    if answer.status == "done" and missing:
        return _tried(words("work.missing_files", files=", ".join(missing)), before, words)
    match answer.status:
        case "done":
            return Verdict(status=NodeStatus.DONE, replan=answer.needs_replan and before.may_replan)
        case _ if answer.needs_replan and before.may_replan:
            return _new_plan(answer.summary)
        case "blocked":
            return _blocked(answer.summary, answer.summary)
        case "error":
            return _tried(answer.summary, before, words)
        case never:
            assert_never(never)


def of_error(error: BackendError, *, failures: int, words: Words) -> Verdict:
    told = words.or_own(error.hint)
    if isinstance(error, BackendDenied):
        return replace(_blocked(told, told), hopeless=True)
    if isinstance(error, BackendUnavailable):
        after = error.retry_after or 0.0
        most = _MOST_TRIES_WHEN_UNAVAILABLE
        return replace(_failed(told, failures, most=most, after=after), away=True)
    if isinstance(error, LimitReached):
        return _failed(told, failures, most=_MOST_TRIES_AT_A_LIMIT)
    return _failed(told, failures)


def _tried(error: str, before: Record, words: Words) -> Verdict:
    """The worker tried and did not manage it."""
    if before.errors + 1 >= MOST_ERRORS:
        return _blocked(error, words("work.too_many_errors", n=MOST_ERRORS, error=error))
    if before.in_row + 1 < MOST_TRIES:
        return _failed(error, before.in_row)
    if before.may_replan:
        return _new_plan(error)
    return _blocked(error, words("work.too_many_tries", n=MOST_TRIES, error=error))


def _new_plan(error: str) -> Verdict:
    return Verdict(status=NodeStatus.FAILED, error=error, again=True, replan=True)


def _blocked(error: str, reason: str) -> Verdict:
    return Verdict(status=NodeStatus.FAILED, error=error, stop=(TaskStatus.BLOCKED, reason))


def _failed(error: str, failures: int, *, most: int = MOST_TRIES, after: float = 0.0) -> Verdict:
    if failures + 1 >= most:
        return Verdict(status=NodeStatus.FAILED, error=error, stop=(TaskStatus.FAILED, error))
    backoff = min(_MOST_DELAY, _BASE_DELAY * 2**failures)
    wait = max(backoff, min(_MOST_PATIENCE, after))
    return Verdict(status=NodeStatus.FAILED, error=error, again=True, wait=wait)
