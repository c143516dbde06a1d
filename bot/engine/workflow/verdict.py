"""What follows from the way a step ended: a pure table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from bot.engine.llm.answers import StepAnswer
from bot.engine.llm.base import BackendDenied, BackendError, BackendUnavailable, LimitReached
from cards.words import Words
from storage.records.tasks import NodeStatus, TaskStatus

MOST_TRIES = 3
"""Tries of one step in a row before the task fails."""

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
    reason for the Boss; `replan` asks for a new end of the plan."""

    status: NodeStatus
    error: str = ""
    again: bool = False
    wait: float = 0.0
    stop: tuple[TaskStatus, str] | None = None
    replan: bool = False


def of_answer(
    answer: StepAnswer, *, missing: tuple[str, ...], failures: int, words: Words
) -> Verdict:
    """`missing` are files the worker claims and nobody finds; `failures` in a row before."""
    if answer.status == "done" and missing:
        return _failed(words("work.missing_files", files=", ".join(missing)), failures)
    match answer.status:
        case "done":
            return Verdict(status=NodeStatus.DONE, replan=answer.needs_replan)
        case "blocked":
            return Verdict(
                status=NodeStatus.FAILED,
                error=answer.summary,
                stop=(TaskStatus.BLOCKED, answer.summary),
            )
        case "error":
            return _failed(answer.summary, failures)
        case never:
            assert_never(never)


def of_error(error: BackendError, *, failures: int, words: Words) -> Verdict:
    told = words(error.hint)
    if isinstance(error, BackendDenied):
        return Verdict(status=NodeStatus.FAILED, error=told, stop=(TaskStatus.BLOCKED, told))
    if isinstance(error, BackendUnavailable):
        after = error.retry_after or 0.0
        return _failed(told, failures, most=_MOST_TRIES_WHEN_UNAVAILABLE, after=after)
    if isinstance(error, LimitReached):
        return _failed(told, failures, most=_MOST_TRIES_AT_A_LIMIT)
    return _failed(told, failures)


def _failed(error: str, failures: int, *, most: int = MOST_TRIES, after: float = 0.0) -> Verdict:
    if failures + 1 >= most:
        return Verdict(status=NodeStatus.FAILED, error=error, stop=(TaskStatus.FAILED, error))
    backoff = min(_MOST_DELAY, _BASE_DELAY * 2**failures)
    wait = max(backoff, min(_MOST_PATIENCE, after))
    return Verdict(status=NodeStatus.FAILED, error=error, again=True, wait=wait)
