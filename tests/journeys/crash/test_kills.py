"""kill -9 at chosen moments of the real program. `python -m benchmarks kills` tries them all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from tests.journeys.crash.story import Told, fresh_home, tell

_AT_ONCE = 2

_DEATHS = (
    ("intake._store:after:1",),
    ("boundary.adopt_plan:before:1",),
    ("boundary.settle:before:2",),
    ("boundary.settle:after:2", "recovery.recover:before:1"),
    ("sendMessage:after:1",),
    ("sendDocument:before:2",),
    ("outbox.shown:before:3",),
    ("answering._settle:before:2",),
)


async def test_after_any_death_everything_is_done_once_and_said_once(tmp_path: Path) -> None:
    template = await fresh_home(tmp_path / "template")
    told = await _tell_all(tmp_path, template, _DEATHS)

    assert [(each.point, each.wrong) for each in told if each.wrong] == []
    assert [each.deaths for each in told] == [len(points) for points in _DEATHS]


async def test_a_first_start_killed_in_the_middle_of_making_the_tables_is_made_again(
    tmp_path: Path,
) -> None:
    told = await tell(tmp_path / "home", ("statement:before:20", "statement:before:30"))

    assert told.wrong == []
    assert told.deaths == 2


async def _tell_all(base: Path, template: Path, deaths: Sequence[Sequence[str]]) -> Sequence[Told]:
    turn = asyncio.Semaphore(_AT_ONCE)

    async def one(n: int, points: Sequence[str]) -> Told:
        async with turn:
            return await tell(base / f"home{n}", points, template=template)

    return await asyncio.gather(*(one(n, points) for n, points in enumerate(deaths)))
