"""Texts as vectors, by any service that speaks OpenAI's embeddings API."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import TYPE_CHECKING, Any
from zlib import crc32

if TYPE_CHECKING:
    import httpx

BATCH = 64
_LONGEST = 6_000
"""Characters of one text."""
_PART = re.compile(r"[^a-z0-9]+")
_REFUSALS = (400, 413, 422)
_LARGEST = 16_000_000
"""Bytes of one answer: of 64 vectors there is room for 8,000 numbers each."""


class NoMeaning(Exception):
    """The service cannot be reached, refuses, or gives no vectors. Never holds what was sent.
    `refused` says that it is this very request that it does not want."""

    def __init__(self, why: str, *, refused: bool = False) -> None:
        self.refused = refused
        super().__init__(why)


class Service:
    """One address that takes JSON and gives JSON; its connections are opened on first use."""

    def __init__(self, key: str, *, timeout: float) -> None:
        self._key = key
        self._timeout = timeout
        self._client: httpx.AsyncClient | None = None

    async def post(self, url: str, body: dict[str, Any]) -> Any:
        """Raises NoMeaning."""
        # Some 10 MB that most programs never need.
        import httpx

        if self._client is None:
            bearer = {"authorization": f"Bearer {self._key}"} if self._key else {}
            self._client = httpx.AsyncClient(headers=bearer, trust_env=False)
        try:
            async with asyncio.timeout(self._timeout):
                async with self._client.stream(
                    "POST", url, json=body, timeout=self._timeout
                ) as answer:
                    if answer.status_code != httpx.codes.OK:
                        refused = answer.status_code in _REFUSALS
                        raise NoMeaning(f"status {answer.status_code}", refused=refused)
                    content = await _read(answer)
        except (httpx.HTTPError, TimeoutError, OSError) as error:
            raise NoMeaning(f"no answer: {type(error).__name__}") from None
        try:
            return await asyncio.to_thread(json.loads, content)
        except (ValueError, RecursionError):
            raise NoMeaning("an answer that is no JSON") from None

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None


async def _read(answer: httpx.Response) -> bytes:
    """No more of it than fits, packed or not."""
    content = bytearray()
    async for piece in answer.aiter_bytes():
        content += piece
        if len(content) > _LARGEST:
            raise NoMeaning("an answer that is far too long")
    return bytes(content)


@dataclass(frozen=True, slots=True)
class Prefixes:
    """What some models want in front of a question, and of a text that may answer it: they were
    trained so, and without it find next to nothing (docs/memory.md)."""

    query: str = ""
    passage: str = ""


_KNOWN = {
    "e5": Prefixes("query: ", "passage: "),
    "nomic": Prefixes("search_query: ", "search_document: "),
}
"""By a part of a model's name, as their makers say."""


def prefixes_of(model: str, query: str | None = None, passage: str | None = None) -> Prefixes:
    """Those that are chosen, else those that the model is known to want."""
    parts = set(_PART.split(model.lower()))
    known = next((_KNOWN[each] for each in _KNOWN if each in parts), Prefixes())
    return Prefixes(
        known.query if query is None else query, known.passage if passage is None else passage
    )


class Embedder:
    """`model` is stored with every vector: those of two models, or of one with different words in
    front, cannot be compared."""

    def __init__(
        self, service: Service, base_url: str, model: str, prefixes: Prefixes | None = None
    ) -> None:
        self._service = service
        self._url = f"{base_url.rstrip('/')}/embeddings"
        self._name = model
        self._prefixes = prefixes or prefixes_of(model)
        usual = self._prefixes.passage == prefixes_of(model).passage
        self.model = model if usual else f"{model} {crc32(self._prefixes.passage.encode()):08x}"

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Vectors of length 1, one for each text, in order. Raises NoMeaning."""
        return await self._vectors(self._prefixes.passage, texts)

    async def embed_query(self, query: str) -> Sequence[float]:
        """Of what is looked for. Raises NoMeaning."""
        [vector] = await self._vectors(self._prefixes.query, [query])
        return vector

    async def _vectors(self, prefix: str, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        body = {
            "model": self._name,
            "input": [f"{prefix}{text[:_LONGEST]}" or " " for text in texts],
            "encoding_format": "float",
        }
        return _vectors(await self._service.post(self._url, body), len(texts))


def _vectors(answer: Any, wanted: int) -> Sequence[Sequence[float]]:
    try:
        rows = sorted(answer["data"], key=lambda row: int(row["index"]))
        vectors = [[float(each) for each in row["embedding"]] for row in rows]
    except (TypeError, KeyError, ValueError, OverflowError):
        raise NoMeaning("an answer of another form") from None
    sizes = {len(vector) for vector in vectors}
    if len(vectors) != wanted or len(sizes) != 1 or not sizes.pop():
        raise NoMeaning("not one vector for each text")
    return [_unit(vector) for vector in vectors]


def _unit(vector: Sequence[float]) -> Sequence[float]:
    length = sqrt(sum(each * each for each in vector))
    if not isfinite(length) or length == 0:
        raise NoMeaning("a vector without a direction")
    return [each / length for each in vector]
