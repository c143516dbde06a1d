"""One memory leads to another, and never to one that its reader may not see."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.engine.memory.changed import Changed
from bot.engine.memory.links import Spreading, Tying, tie, ties
from storage.marks import Marks
from storage.memory.living.links import Link, LinkRepo
from storage.records.memory.entries import MemoryKind
from tests.bot.engine.memory.mind import ALONE, OURS, Mind, mind
from tests.bot.engine.memory.samples import entry


class Links(LinkRepo):
    """A few that are known beforehand."""

    def __init__(self, *links: tuple[int, int, float]) -> None:
        self._links = [Link(one=a, other=b, kind="x", weight=w) for a, b, w in links]

    async def of(self, numbers: Any) -> list[Link]:
        return [each for each in self._links if each.one in numbers or each.other in numbers]


@pytest.mark.parametrize(
    ("one", "other", "kind", "weight"),
    [
        ({"keywords": ("a", "B")}, {"keywords": ("b", "a", "c")}, "keywords", 2 / 3),
        ({"keywords": ("a",)}, {"keywords": ("a", "b", "c", "d")}, None, 0),
        ({"task": "t1"}, {"task": "t1"}, "task", 0.5),
        ({"task": "t1", "keywords": ("a",)}, {"task": "t1", "keywords": ("a",)}, "keywords", 1.0),
        ({}, {"hours": 42}, "day", 0.3 * 0.75),
        ({}, {"hours": 58}, None, 0),
    ],
)
def test_entries_are_tied_by_what_they_share(
    one: dict[str, Any], other: dict[str, Any], kind: str | None, weight: float
) -> None:
    link = tie(entry(number=1, hours=36, **one), entry(number=2, **{"hours": 900} | other))

    assert (None if link is None else link.kind) == kind
    assert link is None or link.weight == pytest.approx(weight)


def test_nothing_is_tied_to_itself_and_to_few_only() -> None:
    same = entry(number=1, task="t")
    many = [entry(number=n, task="t") for n in range(1, 30)]

    assert len(ties(same, many)) == 8
    assert tie(same, same) is None


async def test_waking_spreads_by_half_with_each_step_two_steps_far() -> None:
    links = Links((1, 2, 1.0), (3, 2, 0.8), (3, 4, 1.0), (1, 5, 0.01))

    woken = await Spreading(links).spread({1: 1.0})

    assert woken == pytest.approx({2: 0.5, 3: 0.2})


async def test_waking_goes_no_way_twice() -> None:
    links = Links((1, 2, 1.0), (2, 1, 1.0), (2, 2, 1.0))

    assert await Spreading(links).spread({1: 1.0}) == {2: 0.5}


async def tied(it: Mind) -> Tying:
    tying = Tying(
        db=it.world.db,
        repo=LinkRepo(it.world.db),
        marks=Marks(it.world.db),
        changed=Changed(),
        sleep=asyncio.sleep,
    )
    while await tying.tie_some():
        pass
    return tying


async def test_what_belongs_to_it_fills_the_room_that_is_left(tmp_path: Path) -> None:
    async with mind(tmp_path) as it:
        it.recall._associations = Spreading(LinkRepo(it.world.db))
        await it.keep("The shuttle leaves at nine", keywords=("shuttle", "island"))
        await it.keep("Tickets are sold at the pier", keywords=("shuttle", "island"))
        await it.keep("Lunch is at noon", keywords=("food",), said_at=it.world.clock.time)
        it.world.clock.pass_by(days=9)
        await it.keep("The team likes the shuttle", scope=OURS, keywords=("shuttle", "island"))
        await tied(it)

        both = await it.recall.search(ALONE, "leaves at nine", 2)
        one = await it.recall.search(ALONE, "leaves at nine", 1)

        assert [each.entry.text for each in both] == [
            "The shuttle leaves at nine",
            "Tickets are sold at the pier",
        ]
        assert "link" in both[1].parts
        assert both[1].score < both[0].score
        assert len(one) == 1


async def test_each_is_tied_once_also_after_a_restart(tmp_path: Path) -> None:
    async with mind(tmp_path) as it:
        for n in range(120):
            at = it.world.clock.time - timedelta(days=2 * n)
            await it.keep(f"Fact {n}", said_at=at, keywords=(f"k{n // 2}",))
        await it.keep("said", kind=MemoryKind.CELL)

        tying = await tied(it)

        assert await tying.tie_some() == 0
        links = await LinkRepo(it.world.db).of(range(200))
        assert len(links) == 60
