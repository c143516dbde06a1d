"""Retries and delays by kind of error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import pytest

from bot.engine.llm.answer_schemas import StepAnswer
from bot.engine.llm.backend import (
    BackendDenied,
    BackendError,
    BackendUnavailable,
    InvalidAnswer,
    OutageKind,
    RunLimitReached,
)
from bot.engine.workflow.definition import RetryPolicy
from bot.engine.workflow.error_policy import (
    DEFAULT_RETRY,
    FailureHistory,
    RetryDecision,
    RetryOptions,
    decide_on_answer,
    decide_on_error,
)
from cards.catalog import catalog_for
from storage.records.people import Language
from storage.records.tasks import NodeStatus, TaskStatus

WORDS = catalog_for(Language.ENGLISH)


def decisions(error: BackendError, manner: RetryOptions = DEFAULT_RETRY) -> Iterator[RetryDecision]:
    """The decisions after repeated occurrences of the same error, until the run ends."""
    failures = 0
    while True:
        verdict = decide_on_error(error, failures_before=failures, words=WORDS, options=manner)
        yield verdict
        if verdict.stop is not None:
            return
        failures += 1


@pytest.mark.parametrize(
    ("error", "tries", "status"),
    [
        (BackendDenied("401"), 1, TaskStatus.BLOCKED),
        (RunLimitReached("turns"), 2, TaskStatus.FAILED),
        (InvalidAnswer("empty"), 3, TaskStatus.FAILED),
        (BackendUnavailable("reset"), 5, TaskStatus.FAILED),
        (BackendUnavailable("429", outage=OutageKind.RATE_LIMITED), 5, TaskStatus.FAILED),
        (BackendUnavailable("529", outage=OutageKind.OVERLOADED), 5, TaskStatus.FAILED),
        (BackendUnavailable("500", outage=OutageKind.SERVER_ERROR), 3, TaskStatus.FAILED),
    ],
)
def test_tries_by_what_they_cost_and_whether_they_can_help(
    error: BackendError, tries: int, status: TaskStatus
) -> None:
    found = list(decisions(error))

    assert len(found) == tries
    assert found[-1].stop is not None
    assert found[-1].stop[0] is status
    assert all(each.may_retry for each in found[:-1])


@pytest.mark.parametrize("error", [BackendUnavailable("reset"), InvalidAnswer("empty")], ids=str)
def test_five_tries_are_five_in_all_whoever_says_so(error: BackendError) -> None:
    """A node's own number counts like the table's: it includes the first attempt."""
    manner = RetryOptions(policy=RetryPolicy(max_attempts=5))

    assert len(list(decisions(error, manner))) == 5
    assert len(list(decisions(BackendUnavailable("reset")))) == 5


def test_an_outage_is_waited_for_twice_as_long_each_time() -> None:
    waits = [each.delay_seconds for each in decisions(BackendUnavailable("reset"))]

    assert waits == [2.0, 4.0, 8.0, 16.0, 0.0]


@pytest.mark.parametrize(
    ("trouble", "waits"),
    [
        (OutageKind.RATE_LIMITED, [30.0, 30.0, 30.0, 30.0, 0.0]),
        (OutageKind.OVERLOADED, [15.0, 15.0, 15.0, 16.0, 0.0]),
        (OutageKind.SERVER_ERROR, [5.0, 15.0, 0.0]),
    ],
)
def test_each_trouble_has_its_own_patience(trouble: OutageKind, waits: list[float]) -> None:
    assert [
        each.delay_seconds for each in decisions(BackendUnavailable("-", outage=trouble))
    ] == waits


def test_a_time_that_the_service_names_is_enough() -> None:
    error = BackendUnavailable("429", retry_after=3.0, outage=OutageKind.RATE_LIMITED)

    assert decide_on_error(error, failures_before=0, words=WORDS).delay_seconds == 3.0


@pytest.mark.parametrize(("chance", "waited"), [(0.0, 6.4), (0.5, 8.0), (1.0, 9.6)])
def test_a_rest_is_a_fifth_shorter_or_longer(chance: float, waited: float) -> None:
    manner = RetryOptions(jitter=chance)

    wait = decide_on_error(
        BackendUnavailable("-"), failures_before=2, words=WORDS, options=manner
    ).delay_seconds

    assert wait == pytest.approx(waited)


def test_no_rest_is_longer_than_a_minute_and_its_fifth() -> None:
    manner = RetryOptions(
        policy=RetryPolicy(max_attempts=20, backoff_ms=3_600_000, multiplier=10), jitter=1.0
    )

    waits = [
        decide_on_error(
            InvalidAnswer("-"), failures_before=n, words=WORDS, options=manner
        ).delay_seconds
        for n in range(19)
    ]

    assert set(waits) == {72.0}


def test_a_nodes_own_rule_counts_instead() -> None:
    manner = RetryOptions(policy=RetryPolicy(max_attempts=2, backoff_ms=500, multiplier=3))
    error, away = InvalidAnswer("-"), BackendUnavailable("-", outage=OutageKind.OVERLOADED)

    assert (
        decide_on_error(error, failures_before=0, words=WORDS, options=manner).delay_seconds == 0.5
    )
    assert decide_on_error(error, failures_before=1, words=WORDS, options=manner).stop is not None
    assert (
        decide_on_error(away, failures_before=0, words=WORDS, options=manner).delay_seconds == 15.0
    )
    assert (
        decide_on_error(BackendDenied("-"), failures_before=0, words=WORDS, options=manner).stop
        is not None
    )


@pytest.mark.parametrize(("tries", "ends_at"), [(1, 0), (7, 6)])
def test_a_worker_has_as_many_tries_as_its_node_says(tries: int, ends_at: int) -> None:
    manner, failed = (
        RetryOptions(policy=RetryPolicy(max_attempts=tries)),
        StepAnswer(status="error", summary="no"),
    )

    found = [
        decide_on_answer(
            failed,
            history=FailureHistory(consecutive=n, total=n, may_replan=False),
            words=WORDS,
            options=manner,
        ).stop
        for n in range(ends_at + 1)
    ]

    assert found[:-1] == [None] * ends_at
    assert found[-1] is not None


@pytest.mark.parametrize(("asked", "waited"), [(1.0, 2.0), (90.0, 90.0), (86_400.0, 900.0)])
def test_a_service_that_names_a_time_is_believed_within_reason(asked: float, waited: float) -> None:
    error = BackendUnavailable("429", retry_after=asked)

    assert decide_on_error(error, failures_before=0, words=WORDS).delay_seconds == waited


def test_a_file_nobody_finds_is_no_success() -> None:
    answer = StepAnswer(status="done", summary="made it", files=["ghost.md"])

    verdict = decide_on_answer(
        answer, faults={"missing_files": ("ghost.md",)}, history=FailureHistory(), words=WORDS
    )

    assert verdict.may_retry
    assert "ghost.md" in verdict.error


def decide_failed(in_row: int, errors: int = 0, *, may_replan: bool = True) -> RetryDecision:
    before = FailureHistory(consecutive=in_row, total=errors, may_replan=may_replan)
    return decide_on_answer(StepAnswer(status="error", summary="no"), history=before, words=WORDS)


def test_the_third_try_in_a_row_asks_for_a_new_plan_once() -> None:
    assert [decide_failed(n).replan for n in range(3)] == [False, False, True]
    assert decide_failed(2).stop is None

    again = decide_failed(2, may_replan=False)

    assert again.stop is not None
    assert again.stop[0] is TaskStatus.BLOCKED


def test_the_fifth_error_under_a_plan_asks_a_person_whichever_the_steps() -> None:
    verdict = decide_failed(0, errors=4)

    assert verdict.stop is not None
    assert verdict.stop[0] is TaskStatus.BLOCKED
    assert "5" in verdict.stop[1]


@pytest.mark.parametrize("status", ["error", "blocked"])
def test_a_worker_may_ask_for_a_new_plan_at_once_but_only_one(status: str) -> None:
    answer = StepAnswer(status=status, summary="the plan is wrong", needs_replan=True)  # type: ignore[arg-type] # both are allowed words

    first = decide_on_answer(answer, history=FailureHistory(), words=WORDS)
    second = decide_on_answer(answer, history=FailureHistory(may_replan=False), words=WORDS)

    assert first.replan
    assert first.stop is None
    assert not second.replan


def test_a_worker_is_told_once_that_a_file_is_missing_and_then_a_person_is_asked() -> None:
    answer = StepAnswer(status="done", summary="made it")
    told = FailureHistory(consecutive=1, total=1)

    verdict = decide_on_answer(
        answer, faults={"missing_files": ("a.md",)}, history=told, words=WORDS
    )

    assert verdict.stop is not None
    assert verdict.stop[0] is TaskStatus.BLOCKED
    assert "a.md" in verdict.stop[1]


@pytest.mark.parametrize(
    ("said", "believed"),
    [
        ("The port is already 9090.", True),
        ("settings.ini already contains that line.", True),
        ("The value was already set to 9090, so I left it.", True),
        ("No changes were needed.", True),
        ("There was no need to change it.", True),
        ("I left it unchanged.", True),
        ("端口已经是 9090。", True),
        ("文件里原本就是 9090，未作修改。", True),
        ("无需修改。", True),
        ("I changed the port to 9090.", False),
        ("I have already changed the port.", False),
        ("The port has already been updated.", False),
        ("The port was already being changed.", False),
        ("Nothing else to report.", False),
        ("已经为您修改。", False),
        ("已改为 9090。", False),
        ("端口已经改成 9090。", False),
    ],
)
def test_an_unchanged_file_is_right_only_if_the_report_says_that_it_was(
    said: str, believed: bool
) -> None:
    verdict = decide_on_answer(
        StepAnswer(status="done", summary=said),
        faults={"unchanged_files": ("settings.ini",)},
        history=FailureHistory(),
        words=WORDS,
    )

    assert (verdict.status is NodeStatus.DONE) is believed


def decide(
    summary: str, status: Literal["done", "error", "blocked"], **known: Any
) -> RetryDecision:
    answer = StepAnswer(status=status, summary=summary)
    facts: dict[str, Any] = {"history": FailureHistory(), **known}
    return decide_on_answer(answer, words=WORDS, **facts)


@pytest.mark.parametrize(
    "report",
    [
        "The total sales are ${{total_sales}}.",
        "The total is ${total}.",
        "Found {{ count }} lines.",
        "The answer is [insert the number here].",
    ],
)
def test_a_report_with_an_unfilled_placeholder_is_asked_about_once(report: str) -> None:
    first = decide(report, "done")
    assert first.status is NodeStatus.FAILED
    assert first.may_retry
    assert "placeholder" in first.error

    history = FailureHistory(consecutive=1)
    again = decide("It speaks of " + report, "done", last_report=report, history=history)
    assert again.status is NodeStatus.DONE

    same = decide(report, "done", last_report=report, history=history)
    assert same.stop is not None, "it is not asked a third time"


@pytest.mark.parametrize(
    "report",
    [
        "The token is now `${{ secrets.TOKEN }}` in ci.yml.",
        'It prints "${HOME}" as it is.',
        "The total is 4711.",
        "Costs: [1] 5 €, [2] 7 €.",
    ],
)
def test_a_report_that_quotes_a_template_is_taken_as_it_is(report: str) -> None:
    assert decide(report, "done").status is NodeStatus.DONE


def test_who_is_blocked_without_a_call_is_asked_once_to_try() -> None:
    first = decide("I need the file.", "blocked", called_nothing=True)
    assert first.may_retry
    assert first.error == "I need the file."

    history = FailureHistory(consecutive=1)
    again = decide("I need the key.", "blocked", called_nothing=True, history=history)
    assert again.stop == (TaskStatus.BLOCKED, "I need the key.")
    assert decide("I need the key.", "blocked").stop is not None


def test_who_wants_another_plan_without_a_call_is_asked_once_to_try() -> None:
    answer = StepAnswer(status="error", summary="There is no file.", needs_replan=True)

    def decided(*, consecutive: int, called_nothing: bool) -> RetryDecision:
        history = FailureHistory(consecutive=consecutive)
        return decide_on_answer(answer, called_nothing=called_nothing, history=history, words=WORDS)

    assert not decided(consecutive=0, called_nothing=True).replan
    assert decided(consecutive=1, called_nothing=True).replan
    assert decided(consecutive=0, called_nothing=False).replan


def test_a_success_in_the_words_of_the_failure_is_none() -> None:
    words = "The step before did not complete."
    history = FailureHistory(consecutive=1)
    answer = StepAnswer(status="done", summary=words)

    again = decide_on_answer(answer, failed_report=words, history=history, words=WORDS)
    assert again.stop is not None
    assert again.stop[0] is TaskStatus.BLOCKED

    other = decide_on_answer(answer, failed_report="No file.", history=history, words=WORDS)
    assert other.status is NodeStatus.DONE
    assert decide_on_answer(answer, history=history, words=WORDS).status is NodeStatus.DONE


def test_an_empty_report_is_no_warning_about_files() -> None:
    def decided(failed_report: str) -> RetryDecision:
        return decide_on_answer(
            StepAnswer(status="done", summary="I changed it."),
            faults={"unchanged_files": ("a.ini",)},
            failed_report=failed_report,
            history=FailureHistory(consecutive=1),
            words=WORDS,
        )

    assert decided("It is done already.").may_retry
    assert decided("").stop is not None


def test_a_command_that_was_not_run_is_no_success() -> None:
    answer = StepAnswer(status="done", summary="37 lines.")
    decided = decide_on_answer(
        answer, faults={"commands_not_run": ("wc -l a.txt",)}, history=FailureHistory(), words=WORDS
    )

    assert decided.may_retry
    assert "wc -l a.txt" in decided.error
