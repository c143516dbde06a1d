"""External agents find and store memories in their own scopes, never as a person's statement."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from bot.engine.llm.tool_calls import ERROR_PREFIX
from bot.engine.mcp.server.hook_context import (
    MAX_CONTEXT_CHARS,
    RESULTS_HEADER,
    CliHook,
    hook_context,
)
from bot.engine.mcp.server.memory_access import McpMemoryAccess, McpMemoryDeps, ScopedReader
from bot.engine.mcp.server.memory_server import NOTHING_FITS, NOTHING_YET, memory_tools
from bot.engine.memory.access import ManualMemory, MemoryEditor, MemoryReader
from bot.engine.memory.context_builder import MemoryContextBuilder
from bot.engine.memory.retriever import MemoryRetriever
from storage.memory.cells import ExtractionJobRepo
from storage.records.memory import (
    GLOBAL_SCOPE,
    MemoryKind,
    MemoryOrigin,
    MemoryScope,
    MemoryScopeKind,
)
from storage.search.terms import tokenize
from tests.bot.engine.memory.writing_builders import (
    MATE_SCOPE,
    MY_SCOPE,
    WritingSetup,
    build_writing,
    redact,
)
from tests.engine_harness import BOSS, CHAT

HERE = MemoryScope(MemoryScopeKind.PROJECT, "/work/harbour")
ELSEWHERE = MemoryScope(MemoryScopeKind.PROJECT, "/work/lighthouse")
BY_BOSS = MemoryEditor(
    person=BOSS, reader=MemoryReader(chat=CHAT, person=BOSS.id), extra_scopes=(HERE, ELSEWHERE)
)


@asynccontextmanager
async def shelved(
    home: Path, *scopes: MemoryScope, zone: tzinfo = UTC
) -> AsyncGenerator[tuple[McpMemoryAccess, WritingSetup], None]:
    async with build_writing(home) as memory:
        now = memory.world.clock
        recall = MemoryRetriever(
            entries=memory.entries,
            index=memory.index,
            extract_terms=lambda query, _now: dict.fromkeys(tokenize(query), 1.0),
            now=now,
        )

        async def heard(_session: str, _turn: int) -> tuple[()]:
            return ()

        stores = McpMemoryDeps(
            db=memory.world.db,
            entries=memory.entries,
            cells=memory.cells,
            recall=recall,
            injection=MemoryContextBuilder(
                entries=memory.entries, retriever=recall, list_injected=heard, now=now
            ),
            changed=memory.feed,
            jobs=ExtractionJobRepo(memory.world.db),
            mask=redact,
            now=now,
            zone=zone,
        )
        only = scopes or (HERE, GLOBAL_SCOPE)
        yield (
            McpMemoryAccess(stores, ScopedReader(chat=CHAT, person=BOSS.id, allowed_scopes=only)),
            memory,
        )


async def use(shelf: McpMemoryAccess, name: str, **arguments: Any) -> str:
    tool = next(each for each in memory_tools(shelf) if each.name == name)
    return await tool.run(arguments)


async def by_hand(memory: WritingSetup, text: str, scope: MemoryScope) -> str:
    made = await memory.writer.add(ManualMemory(text=text, scope=scope), BY_BOSS)
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
    assert found.startswith(RESULTS_HEADER)
    assert "[cases|working] (" in found
    assert "importance 9" in found
    (entry,) = entries
    assert (entry.origin, entry.kind, entry.importance) == (
        MemoryOrigin.IMPORT,
        MemoryKind.FACT,
        0.9,
    )


async def test_only_its_own_scopes_are_seen_by_any_way(tmp_path: Path) -> None:
    async with shelved(tmp_path) as (shelf, memory):
        mine = await by_hand(memory, "The crane of my garden is a bird", MY_SCOPE)
        theirs = await by_hand(memory, "The crane of the lighthouse is blue", ELSEWHERE)

        found = await use(shelf, "recall_memory", query="crane")
        named = await use(shelf, "recall_memory", query="crane", scope=str(MY_SCOPE))
        got = [await use(shelf, "get_memory", id=f"memory:{each}") for each in (mine, theirs)]
        stands = await use(shelf, "load_context")
        hooked = [await hook_context(hook, shelf, "crane") for hook in CliHook]

    assert found == NOTHING_YET
    assert named == f"{ERROR_PREFIX}scope is one of {HERE}, global, not '{MY_SCOPE}'"
    assert all(each.startswith(ERROR_PREFIX) for each in got)
    assert "crane" not in stands
    assert not any("crane" in each for each in hooked)


async def test_what_is_served_is_named_to_the_model_and_may_be_named_by_its_kind(
    tmp_path: Path,
) -> None:
    async with shelved(tmp_path, HERE, MY_SCOPE, GLOBAL_SCOPE) as (shelf, _):
        kept = [
            await use(shelf, "store_memory", content=f"Cranes are {scope}", scope=scope)
            for scope in ("", "me", "project", str(MY_SCOPE))
        ]
        found = await use(shelf, "recall_memory", query="cranes", scope="project")
        looks, *_rest, stores = (
            tool.schema["properties"]["scope"]["description"]
            for tool in memory_tools(shelf)
            if "scope" in tool.schema["properties"]
        )

    assert [each.rpartition(" ")[2] for each in kept] == [f"{HERE}.", f"{MY_SCOPE}."] * 2
    assert str(MY_SCOPE) not in found
    assert looks == f"One of {HERE}, {MY_SCOPE}, global. Leave it out for all of them."
    assert stores == f"One of {HERE}, {MY_SCOPE}. Leave it out for the first."


@pytest.mark.parametrize("scope", [GLOBAL_SCOPE, MATE_SCOPE, MY_SCOPE, ELSEWHERE])
async def test_nothing_is_written_elsewhere(tmp_path: Path, scope: MemoryScope) -> None:
    async with shelved(tmp_path) as (shelf, memory):
        stored = await use(shelf, "store_memory", content="Cranes lie", scope=str(scope))
        logged = await use(shelf, "log_session", summary="Cranes lie", scope=str(scope))
        read = await use(shelf, "extract_memories", conversation="Cranes lie", scope=str(scope))

        assert all(each.startswith(ERROR_PREFIX) for each in (stored, logged, read))
        assert await memory.entries.list(None, limit=10) == []


async def test_who_may_write_nowhere_is_offered_nothing_that_writes(tmp_path: Path) -> None:
    async with shelved(tmp_path, GLOBAL_SCOPE) as (shelf, _):
        assert {each.name for each in memory_tools(shelf)} == {
            "recall_memory",
            "search_vault",
            "search_knowledge",
            "get_memory",
            "load_context",
        }


async def test_what_was_forgotten_does_not_come_back_by_an_agent(tmp_path: Path) -> None:
    async with shelved(tmp_path) as (shelf, memory):
        await by_hand(memory, "The crane is broken", HERE)
        (entry,) = await memory.entries.list([HERE], limit=10)
        await memory.writer.forget(entry, BY_BOSS)

        stored = await use(shelf, "store_memory", content="The crane is broken")

        assert stored.startswith("Not stored")
        assert await memory.entries.list([HERE], limit=10) == []


async def test_what_a_person_wrote_stays_theirs_when_an_agent_says_the_same(
    tmp_path: Path,
) -> None:
    async with shelved(tmp_path) as (shelf, memory):
        await by_hand(memory, "The crane is green", HERE)
        await use(shelf, "store_memory", content="The crane is green", importance=1)

        entries = await memory.entries.list([HERE], limit=10)
        assert [each.origin for each in entries if each.kind is MemoryKind.LONGTERM] == [
            MemoryOrigin.MANUAL
        ]


async def test_secrets_are_taken_out_and_nothing_empty_is_kept(tmp_path: Path) -> None:
    async with shelved(tmp_path) as (shelf, memory):
        await use(shelf, "store_memory", content="The key is hunter2\0", tags=["of hunter2"])
        blank = await use(shelf, "store_memory", content=" \n ")
        (entry,) = await memory.entries.list([HERE], limit=10)

    assert (entry.text, list(entry.keywords)) == ("The key is ••••", ["of ••••"])
    assert blank.startswith("Not stored")


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
        job = await ExtractionJobRepo(memory.world.db).find_next()
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


async def test_notes_and_imported_collections_can_be_searched_alone(tmp_path: Path) -> None:
    manuals, recipes = (MemoryScope(MemoryScopeKind.CUSTOM, name) for name in ("manuals", "food"))
    async with shelved(tmp_path, HERE, manuals, recipes) as (shelf, memory):
        await by_hand(memory, "Cranes by hand", HERE)
        await use(shelf, "store_memory", content="Cranes by an agent")
        await use(shelf, "log_session", summary="Cranes of a session")
        await use(shelf, "store_memory", content="Cranes of a manual", scope=str(manuals))
        await use(shelf, "store_memory", content="Cranes of a recipe", scope=str(recipes))

        notes = await use(shelf, "search_vault", query="cranes")
        everything = await use(shelf, "search_knowledge", query="cranes")
        one = await use(shelf, "search_knowledge", query="cranes", collection="manuals")
        none = await use(shelf, "search_knowledge", query="cranes", collection="/tmp/project")

    assert {line.split("Cranes ")[1].split(" <")[0] for line in notes.splitlines()[1:]} == {
        "by hand",
        "of a session",
    }
    assert ("manual" in everything, "recipe" in everything, "hand" in everything) == (
        True,
        True,
        False,
    )
    assert ("manual" in one, "recipe" in one) == (True, False)
    assert none == f"{ERROR_PREFIX}the collections of this server are manuals, food"


async def test_a_hook_is_short_and_says_nothing_of_what_does_not_fit(tmp_path: Path) -> None:
    async with shelved(tmp_path) as (shelf, _):
        for n in range(9):
            await use(shelf, "store_memory", content=f"Crane number {n} " + f"w{n} " * 900)

        hooked = await hook_context(CliHook.USER_PROMPT, shelf, "which crane?")
        short = await hook_context(CliHook.USER_PROMPT, shelf, " c ")
        strange = await hook_context(CliHook.USER_PROMPT, shelf, "entirely unrelated")

    assert len(hooked.splitlines()) == 6
    assert all(len(line) < 400 for line in hooked.splitlines())
    assert len(hooked) <= MAX_CONTEXT_CHARS
    assert short == strange == ""


async def test_days_are_told_where_the_boss_lives(tmp_path: Path) -> None:
    async with shelved(tmp_path, zone=ZoneInfo("Asia/Shanghai")) as (shelf, memory):
        memory.world.clock.time = datetime(2026, 5, 4, 22, 0, tzinfo=UTC)
        kept = await use(shelf, "store_memory", content="The crane is red")
        found = await use(shelf, "recall_memory", query="crane red")
        read = await use(shelf, "get_memory", id=kept.split()[2])

    assert "2026-05-05" in found
    assert "2026-05-05" in read
