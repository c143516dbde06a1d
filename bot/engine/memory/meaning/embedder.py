"""Texts as vectors, by any service that speaks OpenAI's embeddings API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from math import isfinite, sqrt
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx

BATCH = 64
_LONGEST = 6_000
"""Characters of one text."""
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


class Embedder:
    """`model` is stored with every vector: those of two models cannot be compared."""

    def __init__(self, service: Service, base_url: str, model: str) -> None:
        self._service = service
        self._url = f"{base_url.rstrip('/')}/embeddings"
        self.model = model

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Vectors of length 1, one for each text, in order. Raises NoMeaning."""
        body = {
            "model": self.model,
            "input": [text[:_LONGEST] or " " for text in texts],
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
