"""What facts mean beside each other and beside what is there, where there is an embedder. How near
is near is told by each model's own vectors: of some every two texts have a cosine of .86."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from bot.engine.memory.meaning.embedder import NoMeaning
from bot.engine.memory.meaning.meanings import embedded
from bot.engine.memory.writing.drawing.alike import agree
from bot.engine.memory.writing.drawing.facts import Fact
from storage.memory.index import Hit
from storage.records.memory.entries import MemoryKind, Scope

log = logging.getLogger(__name__)

_SAMPLE = 60
_LEAST_PAIRS = 300
_KEPT = timedelta(hours=1)
_IN_TIME = 10.0
_LOOKED_AT = 32
_NEAR, _CLOSE = 0.477, 0.817
"""Of the way from any two texts to the same one: what cosines of .571 and .85 are for a model of
which two texts have .18."""
_HIGH = 0.99


class Embeds(Protocol):
    @property
    def model(self) -> str: ...

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]: ...


class Finds(Protocol):
    async def near(
        self,
        scopes: Sequence[Scope],
        model: str,
        vector: Sequence[float],
        limit: int,
        *,
        kinds: Sequence[MemoryKind],
    ) -> Sequence[Hit]: ...


class Samples(Protocol):
    async def cosines(self, model: str, kinds: Sequence[MemoryKind], most: int) -> list[float]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """`usual` is the median cosine of any two texts, `high` is passed by one pair of a hundred."""

    usual: float
    high: float

    @property
    def near(self) -> float:
        """From here on two texts may be about the same."""
        return min(self.close, max(self.high, self._at(_NEAR)))

    @property
    def close(self) -> float:
        """Above this they say the same."""
        return self._at(_CLOSE)

    def share(self, cosine: float) -> float:
        """How far it is from any two texts to the same one, from 0 to 1."""
        room = 1.0 - self.usual
        return min(1.0, max(0.0, (cosine - self.usual) / room)) if room > 0 else 0.0

    def _at(self, share: float) -> float:
        return self.usual + share * (1.0 - self.usual)


def calibrated(cosines: Sequence[float]) -> Calibration | None:
    """Of pairs, the least first. None where they are too few to tell."""
    if len(cosines) < _LEAST_PAIRS:
        return None
    last = len(cosines) - 1
    return Calibration(usual=cosines[last // 2], high=cosines[int(_HIGH * last)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """An entry by its number; `share` says how near it is, from 0 for any to 1 for the same."""

    number: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensed:
    """Facts of one answer, with what each means and what is near it, in their order."""

    facts: Sequence[Fact]
    vectors: Sequence[Sequence[float]]
    found: Sequence[Sequence[Near]]
    calibration: Calibration

    def near(self, fact: Fact) -> Sequence[Near]:
        return self.found[self._at(fact)]

    def is_twin(self, one: Fact, other: Fact) -> bool:
        """Whether they say the same in other words. Meanings overlook figures and denials."""
        if (one.scope, one.person) != (other.scope, other.person):
            return False
        left, right = self.vectors[self._at(one)], self.vectors[self._at(other)]
        cosine = sum(a * b for a, b in zip(left, right, strict=True))
        return cosine > self.calibration.close and agree(one.text, other.text)

    def _at(self, fact: Fact) -> int:
        return next(at for at, each in enumerate(self.facts) if each is fact)


@dataclass(slots=True, kw_only=True)
class Sense:
    embeds: Embeds
    finds: Finds
    samples: Samples
    kinds: Sequence[MemoryKind]
    now: Callable[[], datetime]
    _known: tuple[str, datetime, Calibration | None] | None = field(default=None, init=False)

    async def of(self, facts: Sequence[Fact]) -> Sensed | None:
        """None where words have to do: too little is there to compare with, or the service does
        not answer in time."""
        if not facts:
            return None
        calibration = await self._calibration()
        if calibration is None:
            return None
        texts = [
            embedded(each.last.said_at, each.last.sender if each.person else "", each.text)
            for each in facts
        ]
        try:
            async with asyncio.timeout(_IN_TIME):
                vectors = await self.embeds.embed(texts)
        except (NoMeaning, TimeoutError) as error:
            log.info("facts are compared by words only: %r", error)
            return None
        found = [
            await self._found(fact, vector, calibration)
            for fact, vector in zip(facts, vectors, strict=True)
        ]
        return Sensed(facts=facts, vectors=vectors, found=found, calibration=calibration)

    async def _found(
        self, fact: Fact, vector: Sequence[float], calibration: Calibration
    ) -> Sequence[Near]:
        hits = await self.finds.near(
            [fact.scope], self.embeds.model, vector, _LOOKED_AT, kinds=self.kinds
        )
        return [
            Near(number=hit.number, share=calibration.share(hit.score))
            for hit in hits
            if hit.score >= calibration.near
        ]

    async def _calibration(self) -> Calibration | None:
        """Looked at anew now and then: there is more to compare with by then."""
        model, now = self.embeds.model, self.now()
        if self._known is not None:
            known, at, held = self._known
            if known == model and now - at < _KEPT:
                return held
        made = calibrated(await self.samples.cosines(model, self.kinds, _SAMPLE))
        self._known = (model, now, made)
        return made
