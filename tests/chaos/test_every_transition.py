"""kill -9 of the real program at every state transition there is. Here each is died at once, on
one channel; `python -m benchmarks chaos` dies before and after each of them on all three."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import cycle, product
from pathlib import Path
from typing import Any

import pytest

from storage.records.approvals import ApprovalState, ToolCallState
from storage.records.memory import ExtractionJobState, MemoryState
from storage.records.tasks import NodeStatus, SubagentStatus, TaskControl, TaskStatus
from tests.chaos.channels import CHANNEL_NAMES, ChannelName
from tests.chaos.crash_sweep import CrashSweep
from tests.chaos.memory import transitions as of_memory
from tests.chaos.stories import STORIES
from tests.chaos.story import CrashStory
from tests.chaos.story_run import run_story, started_home
from tests.chaos.transitions import (
    ALL_TRANSITIONS,
    APPROVAL,
    CALL,
    CONTROL,
    FORBIDDEN,
    HELPER,
    MANUAL,
    NODE,
    TASK,
    transition_names,
)
from tests.thoroughness import THOROUGH, thorough_only

_NOUNS: Mapping[str, tuple[type[StrEnum], Mapping[Any, Sequence[Any]]]] = {
    "task": (TaskStatus, TASK),
    "node": (NodeStatus, NODE),
    "control": (TaskControl, CONTROL),
    "approval": (ApprovalState, APPROVAL),
    "call": (ToolCallState, CALL),
    "helper": (SubagentStatus, HELPER),
    "memory": (MemoryState, of_memory.ENTRY),
    "job": (ExtractionJobState, of_memory.JOB),
}

# The stories that the gate lives through; all of them with SHIFTBOSS_THOROUGH=1.
_SHORT = {"two tasks"}


def test_every_transition_is_covered_by_a_story() -> None:
    told = Counter(move for story in STORIES for move in story.transitions)

    assert told.keys() ^ set(ALL_TRANSITIONS) == of_memory.IN_PROCESS
    assert [move for move, times in told.items() if times > 1] == []


@pytest.mark.parametrize("noun", _NOUNS)
def test_every_pair_of_states_is_covered_or_forbidden(noun: str) -> None:
    states, known = _NOUNS[noun]
    pairs = {f"{noun}.{old}>{new}" for old, new in product(states, repeat=2) if old != new}

    assert set(known) == set(states), "a state nobody has thought about"
    by_hand = set(transition_names("task", MANUAL))
    assert pairs - by_hand == set(transition_names(noun, known)) | (pairs & FORBIDDEN)
    assert not set(ALL_TRANSITIONS) & FORBIDDEN


_HERE = [
    (story, name)
    for story, name in zip(STORIES, cycle(CHANNEL_NAMES), strict=False)
    if THOROUGH or story.name in _SHORT
]


@pytest.mark.parametrize(("story", "name"), _HERE, ids=[story.name for story, _ in _HERE])
async def test_a_crash_at_any_transition_loses_and_repeats_nothing(
    tmp_path: Path, story: CrashStory, name: ChannelName
) -> None:
    sweep = CrashSweep(folder=tmp_path, template=await started_home(tmp_path / "template", name))
    told = await sweep.crash_at_transitions(story, name, "before")

    assert [(each.died, each.violations) for each in told if each.violations] == []
    assert {move for each in told for move in moves_of(each.died)} == set(
        story.crash_points_on(name)
    )


async def test_worker_actions_and_results_happen_once_across_crashes(tmp_path: Path) -> None:
    """A command that has run and a helper's report: each dies on its way."""
    story = next(each for each in STORIES if each.name == "effects")
    deadly = ("call.running>done", "report.awaited>told")
    points = [f"{move}:before:1" for move in deadly]
    told = await run_story(tmp_path / "home", story, "telegram", points)

    assert told.violations == []
    assert set(told.died) == set(points)


async def test_running_branches_continue_after_a_crash(tmp_path: Path) -> None:
    """Two items of a foreach run, and a step beside them is left out, when it dies."""
    story = next(each for each in STORIES if each.name == "a graph")
    point = "node.running>skipped:before:1"
    told = await run_story(tmp_path / "home", story, "telegram", [point])

    assert told.violations == []
    assert told.died == [point]


async def test_a_first_start_killed_during_migration_is_repeated(
    tmp_path: Path,
) -> None:
    points = ("statement:before:20", "statement:before:30")
    told = await run_story(tmp_path / "home", STORIES[0], "web", points, in_order=True)

    assert told.violations == []
    assert told.died == list(points)


@thorough_only
async def test_a_crash_during_recovery_is_survived(tmp_path: Path) -> None:
    """Each of these is a death on the way back from another one, or around a platform's call."""
    points = (
        "checkpoint.StepEnded:after:2",
        "recovery.recover:before:1",
        "outbox.mark_shown:before:3",
    )
    calls = ("sendMessage:after:1", "sendDocument:before:2")
    told = await asyncio.gather(
        run_story(tmp_path / "steps", STORIES[0], "telegram", points, in_order=True),
        run_story(tmp_path / "calls", STORIES[0], "telegram", calls),
    )

    assert [each.violations for each in told] == [[], []]
    assert [len(each.died) for each in told] == [len(points), len(calls)]


def moves_of(points: list[str]) -> set[str]:
    return {point.rsplit(":", 2)[0] for point in points}
