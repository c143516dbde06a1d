"""The retry policy: a pure decision on how to continue after a step ends."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import assert_never

from bot.engine.llm.answer_schemas import StepAnswer
from bot.engine.llm.backend import (
    BackendDenied,
    BackendError,
    BackendUnavailable,
    InvalidAnswer,
    OutageKind,
    RunLimitReached,
)
from bot.engine.workflow.definition import OnError, RetryPolicy, Workflow
from bot.engine.workflow.node_runs import compensated_path, enclosing_round, parse_activation
from cards.catalog import TextCatalog
from storage.records.tasks import NodeStatus, Task, TaskStatus

MAX_ATTEMPTS = 3
"""Attempts of one step in a row before a replan, or before the task fails."""

MAX_ERRORS = 5
"""Failed attempts under one plan, over all steps, before a person is asked."""

MAX_REPLANS = 1
"""Automatic replans per task."""

_MAX_DELAY = 60.0
_MAX_RETRY_AFTER = 900.0
"""Upper bound in seconds for a `Retry-After` from the service."""

_JITTER = 0.2
"""Fraction by which delays vary, so that not all retries happen at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _BackoffRule:
    """Attempts in total, and an exponential delay in seconds that is at least `min_delay`."""

    max_attempts: int
    base_seconds: float = 2.0
    factor: float = 2.0
    min_delay: float = 0.0


_OUTAGE_RULES = {
    OutageKind.UNREACHABLE: _BackoffRule(max_attempts=5),
    OutageKind.RATE_LIMITED: _BackoffRule(max_attempts=5, min_delay=30.0),
    OutageKind.OVERLOADED: _BackoffRule(max_attempts=5, min_delay=15.0),
    OutageKind.SERVER_ERROR: _BackoffRule(max_attempts=3, base_seconds=5.0, factor=3.0),
}
"""Outages cost nothing and pass on their own, so they get more attempts."""

_LIMIT_RULE = _BackoffRule(max_attempts=2)
"""Each attempt has used its whole budget, so there are few."""

_DEFAULT_RULE = _BackoffRule(max_attempts=MAX_ATTEMPTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryDecision:
    """How to continue after an attempt.

    `stop` ends the run with a status and a reason for the Boss; `replan` asks for new remaining
    steps. `backend_unavailable` means that the model could not be reached; `is_permanent` means
    that no other step would succeed either.
    """

    status: NodeStatus
    error: str = ""
    may_retry: bool = False
    delay_seconds: float = 0.0
    stop: tuple[TaskStatus, str] | None = None
    replan: bool = False
    backend_unavailable: bool = False
    is_permanent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureHistory:
    """Earlier failures: the attempts of this step in a row, and all attempts under the current
    plan. `may_replan` is False once no replans are left.
    """

    consecutive: int = 0
    total: int = 0
    may_replan: bool = True

    @classmethod
    def from_task(cls, task: Task) -> FailureHistory:
        return cls(
            consecutive=task.failures_in_row,
            total=task.errors,
            may_replan=task.replans < MAX_REPLANS,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryOptions:
    """The node's own retry policy, if any, and a random number from 0 to 1 for the jitter."""

    policy: RetryPolicy | None = None
    jitter: float = 0.5

    def apply(self, rule: _BackoffRule) -> _BackoffRule:
        if self.policy is None:
            return rule
        return replace(
            rule,
            max_attempts=self.policy.max_attempts,
            base_seconds=self.policy.backoff_ms / 1000,
            factor=self.policy.multiplier,
        )

    def delay(self, rule: _BackoffRule, failures: int) -> float:
        """Seconds to wait after this number of earlier failures."""
        try:
            delay = min(_MAX_DELAY, rule.base_seconds * rule.factor**failures)
        except OverflowError:
            delay = _MAX_DELAY
        return delay * (1 + _JITTER * (2 * self.jitter - 1))


DEFAULT_RETRY = RetryOptions()


_UNFILLED = re.compile(
    r"(?<![`\"'\w/])(?:\$\{\{?\s*[A-Za-z_][\w.]*\s*\}\}?|\{\{\s*[A-Za-z_][\w.]*\s*\}\})(?![`\"'\w/])"
    r"|\[(?:insert|your|enter|fill in)\b[^\]\n]{0,60}\]",
    re.IGNORECASE,
)


def find_placeholder(report: str, known_words: str) -> str:
    """Find a placeholder that a report still contains where a value should stand; empty if there is
    none. Placeholders in quotes, or from the words of the task, do not count.
    """
    found = (each[0] for each in _UNFILLED.finditer(report))
    return next((each for each in found if each not in known_words), "")


def decide_on_answer(
    answer: StepAnswer,
    *,
    faults: Mapping[str, Sequence[str]] = MappingProxyType({}),
    called_nothing: bool = False,
    known_words: str = "",
    failed_report: str = "",
    last_report: str = "",
    history: FailureHistory,
    words: TextCatalog,
    options: RetryOptions = DEFAULT_RETRY,
) -> RetryDecision:
    """Decide how to continue after a worker's report.

    `faults` are keys in the catalogue's group `work`: what speaks against the report's success.
    `unchanged_files` are files that the report may say were right already. With `called_nothing`
    the worker had tools and used none in this attempt. `known_words` are the words of its task.
    `last_report` is the report of the previous attempt, and `failed_report` the same if it told of
    a failure: the same words again cannot mean success.
    """
    # Imported on first use: its many patterns cost the start.
    from bot.engine.agent.requested_files import says_unchanged

    error = ""
    if answer.status == "done":
        # In other words it is believed: a report may speak of templates.
        is_asked = bool(history.consecutive) and answer.summary != last_report
        unfilled = "" if is_asked else find_placeholder(answer.summary, known_words)
        all_faults = {
            **faults,
            "unfilled_report": (unfilled,),
            "same_report": (failed_report,) if failed_report == answer.summary else (),
        }
        if says_unchanged(answer.summary):
            all_faults.pop("unchanged_files", None)
        found = ((key, names) for key, names in all_faults.items() if any(names))
        error = next((words(f"work.{key}", files=", ".join(names)) for key, names in found), "")
    if error:
        is_warned = history.consecutive and failed_report in {"", answer.summary}
        if is_warned and options.policy is None:
            # The worker got one warning. Another plan would not make it honest; a person may help.
            return _blocked(error, error)
        return _after_failed_attempt(error, history, words, options)
    is_untried = called_nothing and not history.consecutive
    match answer.status:
        case "done":
            return RetryDecision(
                status=NodeStatus.DONE, replan=answer.needs_replan and history.may_replan
            )
        case _ if answer.needs_replan and history.may_replan and not is_untried:
            return _replan(answer.summary)
        case "blocked" if not is_untried:
            return _blocked(answer.summary, answer.summary)
        case "error" | "blocked":
            return _after_failed_attempt(answer.summary, history, words, options)
        case never:
            assert_never(never)


def decide_on_error(
    error: BackendError,
    *,
    failures_before: int,
    words: TextCatalog,
    options: RetryOptions = DEFAULT_RETRY,
) -> RetryDecision:
    """Decide after a backend error. `failures_before` counts attempts in a row before this one."""
    hint = words.get_or_literal(error.hint)
    if isinstance(error, InvalidAnswer) and error.faults:
        hint = words("work.invalid_answer", faults=error.faults)
    if isinstance(error, BackendDenied):
        return replace(_blocked(hint, hint), is_permanent=True)
    rule = _LIMIT_RULE if isinstance(error, RunLimitReached) else _DEFAULT_RULE
    if isinstance(error, BackendUnavailable):
        rule = _OUTAGE_RULES[error.outage]
        if error.retry_after is not None:
            rule = replace(rule, min_delay=min(_MAX_RETRY_AFTER, error.retry_after))
    decision = _retry_or_fail(hint, failures_before, rule, options)
    return replace(decision, backend_unavailable=isinstance(error, BackendUnavailable))


def decide_on_call(
    error: str, *, may_repeat: bool, failures_before: int, options: RetryOptions
) -> RetryDecision:
    """Decide after a step that called a tool itself. It is tried again only if its author says so,
    and never if that could repeat a side effect.
    """
    if not error:
        return RetryDecision(status=NodeStatus.DONE)
    once = replace(options, policy=RetryPolicy(max_attempts=1))
    own = options if may_repeat and options.policy is not None else once
    return _retry_or_fail(error, failures_before, _DEFAULT_RULE, own)


def _after_failed_attempt(
    error: str, before: FailureHistory, words: TextCatalog, manner: RetryOptions
) -> RetryDecision:
    if before.total + 1 >= MAX_ERRORS and manner.policy is None:
        return _blocked(error, words("work.too_many_errors", n=MAX_ERRORS, error=error))
    most = manner.apply(_DEFAULT_RULE).max_attempts
    if before.consecutive + 1 < most:
        return _retry_or_fail(error, before.consecutive, _DEFAULT_RULE, manner)
    if before.may_replan:
        return _replan(error)
    return _blocked(error, words("work.too_many_tries", n=most, error=error))


def _replan(error: str) -> RetryDecision:
    return RetryDecision(status=NodeStatus.FAILED, error=error, may_retry=True, replan=True)


def _blocked(error: str, reason: str) -> RetryDecision:
    return RetryDecision(status=NodeStatus.FAILED, error=error, stop=(TaskStatus.BLOCKED, reason))


def _retry_or_fail(
    error: str, failures: int, rule: _BackoffRule, manner: RetryOptions
) -> RetryDecision:
    own = manner.apply(rule)
    if failures + 1 >= own.max_attempts:
        return RetryDecision(status=NodeStatus.FAILED, error=error, stop=(TaskStatus.FAILED, error))
    wait = max(own.min_delay, manner.delay(own, failures))
    return RetryDecision(status=NodeStatus.FAILED, error=error, may_retry=True, delay_seconds=wait)


def tolerates_step_failure(workflow: Workflow, path: str) -> bool:
    """Whether the workflow continues after a permanent failure of the step, because the step or a
    loop around it allows that. A failed compensation never holds up the others.
    """
    if compensated_path(path) is not None:
        return True
    nodes = workflow.nodes_by_id
    while (place := parse_activation(path)) is not None and place.node in nodes:
        if nodes[place.node].on_error is not OnError.FAIL:
            return True
        above = enclosing_round(place.scope)
        if above is None:
            return False
        path = above[0]
    return False
