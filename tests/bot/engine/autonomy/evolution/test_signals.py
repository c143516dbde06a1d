"""Signals name the narrowest text that enough of the affected tasks used."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.engine.autonomy.evolution.signals import find_signals
from cards.catalog import catalog_for
from storage.prompt_versions import AttemptFacts, TaskFacts
from storage.records.people import Language
from storage.records.prompt_versions import PromptKind, PromptRef, SignalKind
from storage.records.tasks import TaskId, TaskStatus
from tests.builders import NOW

WORKER, PLANNER = (PromptRef(PromptKind.BUILT_IN, each) for each in ("worker", "planner"))
REVIEWER = PromptRef(PromptKind.PERSONA, "reviewer")
SKILL = PromptRef(PromptKind.SKILL, "weekly-report")
WORKFLOW = PromptRef(PromptKind.WORKFLOW, "Weekly")


def a_task(number: int, *, retries: int = 0, skill: str = "", workflow: str = "") -> TaskFacts:
    attempts = [
        AttemptFacts(
            path="write",
            persona="reviewer",
            attempt=1 + at,
            seconds=1.0,
            error="It broke." if at < retries else "",
            skills=(skill,) if skill else (),
        )
        for at in range(1 + retries)
    ]
    return TaskFacts(
        task_id=TaskId(f"t{number}"),
        status=TaskStatus.COMPLETED,
        reason="",
        persona="",
        micros=1,
        attempts=attempts,
        created_at=NOW,
        workflow=workflow,
    )


@pytest.mark.parametrize(
    ("used", "texts"),
    [
        ([{}, {}, {}], [REVIEWER, WORKER, PLANNER]),
        ([{"skill": SKILL.name}] * 3, [SKILL, REVIEWER, WORKER, PLANNER]),
        ([{"skill": SKILL.name}] * 2 + [{}], [REVIEWER, WORKER, PLANNER]),
        ([{"workflow": WORKFLOW.name}] * 3, [WORKFLOW, REVIEWER, WORKER]),
        (
            [{"workflow": WORKFLOW.name, "skill": SKILL.name}] * 3,
            [WORKFLOW, SKILL, REVIEWER, WORKER],
        ),
        ([{"workflow": WORKFLOW.name}] * 2 + [{"workflow": "other"}], [REVIEWER, WORKER]),
    ],
)
def test_a_signal_names_what_three_of_its_tasks_used(
    used: list[dict[str, str]], texts: list[PromptRef]
) -> None:
    hits = [a_task(at, retries=4, **each) for at, each in enumerate(used)]

    signals = {
        each.kind: each for each in find_signals([*hits, *(a_task(9 + at) for at in range(4))])
    }

    assert signals[SignalKind.RETRIES].texts == texts
    assert signals[SignalKind.RETRIES].examples == ["It broke."] * 5


@pytest.mark.parametrize("language", Language)
def test_a_dead_end_concerns_workflows_only_and_quotes_the_reason(language: Language) -> None:
    reason = catalog_for(language)("workflow.dead_end", name="Enough")
    ended = [
        replace(a_task(at), status=TaskStatus.BLOCKED, reason=reason, workflow=WORKFLOW.name)
        for at in range(3)
    ]

    (found,) = find_signals(ended)

    assert (found.kind, found.texts) == (SignalKind.DEAD_END, [WORKFLOW])
    assert found.examples == [reason] * 3
    (without,) = find_signals([replace(each, workflow="") for each in ended])
    assert without.texts == []


def test_two_tasks_are_no_signal() -> None:
    assert find_signals([a_task(at, retries=4) for at in range(2)]) == []
