"""`python -m benchmarks.memory_search SIDE FOLDER LANGUAGE` prints search times as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.measurements import p50, p95, resident_mib

_NOW = datetime(2023, 5, 10, 12, tzinfo=UTC)
_LIMIT = 10


async def main(side: str, folder: Path, language: str) -> None:
    queries = json.loads((folder / "queries.json").read_text("utf-8"))
    if side == "ours":
        # Imported here: the other side's memory must not hold these modules.
        from contextlib import AsyncExitStack

        from storage.db import Database
        from storage.records.memory import MemoryScope, MemoryScopeKind
        from storage.search.inverted_index import InvertedIndex
        from storage.search.terms import query_terms

        scope = MemoryScope(MemoryScopeKind.CUSTOM, "bench")
        async with AsyncExitStack() as stack:
            index = InvertedIndex(
                await Database.open(f"sqlite:///{folder / 'shiftboss.db'}", stack)
            )

            async def ours(query: str) -> None:
                words = query_terms(query, now=_NOW, zone=UTC)
                await index.search([scope], words, _LIMIT)

            await _measured(ours, queries)
    else:
        store = sqlite3.connect(folder / "fts.db")

        async def fts5(query: str) -> None:
            store.execute(
                "SELECT rowid FROM t WHERE t MATCH ? ORDER BY bm25(t) LIMIT ?",
                (_match(query, language), _LIMIT),
            ).fetchall()

        await _measured(fts5, queries)
        store.close()


async def _measured(search: Callable[[str], Awaitable[None]], queries: list[str]) -> None:
    before = resident_mib(os.getpid())
    for query in queries[:5]:
        await search(query)
    took, cpu = [], time.process_time()
    for query in queries:
        began = time.perf_counter()
        await search(query)
        took.append((time.perf_counter() - began) * 1000)
    figures = {
        "p50": p50(took),
        "p95": p95(took),
        "cpu": (time.process_time() - cpu) * 1000 / len(queries),
        "rss": resident_mib(os.getpid()),
        "grown": resident_mib(os.getpid()) - before,
    }
    print(json.dumps(figures))


def _match(query: str, language: str) -> str:
    if language == "english":
        return " OR ".join(f'"{word}"' for word in query.split())
    return " OR ".join(f'"{query[at : at + 3]}"' for at in range(len(query) - 2))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
