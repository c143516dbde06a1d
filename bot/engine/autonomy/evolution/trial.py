"""Judges a trial by its figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from math import comb
from statistics import median

from storage.records.prompt_versions import (
    PromptVersion,
    TrialArm,
    TrialFigures,
    TrialTask,
    TrialVerdict,
)
from storage.records.tasks import TaskStatus

MIN_TASKS = 10
"""Tasks that each side needs."""
MAX_TRIAL = timedelta(days=14)
MORE_FAILURES = 3
"""So many failures more than the others end a trial at once."""
_SIGNIFICANCE = 0.05
"""A gain that chance would bring more often is none."""
_MAX_INCREASE = 1.2


def figures_of(version: PromptVersion, tasks: Sequence[TrialTask]) -> TrialFigures:
    """Tasks that used more than one version of the prompt count on neither side."""
    mine = [each for each in tasks if list(each.numbers) == [version.number]]
    others = [each for each in tasks if list(each.numbers) == [version.parent]]
    return TrialFigures(trial=_arm(mine), control=_arm(others))


def judge(figures: TrialFigures, *, since: datetime, now: datetime) -> TrialVerdict:
    """WORSE as soon as the version fails clearly more often; the rest when both sides have enough
    tasks or the time is over.

    BETTER needs a success rate at least as high, neither costs nor time more than 20 % higher on
    average, and a gain in one of the three that an exact test does not put down to chance."""
    trial, control = figures.trial, figures.control
    if excess_is_too_high(figures):
        return TrialVerdict.WORSE
    enough = min(trial.tasks, control.tasks) >= MIN_TASKS
    if not enough:
        return TrialVerdict.UNCLEAR if now - since >= MAX_TRIAL else TrialVerdict.OPEN
    if trial.successes * control.tasks < control.successes * trial.tasks:
        return TrialVerdict.WORSE
    means = (
        (trial.mean_micros, control.mean_micros),
        (trial.mean_seconds, control.mean_seconds),
    )
    if any(value > usual * _MAX_INCREASE > 0 for value, usual in means):
        return TrialVerdict.WORSE
    gains = (
        fisher_p(trial.successes, trial.failures, control.successes, control.failures),
        _chance_of_less(trial.micros, control.micros),
        _chance_of_less(trial.seconds, control.seconds),
    )
    return TrialVerdict.BETTER if min(gains) <= _SIGNIFICANCE else TrialVerdict.UNCLEAR


def fisher_p(a: int, b: int, c: int, d: int) -> float:
    """The chance of at least `a` successes in the first of two rows (a successes, b failures; c, d)
    if both are alike."""
    row, successes, total = a + b, a + c, a + b + c + d
    if not total:
        return 1.0
    most = min(row, successes)
    ways = sum(
        comb(successes, k) * comb(total - successes, row - k)
        for k in range(a, most + 1)
        if row - k <= total - successes
    )
    return ways / comb(total, row)


def excess_is_too_high(figures: TrialFigures) -> bool:
    """Whether the version has clearly more failures than the other side would have had with as many
    tasks."""
    trial, control = figures.trial, figures.control
    expected = control.failures * trial.tasks / control.tasks if control.tasks else 0.0
    return trial.failures - expected >= MORE_FAILURES


def _chance_of_less(values: Sequence[float], usual: Sequence[float]) -> float:
    """The chance that at least so many of `values` are below the median of all if both are
    alike."""
    middle = median([*values, *usual])
    low, low_usual = (sum(each < middle for each in some) for some in (values, usual))
    return fisher_p(low, len(values) - low, low_usual, len(usual) - low_usual)


def _arm(tasks: Iterable[TrialTask]) -> TrialArm:
    judged = {TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.BLOCKED}
    ended = [each for each in tasks if each.status in judged]
    return TrialArm(
        failures=sum(each.status is not TaskStatus.COMPLETED for each in ended),
        micros=[each.micros for each in ended],
        seconds=[each.seconds for each in ended],
    )
