"""Words alone against words and real vectors, as the program fuses them: by models that come with
a package, served on the loopback."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import UTC
from functools import partial
from pathlib import Path

from benchmarks.memory import (
    LEFT_OUT,
    POOL,
    Person,
    Ranked,
    figures,
    invented,
    keep,
    memorybank,
    same,
)
from benchmarks.vector_server import PACKAGES
from bot.engine.memory.changed import Changed
from bot.engine.memory.meaning.embedder import Embedder, Service
from bot.engine.memory.meaning.meanings import Meanings
from bot.engine.memory.recall import Fusion, Recall, dated_words
from storage.db import Database
from storage.ids import Ids
from storage.memory.entries import EntryRepo
from storage.memory.index import Index
from storage.memory.living.vectors import Vectors
from storage.records.memory.entries import Scope, ScopeKind
from tests.fresh_store import open_store

_FUSIONS = {
    "words alone": None,
    **{f"vector_weight {weight:g}": Fusion(vectors=weight) for weight in (0.2, 0.3, 0.4, 0.5, 1.0)},
    "vectors alone": Fusion(vectors=1e6),
    "the older 0.7 and 0.3": Fusion(kind="weights"),
}
_PATIENCE = 600.0


async def measure() -> list[str]:
    """`--vectors PYTHON`, or MEMORY_VECTORS, is an interpreter that has the packages, or some."""
    interpreter = os.environ.get("MEMORY_VECTORS", sys.executable)
    sets = [("MemoryBank cn", memorybank()), ("invented talks", invented())]
    lines = [] if sets[0][1] else [LEFT_OUT]
    for model in PACKAGES:
        async with _served(interpreter, model) as (port, trouble):
            if trouble:
                lines.append(f"vectors of {model}: left out, {trouble} (--vectors PYTHON)")
                continue
            for name, people in sets:
                lines += await _fused(f"http://127.0.0.1:{port}/v1", model, name, people)
    return lines


@asynccontextmanager
async def _served(interpreter: str, model: str) -> AsyncGenerator[tuple[int, str]]:
    """The port, or why there is none."""
    script = str(Path(__file__).with_name("vector_server.py"))
    server = await asyncio.create_subprocess_exec(
        interpreter, script, model, stdout=asyncio.subprocess.PIPE
    )
    assert server.stdout is not None
    told = (await server.stdout.readline()).decode().strip()
    try:
        yield (int(told), "") if told.isdigit() else (0, told or "the server did not start")
    finally:
        if server.returncode is None:
            server.kill()
        await server.wait()


async def _fused(url: str, model: str, name: str, people: Sequence[Person]) -> list[str]:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        async with open_store(Path(folder)) as db, aclosing(Service("", timeout=_PATIENCE)) as web:
            index = Index(db)
            meanings = _meanings(db, web, Embedder(web, url, model))
            for person in people:
                await keep(db, index, Scope(ScopeKind.CUSTOM, person.name), person)
            while await meanings.embed_some():
                pass
            took = time.monotonic() - began
            ranked = await _ranked(db, index, people, meanings)
    lines = [f"{name}, vectors of {model} ({PACKAGES[model]}; made in {took:.0f} s)"]
    return lines + [f"  {each}: {_told(people, found)}" for each, found in ranked.items()]


def _meanings(db: Database, service: Service, embedder: Embedder) -> Meanings:
    return Meanings(
        db=db,
        vectors=Vectors(db),
        embedder=embedder,
        service=service,
        changed=Changed(),
        sleep=asyncio.sleep,
        clock=time.monotonic,
    )


async def _ranked(
    db: Database, index: Index, people: Sequence[Person], meanings: Meanings
) -> Mapping[str, Ranked]:
    """By each fusion. A question's vector is asked for once."""
    ranked: dict[str, dict[tuple[str, str], Sequence[tuple[int, float]]]] = defaultdict(dict)
    for person in people:
        scope = Scope(ScopeKind.CUSTOM, person.name)
        for question, now, _ in person.asked:
            for name, fusion in _FUSIONS.items():
                recall = Recall(
                    entries=EntryRepo(db, Ids(), index),
                    index=index,
                    words=dated_words(UTC),
                    now=partial(same, now),
                    fusion=fusion,
                    neighbours=meanings if fusion else None,
                )
                found = await recall.within([scope], question, POOL)
                ranked[name][person.name, question] = [
                    (int(str(each.entry.extra["at"])), each.score) for each in found
                ]
    return ranked


def _told(people: Sequence[Person], ranked: Ranked) -> str:
    names = ("R@1", "R@3", "R@5", "MRR")
    pairs = zip(names, figures(people, ranked), strict=True)
    return " · ".join(f"{name} {value:.3f}" for name, value in pairs)
