"""Finds notable changes in the figures of past tasks. Pure computation; small samples yield
nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from storage.records.autonomy import (
    EndedTask,
    Finding,
    FindingKind,
    StepFigures,
    StepRun,
    TaskOutcomes,
)
from storage.records.tasks import NodeStatus, TaskId, TaskStatus

_MIN_TASKS = 5
"""Tasks that both periods must have before they are compared."""
_SUCCESS_POINTS = 10
_TIME_CHANGE = 0.30
_COST_CHANGE = 0.50
_MIN_MICROS = 10_000
"""One cent: what costs less is not worth a word."""

_MIN_RUNS = 3
_MIN_SUCCESS = 80
_SLOW_FACTOR = 2
_MIN_SLOW_SECONDS = 30.0
_MAX_STEPS = 3

_MIN_SIMILAR = 3
_MIN_SIMILARITY = 0.5
_DEGRADED_TIME, _DEGRADED_COST = 0.20, 0.30
_MAX_DEGRADED = 3
_MAX_COMPARED, _MAX_EARLIER = 50, 300

_COSTLY_SHARE = 0.50
_SAVED_BY_REPAIR = 0.7
"""The part of what failed attempts cost that a repaired step would save."""
_USED_SHARE = 0.50
_MIN_BATCH = 5
_SMALL_STEPS, _SMALL_SECONDS = 2, 300.0
_MAX_TIPS = 5

_CATEGORIES: Mapping[str, tuple[str, ...]] = {
    "git": ("git", "commit", "merge", "rebase", "branch", "push", "提交", "合并", "分支", "推送"),
    "docs": ("docs", "documentation", "readme", "changelog", "文档", "说明书", "更新日志"),
    "tests": ("test", "tests", "coverage", "测试", "覆盖率"),
    "fix": ("fix", "bug", "repair", "修复", "修正", "故障"),
    "review": ("review", "audit", "评审", "审查", "审计"),
    "research": ("research", "compare", "调研", "比较", "搜索"),
    "writing": ("write", "draft", "translate", "summarize", "写", "翻译", "总结"),
}
_BATCHED = ("git", "docs")


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledTask:
    """A task with its step titles and its cost, 0 if unknown."""

    task: EndedTask
    titles: tuple[str, ...]
    micros: int

    @property
    def category(self) -> str:
        return task_category(self.task.title)


def task_category(title: str) -> str:
    """The kind of work by words of the title; empty if there is no such word."""
    folded = title.casefold()
    words = set("".join(char if char.isalnum() else " " for char in folded).split())
    for category, signs in _CATEGORIES.items():
        if any(sign in words if sign.isascii() else sign in folded for sign in signs):
            return category
    return ""


def step_figures(runs: Iterable[StepRun]) -> Sequence[StepFigures]:
    """The finished runs of each step, by title; skipped ones do not count."""
    found: dict[str, list[StepRun]] = {}
    for run in runs:
        if run.status in {NodeStatus.DONE, NodeStatus.FAILED}:
            found.setdefault(run.title, []).append(run)
    return [_figures(title, own) for title, own in found.items()]


def _figures(title: str, runs: Sequence[StepRun]) -> StepFigures:
    longest = max(runs, key=lambda run: run.seconds)
    return StepFigures(
        title=title,
        runs=len(runs),
        failed=sum(run.status is NodeStatus.FAILED for run in runs),
        mean_seconds=fmean(run.seconds for run in runs),
        longest_seconds=longest.seconds,
        slowest_task=longest.task_id,
    )


def failing_steps(figures: Iterable[StepFigures]) -> tuple[StepFigures, ...]:
    """Steps that succeed in less than four of five runs, the worst first."""
    bad = [
        each for each in figures if each.runs >= _MIN_RUNS and each.success_percent < _MIN_SUCCESS
    ]
    bad.sort(key=lambda each: (each.success_percent, -each.runs, each.title))
    return tuple(bad[:_MAX_STEPS])


def slow_steps(figures: Iterable[StepFigures]) -> tuple[StepFigures, ...]:
    """Steps with a run that took more than twice as long as the mean, the longest first."""
    slow = [
        each
        for each in figures
        if each.runs >= _MIN_RUNS
        and each.longest_seconds >= _MIN_SLOW_SECONDS
        and each.longest_seconds > _SLOW_FACTOR * each.mean_seconds
    ]
    slow.sort(key=lambda each: (-each.longest_seconds, each.title))
    return tuple(slow[:_MAX_STEPS])


def compare_periods(
    now: TaskOutcomes, before: TaskOutcomes, *, micros: int, micros_before: int
) -> Iterator[Finding]:
    """Changes against the period before that go beyond the thresholds."""
    if min(now.judged, before.judged) < _MIN_TASKS:
        return
    if abs(now.success_percent - before.success_percent) >= _SUCCESS_POINTS:
        yield Finding(
            kind=FindingKind.SUCCESS,
            figures={
                "percent": now.success_percent,
                "percent_before": before.success_percent,
            },
        )
    if min(now.completed, before.completed) >= _MIN_TASKS:
        change = _change(now.mean_seconds, before.mean_seconds)
        longer = max(now.mean_seconds, before.mean_seconds)
        if abs(change) >= _TIME_CHANGE and longer >= _MIN_SLOW_SECONDS:
            yield Finding(
                kind=FindingKind.DURATION,
                figures={
                    "percent": round(100 * change),
                    "seconds": now.mean_seconds,
                    "seconds_before": before.mean_seconds,
                },
            )
    change = _change(micros, micros_before)
    if change > _COST_CHANGE and micros_before >= _MIN_MICROS:
        yield Finding(
            kind=FindingKind.COST,
            figures={
                "percent": round(100 * change),
                "micros": micros,
                "micros_before": micros_before,
            },
        )


def degraded_tasks(
    tasks: Sequence[SampledTask], earlier: Sequence[SampledTask]
) -> Sequence[Finding]:
    """Completed tasks that took longer or cost more than similar earlier ones did on average, the
    worst first. Both sequences have the newest first."""
    known = [each for each in earlier if each.task.status is TaskStatus.COMPLETED]
    found = [
        finding
        for each in tasks[:_MAX_COMPARED]
        if each.task.status is TaskStatus.COMPLETED
        and (finding := _degradation(each, known[:_MAX_EARLIER])) is not None
    ]
    found.sort(key=lambda each: -max(each.figures["time_percent"], each.figures["cost_percent"]))
    return found[:_MAX_DEGRADED]


def similarity(one: SampledTask, other: SampledTask) -> float:
    """From 0 to 1: the same kind of work (.4), a like number of steps (.3), and the same step
    titles (.3)."""
    score = 0.4 if one.category and one.category == other.category else 0.0
    apart = abs(len(one.titles) - len(other.titles))
    score += {0: 0.3, 1: 0.2, 2: 0.1}.get(apart, 0.0)
    mine, theirs = set(one.titles), set(other.titles)
    if mine or theirs:
        score += 0.3 * len(mine & theirs) / len(mine | theirs)
    return score


def _degradation(one: SampledTask, earlier: Sequence[SampledTask]) -> Finding | None:
    like = [
        each
        for each in earlier
        if each.task.ended_at <= one.task.ended_at
        and each.task.id != one.task.id
        and similarity(one, each) >= _MIN_SIMILARITY
    ]
    if len(like) < _MIN_SIMILAR:
        return None
    mean = fmean(each.task.seconds for each in like)
    costs = [each.micros for each in like if each.micros]
    mean_cost = fmean(costs) if len(costs) >= _MIN_SIMILAR else 0.0
    time_change, cost_change = _change(one.task.seconds, mean), _change(one.micros, mean_cost)
    slower = time_change > _DEGRADED_TIME and one.task.seconds - mean >= _MIN_SLOW_SECONDS
    dearer = cost_change > _DEGRADED_COST and one.micros - mean_cost >= _MIN_MICROS
    if not (slower or dearer):
        return None
    return Finding(
        kind=FindingKind.DEGRADED,
        subject=one.task.title,
        task_id=one.task.id,
        figures={
            "number": len(like),
            "time_percent": round(100 * time_change) if slower else 0,
            "seconds": one.task.seconds,
            "seconds_before": mean,
            "cost_percent": round(100 * cost_change) if dearer else 0,
            "micros": one.micros,
            "micros_before": round(mean_cost),
        },
    )


def find_tips(tasks: Sequence[SampledTask], runs: Sequence[StepRun]) -> Sequence[Finding]:
    """Possible improvements, the most money first. A new kind needs a function here, a
    `FindingKind`, its place in `cards.views.reports`, texts and a row in `docs/reports.md`."""
    found = [*_costly_steps(runs), *_retry_waste(runs), *_skipped_steps(runs), *_batches(tasks)]
    found.sort(key=lambda each: -each.figures.get("micros", 0))
    return found[:_MAX_TIPS]


def _costly_steps(runs: Sequence[StepRun]) -> Iterator[Finding]:
    """A step that takes more than half of the money of the tasks that have it."""
    by_title = _by_title(runs)
    by_task: dict[TaskId, int] = {}
    for run in runs:
        by_task[run.task_id] = by_task.get(run.task_id, 0) + run.micros
    for title, own in by_title.items():
        tasks = {run.task_id for run in own}
        micros = sum(run.micros for run in own)
        whole = sum(by_task[each] for each in tasks)
        alone = sum(1 for each in tasks if by_task[each] == _cost_in(own, each))
        if (
            len(tasks) >= _MIN_RUNS
            and micros >= _MIN_MICROS
            and micros > _COSTLY_SHARE * whole
            # A step that is the whole task is not dear, it is the work.
            and alone < len(tasks)
        ):
            yield Finding(
                kind=FindingKind.COSTLY_STEP,
                subject=title,
                figures={
                    "percent": round(100 * micros / whole),
                    "micros": micros,
                    "number": len(tasks),
                },
            )


def _retry_waste(runs: Sequence[StepRun]) -> Iterator[Finding]:
    for title, own in _by_title(runs).items():
        wasted = sum(run.failed_micros for run in own)
        if wasted > _MIN_MICROS:
            yield Finding(
                kind=FindingKind.RETRY_WASTE,
                subject=title,
                figures={
                    "micros": wasted,
                    "saved_micros": round(wasted * _SAVED_BY_REPAIR),
                    "number": sum(run.failed_attempts for run in own),
                },
            )


def _skipped_steps(runs: Sequence[StepRun]) -> Iterator[Finding]:
    """Steps that plans contain but that mostly do not run."""
    for title, own in _by_title(runs).items():
        ran = sum(run.status is not NodeStatus.SKIPPED for run in own)
        if len(own) >= _MIN_TASKS and ran < _USED_SHARE * len(own):
            yield Finding(
                kind=FindingKind.SKIPPED_STEP,
                subject=title,
                figures={"number": len(own), "ran": ran, "percent": round(100 * ran / len(own))},
            )


def _batches(tasks: Sequence[SampledTask]) -> Iterator[Finding]:
    for category in _BATCHED:
        small = [
            each
            for each in tasks
            if each.category == category
            and len(each.titles) <= _SMALL_STEPS
            and each.task.seconds <= _SMALL_SECONDS
        ]
        if len(small) >= _MIN_BATCH:
            yield Finding(
                kind=FindingKind.BATCH,
                subject=category,
                figures={"number": len(small), "micros": sum(each.micros for each in small)},
            )


def _by_title(runs: Iterable[StepRun]) -> Mapping[str, Sequence[StepRun]]:
    found: dict[str, list[StepRun]] = {}
    for run in runs:
        found.setdefault(run.title, []).append(run)
    return found


def _cost_in(runs: Iterable[StepRun], task: TaskId) -> int:
    return sum(run.micros for run in runs if run.task_id == task)


def _change(now: float, before: float) -> float:
    """The relative change: 0.5 is an increase by half; 0 without a value to compare with."""
    return (now - before) / before if before > 0 else 0.0
