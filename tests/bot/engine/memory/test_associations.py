"""One memory leads to another, and never to one that its reader may not see."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.engine.memory.associations import (
    AssociationLinker,
    SpreadingActivation,
    find_link,
    find_strongest_links,
)
from bot.engine.memory.change_feed import MemoryChangeFeed
from storage.key_value import KeyValueStore
from storage.memory.entries import MemoryLink, MemoryLinkRepo
from storage.records.memory import MemoryKind
from tests.bot.engine.memory.entry_builders import build_entry
from tests.bot.engine.memory.retrieval_builders import (
    GROUP_SCOPE,
    PRIVATE_READER,
    RetrievalSetup,
    build_retrieval,
)


class InMemoryLinkRepo(MemoryLinkRepo):
    """A few that are known beforehand."""

    def __init__(self, *links: tuple[int, int, float]) -> None:
        self._links = [MemoryLink(one=a, other=b, kind="x", weight=w) for a, b, w in links]

    async def list_touching(self, numbers: Any) -> list[MemoryLink]:
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
    link = find_link(
        build_entry(number=1, hours=36, **one), build_entry(number=2, **{"hours": 900} | other)
    )

    assert (None if link is None else link.kind) == kind
    assert link is None or link.weight == pytest.approx(weight)


def test_nothing_is_tied_to_itself_and_to_few_only() -> None:
    same = build_entry(number=1, task="t")
    many = [build_entry(number=n, task="t") for n in range(1, 30)]

    assert len(find_strongest_links(same, many)) == 8
    assert find_link(same, same) is None


async def test_waking_spreads_by_half_with_each_step_two_steps_far() -> None:
    links = InMemoryLinkRepo((1, 2, 1.0), (3, 2, 0.8), (3, 4, 1.0), (1, 5, 0.01))

    woken = await SpreadingActivation(links).spread({1: 1.0})

    assert woken == pytest.approx({2: 0.5, 3: 0.2})


async def test_waking_goes_no_way_twice() -> None:
    links = InMemoryLinkRepo((1, 2, 1.0), (2, 1, 1.0), (2, 2, 1.0))

    assert await SpreadingActivation(links).spread({1: 1.0}) == {2: 0.5}


async def build_linker(it: RetrievalSetup) -> AssociationLinker:
    tying = AssociationLinker(
        db=it.world.db,
        repo=MemoryLinkRepo(it.world.db),
        key_values=KeyValueStore(it.world.db),
        feed=MemoryChangeFeed(),
        sleep=asyncio.sleep,
    )
    while await tying.link_next_batch():
        pass
    return tying


async def test_what_belongs_to_it_fills_the_room_that_is_left(tmp_path: Path) -> None:
    async with build_retrieval(tmp_path) as it:
        it.retriever.associations = SpreadingActivation(MemoryLinkRepo(it.world.db))
        await it.keep("The shuttle leaves at nine", keywords=("shuttle", "island"))
        await it.keep("Tickets are sold at the pier", keywords=("shuttle", "island"))
        await it.keep("Lunch is at noon", keywords=("food",), said_at=it.world.clock.time)
        it.world.clock.advance(days=9)
        await it.keep(
            "The team likes the shuttle", scope=GROUP_SCOPE, keywords=("shuttle", "island")
        )
        await build_linker(it)

        both = await it.retriever.search(PRIVATE_READER, "leaves at nine", 2)
        one = await it.retriever.search(PRIVATE_READER, "leaves at nine", 1)

        assert [each.entry.text for each in both] == [
            "The shuttle leaves at nine",
            "Tickets are sold at the pier",
        ]
        assert "link" in both[1].parts
        assert both[1].score < both[0].score
        assert len(one) == 1


async def test_each_is_tied_once_also_after_a_restart(tmp_path: Path) -> None:
    async with build_retrieval(tmp_path) as it:
        for n in range(120):
            at = it.world.clock.time - timedelta(days=2 * n)
            await it.keep(f"Fact {n}", said_at=at, keywords=(f"k{n // 2}",))
        await it.keep("said", kind=MemoryKind.CELL)

        tying = await build_linker(it)

        assert await tying.link_next_batch() == 0
        links = await MemoryLinkRepo(it.world.db).list_touching(range(200))
        assert len(links) == 60
