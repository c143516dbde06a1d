"""The estimate of a task's remaining time."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.engine.workflow.definition import WorkflowNode
from bot.engine.workflow.nodes.delay import DelayConfig
from bot.engine.workflow.nodes.human import HumanConfig
from bot.engine.workflow.nodes.registry import NodeType
from bot.engine.workflow.presentation.outline import WorkflowOutline
from bot.engine.workflow.presentation.task_view import (
    DEFAULT_STEP_SECONDS,
    DurationEstimator,
    DurationSample,
    estimate_eta,
    eta_confidence,
)
from cards.catalog import catalog_for
from cards.views.task_parts import eta_prefix, eta_text
from storage.records.people import Language
from storage.records.tasks import (
    NodeRun,
    NodeStatus,
    TaskControl,
    TaskEta,
    TaskId,
    TaskStatus,
    TaskView,
)
from tests.bot.engine.workflow.presentation.sample_workflow import report_workflow, run_until
from tests.builders import NOW, make_task, make_view

STEP = WorkflowNode(id="a", title="Read")
SECONDS = st.floats(0, 1e6, allow_nan=False)
EN = catalog_for(Language.ENGLISH)


def running(seconds: float | None) -> NodeRun:
    return NodeRun(
        task_id=TaskId("t1"),
        path="a",
        status=NodeStatus.RUNNING,
        attempt=1,
        output={},
        error="",
        started_at=None if seconds is None else NOW - timedelta(seconds=seconds),
        ended_at=None,
    )


def took(*seconds: float, name: str = "Read", kind: str = "task") -> list[DurationSample]:
    return [DurationSample(name, kind, each) for each in seconds]


def expected(
    left: list[tuple[WorkflowNode, NodeRun | None, int]], past: DurationEstimator, parallel: int = 1
) -> TaskEta:
    return estimate_eta(left, past, done=1, total=4, parallel=parallel, now=NOW)


def with_eta(view: TaskView, seconds: float, steps: int = 3) -> TaskView:
    return replace(view, eta=TaskEta(seconds=seconds, confidence=1, steps=steps))


def test_a_step_takes_as_long_as_those_of_its_name() -> None:
    past = DurationEstimator([*took(10, 20), *took(100, 100, 100, name="Write")])

    assert past.expected_seconds(STEP) == 15


def test_one_of_its_name_is_too_few_then_its_type_counts() -> None:
    past = DurationEstimator([*took(10), *took(100, 130, name="Write")])

    assert past.expected_seconds(STEP) == 80


def test_two_of_its_type_are_too_few_then_all_count() -> None:
    past = DurationEstimator(
        [*took(10, 20, name="Write"), *took(60, 70, 80, name="Ask", kind="human")]
    )

    assert past.expected_seconds(STEP) == 48


def test_where_nothing_is_known_it_takes_two_minutes() -> None:
    assert DurationEstimator([]).expected_seconds(STEP) == DEFAULT_STEP_SECONDS == 120


@pytest.mark.parametrize(("elapsed", "left"), [(20, 100), (115, 10), (500, 10), (None, 60)])
def test_a_step_under_way_takes_the_rest_of_its_time(elapsed: float | None, left: float) -> None:
    assert expected([(STEP, running(elapsed), 1)], DurationEstimator([])).seconds == left


def test_people_are_not_counted_and_rests_are_known() -> None:
    ask = WorkflowNode(id="b", title="Ask", type=NodeType.HUMAN, config=HumanConfig())
    rest = WorkflowNode(id="c", title="Rest", type=NodeType.DELAY, config=DelayConfig(seconds=600))

    found = expected([(ask, None, 1), (rest, None, 1)], DurationEstimator([]))

    assert (found.seconds, found.steps) == (600, 1)


def test_what_runs_side_by_side_takes_less_but_never_less_than_its_longest() -> None:
    nine: list[tuple[WorkflowNode, NodeRun | None, int]] = [(STEP, None, 9)]

    assert expected(nine, DurationEstimator([])).seconds == 1080
    assert expected(nine, DurationEstimator([]), parallel=3).seconds == 360
    assert expected([(STEP, None, 2)], DurationEstimator([]), parallel=8).seconds == 120


@pytest.mark.parametrize(
    ("samples", "done", "total", "expected"),
    [(0, 0, 4, 0.15), (20, 0, 4, 0.65), (100, 2, 4, 0.9), (10, 4, 4, 0.75), (0, 1, 0, 0.15)],
)
def test_it_is_the_surer_the_more_was_seen(
    samples: int, done: int, total: int, expected: float
) -> None:
    assert eta_confidence(samples, done, total) == pytest.approx(expected)


@given(samples=st.integers(0, 10_000), done=st.integers(0, 99), more=st.integers(0, 99))
def test_confidence_is_between_nothing_and_one(samples: int, done: int, more: int) -> None:
    now, later = (
        eta_confidence(samples, done, done + more),
        eta_confidence(samples + 1, done, done + more),
    )

    assert 0 < now <= 1
    assert later >= now


@given(
    times=st.lists(SECONDS, max_size=8),
    begun=st.lists(st.none() | SECONDS, max_size=5),
    parallel=st.integers(1, 20),
)
def test_what_is_left_is_never_nothing_and_more_hands_are_never_slower(
    times: list[float], begun: list[float | None], parallel: int
) -> None:
    past = DurationEstimator(took(*times))
    left: list[tuple[WorkflowNode, NodeRun | None, int]]
    left = [(STEP, running(each), 1) for each in begun]

    alone, together = expected(left, past), expected(left, past, parallel)

    assert alone.seconds >= together.seconds >= 0
    assert alone.steps == len(begun)
    assert alone.seconds >= 10 * sum(each is not None for each in begun)


@pytest.mark.parametrize(
    ("sure", "sign"), [(1, ""), (0.7, ""), (0.69, "~"), (0.4, "~"), (0.39, "≈"), (0.0, "≈")]
)
def test_how_sure_it_is_stands_before_it(sure: float, sign: str) -> None:
    assert eta_prefix(TaskEta(seconds=1, confidence=sure, steps=3)) == sign


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "10 s left"),
        (44, "40 s left"),
        (61, "1 min left"),
        (599, "10 min left"),
        (1_700, "30 min left"),
        (3_580, "1 h 00 min left"),
        (9_000, "2 h 30 min left"),
        (200_000, "2 d 7 h left"),
    ],
)
def test_it_is_told_the_more_roughly_the_longer_it_is(seconds: float, told: str) -> None:
    view = make_view(make_task(status=TaskStatus.RUNNING))

    assert eta_text(with_eta(view, seconds), EN) == told


def test_nothing_is_told_where_there_is_nothing_to_say() -> None:
    going = make_view(make_task(status=TaskStatus.RUNNING))
    idle = [
        make_view(make_task(status=status))
        for status in TaskStatus
        if status is not TaskStatus.RUNNING
    ]
    pausing = make_view(make_task(status=TaskStatus.RUNNING, control=TaskControl.PAUSE))

    assert eta_text(going, EN) == ""
    assert eta_text(with_eta(going, 60, steps=1), EN) == ""
    assert {eta_text(with_eta(each, 60), EN) for each in (*idle, pausing)} == {""}


@pytest.mark.parametrize("language", list(Language))
def test_it_is_told_in_both_languages(language: Language) -> None:
    view = make_view(make_task(status=TaskStatus.RUNNING))
    told = [eta_text(with_eta(view, each), catalog_for(language)) for each in (5, 90, 5_000, 1e6)]

    assert len(set(told)) == 4
    assert all(("left" in each) is (language is Language.ENGLISH) for each in told)


def test_rounds_that_are_still_to_come_are_in_it() -> None:
    def left(moment: str) -> int:
        lines = WorkflowOutline(report_workflow(), run_until(report_workflow(), moment).runs)
        return sum(
            times for node, _, times in lines.remaining_steps() if node.id in {"read", "sum"}
        )

    assert left("gather") == 2
    assert 8 <= left("each[0]/read") <= 10
    assert left("review") == 0
