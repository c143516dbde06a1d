"""Builds memory retrieval and what serves it to other programs, without the rest of the engine: a
hook of a coding CLI has no time to load that."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import tzinfo
from importlib.util import find_spec

from bot.config.settings import Settings
from bot.engine.mcp.server.memory_access import McpMemoryDeps
from bot.engine.memory import embeddings
from bot.engine.memory.change_feed import MemoryChangeFeed
from bot.engine.memory.context_builder import MemoryContextBuilder
from bot.engine.memory.decay import UsageTracker
from bot.engine.memory.embeddings import EmbeddingIndex
from bot.engine.memory.local_embeddings import LocalEmbedder
from bot.engine.memory.ports import TextEmbedder
from bot.engine.memory.retriever import (
    FusionSettings,
    MemoryRetriever,
    SpreadingActivation,
    make_term_extractor,
)
from bot.transports.ports import Clock
from storage.db import Database
from storage.ids import IdGenerator
from storage.memory.access_stats import MemoryUseRepo
from storage.memory.cells import CellRepo, ExtractionJobRepo
from storage.memory.entries import MemoryEntryRepo, MemoryLinkRepo
from storage.memory.linked_memories import LinkedMemoryRepo
from storage.search.inverted_index import InvertedIndex
from storage.search.vectors import VectorRepo

log = logging.getLogger(__name__)

_NUMPY_MISSING = (
    "EMBEDDING_MODEL is set, but numpy is not installed: memories are found by words only."
    " To find them by meaning: pip install 'shiftboss[embeddings]', then restart."
)
_LOCAL_VAGUE_WEIGHT = 2.5
"""Measured for the local model (docs/reference/memory.md)."""
_EMBED_TIMEOUT = 30.0
"""Seconds for a batch; queries have a shorter timeout."""
_RERANK_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRepositories:
    """Repositories of entries, the search index and memory cells, and the feed of changes."""

    feed: MemoryChangeFeed
    index: InvertedIndex
    entries: MemoryEntryRepo
    cells: CellRepo
    linked: LinkedMemoryRepo

    @classmethod
    def create(cls, db: Database, ids: IdGenerator, zone: tzinfo) -> MemoryRepositories:
        index = InvertedIndex(db)
        entries = MemoryEntryRepo(db, ids, index, zone=zone)
        cells = CellRepo(db, entries)
        linked, feed = LinkedMemoryRepo(db, entries), MemoryChangeFeed()
        return cls(feed=feed, index=index, entries=entries, cells=cells, linked=linked)


def build_retriever(
    settings: Settings,
    db: Database,
    memory: MemoryRepositories,
    clock: Clock,
    embedding_index: EmbeddingIndex | None = None,
) -> MemoryRetriever:
    chosen = settings.memory
    key = settings.embedding_api_key.get_secret_value()
    reranker = None
    if chosen.rerank_url:
        endpoint = embeddings.InferenceEndpoint(key, timeout=_RERANK_TIMEOUT)
        reranker = embeddings.CrossEncoderReranker(endpoint, chosen.rerank_url, chosen.rerank_model)
    return MemoryRetriever(
        entries=memory.entries,
        index=memory.index,
        extract_terms=make_term_extractor(settings.zone),
        now=clock.now,
        fusion=FusionSettings(
            kind=chosen.fusion,
            vector_weight=chosen.vector_weight,
            vague_vector_weight=_vague_vector_weight(settings),
            min_share=chosen.recall_cut,
        ),
        vector_retriever=embedding_index,
        associations=SpreadingActivation(MemoryLinkRepo(db)),
        reranker=reranker,
    )


def _vague_vector_weight(settings: Settings) -> float | None:
    chosen = settings.memory.vague_vector_weight
    return _LOCAL_VAGUE_WEIGHT if chosen is None and settings.embeds_locally else chosen


def build_embedding_index(
    settings: Settings, db: Database, memory: MemoryRepositories
) -> EmbeddingIndex | None:
    """None without a configured model or without numpy."""
    if not (settings.embedding_model and (settings.embedding_base_url or settings.embeds_locally)):
        return None
    if find_spec("numpy") is None:
        log.warning(_NUMPY_MISSING)
        return None
    return EmbeddingIndex(
        db=db,
        vectors=VectorRepo(db),
        embedder=_build_embedder(settings),
        feed=memory.feed,
        sleep=asyncio.sleep,
        clock=time.monotonic,
    )


def _build_embedder(settings: Settings) -> TextEmbedder:
    if settings.embeds_locally:
        return LocalEmbedder()
    chosen, model = settings.memory, settings.embedding_model
    endpoint = embeddings.InferenceEndpoint(
        settings.embedding_api_key.get_secret_value(), timeout=_EMBED_TIMEOUT
    )
    prefixes = embeddings.resolve_prefixes(model, chosen.query_prefix, chosen.passage_prefix)
    return embeddings.EmbeddingClient(endpoint, settings.embedding_base_url, model, prefixes)


def build_local_retriever(
    settings: Settings, db: Database, memory: MemoryRepositories, clock: Clock
) -> MemoryRetriever:
    """Calls no network service: for hooks, which must not wait for one."""
    local = settings.memory.model_copy(update={"rerank_url": ""})
    return build_retriever(settings.model_copy(update={"memory": local}), db, memory, clock)


def build_mcp_memory(
    settings: Settings,
    db: Database,
    memory: MemoryRepositories,
    clock: Clock,
    *,
    recall: MemoryRetriever,
    mask: Callable[[str], str],
) -> McpMemoryDeps:
    usage = UsageTracker(db=db, entries=memory.entries, repo=MemoryUseRepo(db), now=clock.now)
    return McpMemoryDeps(
        db=db,
        entries=memory.entries,
        cells=memory.cells,
        recall=recall,
        injection=MemoryContextBuilder(
            entries=memory.entries,
            retriever=recall,
            list_injected=usage.list_injected,
            now=clock.now,
            budget=settings.memory.told_tokens,
            zone=settings.zone,
        ),
        changed=memory.feed,
        jobs=ExtractionJobRepo(db) if settings.memory.extract else None,
        mask=mask,
        now=clock.now,
        zone=settings.zone,
    )
