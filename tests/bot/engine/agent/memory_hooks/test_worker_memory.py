"""Workers' own lookups: memories and logs in one list, never those of other people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bot.engine.agent.memory_hooks import WorkerMemoryLookup
from bot.engine.llm.tool_calls import ERROR_PREFIX
from bot.engine.memory.access import MemoryReader
from bot.engine.memory.ports import RecalledMemory
from bot.engine.tools.memory import memory_get_tool, memory_search_tool
from storage.records.memory import MemoryKind, MemoryState
from tests.bot.engine.memory.retrieval_builders import (
    GROUP_READER,
    PRIVATE_READER,
    RetrievalSetup,
    build_retrieval,
)
from tests.engine_harness import START

LOG = RecalledMemory(id="log:7", title="finding of task-1", text="The shuttle is late", at=START)


class OneLog:
    async def search(self, query: str, limit: int) -> Sequence[RecalledMemory]:
        return [LOG][:limit]

    async def get(self, memory_id: str) -> RecalledMemory | None:
        return LOG if memory_id == LOG.id else None


def looked_up_by(it: RetrievalSetup, reader: MemoryReader) -> WorkerMemoryLookup:
    async def who() -> MemoryReader:
        return reader

    return WorkerMemoryLookup(
        recall=it.retriever, entries=it.entries, reader=who, task_logs=OneLog()
    )


async def test_memories_and_logs_are_found_together_and_read_by_their_ids(tmp_path: Path) -> None:
    async with build_retrieval(tmp_path) as it:
        kept = await it.keep("Boss: the shuttle leaves at nine", kind=MemoryKind.CELL)
        lookup = looked_up_by(it, PRIVATE_READER)

        found = await memory_search_tool(lookup).run({"query": "shuttle"})
        whole = await memory_get_tool(lookup).run({"id": f"memory:{kept.id}"})
        log = await memory_get_tool(lookup).run({"id": "log:7"})

        assert f"memory:{kept.id}" in found
        assert "log:7" in found
        assert "leaves at nine" in whole
        assert "The shuttle is late" in log


async def test_in_a_group_nothing_private_is_found_or_read_by_its_id(tmp_path: Path) -> None:
    async with build_retrieval(tmp_path) as it:
        kept = await it.keep("The shuttle code is 4711")
        lookup = looked_up_by(it, GROUP_READER)

        found = await memory_search_tool(lookup).run({"query": "shuttle code"})
        whole = await memory_get_tool(lookup).run({"id": f"memory:{kept.id}"})

        assert "4711" not in found
        assert whole.startswith(ERROR_PREFIX)
        assert "4711" not in whole


async def test_what_was_true_once_is_read_as_such_and_not_found(tmp_path: Path) -> None:
    async with build_retrieval(tmp_path) as it:
        old = await it.keep("The shuttle leaves at nine")
        new = await it.keep("The shuttle leaves at ten")
        await it.change(replace(old, state=MemoryState.SUPERSEDED, superseded_by=new.id))
        lookup = looked_up_by(it, PRIVATE_READER)

        found = await lookup.search("shuttle leaves", 10)
        once = await lookup.get(f"memory:{old.id}")

        assert [each.text for each in found if each is not LOG] == ["The shuttle leaves at ten"]
        assert once is not None
        assert f"memory:{new.id}" in once.title


@pytest.mark.parametrize("state", [MemoryState.CANDIDATE, MemoryState.REJECTED])
async def test_what_nobody_has_confirmed_is_read_by_no_id(
    tmp_path: Path, state: MemoryState
) -> None:
    async with build_retrieval(tmp_path) as it:
        held = await it.keep("Ann is vegan")
        await it.change(replace(held, state=state))

        assert await looked_up_by(it, PRIVATE_READER).get(f"memory:{held.id}") is None


async def test_nobody_finds_nothing(tmp_path: Path) -> None:
    async with build_retrieval(tmp_path) as it:
        kept = await it.keep("The shuttle leaves at nine")
        lookup = looked_up_by(it, MemoryReader())

        assert [each for each in await lookup.search("shuttle", 5) if each is not LOG] == []
        assert await lookup.get(f"memory:{kept.id}") is None
