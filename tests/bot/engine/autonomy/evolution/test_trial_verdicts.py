"""A trial is judged by its figures, and chance adopts nothing."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bot.engine.agent.prompt_versions import choose_version, is_in_trial
from bot.engine.autonomy.evolution.service import figures_of, fisher_p, judge
from storage.records.prompt_versions import (
    TrialArm,
    TrialFigures,
    TrialTask,
    TrialVerdict,
    VersionState,
)
from storage.records.tasks import TaskId, TaskStatus
from tests.fakes.prompts import make_version

NOW = datetime(2026, 5, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def arm(tasks: int, failures: int = 0, micros: int = 100, seconds: float = 10.0) -> TrialArm:
    return TrialArm(failures=failures, micros=[micros] * tasks, seconds=[seconds] * tasks)


def verdict(trial: TrialArm, control: TrialArm, *, age: timedelta = DAY) -> TrialVerdict:
    return judge(TrialFigures(trial=trial, control=control), since=NOW - age, now=NOW)


@pytest.mark.parametrize(
    ("trial", "control", "expected"),
    [
        (arm(9), arm(30, 20), TrialVerdict.OPEN),
        (arm(10), arm(10, 6), TrialVerdict.BETTER),
        (arm(10), arm(10, 2), TrialVerdict.UNCLEAR),
        (arm(10, 1), arm(10), TrialVerdict.WORSE),
        (arm(2, 2), arm(2), TrialVerdict.OPEN),
        (arm(3, 3), arm(2), TrialVerdict.WORSE),
        (arm(3, 3), arm(3, 3), TrialVerdict.OPEN),
        (arm(10, micros=121), arm(10, 6), TrialVerdict.WORSE),
        (arm(10, seconds=12.1), arm(10, 6), TrialVerdict.WORSE),
        (arm(10, micros=119), arm(10, 6), TrialVerdict.BETTER),
        (arm(10, micros=50), arm(10), TrialVerdict.BETTER),
        (arm(10), arm(10), TrialVerdict.UNCLEAR),
    ],
)
def test_a_verdict_follows_from_the_figures(
    trial: TrialArm, control: TrialArm, expected: TrialVerdict
) -> None:
    assert verdict(trial, control) is expected


def test_after_two_weeks_a_trial_without_enough_tasks_ends() -> None:
    assert verdict(arm(3), arm(3), age=14 * DAY) is TrialVerdict.UNCLEAR


def test_the_exact_test_knows_the_tea_lady() -> None:
    assert fisher_p(4, 0, 0, 4) == pytest.approx(1 / 70)
    assert fisher_p(0, 0, 0, 0) == 1.0


def test_of_equal_versions_few_are_taken_for_better() -> None:
    chance = random.Random(7)
    adopted = 0
    for _ in range(400):
        sides = [
            TrialArm(
                failures=sum(chance.random() < 0.3 for _ in range(10)),
                micros=[chance.randint(50, 150) for _ in range(10)],
                seconds=[chance.uniform(5, 15) for _ in range(10)],
            )
            for _ in range(2)
        ]
        adopted += verdict(sides[0], sides[1]) is TrialVerdict.BETTER
    assert adopted <= 0.1 * 400


def test_a_task_that_used_both_counts_on_neither_side() -> None:
    version = make_version(state=VersionState.TRIAL, number=2, parent=1)

    def task(*numbers: int) -> TrialTask:
        return TrialTask(
            task_id=TaskId("t"), status=TaskStatus.FAILED, numbers=numbers, micros=1, seconds=1.0
        )

    figures = figures_of(version, [task(2), task(1), task(1), task(1, 2), task(0)])

    assert (figures.trial.tasks, figures.control.tasks) == (1, 2)


def test_the_share_is_that_of_the_version_and_a_task_keeps_its_side() -> None:
    version = make_version(state=VersionState.TRIAL, share=30, trial_since=NOW)
    ids = [TaskId(f"task{number}") for number in range(2000)]

    chosen = [each for each in ids if is_in_trial(version, each, NOW)]

    assert 0.25 < len(chosen) / len(ids) < 0.35
    assert chosen == [each for each in ids if is_in_trial(replace(version), each, NOW + DAY)]


def test_tasks_from_before_the_trial_and_chats_are_no_part_of_it() -> None:
    active = make_version(id=1, state=VersionState.ACTIVE)
    trial = make_version(id=2, number=2, state=VersionState.TRIAL, share=100, trial_since=NOW)

    assert choose_version([active, trial], lambda _version: False) is active
    assert choose_version([active, trial], lambda _version: True) is trial
    assert choose_version([trial], lambda _version: False) is None
