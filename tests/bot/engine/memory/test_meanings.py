"""Entries are found by what they mean where a service tells it, and by words wherever it fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC
from math import exp
from pathlib import Path

import pytest

from bot.engine.memory.changed import Changed
from bot.engine.memory.meaning.embedder import Embedder, NoMeaning, Prefixes, Service, prefixes_of
from bot.engine.memory.meaning.judge import CrossEncoder
from bot.engine.memory.meaning.meanings import KINDS, Meanings
from bot.engine.memory.recall import Fusion, Recall, dated_words
from storage.memory.index import Index
from storage.memory.living.vectors import Vectors
from storage.records.memory.entries import EntryState
from tests.bot.engine.memory.mind import ALONE, TOGETHER, Mind, mind
from tests.emulators.embeddings import KEY, EmbeddingService, embedding_service


@dataclass(frozen=True, kw_only=True)
class Head:
    it: Mind
    meanings: Meanings
    recall: Recall
    server: EmbeddingService

    async def learn(self) -> None:
        while await self.meanings.embed_some():
            pass

    async def found(self, query: str, limit: int = 5) -> list[str]:
        return [each.entry.text for each in await self.recall.search(ALONE, query, limit)]

    def of(self, model: str) -> Meanings:
        service = Service(KEY, timeout=5)
        return replace(
            self.meanings,
            service=service,
            embedder=Embedder(service, f"{self.server.url}/v1", model),
        )


@asynccontextmanager
async def head(
    home: Path, *, judge: str | None = None, fusion: Fusion | None = None
) -> AsyncGenerator[Head, None]:
    """`judge` is the model of a cross-encoder, empty for one that has no name."""
    async with embedding_service() as server, mind(home) as it:
        service = Service(KEY, timeout=5)
        meanings = Meanings(
            db=it.world.db,
            vectors=Vectors(it.world.db),
            embedder=Embedder(service, f"{server.url}/v1/", "small"),
            service=service,
            changed=Changed(),
            sleep=asyncio.sleep,
            clock=lambda: it.world.clock().timestamp(),
        )
        by = None if judge is None else CrossEncoder(service, f"{server.url}/rerank", judge)
        recall = Recall(
            entries=it.entries,
            index=Index(it.world.db),
            words=dated_words(UTC),
            now=it.world.clock,
            fusion=fusion,
            neighbours=meanings,
            judge=by,
        )
        yield Head(it=it, meanings=meanings, recall=recall, server=server)
        await service.aclose()


async def test_what_means_the_same_is_found_without_a_word_in_common(tmp_path: Path) -> None:
    async with head(tmp_path) as my:
        await my.it.keep("The automobile stands in the garage")
        await my.it.keep("Lunch is at noon")
        await my.learn()

        [best, *_] = await my.recall.search(ALONE, "车", 5)

        assert best.entry.text == "The automobile stands in the garage"
        assert best.parts["meaning"] > 0.2
        assert "words" not in best.parts


async def test_words_and_meanings_are_fused(tmp_path: Path) -> None:
    async with head(tmp_path) as my:
        await my.it.keep("The puppy sleeps")
        await my.it.keep("A dog barks")
        await my.it.keep("Lunch is at noon")
        await my.learn()

        assert (await my.found("dog"))[0] == "A dog barks"
        assert set((await my.found("dog"))[:2]) == {"A dog barks", "The puppy sleeps"}


async def test_the_older_fusion_can_be_chosen(tmp_path: Path) -> None:
    async with head(tmp_path, fusion=Fusion(kind="weights")) as my:
        await my.it.keep("The puppy sleeps")
        await my.learn()

        [best] = await my.recall.search(ALONE, "puppy", 5)

        words = 1 / (1 + exp(-best.parts["words"] / 5))
        both = 0.7 / (2 - best.parts["meaning"]) + 0.3 * words
        assert best.parts["fused"] == pytest.approx(max(both, 0.92 * words * (words >= 0.75)))


async def test_what_another_may_not_see_is_not_near_either(tmp_path: Path) -> None:
    async with head(tmp_path) as my:
        await my.it.keep("The automobile code is 4711")
        await my.learn()

        assert await my.recall.search(TOGETHER, "car", 5) == []
        assert len(await my.recall.search(ALONE, "car", 5)) == 1


@pytest.mark.parametrize("status", [401, 429, 500, 503])
async def test_where_the_service_fails_words_go_on(tmp_path: Path, status: int) -> None:
    async with head(tmp_path) as my:
        await my.it.keep("The automobile stands in the garage")
        await my.learn()
        my.server.status = status

        assert await my.found("garage") == ["The automobile stands in the garage"]
        assert await my.found("puppy") == []
        with pytest.raises(NoMeaning):
            await my.meanings.embedder.embed(["x"])


async def test_a_service_that_failed_is_left_in_peace_for_a_while(tmp_path: Path) -> None:
    async with head(tmp_path) as my:
        await my.it.keep("The automobile stands in the garage")
        await my.learn()
        before = len(my.server.asked)
        my.server.status = 500
        await my.found("car")
        my.server.status = 200
        at_once = await my.found("vehicle garden")
        my.it.world.clock.pass_by(seconds=61)
        later = await my.found("vehicle garden")

        assert at_once == []
        assert later == ["The automobile stands in the garage"]
        assert len(my.server.asked) == before + 1


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
    async with head(tmp_path) as my:
        my.server.garbage = garbage or " "

        with pytest.raises(NoMeaning):
            await my.meanings.embedder.embed(["x"])


async def test_another_model_has_everything_embedded_anew_and_nothing_mixed(
    tmp_path: Path,
) -> None:
    async with head(tmp_path) as my:
        await my.it.keep("The automobile stands in the garage")
        await my.learn()
        other = my.of("other")

        before = await other.near(ALONE.scopes, "car", 5, KINDS)
        done = await other.embed_some()
        after = await other.near(ALONE.scopes, "car", 5, KINDS)

        assert len(before) == 0
        assert done == 1
        assert len(after) == 1
        assert await my.meanings.vectors.count("small") == 0
        await other.service.aclose()


async def test_a_text_that_the_service_does_not_want_holds_up_no_other(tmp_path: Path) -> None:
    async with head(tmp_path) as my:
        my.server.hates = "unspeakable"
        await my.it.keep("The automobile stands in the garage")
        await my.it.keep("An unspeakable automobile")
        await my.learn()

        assert await my.meanings.vectors.count("small") == 1
        assert await my.found("vehicle") == ["The automobile stands in the garage"]


async def test_what_is_changed_is_embedded_anew_and_what_is_put_aside_not_at_all(
    tmp_path: Path,
) -> None:
    async with head(tmp_path) as my:
        entry = await my.it.keep("The automobile stands in the garage")
        await my.learn()
        entry = await my.it.change(replace(entry, text="The puppy stands in the garden"))
        gone = await my.meanings.vectors.count("small")
        await my.learn()
        found = await my.found("canine")
        await my.it.change(replace(entry, state=EntryState.ARCHIVED))

        assert gone == 0
        assert found == ["The puppy stands in the garden"]
        assert await my.found("canine") == []


async def test_in_the_background_what_is_new_is_embedded_as_it_comes(tmp_path: Path) -> None:
    async with head(tmp_path) as my:
        running = asyncio.create_task(my.meanings.run())
        await my.it.keep("The automobile stands in the garage")
        my.meanings.changed.tell(*ALONE.scopes)
        async with asyncio.timeout(60):
            while not await my.meanings.vectors.count("small"):
                await asyncio.sleep(0.01)
                my.meanings.changed.tell(*ALONE.scopes)
        running.cancel()

        assert await my.found("vehicle") == ["The automobile stands in the garage"]


@pytest.mark.parametrize("model", ["jina-reranker", ""])
async def test_a_cross_encoder_has_its_say(tmp_path: Path, model: str) -> None:
    async with head(tmp_path, judge=model) as my:
        await my.it.keep("The garage of the neighbour, the garage across, a garage: garage")
        await my.it.keep("In the garage by the old mill stands the blue car")
        await my.learn()

        best, *_ = await my.recall.search(ALONE, "garage old mill", 5)

        assert best.entry.text.startswith("In the garage by the old mill")
        assert best.parts["judge"] == pytest.approx(1)
        assert ("documents" in my.server.judged[0]) is bool(model)


async def test_a_model_is_told_questions_from_texts_as_it_wants_it(tmp_path: Path) -> None:
    async with head(tmp_path) as my:
        my.server.models.add("intfloat/multilingual-e5-small")
        await my.it.keep("The car is red.")
        meanings = my.of("intfloat/multilingual-e5-small")
        await meanings.embed_some()
        await meanings.near(ALONE.scopes, "automobile", 5, KINDS)
        await meanings.service.aclose()

        told = [text for texts in my.server.asked for text in texts]

    assert told[0].startswith("passage: ")
    assert told[1] == "query: automobile"


def test_what_stands_in_front_of_texts_can_be_chosen_and_is_a_model_of_its_own() -> None:
    assert prefixes_of("nomic-embed-text:v1.5") == Prefixes("search_query: ", "search_document: ")
    assert prefixes_of("bge-m3") == Prefixes()
    assert prefixes_of("e5-base", "", "doc: ") == Prefixes("", "doc: ")

    service = Service("", timeout=1)
    asked = Embedder(service, "http://x", "bge-m3", Prefixes("Represent: ", ""))
    other = Embedder(service, "http://x", "bge-m3", Prefixes("", "doc: "))

    assert asked.model == "bge-m3"
    assert other.model != "bge-m3"
