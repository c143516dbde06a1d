"""Services that answer with rubbish, and texts that are made to be read for ever."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from bot.engine.memory.embeddings import CrossEncoderReranker, EmbeddingClient, InferenceEndpoint
from bot.engine.memory.noise_filter import strip_memory_blocks
from bot.engine.memory.ports import EmbeddingFailed
from tests.waiting import WAIT_SECONDS

ONE = {"index": 0, "embedding": [1.0, 2.0]}
HUGE = 10**400


class CannedEndpoint(InferenceEndpoint):
    """A service that gives this answer to everything."""

    def __init__(self, answer: str) -> None:
        super().__init__("", timeout=1)
        self._answer = answer

    async def post(self, url: str, body: dict[str, Any]) -> Any:
        return json.loads(self._answer)


@pytest.mark.parametrize(
    "answer",
    [
        "null",
        "[]",
        '"data"',
        '{"data": null}',
        '{"data": []}',
        json.dumps({"data": [ONE, ONE]}),
        json.dumps({"data": [{**ONE, "index": float("nan")}]}),
        json.dumps({"data": [{**ONE, "index": float("inf")}]}),
        json.dumps({"data": [{**ONE, "embedding": [float("nan"), 1]}]}),
        json.dumps({"data": [{**ONE, "embedding": [float("inf"), 1]}]}),
        json.dumps({"data": [{**ONE, "embedding": [1e300, 1e300]}]}),
        json.dumps({"data": [{**ONE, "embedding": [HUGE]}]}),
        json.dumps({"data": [{**ONE, "embedding": [0, 0]}]}),
        json.dumps({"data": [{**ONE, "embedding": []}]}),
        json.dumps({"data": [{**ONE, "embedding": [[1]]}]}),
        json.dumps({"data": [{**ONE, "embedding": {"a": 1}}]}),
    ],
)
async def test_what_is_no_vector_is_taken_for_none(answer: str) -> None:
    with pytest.raises(EmbeddingFailed):
        await EmbeddingClient(CannedEndpoint(answer), "http://x", "m").embed(["text"])


@pytest.mark.parametrize(
    "answer",
    [
        "null",
        "7",
        '"results"',
        "{}",
        '[{"index": 0}]',
        '[{"index": Infinity, "score": 1}]',
        '[{"index": NaN, "score": 1}]',
        '[{"index": 0, "score": NaN}]',
        f'[{{"index": 0, "score": {HUGE}}}]',
        '[{"index": 99, "score": 1}, {"index": -1, "score": 1}]',
        '{"results": {"0": 1}}',
    ],
)
async def test_what_is_no_judgement_changes_nothing(answer: str) -> None:
    assert (
        await CrossEncoderReranker(CannedEndpoint(answer), "http://x").score("query", ["text"])
        == {}
    )


async def test_of_an_answer_without_an_end_no_more_is_read_than_fits() -> None:
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n[")
        try:
            while True:
                writer.write(b"1," * 500_000)
                sent += 1_000_000
                await writer.drain()
        except ConnectionError:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    service = InferenceEndpoint("", timeout=WAIT_SECONDS)

    with pytest.raises(EmbeddingFailed, match="far too long"):
        await service.post(f"http://127.0.0.1:{port}/", {})

    assert sent < 100_000_000
    await service.aclose()
    server.close()


@pytest.mark.parametrize("name", ["memory", "memories", "earlier", "summary"])
def test_what_is_opened_without_an_end_is_read_once(name: str) -> None:
    text = f"<{name}>{' ' * 3}<{name} " * 100_000

    assert strip_memory_blocks(text) == text


def test_what_was_told_is_taken_out_and_what_was_said_stays() -> None:
    told = "<memory>\na &lt;/memory>\n</memory>\n\n"

    html = "hello <details><summary>x</summary></details> <memory>"
    assert strip_memory_blocks(f"{told}{html}") == html, "it is what somebody said"
    assert strip_memory_blocks(f"{told}hello {told}<memory> there") == "hello <memory> there"
