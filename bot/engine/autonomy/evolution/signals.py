"""Finds patterns in the latest tasks that a better text might change."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from statistics import mean
from typing import Any

from bot.engine.workflow.prompts import PLANNER, WORKER
from cards.catalog import catalog_for
from storage.prompt_versions import AttemptFacts, TaskFacts
from storage.records.people import Language
from storage.records.prompt_versions import PromptKind, PromptRef, SignalKind, SignalRecord
from storage.records.tasks import TaskStatus
from storage.records.workers import DEFAULT_PERSONA

WINDOW = 20
"""Tasks that are looked at."""
MIN_HITS = 3
COOL_DOWN = timedelta(hours=24)
_PLATEAU_TASKS, _PLATEAU_RATE, _PLATEAU_QUIET = 10, 0.95, timedelta(days=7)
_OUTLIER = 2.0
"""Times the mean of all."""
_MAX_RETRIES = 3
_BOTTLENECK = 0.7
_MAX_EXAMPLES = 5
_MAX_TASK_IDS = 10

_TEXTS = {
    SignalKind.EXPRESSION_FAILURE: (
        "workflow.no_value",
        "workflow.no_list",
        "workflow.bad_expression",
    ),
    SignalKind.DEAD_END: ("workflow.dead_end", "workflow.stuck", "workflow.edge_limit"),
    SignalKind.NODE_TIMEOUT: ("workflow.step_late", "backend.limit"),
    SignalKind.BACKEND_ERROR: ("backend.",),
}
"""Prefixes of the keys of the texts that tasks and attempts end with, which tell these apart."""
_NOT_BACKEND = ("backend.limit", "backend.budget", "backend.how.", "backend.get.")


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectedSignal:
    """A pattern that `tasks` show. `texts` are those that may be the cause, the narrowest first;
    `examples` are errors of the affected steps, written by models and tools."""

    kind: SignalKind
    texts: Sequence[PromptRef]
    tasks: Sequence[str]
    figures: Mapping[str, Any]
    examples: Sequence[str] = field(default=())


def find_signals(tasks: Sequence[TaskFacts]) -> list[DetectedSignal]:
    """The problems that the latest tasks show, the worst first."""
    tasks = tasks[:WINDOW]
    if not tasks:
        return []
    return [
        *_failures(tasks, SignalKind.EXPRESSION_FAILURE),
        *_failures(tasks, SignalKind.DEAD_END),
        *_failures(tasks, SignalKind.NODE_TIMEOUT),
        *_failures(tasks, SignalKind.BACKEND_ERROR),
        *_outliers(tasks, SignalKind.COSTLY, lambda each: each.micros),
        *_outliers(tasks, SignalKind.SLOW, lambda each: each.seconds),
        *_retries(tasks),
        *_bottlenecks(tasks),
    ]


def plateau(tasks: Sequence[TaskFacts], fired: Sequence[SignalRecord], now: datetime) -> bool:
    """Whether all goes so well that nothing is to be changed, and this was not said of late."""
    rate = success_rate(tasks)
    if len(tasks) < _PLATEAU_TASKS or rate < _PLATEAU_RATE:
        return False
    return not any(now - each.fired_at < _PLATEAU_QUIET for each in fired)


def cooled_down(signal: DetectedSignal, fired: Iterable[SignalRecord], now: datetime) -> bool:
    """Whether this kind of signal did not fire within the cool-down. A clock that was set back
    does not end it."""
    return not any(each.kind is signal.kind and now - each.fired_at < COOL_DOWN for each in fired)


def success_rate(tasks: Sequence[TaskFacts]) -> float:
    return sum(each.succeeded for each in tasks) / len(tasks) if tasks else 0.0


def _failures(tasks: Sequence[TaskFacts], kind: SignalKind) -> Iterable[DetectedSignal]:
    matches = _matcher(kind)
    hits: list[TaskFacts] = []
    attempts: list[AttemptFacts] = []
    for task in tasks:
        failed = [each for each in task.attempts if each.error and matches(each.error)]
        if failed or (task.status is not TaskStatus.COMPLETED and matches(task.reason)):
            hits.append(task)
            attempts += failed
    yield from _signal(kind, hits, attempts, {"window": len(tasks)})


def _outliers(
    tasks: Sequence[TaskFacts], kind: SignalKind, size: Callable[[TaskFacts], float]
) -> Iterable[DetectedSignal]:
    sizes = [size(each) for each in tasks]
    usual = mean(sizes)
    hits = [task for task, each in zip(tasks, sizes, strict=True) if each > _OUTLIER * usual > 0]
    figures = {"window": len(tasks), "mean": round(usual, 2)}
    yield from _signal(kind, hits, [each for task in hits for each in task.attempts], figures)


def _retries(tasks: Sequence[TaskFacts]) -> Iterable[DetectedSignal]:
    hits = [
        task for task in tasks if any(each.attempt > _MAX_RETRIES + 1 for each in task.attempts)
    ]
    failed = [each for task in hits for each in task.attempts if each.error]
    yield from _signal(SignalKind.RETRIES, hits, failed, {"window": len(tasks)})


def _bottlenecks(tasks: Sequence[TaskFacts]) -> Iterable[DetectedSignal]:
    hits, slow = [], []
    for task in tasks:
        paths = {each.path for each in task.attempts}
        longest = max(task.attempts, key=lambda each: each.seconds, default=None)
        if longest is not None and len(paths) > 1 and longest.seconds > _BOTTLENECK * task.seconds:
            hits.append(task)
            slow.append(longest)
    yield from _signal(SignalKind.BOTTLENECK, hits, slow, {"window": len(tasks)})


def _signal(
    kind: SignalKind,
    hits: Sequence[TaskFacts],
    attempts: Sequence[AttemptFacts],
    figures: Mapping[str, Any],
) -> Iterable[DetectedSignal]:
    if len(hits) < MIN_HITS:
        return
    examples = [each.error for each in attempts if each.error]
    examples = examples or [task.reason for task in hits if task.reason]
    yield DetectedSignal(
        kind=kind,
        texts=[each for each in _texts(hits, attempts) if each.kind in kind.remedies],
        tasks=[task.task_id for task in hits[:_MAX_TASK_IDS]],
        figures={**figures, "hits": len(hits)},
        examples=examples[:_MAX_EXAMPLES],
    )


def _texts(hits: Sequence[TaskFacts], attempts: Sequence[AttemptFacts]) -> Iterable[PromptRef]:
    """The named workflow and the skill that enough of the affected tasks used, the persona that
    did most of the affected steps, and the built-in prompts that all have in common."""
    owners = {id(each): task for task in hits for each in task.attempts}
    workflows = Counter(task.workflow for task in hits if task.workflow)
    skills = Counter(
        skill
        for task in hits
        for skill in {each for attempt in task.attempts for each in attempt.skills}
    )
    for kind, names in ((PromptKind.WORKFLOW, workflows), (PromptKind.SKILL, skills)):
        for name, count in names.most_common(1):
            if count >= MIN_HITS:
                yield PromptRef(kind, name)
    personas = Counter(
        each.persona or owners[id(each)].persona or DEFAULT_PERSONA for each in attempts
    ) or Counter(task.persona or DEFAULT_PERSONA for task in hits)
    yield PromptRef(PromptKind.PERSONA, personas.most_common(1)[0][0].casefold())
    yield PromptRef(PromptKind.BUILT_IN, WORKER)
    if not workflows:
        yield PromptRef(PromptKind.BUILT_IN, PLANNER)


@cache
def _matcher(kind: SignalKind) -> Callable[[str], bool]:
    without = _NOT_BACKEND if kind is SignalKind.BACKEND_ERROR else ()
    templates = [
        template
        for language in Language
        for template in catalog_for(language).templates(_TEXTS[kind], without=without)
    ]
    patterns = [
        "(?s:.*)".join(map(re.escape, filter(None, re.split(r"\{\w+\}", each))))
        for each in templates
    ]
    whole = re.compile("|".join(patterns))
    return lambda text: whole.search(text) is not None
