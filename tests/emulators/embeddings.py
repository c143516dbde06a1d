"""A service that turns texts into vectors and judges how well they fit, as real ones do."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from tests.emulators.models.http_server import HttpAnswer, HttpRequest, HttpServer

KEY = "embedding-key"
_DIM = 64
_WORD = re.compile(r"[a-z]+|[\u4e00-\u9fff]")
_SAME = {
    "automobile": "car",
    "vehicle": "car",
    "车": "car",
    "canine": "dog",
    "puppy": "dog",
    "狗": "dog",
    "beverage": "drink",
}


@dataclass
class EmbeddingService:
    """`asked` are the texts of each request for vectors, `judged` the bodies of each for a
    judgement. `status` is answered to all where it is set; texts with `hates` are refused."""

    models: set[str] = field(default_factory=lambda: {"small", "other"})
    embedding_requests: list[list[str]] = field(default_factory=list)
    rerank_requests: list[dict[str, Any]] = field(default_factory=list)
    status: int = 200
    rejected_text: str = ""
    garbage: str = ""
    url: str = ""

    async def handle(self, request: HttpRequest, answer: HttpAnswer) -> None:
        if request.headers.get("authorization") != f"Bearer {KEY}":
            await answer.json(401, {"error": {"message": "wrong key"}})
            return
        body = json.loads(request.body)
        if self.status != 200:
            await answer.json(self.status, {"error": {"message": "scripted failure"}})
        elif self.garbage:
            await answer.whole(200, self.garbage.encode())
        elif request.path == "/v1/embeddings":
            await self._embed(body, answer)
        elif request.path == "/rerank":
            await self._rerank(body, answer)
        else:
            await answer.json(404, {"error": {"message": "no such path"}})

    async def _embed(self, body: dict[str, Any], answer: HttpAnswer) -> None:
        texts = body["input"]
        good = isinstance(texts, list) and texts and all(isinstance(each, str) for each in texts)
        if body["model"] not in self.models or not good:
            await answer.json(400, {"error": {"message": "bad request"}})
            return
        self.embedding_requests.append(texts)
        if self.rejected_text and any(self.rejected_text in text for text in texts):
            await answer.json(400, {"error": {"message": "too long"}})
            return
        data = [
            {"object": "embedding", "index": at, "embedding": vector_of(text, body["model"])}
            for at, text in enumerate(texts)
        ]
        await answer.json(200, {"object": "list", "data": data[::-1], "model": body["model"]})

    async def _rerank(self, body: dict[str, Any], answer: HttpAnswer) -> None:
        self.rerank_requests.append(body)
        jina = "model" in body
        texts = body["documents" if jina else "texts"]
        name = "relevance_score" if jina else "score"
        wanted = set(_words(body["query"]))
        scores = [len(wanted & set(_words(text))) / max(1, len(wanted)) for text in texts]
        rows = [{"index": at, name: score} for at, score in enumerate(scores)]
        rows.sort(key=lambda row: -row[name])
        await answer.json(200, {"results": rows} if jina else rows)


def vector_of(text: str, model: str) -> list[float]:
    """Words of the same meaning point the same way."""
    vector = [0.01] * _DIM
    for word in _words(text):
        vector[crc32(f"{model}:{word}".encode()) % _DIM] += 1.0
    return vector


def _words(text: str) -> list[str]:
    return [_SAME.get(word, word) for word in _WORD.findall(text.lower())]


@asynccontextmanager
async def embedding_service() -> AsyncIterator[EmbeddingService]:
    service = EmbeddingService()
    server = HttpServer(service.handle, lambda _request: None)
    await server.start()
    service.url = f"http://127.0.0.1:{server.port}"
    try:
        yield service
    finally:
        await server.stop()
