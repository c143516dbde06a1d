"""How often a step is tried again, and how long it waits, by what went wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bot.engine.llm.answers import StepAnswer
from bot.engine.llm.base import (
    BackendDenied,
    BackendError,
    BackendUnavailable,
    BadAnswer,
    LimitReached,
    Trouble,
)
from bot.engine.workflow.model.nodes import Retry
from bot.engine.workflow.verdict import USUAL, Manner, Record, Verdict, of_answer, of_error
from cards.words import words_for
from storage.records.people import Language
from storage.records.tasks import TaskStatus

WORDS = words_for(Language.ENGLISH)


def verdicts(error: BackendError, manner: Manner = USUAL) -> Iterator[Verdict]:
    """What follows from the same error again and again, until the task's run ends."""
    failures = 0
    while True:
        verdict = of_error(error, failures=failures, words=WORDS, manner=manner)
        yield verdict
        if verdict.stop is not None:
            return
        failures += 1


@pytest.mark.parametrize(
    ("error", "tries", "status"),
    [
        (BackendDenied("401"), 1, TaskStatus.BLOCKED),
        (LimitReached("turns"), 2, TaskStatus.FAILED),
        (BadAnswer("empty"), 3, TaskStatus.FAILED),
        (BackendUnavailable("reset"), 5, TaskStatus.FAILED),
        (BackendUnavailable("429", trouble=Trouble.RATE_LIMITED), 5, TaskStatus.FAILED),
        (BackendUnavailable("529", trouble=Trouble.OVERLOADED), 5, TaskStatus.FAILED),
        (BackendUnavailable("500", trouble=Trouble.BROKEN), 3, TaskStatus.FAILED),
    ],
)
def test_tries_by_what_they_cost_and_whether_they_can_help(
    error: BackendError, tries: int, status: TaskStatus
) -> None:
    found = list(verdicts(error))

    assert len(found) == tries
    assert found[-1].stop is not None
    assert found[-1].stop[0] is status
    assert all(each.again for each in found[:-1])


@pytest.mark.parametrize("error", [BackendUnavailable("reset"), BadAnswer("empty")], ids=str)
def test_five_tries_are_five_in_all_whoever_says_so(error: BackendError) -> None:
    """A node's own number means what the table's does: the first try is one of them."""
    manner = Manner(retry=Retry(max_attempts=5))

    assert len(list(verdicts(error, manner))) == 5
    assert len(list(verdicts(BackendUnavailable("reset")))) == 5


def test_an_outage_is_waited_for_twice_as_long_each_time() -> None:
    waits = [each.wait for each in verdicts(BackendUnavailable("reset"))]

    assert waits == [2.0, 4.0, 8.0, 16.0, 0.0]


@pytest.mark.parametrize(
    ("trouble", "waits"),
    [
        (Trouble.RATE_LIMITED, [30.0, 30.0, 30.0, 30.0, 0.0]),
        (Trouble.OVERLOADED, [15.0, 15.0, 15.0, 16.0, 0.0]),
        (Trouble.BROKEN, [5.0, 15.0, 0.0]),
    ],
)
def test_each_trouble_has_its_own_patience(trouble: Trouble, waits: list[float]) -> None:
    assert [each.wait for each in verdicts(BackendUnavailable("-", trouble=trouble))] == waits


def test_a_time_that_the_service_names_is_enough() -> None:
    error = BackendUnavailable("429", retry_after=3.0, trouble=Trouble.RATE_LIMITED)

    assert of_error(error, failures=0, words=WORDS).wait == 3.0


@pytest.mark.parametrize(("chance", "waited"), [(0.0, 6.4), (0.5, 8.0), (1.0, 9.6)])
def test_a_rest_is_a_fifth_shorter_or_longer(chance: float, waited: float) -> None:
    manner = Manner(chance=chance)

    wait = of_error(BackendUnavailable("-"), failures=2, words=WORDS, manner=manner).wait

    assert wait == pytest.approx(waited)


def test_no_rest_is_longer_than_a_minute_and_its_fifth() -> None:
    manner = Manner(retry=Retry(max_attempts=20, backoff_ms=3_600_000, multiplier=10), chance=1.0)

    waits = [
        of_error(BadAnswer("-"), failures=n, words=WORDS, manner=manner).wait for n in range(19)
    ]

    assert set(waits) == {72.0}


def test_a_nodes_own_rule_counts_instead() -> None:
    manner = Manner(retry=Retry(max_attempts=2, backoff_ms=500, multiplier=3))
    error, away = BadAnswer("-"), BackendUnavailable("-", trouble=Trouble.OVERLOADED)

    assert of_error(error, failures=0, words=WORDS, manner=manner).wait == 0.5
    assert of_error(error, failures=1, words=WORDS, manner=manner).stop is not None
    assert of_error(away, failures=0, words=WORDS, manner=manner).wait == 15.0
    assert of_error(BackendDenied("-"), failures=0, words=WORDS, manner=manner).stop is not None


@pytest.mark.parametrize(("tries", "ends_at"), [(1, 0), (7, 6)])
def test_a_worker_has_as_many_tries_as_its_node_says(tries: int, ends_at: int) -> None:
    manner, failed = (
        Manner(retry=Retry(max_attempts=tries)),
        StepAnswer(status="error", summary="no"),
    )

    found = [
        of_answer(
            failed,
            missing=(),
            before=Record(in_row=n, errors=n, may_replan=False),
            words=WORDS,
            manner=manner,
        ).stop
        for n in range(ends_at + 1)
    ]

    assert found[:-1] == [None] * ends_at
    assert found[-1] is not None


@pytest.mark.parametrize(("asked", "waited"), [(1.0, 2.0), (90.0, 90.0), (86_400.0, 900.0)])
def test_a_service_that_names_a_time_is_believed_within_reason(asked: float, waited: float) -> None:
    error = BackendUnavailable("429", retry_after=asked)

    assert of_error(error, failures=0, words=WORDS).wait == waited


def test_a_file_nobody_finds_is_no_success() -> None:
    answer = StepAnswer(status="done", summary="made it", files=["ghost.md"])

    verdict = of_answer(answer, missing=("ghost.md",), before=Record(), words=WORDS)

    assert verdict.again
    assert "ghost.md" in verdict.error


def tried(in_row: int, errors: int = 0, *, may_replan: bool = True) -> Verdict:
    before = Record(in_row=in_row, errors=errors, may_replan=may_replan)
    return of_answer(
        StepAnswer(status="error", summary="no"), missing=(), before=before, words=WORDS
    )


def test_the_third_try_in_a_row_asks_for_a_new_plan_once() -> None:
    assert [tried(n).replan for n in range(3)] == [False, False, True]
    assert tried(2).stop is None

    again = tried(2, may_replan=False)

    assert again.stop is not None
    assert again.stop[0] is TaskStatus.BLOCKED


def test_the_fifth_error_under_a_plan_asks_a_person_whichever_the_steps() -> None:
    verdict = tried(0, errors=4)

    assert verdict.stop is not None
    assert verdict.stop[0] is TaskStatus.BLOCKED
    assert "5" in verdict.stop[1]


@pytest.mark.parametrize("status", ["error", "blocked"])
def test_a_worker_may_ask_for_a_new_plan_at_once_but_only_one(status: str) -> None:
    answer = StepAnswer(status=status, summary="the plan is wrong", needs_replan=True)  # type: ignore[arg-type] # both are allowed words

    first = of_answer(answer, missing=(), before=Record(), words=WORDS)
    second = of_answer(answer, missing=(), before=Record(may_replan=False), words=WORDS)

    assert first.replan
    assert first.stop is None
    assert not second.replan
