"""Where there is an embedder, facts are compared by what they mean, by each model's own measure;
wherever it fails words do."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

import pytest

from bot.engine.memory.admission import PRESET_RULES, AdmissionPreset, compute_features
from bot.engine.memory.extraction import validate_facts
from bot.engine.memory.fact_matching import (
    CosineCalibration,
    ModelVerdict,
    ModelVerdicts,
    calibrate,
)
from bot.engine.memory.ingestion import TURNS_PER_EXTRACTION
from bot.engine.memory.ports import EmbeddingFailed, embedding_text
from storage.db import Transaction
from storage.records.memory import MemoryEntry, MemoryKind, NewMemoryEntry
from tests.bot.engine.memory.writing_builders import (
    MY_SCOPE,
    WritingSetup,
    build_writing,
    extracted_fact,
    extraction_of,
)

DRAWN = (MemoryKind.FACT, MemoryKind.PROFILE, MemoryKind.LONGTERM)
THINGS: tuple[str, ...] = ("lamp", "chair", "river", "bread", "stone", "cloud")
THINGS += ("glove", "wheel", "spoon", "ladder", "candle", "bridge")
SAME = {"automobile": "car", "vehicle": "car", "puppy": "dog", "beverage": "drink"}
DOINGS = ("shines", "breaks")


@dataclass
class FakeEmbedder:
    """Gives vectors by the words of a text, synonyms alike; `squeezed` draws all of them together,
    as some models do."""

    model: str = "small"
    squeezed: bool = False
    fails: bool = False
    asked: list[list[str]] = field(default_factory=list)

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        if self.fails:
            raise EmbeddingFailed("no answer")
        self.asked.append(list(texts))
        return [self.vector(text) for text in texts]

    def vector(self, text: str) -> list[float]:
        common = [0.01] * 512
        common[0] = 2.5 if self.squeezed else 0.01
        for word in re.findall("[a-z]+", text.lower().replace("boss", "")):
            common[crc32(SAME.get(word, word).encode()) % 512] += 1.0
        length = sum(each * each for each in common) ** 0.5
        return [each / length for each in common]


@asynccontextmanager
async def build_with_embedder(
    home: Path, service: FakeEmbedder, known: int = 24
) -> AsyncGenerator[WritingSetup, None]:
    async with build_writing(home, embedder=service) as memory:
        sentences = [f"{thing} {doing}" for thing in THINGS for doing in DOINGS][:known]
        await learn(memory, service, *sentences)
        yield memory


async def learn(memory: WritingSetup, service: FakeEmbedder, *texts: str) -> MemoryEntry:
    """All of them; the last is given back."""
    async with memory.world.db.write() as tx:
        return [await learned(memory, service, tx, text) for text in texts][-1]


async def learned(
    memory: WritingSetup, service: FakeEmbedder, tx: Transaction, text: str
) -> MemoryEntry:
    new = NewMemoryEntry(kind=MemoryKind.FACT, scope=MY_SCOPE, text=text)
    made = await memory.entries.add(tx, new, now=memory.world.clock())
    assert made is not None
    vector = service.vector(embedding_text(made.said_at, made.sender, made.text))
    await memory.vectors.put(tx, service.model, [(made, vector)])
    return made


async def told(memory: WritingSetup, *facts: str, decided: str = "create") -> None:
    for number in range(TURNS_PER_EXTRACTION):
        await memory.record_turn(f"{' and '.join(facts)}, {number}", "Ok.")
    notes = extraction_of(*[extracted_fact(text, category="entities") for text in facts])
    memory.model.answers = [notes, ModelVerdicts(results=[ModelVerdict(index=1, decision=decided)])]
    await memory.run_jobs()


def test_measures_are_those_of_the_model() -> None:
    mini = CosineCalibration(median=0.18, percentile_99=0.50)
    squeezed = CosineCalibration(median=0.86, percentile_99=0.93)

    assert mini.near_threshold == pytest.approx(0.571, abs=2e-3)
    assert mini.duplicate_threshold == pytest.approx(0.85, abs=2e-3)
    # Of such a model .85 is what every two texts have.
    assert squeezed.near_threshold == 0.93
    assert squeezed.duplicate_threshold == pytest.approx(0.974, abs=2e-3)
    shares = [squeezed.normalise(cosine) for cosine in (0.5, 0.86, 0.93, 1.0)]
    assert shares == pytest.approx([0.0, 0.0, 0.5, 1.0])


def test_of_few_pairs_nothing_is_concluded() -> None:
    assert calibrate([0.1] * 299) is None
    made = calibrate([number / 1000 for number in range(1000)])
    assert made is not None
    assert (made.median, made.percentile_99) == (0.499, 0.989)


@pytest.mark.parametrize("squeezed", [False, True])
async def test_the_same_in_other_words_is_kept_once(tmp_path: Path, *, squeezed: bool) -> None:
    service = FakeEmbedder(squeezed=squeezed)
    async with build_with_embedder(tmp_path, service, known=len(THINGS) * 2) as memory:
        await learn(memory, service, "window opens")
        before = set(await memory.texts(*DRAWN))
        await told(memory, "My car drives well", "My automobile drives well", "The dog sleeps")

        assert set(await memory.texts(*DRAWN)) - before == {"My car drives well", "The dog sleeps"}
        assert len(service.asked) == 1


async def test_meanings_never_make_one_of_what_denies_it(tmp_path: Path) -> None:
    service = FakeEmbedder()
    async with build_with_embedder(tmp_path, service) as memory:
        await learn(memory, service, "window opens")
        before = len(await memory.list_entries(*DRAWN))
        await told(memory, "My car drives well at 90", "My automobile drives well at 50")

        assert len(await memory.list_entries(*DRAWN)) == before + 2


async def test_what_is_near_by_its_meaning_is_asked_about(tmp_path: Path) -> None:
    service = FakeEmbedder()
    async with build_with_embedder(tmp_path, service) as memory:
        held = await learn(memory, service, "puppy vehicle beverage")
        await told(memory, "dog car drink", decided="support")

        [_, verdicts] = memory.model.queries
        [note] = json.loads(verdicts.prompt)["notes"]
        assert note["there"][0]["text"] == held.text
        [now] = [each for each in await memory.list_entries(*DRAWN) if each.id == held.id]
        assert len(now.evidence) == 1


async def test_what_means_the_same_is_not_new(tmp_path: Path) -> None:
    service = FakeEmbedder()
    async with build_with_embedder(tmp_path, service) as memory:
        await learn(memory, service, "puppy vehicle beverage")
        seen = memory.extraction_worker.matcher
        assert seen is not None
        for number in range(TURNS_PER_EXTRACTION):
            await memory.record_turn(f"dog car drink {number}", "Ok.")
        cells = await memory.list_entries(MemoryKind.CELL)
        [fact] = validate_facts(
            extraction_of(extracted_fact("dog car drink", category="entities")), cells, str
        ).facts
        sensed = await seen.embed_facts([fact])
        assert sensed is not None
        by_meaning = await memory.consolidator.compare(fact, sensed.similar_to(fact))
        by_words = await memory.consolidator.compare(fact)

        rule, now = PRESET_RULES[AdmissionPreset.BALANCED], memory.world.clock()
        assert compute_features(rule, by_words, "", now).novelty == 1.0
        assert compute_features(rule, by_meaning, "", now).novelty < 0.5


async def test_with_little_to_compare_words_have_to_do(tmp_path: Path) -> None:
    service = FakeEmbedder()
    async with build_with_embedder(tmp_path, service, known=3) as memory:
        await told(memory, "My car drives well", "My automobile drives well")

        assert len(await memory.list_entries(*DRAWN)) == 5
        assert service.asked == []


async def test_a_service_that_fails_keeps_nothing_back(tmp_path: Path) -> None:
    service = FakeEmbedder(fails=True)
    async with build_with_embedder(tmp_path, service) as memory:
        await learn(memory, service, "window opens")
        before = len(await memory.list_entries(*DRAWN))
        await told(memory, "My car drives well", "My automobile drives well")

        assert len(await memory.list_entries(*DRAWN)) == before + 2
