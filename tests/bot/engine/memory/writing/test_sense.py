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

from bot.engine.memory.meaning.embedder import NoMeaning
from bot.engine.memory.meaning.meanings import embedded
from bot.engine.memory.writing.drawing.admission import RULES, Preset, features
from bot.engine.memory.writing.drawing.facts import held_up
from bot.engine.memory.writing.drawing.sense import Calibration, calibrated
from bot.engine.memory.writing.drawing.verdicts import OneVerdict, Verdicts
from bot.engine.memory.writing.recorder import ENOUGH
from storage.db import Transaction
from storage.records.memory.entries import Entry, MemoryKind, NewEntry
from tests.bot.engine.memory.writing.world import (
    MINE,
    Memory,
    drawn,
    notes_of,
    remembering,
)

DRAWN = (MemoryKind.FACT, MemoryKind.PROFILE, MemoryKind.LONGTERM)
THINGS: tuple[str, ...] = ("lamp", "chair", "river", "bread", "stone", "cloud")
THINGS += ("glove", "wheel", "spoon", "ladder", "candle", "bridge")
SAME = {"automobile": "car", "vehicle": "car", "puppy": "dog", "beverage": "drink"}
DOINGS = ("shines", "breaks")


@dataclass
class Service:
    """Gives vectors by the words of a text, synonyms alike; `squeezed` draws all of them together,
    as some models do."""

    model: str = "small"
    squeezed: bool = False
    fails: bool = False
    asked: list[list[str]] = field(default_factory=list)

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        if self.fails:
            raise NoMeaning("no answer")
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
async def sensing(home: Path, service: Service, known: int = 24) -> AsyncGenerator[Memory, None]:
    async with remembering(home, embeds=service) as memory:
        sentences = [f"{thing} {doing}" for thing in THINGS for doing in DOINGS][:known]
        await learn(memory, service, *sentences)
        yield memory


async def learn(memory: Memory, service: Service, *texts: str) -> Entry:
    """All of them; the last is given back."""
    async with memory.world.db.write() as tx:
        return [await learned(memory, service, tx, text) for text in texts][-1]


async def learned(memory: Memory, service: Service, tx: Transaction, text: str) -> Entry:
    new = NewEntry(kind=MemoryKind.FACT, scope=MINE, text=text)
    made = await memory.entries.add(tx, new, now=memory.world.clock())
    assert made is not None
    vector = service.vector(embedded(made.said_at, made.sender, made.text))
    await memory.vectors.put(tx, service.model, [(made, vector)])
    return made


async def told(memory: Memory, *facts: str, decided: str = "create") -> None:
    for number in range(ENOUGH):
        await memory.say(f"{' and '.join(facts)}, {number}", "Ok.")
    notes = notes_of(*[drawn(text, category="entities") for text in facts])
    memory.notes.answers = [notes, Verdicts(results=[OneVerdict(index=1, decision=decided)])]
    await memory.draw()


def test_measures_are_those_of_the_model() -> None:
    mini = Calibration(usual=0.18, high=0.50)
    squeezed = Calibration(usual=0.86, high=0.93)

    assert mini.near == pytest.approx(0.571, abs=2e-3)
    assert mini.close == pytest.approx(0.85, abs=2e-3)
    # Of such a model .85 is what every two texts have.
    assert squeezed.near == 0.93
    assert squeezed.close == pytest.approx(0.974, abs=2e-3)
    shares = [squeezed.share(cosine) for cosine in (0.5, 0.86, 0.93, 1.0)]
    assert shares == pytest.approx([0.0, 0.0, 0.5, 1.0])


def test_of_few_pairs_nothing_is_concluded() -> None:
    assert calibrated([0.1] * 299) is None
    made = calibrated([number / 1000 for number in range(1000)])
    assert made is not None
    assert (made.usual, made.high) == (0.499, 0.989)


@pytest.mark.parametrize("squeezed", [False, True])
async def test_the_same_in_other_words_is_kept_once(tmp_path: Path, *, squeezed: bool) -> None:
    service = Service(squeezed=squeezed)
    async with sensing(tmp_path, service, known=len(THINGS) * 2) as memory:
        await learn(memory, service, "window opens")
        before = set(await memory.texts(*DRAWN))
        await told(memory, "My car drives well", "My automobile drives well", "The dog sleeps")

        assert set(await memory.texts(*DRAWN)) - before == {"My car drives well", "The dog sleeps"}
        assert len(service.asked) == 1


async def test_meanings_never_make_one_of_what_denies_it(tmp_path: Path) -> None:
    service = Service()
    async with sensing(tmp_path, service) as memory:
        await learn(memory, service, "window opens")
        before = len(await memory.all(*DRAWN))
        await told(memory, "My car drives well at 90", "My automobile drives well at 50")

        assert len(await memory.all(*DRAWN)) == before + 2


async def test_what_is_near_by_its_meaning_is_asked_about(tmp_path: Path) -> None:
    service = Service()
    async with sensing(tmp_path, service) as memory:
        held = await learn(memory, service, "puppy vehicle beverage")
        await told(memory, "dog car drink", decided="support")

        [_, verdicts] = memory.notes.asked
        [note] = json.loads(verdicts.prompt)["notes"]
        assert note["there"][0]["text"] == held.text
        [now] = [each for each in await memory.all(*DRAWN) if each.id == held.id]
        assert len(now.evidence) == 1


async def test_what_means_the_same_is_not_new(tmp_path: Path) -> None:
    service = Service()
    async with sensing(tmp_path, service) as memory:
        await learn(memory, service, "puppy vehicle beverage")
        seen = memory.drawer._sense
        assert seen is not None
        for number in range(ENOUGH):
            await memory.say(f"dog car drink {number}", "Ok.")
        cells = await memory.all(MemoryKind.CELL)
        [fact] = held_up(notes_of(drawn("dog car drink", category="entities")), cells, str).kept
        sensed = await seen.of([fact])
        assert sensed is not None
        by_meaning = await memory.keeper.case(fact, sensed.near(fact))
        by_words = await memory.keeper.case(fact)

        rule, now = RULES[Preset.BALANCED], memory.world.clock()
        assert features(rule, by_words, "", now).novelty == 1.0
        assert features(rule, by_meaning, "", now).novelty < 0.5


async def test_with_little_to_compare_words_have_to_do(tmp_path: Path) -> None:
    service = Service()
    async with sensing(tmp_path, service, known=3) as memory:
        await told(memory, "My car drives well", "My automobile drives well")

        assert len(await memory.all(*DRAWN)) == 5
        assert service.asked == []


async def test_a_service_that_fails_keeps_nothing_back(tmp_path: Path) -> None:
    service = Service(fails=True)
    async with sensing(tmp_path, service) as memory:
        await learn(memory, service, "window opens")
        before = len(await memory.all(*DRAWN))
        await told(memory, "My car drives well", "My automobile drives well")

        assert len(await memory.all(*DRAWN)) == before + 2
