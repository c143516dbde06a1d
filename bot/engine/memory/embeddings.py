"""Embeddings through an OpenAI-compatible API, cross-encoder reranking (Jina and TEI formats), and
the background embedding of entries. Without a service, search uses words only."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from math import isfinite, sqrt
from typing import TYPE_CHECKING, Any
from zlib import crc32

from bot.config.tls import tls_context
from bot.engine.memory.change_feed import MemoryChangeFeed
from bot.engine.memory.ports import EmbeddingFailed, TextEmbedder, embedding_text
from bot.engine.memory.retriever import min_max_normalise
from storage.db import Database
from storage.errors import StoreUnavailable
from storage.records.memory import MemoryEntry, MemoryKind, MemoryScope
from storage.search.inverted_index import SearchHit
from storage.search.vectors import VectorRepo

if TYPE_CHECKING:
    import httpx

BATCH_SIZE = 64
_MAX_TEXT_CHARS = 6_000
"""Characters per text."""
_MODEL_NAME_SEPARATOR = re.compile(r"[^a-z0-9]+")
_REFUSAL_STATUSES = (400, 413, 422)
_MAX_RESPONSE_BYTES = 16_000_000
"""Response limit in bytes: 64 vectors of up to 8,000 numbers."""


class InferenceEndpoint:
    """One JSON-over-HTTP endpoint; connects on first use."""

    def __init__(self, key: str, *, timeout: float) -> None:
        self._key = key
        self._timeout = timeout
        self._client: httpx.AsyncClient | None = None

    async def post(self, url: str, body: dict[str, Any]) -> Any:
        """Raises EmbeddingFailed."""
        # Imported here: about 10 MB of memory that most installations do not need.
        import httpx

        if self._client is None:
            bearer = {"authorization": f"Bearer {self._key}"} if self._key else {}
            self._client = httpx.AsyncClient(headers=bearer, trust_env=False, verify=tls_context())
        try:
            async with asyncio.timeout(self._timeout):
                async with self._client.stream(
                    "POST", url, json=body, timeout=self._timeout
                ) as answer:
                    if answer.status_code != httpx.codes.OK:
                        refused = answer.status_code in _REFUSAL_STATUSES
                        raise EmbeddingFailed(f"status {answer.status_code}", refused=refused)
                    content = await _read_limited(answer)
        except (httpx.HTTPError, TimeoutError, OSError) as error:
            raise EmbeddingFailed(f"no answer: {type(error).__name__}") from None
        try:
            return await asyncio.to_thread(json.loads, content)
        except (ValueError, RecursionError):
            raise EmbeddingFailed("an answer that is no JSON") from None

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None


async def _read_limited(answer: httpx.Response) -> bytes:
    """Read the body, decompressed, up to the limit."""
    content = bytearray()
    async for piece in answer.aiter_bytes():
        content += piece
        if len(content) > _MAX_RESPONSE_BYTES:
            raise EmbeddingFailed("an answer that is far too long")
    return bytes(content)


@dataclass(frozen=True, slots=True)
class EmbeddingPrefixes:
    """Prefixes that some models need before queries and passages; without them their results are
    poor (docs/reference/memory.md)."""

    query: str = ""
    passage: str = ""


_KNOWN_PREFIXES = {
    "e5": EmbeddingPrefixes("query: ", "passage: "),
    "nomic": EmbeddingPrefixes("search_query: ", "search_document: "),
}
"""By part of the model name, as documented by the vendors."""


def resolve_prefixes(
    model: str, query: str | None = None, passage: str | None = None
) -> EmbeddingPrefixes:
    """The configured prefixes, or those of a known model."""
    parts = set(_MODEL_NAME_SEPARATOR.split(model.lower()))
    known = next(
        (_KNOWN_PREFIXES[each] for each in _KNOWN_PREFIXES if each in parts), EmbeddingPrefixes()
    )
    return EmbeddingPrefixes(
        known.query if query is None else query, known.passage if passage is None else passage
    )


class EmbeddingClient:
    """Embeds texts. `model` is stored with every vector, since vectors of different models or
    prefixes are not comparable."""

    def __init__(
        self,
        endpoint: InferenceEndpoint,
        base_url: str,
        model: str,
        prefixes: EmbeddingPrefixes | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._url = f"{base_url.rstrip('/')}/embeddings"
        self._model_name = model
        self._prefixes = prefixes or resolve_prefixes(model)
        usual = self._prefixes.passage == resolve_prefixes(model).passage
        self.model = model if usual else f"{model} {crc32(self._prefixes.passage.encode()):08x}"

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """One vector of length 1 per text, in order. Raises EmbeddingFailed."""
        return await self._vectors(self._prefixes.passage, texts)

    async def embed_query(self, query: str) -> Sequence[float]:
        """Raises EmbeddingFailed."""
        [vector] = await self._vectors(self._prefixes.query, [query])
        return vector

    async def aclose(self) -> None:
        await self._endpoint.aclose()

    async def _vectors(self, prefix: str, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        body = {
            "model": self._model_name,
            "input": [f"{prefix}{text[:_MAX_TEXT_CHARS]}" or " " for text in texts],
            "encoding_format": "float",
        }
        return _parse_vectors(await self._endpoint.post(self._url, body), len(texts))


def _parse_vectors(answer: Any, wanted: int) -> Sequence[Sequence[float]]:
    try:
        rows = sorted(answer["data"], key=lambda row: int(row["index"]))
        vectors = [[float(each) for each in row["embedding"]] for row in rows]
    except (TypeError, KeyError, ValueError, OverflowError):
        raise EmbeddingFailed("an answer of another form") from None
    sizes = {len(vector) for vector in vectors}
    if len(vectors) != wanted or len(sizes) != 1 or not sizes.pop():
        raise EmbeddingFailed("not one vector for each text")
    return [_to_unit_length(vector) for vector in vectors]


def _to_unit_length(vector: Sequence[float]) -> Sequence[float]:
    length = sqrt(sum(each * each for each in vector))
    if not isfinite(length) or length == 0:
        raise EmbeddingFailed("a vector without a direction")
    return [each / length for each in vector]


log = logging.getLogger(__name__)

_MAX_RERANKED = 20
_MAX_RERANK_CHARS = 2_000


class CrossEncoderReranker:
    """Implements `retriever.Reranker`, in Jina's format with a `model`, in TEI's without."""

    def __init__(self, endpoint: InferenceEndpoint, url: str, model: str = "") -> None:
        self._endpoint = endpoint
        self._url = url
        self._model = model

    async def score(self, query: str, texts: Sequence[str]) -> Mapping[int, float]:
        shown = [text[:_MAX_RERANK_CHARS] for text in texts[:_MAX_RERANKED]]
        body: dict[str, Any] = {"query": query[:_MAX_RERANK_CHARS], "texts": shown}
        if self._model:
            body = {
                "model": self._model,
                "query": query[:_MAX_RERANK_CHARS],
                "documents": shown,
                "top_n": len(shown),
            }
        try:
            return _parse_scores(await self._endpoint.post(self._url, body), len(shown))
        except EmbeddingFailed as error:
            log.warning("search results are not reranked: %s", error)
            return {}


def _parse_scores(answer: Any, most: int) -> Mapping[int, float]:
    try:
        rows = answer["results"] if isinstance(answer, dict) else answer
        scores = {
            int(row["index"]): float(row["relevance_score"] if "score" not in row else row["score"])
            for row in rows
        }
    except (TypeError, KeyError, ValueError, OverflowError):
        raise EmbeddingFailed("an answer of another form") from None
    kept = {at: score for at, score in scores.items() if 0 <= at < most and isfinite(score)}
    within = all(0 <= score <= 1 for score in kept.values())
    return kept if within else min_max_normalise(kept)


EMBEDDED_KINDS = tuple(kind for kind in MemoryKind if kind is not MemoryKind.HANDBOOK)
_QUERY_TIMEOUT = 3.0
"""Seconds; then the search continues with words only."""
_FAILURE_PAUSE = 60.0
"""Seconds without query embedding after a failure."""
_MIN_PAUSE, _MAX_PAUSE = 5.0, 600.0
_QUERY_CACHE_SIZE = 64


@dataclass(slots=True, kw_only=True)
class EmbeddingIndex:
    """A service that embeds entries, and an implementation of `retriever.VectorRetriever`."""

    db: Database
    vectors: VectorRepo
    embedder: TextEmbedder
    feed: MemoryChangeFeed
    sleep: Callable[[float], Awaitable[None]]
    clock: Callable[[], float]
    name: str = "memory meanings"
    _query_cache: OrderedDict[str, Sequence[float]] = field(default_factory=OrderedDict, init=False)
    _refused: set[int] = field(default_factory=set, init=False)
    _paused_until: float = field(default=0.0, init=False)

    async def start(self, stack: AsyncExitStack) -> None:
        stack.push_async_callback(self.embedder.aclose)

    async def run(self) -> None:
        """Embed all entries without a vector of this model, then follow changes."""
        listener = self.feed.subscribe()
        pause = _MIN_PAUSE
        while True:
            try:
                while await self.embed_next_batch():
                    pause = _MIN_PAUSE
                await listener.wait()
            except (EmbeddingFailed, StoreUnavailable) as error:
                log.warning("memories are found by words only: %s", error)
                await self.sleep(pause)
                pause = min(2 * pause, _MAX_PAUSE)

    async def embed_next_batch(self) -> int:
        """Embed the next entries and return their number."""
        model = self.embedder.model
        entries = await self.vectors.list_without_vector(
            model, EMBEDDED_KINDS, BATCH_SIZE, excluding=self._refused
        )
        if not entries:
            return 0
        try:
            made = await self._embed_entries(entries)
        except EmbeddingFailed as error:
            if not error.refused:
                raise
            # Retry one by one, since one text may have caused the refusal.
            made = [pair for each in entries for pair in await self._embed_alone(each)]
        async with self.db.write() as tx:
            await self.vectors.put(tx, model, made)
        return len(entries)

    async def _embed_entries(
        self, entries: Sequence[MemoryEntry]
    ) -> list[tuple[MemoryEntry, Sequence[float]]]:
        texts = [embedding_text(each.said_at, each.sender, each.text) for each in entries]
        vectors = await self.embedder.embed(texts)
        return list(zip(entries, vectors, strict=True))

    async def _embed_alone(self, entry: MemoryEntry) -> list[tuple[MemoryEntry, Sequence[float]]]:
        try:
            return await self._embed_entries([entry])
        except EmbeddingFailed as error:
            if not error.refused:
                raise
            self._refused.add(entry.number)
            return []

    async def find_nearest(
        self, scopes: Sequence[MemoryScope], query: str, limit: int, kinds: Sequence[MemoryKind]
    ) -> Sequence[SearchHit]:
        vector = await self._query_vector(query)
        if vector is None:
            return ()
        return await self.vectors.near(scopes, self.embedder.model, vector, limit, kinds=kinds)

    async def _query_vector(self, query: str) -> Sequence[float] | None:
        if query in self._query_cache:
            self._query_cache.move_to_end(query)
            return self._query_cache[query]
        if self.clock() < self._paused_until:
            return None
        try:
            async with asyncio.timeout(_QUERY_TIMEOUT):
                vector = await self.embedder.embed_query(query)
        except (EmbeddingFailed, TimeoutError) as error:
            log.warning("searched by words only: %r", error)
            self._paused_until = self.clock() + _FAILURE_PAUSE
            return None
        self._query_cache[query] = vector
        while len(self._query_cache) > _QUERY_CACHE_SIZE:
            self._query_cache.popitem(last=False)
        return vector
