"""Many tellings of one story: in each the program dies at a few of the points left to die at."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias

from tests.chaos.channels import ChannelName
from tests.chaos.inspection import witness_file
from tests.chaos.story import CrashStory, clock_file
from tests.chaos.story_run import StoryResult, run_story

When: TypeAlias = Literal["before", "after"]
WHENS: Sequence[When] = ("before", "after")
# A transition that depends on who is quicker may be missed: it is waited for by itself then.
_TRIES = 6
# The moments of a story fall differently each time: a few more than the first telling had.
_MARGIN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashSweep:
    """Homes are made in `folder` from the `template`, and deleted when nothing was broken."""

    folder: Path
    template: Path
    _numbers: ClassVar[Iterator[int]] = count(1)

    async def crash_at_transitions(
        self, story: CrashStory, name: ChannelName, when: When
    ) -> list[StoryResult]:
        """Die at each transition of the story, as many in one telling as come to pass, until
        each had its death."""
        return await self._all_of(
            story, name, [f"{m}:{when}:1" for m in story.crash_points_on(name)]
        )

    async def crash_at_places(
        self, story: CrashStory, name: ChannelName, when: When, calm: StoryResult
    ) -> list[StoryResult]:
        """The same at each place of the program that commits or calls in that calm telling."""
        return await self._all_of(
            story, name, [f"{place}:{when}:1" for place in commit_and_call_places(calm)]
        )

    async def _all_of(
        self, story: CrashStory, name: ChannelName, points: Sequence[str]
    ) -> list[StoryResult]:
        told: list[StoryResult] = []
        left = points
        while left and len(told) < _TRIES:
            told.append(await self.run_once(story, name, left))
            left = [point for point in left if point not in told[-1].died]
        return told

    async def run_once(
        self, story: CrashStory, name: ChannelName, points: Sequence[str]
    ) -> StoryResult:
        home = self.folder / f"home{next(self._numbers)}"
        told = await run_story(home, story, name, points, template=self.template)
        if not told.violations:
            shutil.rmtree(home)
            witness_file(home).unlink()
            clock_file(home).unlink(missing_ok=True)
        return told


def commit_and_call_places(calm: StoryResult) -> Sequence[str]:
    """Whoever commits, whatever is called, and each step of exchanging files, by name."""
    found = (
        line.split(" ", 2) for line in calm.points if line.startswith(("commit ", "call ", "file "))
    )
    return [*dict.fromkeys(label for _, _, label in found)]


def all_moments(calm: StoryResult) -> Iterator[str]:
    """Every commit and every call of a platform that a telling without a death came by."""
    for kind in ("commit", "call", "file"):
        passed = sum(line.startswith(f"{kind} ") for line in calm.points)
        for number in range(1, passed + _MARGIN + 1):
            yield from (f"{kind}:{when}:{number}" for when in WHENS)
