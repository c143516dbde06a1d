"""A collector of spans on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class OtlpEmulator:
    """Answers every request with `status`, and keeps it: its head, and what it brought."""

    url: str = ""
    status: int = 200
    heads: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    @property
    def spans(self) -> list[Any]:
        """All spans that came, in order."""
        requests = (ExportTraceServiceRequest.FromString(body) for body in self.bodies)
        return [
            span
            for request in requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines = [line for line in head.splitlines()[1:] if line]
        fields = dict(line.lower().split(": ", 1) for line in lines)
        self.bodies.append(await reader.readexactly(int(fields["content-length"])))
        self.heads.append(head)
        answer = f"HTTP/1.1 {self.status} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        writer.write(answer.encode())
        await writer.drain()
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def otlp_emulator(status: int = 200) -> AsyncIterator[OtlpEmulator]:
    emulator = OtlpEmulator(status=status)
    server = await asyncio.start_server(emulator.serve, "127.0.0.1", 0)
    async with server:
        emulator.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield emulator
