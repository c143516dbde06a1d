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

from storage.records.approvals import ApprovalState
from storage.records.helping import HelperStatus
from storage.records.memory.entries import EntryState
from storage.records.memory.jobs import JobState
from storage.records.tasks import Control, NodeStatus, TaskStatus
from storage.records.tools import CallState
from tests.chaos import moves
from tests.chaos.boss import Story
from tests.chaos.fronts import NAMES, Name
from tests.chaos.memory import moves as of_memory
from tests.chaos.stories import STORIES
from tests.chaos.sweep import Sweep
from tests.chaos.telling import fresh_home, tell
from tests.thorough import THOROUGH, long

_NOUNS: Mapping[str, tuple[type[StrEnum], Mapping[Any, Sequence[Any]]]] = {
    "task": (TaskStatus, moves.TASK),
    "node": (NodeStatus, moves.NODE),
    "control": (Control, moves.CONTROL),
    "approval": (ApprovalState, moves.APPROVAL),
    "call": (CallState, moves.CALL),
    "helper": (HelperStatus, moves.HELPER),
    "memory": (EntryState, of_memory.ENTRY),
    "job": (JobState, of_memory.JOB),
}

# The stories that the gate lives through; all of them with SHIFTBOSS_THOROUGH=1.
_SHORT = {"two tasks"}


def test_every_transition_there_is_has_a_story() -> None:
    told = Counter(move for story in STORIES for move in story.moves)

    assert told.keys() ^ set(moves.ALL) == of_memory.IN_PROCESS
    assert [move for move, times in told.items() if times > 1] == []


@pytest.mark.parametrize("noun", _NOUNS)
def test_every_pair_of_states_is_either_told_or_forbidden(noun: str) -> None:
    states, known = _NOUNS[noun]
    pairs = {f"{noun}.{old}>{new}" for old, new in product(states, repeat=2) if old != new}

    assert set(known) == set(states), "a state nobody has thought about"
    by_hand = set(moves.names("task", moves.BY_HAND))
    assert pairs - by_hand == set(moves.names(noun, known)) | (pairs & moves.FORBIDDEN)
    assert not set(moves.ALL) & moves.FORBIDDEN


_HERE = [
    (story, name)
    for story, name in zip(STORIES, cycle(NAMES), strict=False)
    if THOROUGH or story.name in _SHORT
]


@pytest.mark.parametrize(("story", "name"), _HERE, ids=[story.name for story, _ in _HERE])
async def test_died_at_every_transition_nothing_is_lost_or_done_twice(
    tmp_path: Path, story: Story, name: Name
) -> None:
    sweep = Sweep(folder=tmp_path, template=await fresh_home(tmp_path / "template", name))
    told = await sweep.chain(story, name, "before")

    assert [(each.died, each.wrong) for each in told if each.wrong] == []
    assert {move for each in told for move in moves_of(each.died)} == set(story.deaths_on(name))


# Three lives of a program that also loads the model libraries: slow where much else runs.
@pytest.mark.timeout(400)
async def test_what_workers_do_and_bring_happens_once_over_deaths(tmp_path: Path) -> None:
    """A command that has run and a helper's report: each dies on its way."""
    story = next(each for each in STORIES if each.name == "effects")
    deadly = ("call.running>done", "report.awaited>told")
    points = [f"{move}:before:1" for move in deadly]
    told = await tell(tmp_path / "home", story, "telegram", points)

    assert told.wrong == []
    assert set(told.died) == set(points)


async def test_branches_that_were_under_way_go_on_after_a_death(tmp_path: Path) -> None:
    """Two items of a foreach run, and a step beside them is left out, when it dies."""
    story = next(each for each in STORIES if each.name == "a graph")
    point = "node.running>skipped:before:1"
    told = await tell(tmp_path / "home", story, "telegram", [point])

    assert told.wrong == []
    assert told.died == [point]


async def test_a_first_start_killed_in_the_middle_of_making_the_tables_is_made_again(
    tmp_path: Path,
) -> None:
    points = ("statement:before:20", "statement:before:30")
    told = await tell(tmp_path / "home", STORIES[0], "web", points, in_order=True)

    assert told.wrong == []
    assert told.died == list(points)


@long
async def test_a_death_while_taking_up_what_a_death_left_is_survived(tmp_path: Path) -> None:
    """Each of these is a death on the way back from another one, or around a platform's call."""
    points = ("boundary.settle:after:2", "recovery.recover:before:1", "outbox.shown:before:3")
    calls = ("sendMessage:after:1", "sendDocument:before:2")
    told = await asyncio.gather(
        tell(tmp_path / "steps", STORIES[0], "telegram", points, in_order=True),
        tell(tmp_path / "calls", STORIES[0], "telegram", calls),
    )

    assert [each.wrong for each in told] == [[], []]
    assert [len(each.died) for each in told] == [len(points), len(calls)]


def moves_of(points: list[str]) -> set[str]:
    return {point.rsplit(":", 2)[0] for point in points}
