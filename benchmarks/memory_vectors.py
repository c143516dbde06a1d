"""Recall by words alone, against words and real vectors as the program fuses them."""

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

from benchmarks.figures import Figure, LeftOut, Measurement, Scale
from benchmarks.memory import (
    MEMORY_BANK_MISSING,
    NOW,
    POOL,
    Person,
    Ranked,
    a_few_questions,
    figures,
    invented,
    keep,
    memorybank,
    same,
)
from benchmarks.vector_server import HASHED, PACKAGES
from bot.engine.memory.change_feed import MemoryChangeFeed
from bot.engine.memory.embeddings import EmbeddingClient, EmbeddingIndex, InferenceEndpoint
from bot.engine.memory.ports import TextEmbedder
from bot.engine.memory.retriever import FusionSettings, MemoryRetriever, make_term_extractor
from storage.db import Database
from storage.ids import IdGenerator
from storage.memory.entries import MemoryEntryRepo
from storage.records.memory import MemoryScope, MemoryScopeKind
from storage.search.inverted_index import InvertedIndex
from storage.search.vectors import VectorRepo
from tests.migrated_database import open_database

_FUSIONS = {
    "words alone": None,
    **{
        f"vector_weight {weight:g}": FusionSettings(vector_weight=weight)
        for weight in (0.2, 0.3, 0.4, 0.5, 1.0)
    },
    "vector_weight 0.4, vague 2.5": FusionSettings(vague_vector_weight=2.5),
    "vectors alone": FusionSettings(vector_weight=1e6),
    "the older 0.7 and 0.3": FusionSettings(kind="weights"),
}
_EACH = 8
_PARAPHRASES = Path(__file__).with_name("paraphrases.txt")
_TIMEOUT_SECONDS = 600.0


async def measure(scale: Scale) -> list[Measurement]:
    """The questions of `memory`, answered with embeddings of models that come with a package and
    are served on the loopback. `--vectors PYTHON` names an interpreter that has the packages, or
    some of them. The weight is that of vectors against words."""
    interpreter = os.environ.get("MEMORY_VECTORS", sys.executable)
    if scale is Scale.SMALL:
        return await _measure_model(sys.executable, HASHED, {"invented talks": a_few_questions()})
    sets = {
        **{f"paraphrases, {each.name}": [each] for each in _paraphrases()},
        MEMORY_BANK_MISSING.name: memorybank(),
        "invented talks": invented(),
    }
    measured: list[Measurement] = []
    for model in PACKAGES:
        measured += await _measure_model(interpreter, model, sets)
    return measured


def _paraphrases() -> list[Person]:
    """One person a language, who has also said each eighth turn of the invented talks."""
    talks = invented()
    others = [text for talk in talks for text in talk.texts][::_EACH]
    senders = [sender for talk in talks for sender in talk.senders][::_EACH]
    days = [day for talk in talks for day in talk.days][::_EACH]
    people = []
    for part in _PARAPHRASES.read_text("utf-8").split("\n== ")[1:]:
        language, *lines = part.splitlines()
        pairs = [line.split(" | ") for line in lines]
        people.append(
            Person(
                language,
                [NOW.isoformat()] * len(pairs) + days,
                [fact for fact, _ in pairs] + others,
                [(asked, NOW, frozenset({at})) for at, (_, asked) in enumerate(pairs)],
                [""] * len(pairs) + senders,
            )
        )
    return people


async def _measure_model(
    interpreter: str, model: str, sets: Mapping[str, Sequence[Person]]
) -> list[Measurement]:
    measured: list[Measurement] = []
    async with _served(interpreter, model) as (port, problem):
        if problem:
            return [LeftOut(f"vectors of {model}", f"{problem} (--vectors PYTHON)")]
        for name, people in sets.items():
            if people:
                url = f"http://127.0.0.1:{port}/v1"
                measured += await _fused(url, model, f"{name}, {model}", people)
            else:
                measured.append(MEMORY_BANK_MISSING)
    return measured


@asynccontextmanager
async def _served(interpreter: str, model: str) -> AsyncGenerator[tuple[int, str]]:
    """The port, or the reason why there is none."""
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


class _CountingEmbedder(EmbeddingClient):
    """Knows which questions got a vector: the search itself goes on without."""

    def __init__(self, web: InferenceEndpoint, url: str, model: str) -> None:
        super().__init__(web, url, model)
        self.embedded: set[str] = set()

    async def embed_query(self, query: str) -> Sequence[float]:
        vector = await super().embed_query(query)
        self.embedded.add(query)
        return vector


async def _fused(url: str, model: str, name: str, people: Sequence[Person]) -> list[Measurement]:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        async with (
            open_database(Path(folder)) as db,
            aclosing(InferenceEndpoint("", timeout=_TIMEOUT_SECONDS)) as web,
        ):
            index = InvertedIndex(db)
            embedder = _CountingEmbedder(web, url, model)
            embeddings = _embedding_index(db, embedder)
            for person in people:
                await keep(db, index, MemoryScope(MemoryScopeKind.CUSTOM, person.name), person)
            while await embeddings.embed_next_batch():
                pass
            took = time.monotonic() - began
            ranked = await _ranked(db, index, people, embeddings)
    questions = {question for person in people for question, _, _ in person.asked}
    if missing := questions - embedder.embedded:
        # The search goes on by words alone, which would be reported as a figure of vectors.
        problem = f"{len(missing)} of {len(questions)} questions got no vector in time"
        return [LeftOut(name, problem)]
    measured: list[Measurement] = [Figure(f"{name}: time to embed", took, "s")]
    for fusion, found in ranked.items():
        scores = figures(people, found)
        measured += [
            Figure(f"{name}: {fusion}, R@5", scores[2]),
            Figure(f"{name}: {fusion}, MRR", scores[3]),
        ]
    return measured


def _embedding_index(db: Database, embedder: TextEmbedder) -> EmbeddingIndex:
    return EmbeddingIndex(
        db=db,
        vectors=VectorRepo(db),
        embedder=embedder,
        feed=MemoryChangeFeed(),
        sleep=asyncio.sleep,
        clock=time.monotonic,
    )


async def _ranked(
    db: Database, index: InvertedIndex, people: Sequence[Person], embeddings: EmbeddingIndex
) -> Mapping[str, Ranked]:
    """The turns found by each fusion. The vector of a question is asked for once."""
    ranked: dict[str, dict[tuple[str, str], Sequence[tuple[int, float]]]] = defaultdict(dict)
    for person in people:
        scope = MemoryScope(MemoryScopeKind.CUSTOM, person.name)
        for question, now, _ in person.asked:
            for name, fusion in _FUSIONS.items():
                recall = MemoryRetriever(
                    entries=MemoryEntryRepo(db, IdGenerator(), index),
                    index=index,
                    extract_terms=make_term_extractor(UTC),
                    now=partial(same, now),
                    fusion=fusion or FusionSettings(),
                    vector_retriever=embeddings if fusion else None,
                )
                found = await recall.search_scopes([scope], question, POOL)
                ranked[name][person.name, question] = [
                    (int(str(each.entry.extra["at"])), each.score) for each in found
                ]
    return ranked
