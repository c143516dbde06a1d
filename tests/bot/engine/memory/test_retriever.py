"""Tests retrieval: best first, no repeats, nothing expired, only what the reader may see."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.engine.memory.access import MemoryReader
from bot.engine.memory.change_feed import MemoryChangeFeed
from bot.engine.memory.retriever import (
    AssociationLinker,
    SpreadingActivation,
    find_link,
    find_strongest_links,
)
from storage.key_value import KeyValueStore
from storage.memory.entries import MemoryLink, MemoryLinkRepo
from storage.records.memory import (
    GLOBAL_SCOPE,
    MemoryKind,
    MemoryScope,
    MemoryScopeKind,
    MemoryState,
    MemoryTier,
)
from storage.search.inverted_index import SearchHit
from tests.bot.engine.memory.entry_builders import build_entry
from tests.bot.engine.memory.retrieval_builders import (
    GROUP_READER,
    GROUP_SCOPE,
    MY_SCOPE,
    PRIVATE_READER,
    RetrievalSetup,
    build_retrieval,
)


async def found(
    it: RetrievalSetup, query: str, reader: MemoryReader = PRIVATE_READER, limit: int = 10
) -> list[str]:
    return [each.entry.text for each in await it.retriever.search(reader, query, limit)]


async def test_what_fits_best_comes_first_in_both_languages(tmp_path: Path) -> None:
    async with build_retrieval(tmp_path) as it:
        await it.keep("The harbour closes at six in winter")
        await it.keep("The museum closes at five")
        await it.keep("老板对花生过敏")
        await it.keep("老板喜欢吃鱼")

        assert (await found(it, "When does the harbour close in winter?"))[0].startswith("The harb")
        assert (await found(it, "花生能吃吗"))[0] == "老板对花生过敏"


async def test_who_reads_decides_what_there_is(tmp_path: Path) -> None:
    async with build_retrieval(tmp_path) as it:
        project = MemoryScope(MemoryScopeKind.PROJECT, "/p")
        for scope in (
            MY_SCOPE,
            GROUP_SCOPE,
            GLOBAL_SCOPE,
            project,
            MemoryScope(MemoryScopeKind.SKILL, "s"),
        ):
            await it.keep(f"The anchor of {scope}", scope=scope)

        assert set(await found(it, "anchor")) == {
            f"The anchor of {MY_SCOPE}",
            "The anchor of global",
        }
        assert set(await found(it, "anchor", GROUP_READER)) == {
            f"The anchor of {GROUP_SCOPE}",
            "The anchor of global",
        }
        there = replace(GROUP_READER, project="/p", skill="s")
        assert len(await found(it, "anchor", there)) == 4
        assert await found(it, "anchor", MemoryReader()) == []
        assert await it.retriever.search_scopes((), "anchor", 5) == ()


async def test_old_facts_step_back_and_old_words_do_not(tmp_path: Path) -> None:
    async with build_retrieval(tmp_path) as it:
        long_ago = it.world.clock.time - timedelta(days=400)
        await it.keep("The pier is shut", said_at=long_ago, tier=MemoryTier.PERIPHERAL)
        await it.keep("The pier is open now", tier=MemoryTier.PERIPHERAL)
        cell = await it.keep("Pier", kind=MemoryKind.CELL, said_at=long_ago)

        ranked = await it.retriever.search(PRIVATE_READER, "pier", 5)
        parts = {each.entry.text: each.parts for each in ranked}

        assert parts["The pier is shut"]["age"] < 0.7
        assert parts["The pier is open now"]["age"] > 0.99
        assert "age" not in parts[cell.text]


async def test_nearly_the_same_comes_behind_all_else(tmp_path: Path) -> None:
    async with build_retrieval(tmp_path) as it:
        await it.keep("The shuttle to the island leaves at nine")
        await it.keep("The shuttle to the island leaves at nine.")
        await it.keep("A shuttle needs two drivers and some fuel")

        assert [each[:9] for each in await found(it, "shuttle island leaves nine")] == [
            "The shutt",
            "A shuttle",
            "The shutt",
        ]


async def test_only_what_is_true_now_is_found(tmp_path: Path) -> None:
    async with build_retrieval(tmp_path) as it:
        now = it.world.clock()
        await it.keep("The ferry is late", valid_until=now + timedelta(hours=1))
        await it.keep("The ferry is red", valid_until=now + timedelta(days=9))
        replaced = await it.keep("The ferry is blue")
        await it.change(replace(replaced, invalidated_at=now))
        for state in MemoryState:
            if state is not MemoryState.ACTIVE:
                await it.keep(f"The ferry is {state}", state=state)
        it.world.clock.advance(hours=2)

        assert await found(it, "ferry") == ["The ferry is red"]


async def test_an_index_that_is_wrong_shows_nobody_what_is_not_theirs(tmp_path: Path) -> None:
    async with build_retrieval(tmp_path) as it:
        secret = await it.keep("The anchor code is 4711")

        class Careless:
            async def search(self, *_: object, **__: object) -> Sequence[object]:
                return [SearchHit(number=secret.number, score=9.0)]

        it.retriever.index = Careless()  # type: ignore[assignment]  # it checks nothing

        assert await found(it, "anchor", GROUP_READER) == []
        assert len(await found(it, "anchor", PRIVATE_READER)) == 1


async def test_a_judge_that_says_nothing_changes_nothing(tmp_path: Path) -> None:
    class Silent:
        async def score(self, query: str, texts: Sequence[str]) -> Mapping[int, float]:
            return {}

    async with build_retrieval(tmp_path, reranker=Silent()) as it:
        await it.keep("The ferry is red")
        await it.keep("The red ferry is red and late")

        assert len(await found(it, "red ferry")) == 2


async def test_what_a_judge_did_not_see_stays_behind(tmp_path: Path) -> None:
    class Picky:
        async def score(self, query: str, texts: Sequence[str]) -> Mapping[int, float]:
            return {at: float("four" in text) for at, text in enumerate(texts)}

    async with build_retrieval(tmp_path, reranker=Picky()) as it:
        for number in ("one", "two", "three", "four"):
            await it.keep(f"Ferry number {number} is red")

        best = await it.retriever.search(PRIVATE_READER, "ferry red", 2)

        assert best[0].entry.text == "Ferry number four is red"


async def test_what_fits_far_less_than_the_best_can_be_left_out(tmp_path: Path) -> None:
    async with build_retrieval(tmp_path) as it:
        await it.keep("The green ferry to Hiddensee leaves at nine")
        await it.keep("Tomorrow the weather is nice at nine")

        query = "green ferry Hiddensee nine"
        assert len(await it.retriever.search(PRIVATE_READER, query, 5)) == 2
        assert len(await it.retriever.search(PRIVATE_READER, query, 5, min_share=0.5)) == 1
        assert await it.retriever.search(PRIVATE_READER, query, 0) == ()


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
