"""Entries are found by what they mean where a service tells it, and by words wherever it fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC
from math import exp
from pathlib import Path

import pytest

from bot.engine.memory.change_feed import MemoryChangeFeed
from bot.engine.memory.embeddings import (
    EMBEDDED_KINDS,
    CrossEncoderReranker,
    EmbeddingClient,
    EmbeddingIndex,
    EmbeddingPrefixes,
    InferenceEndpoint,
    resolve_prefixes,
)
from bot.engine.memory.ports import EmbeddingFailed
from bot.engine.memory.retriever import FusionSettings, MemoryRetriever, make_term_extractor
from storage.records.memory import MemoryState
from storage.search.inverted_index import InvertedIndex, SearchHit
from storage.search.vectors import VectorRepo
from tests.bot.engine.memory.retrieval_builders import (
    GROUP_READER,
    PRIVATE_READER,
    RetrievalSetup,
    build_retrieval,
)
from tests.emulators.embeddings import KEY, EmbeddingService, embedding_service
from tests.waiting import WAIT_SECONDS


@dataclass(frozen=True, kw_only=True)
class EmbeddingSetup:
    it: RetrievalSetup
    meanings: EmbeddingIndex
    recall: MemoryRetriever
    server: EmbeddingService

    async def learn(self) -> None:
        while await self.meanings.embed_next_batch():
            pass

    async def found(self, query: str, limit: int = 5) -> list[str]:
        return [each.entry.text for each in await self.recall.search(PRIVATE_READER, query, limit)]

    def of(self, model: str) -> EmbeddingIndex:
        service = InferenceEndpoint(KEY, timeout=WAIT_SECONDS)
        return replace(
            self.meanings,
            embedder=EmbeddingClient(service, f"{self.server.url}/v1", model),
        )


@asynccontextmanager
async def build_embeddings(
    home: Path, *, judge: str | None = None, fusion: FusionSettings | None = None
) -> AsyncGenerator[EmbeddingSetup, None]:
    """`judge` is the model of a cross-encoder, empty for one that has no name."""
    async with embedding_service() as server, build_retrieval(home) as it:
        service = InferenceEndpoint(KEY, timeout=WAIT_SECONDS)
        meanings = EmbeddingIndex(
            db=it.world.db,
            vectors=VectorRepo(it.world.db),
            embedder=EmbeddingClient(service, f"{server.url}/v1/", "small"),
            feed=MemoryChangeFeed(),
            sleep=asyncio.sleep,
            clock=lambda: it.world.clock().timestamp(),
        )
        by = None if judge is None else CrossEncoderReranker(service, f"{server.url}/rerank", judge)
        recall = MemoryRetriever(
            entries=it.entries,
            index=InvertedIndex(it.world.db),
            extract_terms=make_term_extractor(UTC),
            now=it.world.clock,
            fusion=fusion or FusionSettings(),
            vector_retriever=meanings,
            reranker=by,
        )
        yield EmbeddingSetup(it=it, meanings=meanings, recall=recall, server=server)
        await service.aclose()


async def test_what_means_the_same_is_found_without_a_word_in_common(tmp_path: Path) -> None:
    async with build_embeddings(tmp_path) as my:
        await my.it.keep("The automobile stands in the garage")
        await my.it.keep("Lunch is at noon")
        await my.learn()

        [best, *_] = await my.recall.search(PRIVATE_READER, "车", 5)

        assert best.entry.text == "The automobile stands in the garage"
        assert best.parts["meaning"] > 0.2
        assert "words" not in best.parts


async def test_words_and_meanings_are_fused(tmp_path: Path) -> None:
    async with build_embeddings(tmp_path) as my:
        await my.it.keep("The puppy sleeps")
        await my.it.keep("A dog barks")
        await my.it.keep("Lunch is at noon")
        await my.learn()

        assert (await my.found("dog"))[0] == "A dog barks"
        assert set((await my.found("dog"))[:2]) == {"A dog barks", "The puppy sleeps"}


@pytest.mark.parametrize(("vague", "first"), [(None, "garden"), (3.0, "automobile")])
async def test_meanings_lead_where_words_tell_little(
    tmp_path: Path, vague: float | None, first: str
) -> None:
    async with build_embeddings(tmp_path, fusion=FusionSettings(vague_vector_weight=vague)) as my:
        meant = await my.it.keep("The automobile is red")
        for text in ("The garden is big", "A garden party", "Our old garden"):
            await my.it.keep(text)

        class Meanings:
            async def find_nearest(self, *_: object) -> Sequence[SearchHit]:
                return [SearchHit(number=meant.number, score=0.9)]

        recall = replace(my.recall, vector_retriever=Meanings())
        vague_question, *_ = await recall.search(PRIVATE_READER, "car in the garden", 5)
        telling_question, *_ = await recall.search(PRIVATE_READER, "party in the garden", 5)

        assert first in vague_question.entry.text
        assert "party" in telling_question.entry.text


async def test_meanings_do_not_lead_away_from_a_day_that_is_named(tmp_path: Path) -> None:
    async with build_embeddings(tmp_path, fusion=FusionSettings(vector_weight=1.0)) as my:
        there = await my.it.keep("On 2026-01-03 the fuse box was mended")
        other = await my.it.keep("The automobile is red")

        class Meanings:
            async def find_nearest(self, *_: object) -> Sequence[SearchHit]:
                hits = [other.number, *range(9_000, 9_030), there.number]
                return [SearchHit(number=number, score=0.9) for number in hits]

        recall = replace(my.recall, vector_retriever=Meanings())
        found = await recall.search(PRIVATE_READER, "What did the car do on 2026-01-03?", 5)

        assert found[0].entry.id == there.id


async def test_the_older_fusion_can_be_chosen(tmp_path: Path) -> None:
    async with build_embeddings(tmp_path, fusion=FusionSettings(kind="weights")) as my:
        await my.it.keep("The puppy sleeps")
        await my.learn()

        [best] = await my.recall.search(PRIVATE_READER, "puppy", 5)

        words = 1 / (1 + exp(-best.parts["words"] / 5))
        both = 0.7 / (2 - best.parts["meaning"]) + 0.3 * words
        assert best.parts["fused"] == pytest.approx(max(both, 0.92 * words * (words >= 0.75)))


async def test_what_another_may_not_see_is_not_near_either(tmp_path: Path) -> None:
    async with build_embeddings(tmp_path) as my:
        await my.it.keep("The automobile code is 4711")
        await my.learn()

        assert await my.recall.search(GROUP_READER, "car", 5) == []
        assert len(await my.recall.search(PRIVATE_READER, "car", 5)) == 1


@pytest.mark.parametrize("status", [401, 429, 500, 503])
async def test_where_the_service_fails_words_go_on(tmp_path: Path, status: int) -> None:
    async with build_embeddings(tmp_path) as my:
        await my.it.keep("The automobile stands in the garage")
        await my.learn()
        my.server.status = status

        assert await my.found("garage") == ["The automobile stands in the garage"]
        assert await my.found("puppy") == []
        with pytest.raises(EmbeddingFailed):
            await my.meanings.embedder.embed(["x"])


async def test_a_service_that_failed_is_left_in_peace_for_a_while(tmp_path: Path) -> None:
    async with build_embeddings(tmp_path) as my:
        await my.it.keep("The automobile stands in the garage")
        await my.learn()
        before = len(my.server.embedding_requests)
        my.server.status = 500
        await my.found("car")
        my.server.status = 200
        at_once = await my.found("vehicle garden")
        my.it.world.clock.advance(seconds=61)
        later = await my.found("vehicle garden")

        assert at_once == []
        assert later == ["The automobile stands in the garage"]
        assert len(my.server.embedding_requests) == before + 1


@pytest.mark.parametrize(
    "garbage",
    [
        "",
        "{}",
        "[1, 2]",
        "[" * 50_000,
        '{"data": [{"index": 0, "embedding": []}]}',
        '{"data": [{"index": 0, "embedding": [0, 0]}]}',
        '{"data": [{"index": 0, "embedding": "x"}]}',
    ],
)
async def test_an_answer_that_makes_no_sense_is_no_answer(tmp_path: Path, garbage: str) -> None:
    async with build_embeddings(tmp_path) as my:
        my.server.garbage = garbage or " "

        with pytest.raises(EmbeddingFailed):
            await my.meanings.embedder.embed(["x"])


async def test_another_model_has_everything_embedded_anew_and_nothing_mixed(
    tmp_path: Path,
) -> None:
    async with build_embeddings(tmp_path) as my:
        await my.it.keep("The automobile stands in the garage")
        await my.learn()
        other = my.of("other")

        before = await other.find_nearest(PRIVATE_READER.scopes, "car", 5, EMBEDDED_KINDS)
        done = await other.embed_next_batch()
        after = await other.find_nearest(PRIVATE_READER.scopes, "car", 5, EMBEDDED_KINDS)

        assert len(before) == 0
        assert done == 1
        assert len(after) == 1
        assert await my.meanings.vectors.count("small") == 0
        await other.embedder.aclose()


async def test_a_text_that_the_service_does_not_want_holds_up_no_other(tmp_path: Path) -> None:
    async with build_embeddings(tmp_path) as my:
        my.server.rejected_text = "unspeakable"
        await my.it.keep("The automobile stands in the garage")
        await my.it.keep("An unspeakable automobile")
        await my.learn()

        assert await my.meanings.vectors.count("small") == 1
        assert await my.found("vehicle") == ["The automobile stands in the garage"]


async def test_what_is_changed_is_embedded_anew_and_what_is_put_aside_not_at_all(
    tmp_path: Path,
) -> None:
    async with build_embeddings(tmp_path) as my:
        entry = await my.it.keep("The automobile stands in the garage")
        await my.learn()
        entry = await my.it.change(replace(entry, text="The puppy stands in the garden"))
        gone = await my.meanings.vectors.count("small")
        await my.learn()
        found = await my.found("canine")
        await my.it.change(replace(entry, state=MemoryState.ARCHIVED))

        assert gone == 0
        assert found == ["The puppy stands in the garden"]
        assert await my.found("canine") == []


async def test_in_the_background_what_is_new_is_embedded_as_it_comes(tmp_path: Path) -> None:
    async with build_embeddings(tmp_path) as my:
        running = asyncio.create_task(my.meanings.run())
        await my.it.keep("The automobile stands in the garage")
        my.meanings.feed.publish(*PRIVATE_READER.scopes)
        async with asyncio.timeout(WAIT_SECONDS):
            while not await my.meanings.vectors.count("small"):
                await asyncio.sleep(0.01)
                my.meanings.feed.publish(*PRIVATE_READER.scopes)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

        assert await my.found("vehicle") == ["The automobile stands in the garage"]


@pytest.mark.parametrize("model", ["jina-reranker", ""])
async def test_a_cross_encoder_has_its_say(tmp_path: Path, model: str) -> None:
    async with build_embeddings(tmp_path, judge=model) as my:
        await my.it.keep("The garage of the neighbour, the garage across, a garage: garage")
        await my.it.keep("In the garage by the old mill stands the blue car")
        await my.learn()

        best, *_ = await my.recall.search(PRIVATE_READER, "garage old mill", 5)

        assert best.entry.text.startswith("In the garage by the old mill")
        assert best.parts["judge"] == pytest.approx(1)
        assert ("documents" in my.server.rerank_requests[0]) is bool(model)


async def test_a_model_is_told_questions_from_texts_as_it_wants_it(tmp_path: Path) -> None:
    async with build_embeddings(tmp_path) as my:
        my.server.models.add("intfloat/multilingual-e5-small")
        await my.it.keep("The car is red.")
        meanings = my.of("intfloat/multilingual-e5-small")
        await meanings.embed_next_batch()
        await meanings.find_nearest(PRIVATE_READER.scopes, "automobile", 5, EMBEDDED_KINDS)
        await meanings.embedder.aclose()

        told = [text for texts in my.server.embedding_requests for text in texts]

    assert told[0].startswith("passage: ")
    assert told[1] == "query: automobile"


def test_what_stands_in_front_of_texts_can_be_chosen_and_is_a_model_of_its_own() -> None:
    assert resolve_prefixes("nomic-embed-text:v1.5") == EmbeddingPrefixes(
        "search_query: ", "search_document: "
    )
    assert resolve_prefixes("bge-m3") == EmbeddingPrefixes()
    assert resolve_prefixes("e5-base", "", "doc: ") == EmbeddingPrefixes("", "doc: ")

    service = InferenceEndpoint("", timeout=1)
    asked = EmbeddingClient(service, "http://x", "bge-m3", EmbeddingPrefixes("Represent: ", ""))
    other = EmbeddingClient(service, "http://x", "bge-m3", EmbeddingPrefixes("", "doc: "))

    assert asked.model == "bge-m3"
    assert other.model != "bge-m3"
