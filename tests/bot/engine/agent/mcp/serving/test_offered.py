"""What an agent outside finds and keeps: in its own scopes, as no person's word."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from bot.engine.agent.mcp.serving.hooks import MOST, Hook, told
from bot.engine.agent.mcp.serving.offered import HEAD, NOTHING_FITS, NOTHING_YET, memory_tools
from bot.engine.agent.mcp.serving.shelf import Narrowed, Shelf, Stores
from bot.engine.llm.base import ERROR
from bot.engine.memory.recall import Recall
from bot.engine.memory.scopes import Reader
from bot.engine.memory.telling.inject import Injection
from bot.engine.memory.writing.rights import By
from bot.engine.memory.writing.service import ByHand
from storage.memory.jobs import JobRepo
from storage.memory.words import terms
from storage.records.memory.entries import GLOBAL, MemoryKind, Origin, Scope, ScopeKind
from tests.bot.engine.memory.writing.world import MATES, MINE, Memory, mask, remembering
from tests.engine_world import BOSS, CHAT

HERE = Scope(ScopeKind.PROJECT, "/work/harbour")
ELSEWHERE = Scope(ScopeKind.PROJECT, "/work/lighthouse")
BY_BOSS = By(person=BOSS, reader=Reader(chat=CHAT, person=BOSS.id), besides=(HERE, ELSEWHERE))


@asynccontextmanager
async def shelved(
    home: Path, *scopes: Scope, zone: tzinfo = UTC
) -> AsyncGenerator[tuple[Shelf, Memory], None]:
    async with remembering(home) as memory:
        now = memory.world.clock
        recall = Recall(
            entries=memory.entries,
            index=memory.index,
            words=lambda query, _now: dict.fromkeys(terms(query), 1.0),
            now=now,
        )

        async def heard(_session: str, _turn: int) -> tuple[()]:
            return ()

        stores = Stores(
            db=memory.world.db,
            entries=memory.entries,
            cells=memory.cells,
            recall=recall,
            injection=Injection(entries=memory.entries, recall=recall, heard=heard, now=now),
            changed=memory.changed,
            jobs=JobRepo(memory.world.db),
            mask=mask,
            now=now,
            zone=zone,
        )
        only = scopes or (HERE, GLOBAL)
        yield Shelf(stores, Narrowed(chat=CHAT, person=BOSS.id, only=only)), memory


async def use(shelf: Shelf, name: str, **arguments: Any) -> str:
    tool = next(each for each in memory_tools(shelf) if each.name == name)
    return await tool.run(arguments)


async def by_hand(memory: Memory, text: str, scope: Scope) -> str:
    made = await memory.writer.add(ByHand(text=text, scope=scope), BY_BOSS)
    return made.id


async def test_what_is_kept_is_found_with_its_score_and_is_no_persons_word(
    tmp_path: Path,
) -> None:
    async with shelved(tmp_path) as (shelf, memory):
        empty = await use(shelf, "recall_memory", query="crane")
        kept = await use(
            shelf, "store_memory", content="The crane is red", category="decision", importance=9
        )
        again = await use(shelf, "store_memory", content="The crane is red")
        found = await use(shelf, "recall_memory", query="crane red")
        entries = await memory.entries.list([HERE], limit=10)

    assert empty == NOTHING_YET
    assert kept == again
    assert found.startswith(HEAD)
    assert "[cases|working] (" in found
    assert "importance 9" in found
    (entry,) = entries
    assert (entry.origin, entry.kind, entry.importance) == (Origin.IMPORT, MemoryKind.FACT, 0.9)


async def test_only_its_own_scopes_are_seen_by_any_way(tmp_path: Path) -> None:
    async with shelved(tmp_path) as (shelf, memory):
        mine = await by_hand(memory, "The crane of my garden is a bird", MINE)
        theirs = await by_hand(memory, "The crane of the lighthouse is blue", ELSEWHERE)

        found = await use(shelf, "recall_memory", query="crane")
        named = await use(shelf, "recall_memory", query="crane", scope=str(MINE))
        got = [await use(shelf, "get_memory", id=f"memory:{each}") for each in (mine, theirs)]
        stands = await use(shelf, "load_context")
        hooked = [await told(hook, shelf, "crane") for hook in Hook]

    assert found == NOTHING_YET
    assert named == f"{ERROR}scope is one of {HERE}, global, not '{MINE}'"
    assert all(each.startswith(ERROR) for each in got)
    assert "crane" not in stands
    assert not any("crane" in each for each in hooked)


async def test_what_is_served_is_named_to_the_model_and_may_be_named_by_its_kind(
    tmp_path: Path,
) -> None:
    async with shelved(tmp_path, HERE, MINE, GLOBAL) as (shelf, _):
        kept = [
            await use(shelf, "store_memory", content=f"Cranes are {scope}", scope=scope)
            for scope in ("", "me", "project", str(MINE))
        ]
        found = await use(shelf, "recall_memory", query="cranes", scope="project")
        looks, *_rest, stores = (
            tool.schema["properties"]["scope"]["description"]
            for tool in memory_tools(shelf)
            if "scope" in tool.schema["properties"]
        )

    assert [each.rpartition(" ")[2] for each in kept] == [f"{HERE}.", f"{MINE}."] * 2
    assert str(MINE) not in found
    assert looks == f"One of {HERE}, {MINE}, global. Leave it out for all of them."
    assert stores == f"One of {HERE}, {MINE}. Leave it out for the first."


@pytest.mark.parametrize("scope", [GLOBAL, MATES, MINE, ELSEWHERE])
async def test_nothing_is_written_elsewhere(tmp_path: Path, scope: Scope) -> None:
    async with shelved(tmp_path) as (shelf, memory):
        stored = await use(shelf, "store_memory", content="Cranes lie", scope=str(scope))
        logged = await use(shelf, "log_session", summary="Cranes lie", scope=str(scope))
        read = await use(shelf, "extract_memories", conversation="Cranes lie", scope=str(scope))

        assert all(each.startswith(ERROR) for each in (stored, logged, read))
        assert await memory.entries.list(None, limit=10) == []


async def test_who_may_write_nowhere_is_offered_nothing_that_writes(tmp_path: Path) -> None:
    async with shelved(tmp_path, GLOBAL) as (shelf, _):
        assert {each.name for each in memory_tools(shelf)} == {
            "recall_memory",
            "get_memory",
            "load_context",
        }


async def test_what_was_forgotten_does_not_come_back_by_an_agent(tmp_path: Path) -> None:
    async with shelved(tmp_path) as (shelf, memory):
        await by_hand(memory, "The crane is broken", HERE)
        (entry,) = await memory.entries.list([HERE], limit=10)
        await memory.writer.forget(entry, BY_BOSS)

        stored = await use(shelf, "store_memory", content="The crane is broken")

        assert stored.startswith("Not kept")
        assert await memory.entries.list([HERE], limit=10) == []


async def test_what_a_person_wrote_stays_theirs_when_an_agent_says_the_same(
    tmp_path: Path,
) -> None:
    async with shelved(tmp_path) as (shelf, memory):
        await by_hand(memory, "The crane is green", HERE)
        await use(shelf, "store_memory", content="The crane is green", importance=1)

        entries = await memory.entries.list([HERE], limit=10)
        assert [each.origin for each in entries if each.kind is MemoryKind.LONGTERM] == [
            Origin.MANUAL
        ]


async def test_secrets_are_taken_out_and_nothing_empty_is_kept(tmp_path: Path) -> None:
    async with shelved(tmp_path) as (shelf, memory):
        await use(shelf, "store_memory", content="The key is hunter2\0", tags=["of hunter2"])
        blank = await use(shelf, "store_memory", content=" \n ")
        (entry,) = await memory.entries.list([HERE], limit=10)

    assert (entry.text, list(entry.keywords)) == ("The key is ••••", ["of ••••"])
    assert blank.startswith("Not kept")


async def test_a_session_is_logged_as_what_happened(tmp_path: Path) -> None:
    async with shelved(tmp_path) as (shelf, memory):
        await use(shelf, "log_session", summary="Moved the crane; paint is left.", title="Cranes")
        (entry,) = await memory.entries.list([HERE], limit=10)

    assert entry.kind is MemoryKind.EPISODE
    assert entry.text == "Cranes\nMoved the crane; paint is left."


async def test_a_conversation_waits_once_for_facts_to_be_drawn(tmp_path: Path) -> None:
    async with shelved(tmp_path) as (shelf, memory):
        first = await use(shelf, "extract_memories", conversation="User: the crane is ours.")
        second = await use(shelf, "extract_memories", conversation="User: the crane is ours.")
        job = await JobRepo(memory.world.db).next()
        entries = await memory.entries.list([HERE], limit=10)

    assert first == second
    assert job is not None
    assert [each.kind for each in entries] == [MemoryKind.CELL]


async def test_it_is_chosen_by_category_tier_and_importance(tmp_path: Path) -> None:
    async with shelved(tmp_path) as (shelf, _):
        await use(shelf, "store_memory", content="Cranes: oil them", category="pitfall")
        await use(shelf, "store_memory", content="Cranes: paint them", importance=8)

        pitfalls = await use(shelf, "recall_memory", query="cranes", category="debugging")
        weighty = await use(shelf, "recall_memory", query="cranes", min_importance=7)
        core = await use(shelf, "recall_memory", query="cranes", tier="core")

    assert "oil" in pitfalls
    assert "paint" not in pitfalls
    assert "paint" in weighty
    assert "oil" not in weighty
    assert core == NOTHING_FITS


async def test_a_hook_is_short_and_says_nothing_of_what_does_not_fit(tmp_path: Path) -> None:
    async with shelved(tmp_path) as (shelf, _):
        for n in range(9):
            await use(shelf, "store_memory", content=f"Crane number {n} " + f"w{n} " * 900)

        hooked = await told(Hook.USER_PROMPT, shelf, "which crane?")
        short = await told(Hook.USER_PROMPT, shelf, " c ")
        strange = await told(Hook.USER_PROMPT, shelf, "entirely unrelated")

    assert len(hooked.splitlines()) == 6
    assert all(len(line) < 400 for line in hooked.splitlines())
    assert len(hooked) <= MOST
    assert short == strange == ""


async def test_days_are_told_where_the_boss_lives(tmp_path: Path) -> None:
    async with shelved(tmp_path, zone=ZoneInfo("Asia/Shanghai")) as (shelf, memory):
        memory.world.clock.time = datetime(2026, 5, 4, 22, 0, tzinfo=UTC)
        kept = await use(shelf, "store_memory", content="The crane is red")
        found = await use(shelf, "recall_memory", query="crane red")
        read = await use(shelf, "get_memory", id=kept.split()[2])

    assert "2026-05-05" in found
    assert "2026-05-05" in read
