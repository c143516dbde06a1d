"""What follows from the way a step ended: a pure table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from bot.engine.llm.answers import StepAnswer
from bot.engine.llm.base import (
    BackendDenied,
    BackendError,
    BackendUnavailable,
    LimitReached,
    Trouble,
)
from bot.engine.workflow.model.nodes import Retry
from cards.words import Words
from storage.records.tasks import NodeStatus, Task, TaskStatus

MOST_TRIES = 3
"""Tries of one step in a row before the plan is made anew, or the task fails."""

MOST_ERRORS = 5
"""Failed tries under one plan, whichever its steps, before a person is asked."""

MOST_REPLANS = 1
"""How often a plan is made anew without anybody having asked for it."""

_MOST_DELAY = 60.0
_MOST_PATIENCE = 900.0
"""How long the service itself may send us away, in seconds."""

_JITTER = 0.2
"""By how much of itself a rest is longer or shorter, so that not all come back at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """Tries in all, and seconds before the second, each later one so many times longer; never
    less than `least`, unless the service itself names a time."""

    most: int
    base: float = 2.0
    factor: float = 2.0
    least: float = 0.0


_OUTAGES = {
    Trouble.AWAY: _Rule(most=5),
    Trouble.RATE_LIMITED: _Rule(most=5, least=30.0),
    Trouble.OVERLOADED: _Rule(most=5, least=15.0),
    Trouble.BROKEN: _Rule(most=3, base=5.0, factor=3.0),
}
"""An outage costs no money and passes by itself: worth some patience."""

_AT_A_LIMIT = _Rule(most=2)
"""Each such try has cost all that was allowed."""

_OTHERS = _Rule(most=MOST_TRIES)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a step is tried again: what its node says of that, if it does, and a number from 0 to 1
    by which a rest is a little shorter or longer."""

    retry: Retry | None = None
    chance: float = 0.5

    def rule(self, rule: _Rule) -> _Rule:
        if self.retry is None:
            return rule
        base, factor = self.retry.backoff_ms / 1000, self.retry.multiplier
        return _Rule(most=self.retry.max_attempts, base=base, factor=factor, least=rule.least)

    def rest(self, rule: _Rule, failures: int) -> float:
        """Seconds after so many tries before this one."""
        longer = _JITTER * (2 * self.chance - 1)
        try:
            delay = min(_MOST_DELAY, rule.base * rule.factor**failures)
        except OverflowError:
            delay = _MOST_DELAY
        return delay * (1 + longer)


USUAL = Manner()


def of_answer(
    answer: StepAnswer,
    *,
    missing: tuple[str, ...],
    before: Record,
    words: Words,
    manner: Manner = USUAL,
) -> Verdict:
    """`missing` are files the worker claims and nobody finds."""
    if answer.status == "done" and missing:
        told = words("work.missing_files", files=", ".join(missing))
        return _tried(told, before, words, manner)
    match answer.status:
        case "done":
            return Verdict(status=NodeStatus.DONE, replan=answer.needs_replan and before.may_replan)
        case _ if answer.needs_replan and before.may_replan:
            return _new_plan(answer.summary)
        case "blocked":
            return _blocked(answer.summary, answer.summary)
        case "error":
            return _tried(answer.summary, before, words, manner)
        case never:
            assert_never(never)


def of_error(
    error: BackendError, *, failures: int, words: Words, manner: Manner = USUAL
) -> Verdict:
    """`failures` are tries in a row before this one."""
    told = words.or_own(error.hint)
    if isinstance(error, BackendDenied):
        return replace(_blocked(told, told), hopeless=True)
    if isinstance(error, BackendUnavailable):
        rule = _OUTAGES[error.trouble]
        if error.retry_after is not None:
            rule = replace(rule, least=min(_MOST_PATIENCE, error.retry_after))
        return replace(_failed(told, failures, rule, manner), away=True)
    if isinstance(error, LimitReached):
        return _failed(told, failures, _AT_A_LIMIT, manner)
    return _failed(told, failures, _OTHERS, manner)


def _tried(error: str, before: Record, words: Words, manner: Manner) -> Verdict:
    """The worker tried and did not manage it."""
    if before.errors + 1 >= MOST_ERRORS and manner.retry is None:
        return _blocked(error, words("work.too_many_errors", n=MOST_ERRORS, error=error))
    most = manner.rule(_OTHERS).most
    if before.in_row + 1 < most:
        return _failed(error, before.in_row, _OTHERS, manner)
    if before.may_replan:
        return _new_plan(error)
    return _blocked(error, words("work.too_many_tries", n=most, error=error))


def _new_plan(error: str) -> Verdict:
    return Verdict(status=NodeStatus.FAILED, error=error, again=True, replan=True)


def _blocked(error: str, reason: str) -> Verdict:
    return Verdict(status=NodeStatus.FAILED, error=error, stop=(TaskStatus.BLOCKED, reason))


def _failed(error: str, failures: int, rule: _Rule, manner: Manner) -> Verdict:
    own = manner.rule(rule)
    if failures + 1 >= own.most:
        return Verdict(status=NodeStatus.FAILED, error=error, stop=(TaskStatus.FAILED, error))
    wait = max(own.least, manner.rest(own, failures))
    return Verdict(status=NodeStatus.FAILED, error=error, again=True, wait=wait)
