"""Starts an MCP server process and connects its standard streams to the SDK's session.

The SDK's own stdio client starts programs itself, without our sandbox and without limits. Imports
the SDK, so it is imported on first use."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Final

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    RequestId,
    jsonrpc_message_adapter,
)

from bot.engine.mcp.client.server_config import McpError
from bot.engine.sandbox import supervisor
from bot.engine.sandbox.spec import SandboxLaunch
from storage.data_directory import user_mask

MAX_LINE_BYTES = 8_000_000
"""A larger message is skipped, and the pending calls fail."""

MAX_BYTES_PER_REQUEST = 64_000_000
MAX_LINES_PER_REQUEST = 10_000
"""Bytes and lines that a server may send after one of our requests, before it is stopped."""

GRACE_SECONDS = 2.0
"""Seconds for a server to exit after its input is closed."""

_MAX_UNREAD_ANSWERS = 64
_ERROR_OUTPUT_BYTES = 2_000
_LAST_WORDS_SECONDS = 0.2
_MAX_REASON_CHARS = 300
_ENDED = "the server has ended"
_TOO_LARGE: Final = object()


class StdioConnection:
    """The connection to one process. `incoming` and `outgoing` are for the session; when the
    connection has ended, `ended` is set and `end_reason` says why."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        send_in, self.incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        self.outgoing, receive_out = anyio.create_memory_object_stream[SessionMessage](0)
        self.end_reason = ""
        self.ended = asyncio.Event()
        self._process = process
        self._to_session = send_in
        self._from_session = receive_out
        self._unanswered: set[RequestId] = set()
        self._unread_answers = 0
        self._received_bytes = self._received_lines = 0
        self._error_output = b""

    async def run(self) -> None:
        """Carry messages until the process or the session ends."""
        errors = asyncio.create_task(self._read_errors(), name="mcp errors")
        others = (asyncio.create_task(self._write(), name="mcp input"), errors)
        try:
            why = await self._read()
            await asyncio.wait((errors,), timeout=_LAST_WORDS_SECONDS)
            self.end_reason = self._explain(why)
        finally:
            self.ended.set()
            self.close()
            for each in others:
                each.cancel()
            await asyncio.wait(others)

    def close(self) -> None:
        for stream in (self._to_session, self._from_session, self.incoming, self.outgoing):
            stream.close()

    async def _read(self) -> str:
        """Pass on what the process sends; return why that ended."""
        try:
            while line := await self._next_line():
                if line is _TOO_LARGE:
                    await self._fail_calls("the server's answer is too large")
                elif isinstance(line, bytes) and (message := _parse_line(line)) is not None:
                    self._note_received(message)
                    await self._to_session.send(SessionMessage(message))
        except McpError as error:
            return str(error)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the session has closed
        return _ENDED

    async def _next_line(self) -> bytes | object:
        """Return the next line, _TOO_LARGE for one that was skipped, or b"" at the end. Raises
        McpError."""
        assert self._process.stdout is not None
        is_skipped = False
        while True:
            try:
                line = await self._process.stdout.readuntil(b"\n")
            except asyncio.IncompleteReadError:
                return b""
            except asyncio.LimitOverrunError as over:
                await self._process.stdout.readexactly(over.consumed)
                self._count(over.consumed)
                is_skipped = True
                continue
            self._count(len(line))
            self._received_lines += 1
            return _TOO_LARGE if is_skipped else line

    def _count(self, size: int) -> None:
        self._received_bytes += size
        too_many = self._received_lines > MAX_LINES_PER_REQUEST
        if too_many or self._received_bytes > MAX_BYTES_PER_REQUEST:
            raise McpError("the server sends without end")

    def _note_received(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCRequest):
            # Each gets an answer; a server that does not read the answers would fill our memory.
            self._unread_answers += 1
            if self._unread_answers > _MAX_UNREAD_ANSWERS:
                raise McpError("the server asks without reading the answers")
        elif not isinstance(message, JSONRPCNotification) and message.id is not None:
            self._unanswered.discard(message.id)

    async def _fail_calls(self, why: str) -> None:
        for each in tuple(self._unanswered):
            self._unanswered.discard(each)
            error = ErrorData(code=INTERNAL_ERROR, message=why)
            await self._to_session.send(
                SessionMessage(JSONRPCError(jsonrpc="2.0", id=each, error=error))
            )

    async def _write(self) -> None:
        assert self._process.stdin is not None
        try:
            async for sent in self._from_session:
                message = sent.message
                if isinstance(message, JSONRPCRequest):
                    self._unanswered.add(message.id)
                    self._received_bytes = self._received_lines = 0
                line = message.model_dump_json(by_alias=True, exclude_unset=True)
                self._process.stdin.write(line.encode() + b"\n")
                await self._process.stdin.drain()
                if not isinstance(message, JSONRPCRequest | JSONRPCNotification):
                    self._unread_answers -= 1
        except (OSError, RuntimeError):
            pass  # the reader sees the end too
        finally:
            self._from_session.close()

    async def _read_errors(self) -> None:
        """Keep the end of what the process prints for people."""
        assert self._process.stderr is not None
        with suppress(OSError):
            while data := await self._process.stderr.read(_ERROR_OUTPUT_BYTES):
                self._error_output = (self._error_output + data)[-_ERROR_OUTPUT_BYTES:]

    def _explain(self, why: str) -> str:
        said = self._error_output.decode("utf-8", "replace").split("\n")
        last = next((line.strip() for line in reversed(said) if line.strip()), "")
        return f"{why}: {last[:_MAX_REASON_CHARS]}" if last and why == _ENDED else why


def _parse_line(line: bytes) -> JSONRPCMessage | None:
    """None for a line that is no message: some servers also print other output."""
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return None


@asynccontextmanager
async def open_stdio(launch: SandboxLaunch) -> AsyncGenerator[StdioConnection, None]:
    """Start the process, and kill it with its descendants at the end. Raises McpError."""
    try:
        process = await asyncio.create_subprocess_exec(
            *launch.argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=launch.cwd,
            env=launch.env,
            start_new_session=True,
            umask=user_mask(),
            limit=MAX_LINE_BYTES,
        )
    except (OSError, ValueError) as error:
        raise McpError(f"it could not be started: {error}") from error
    connection = StdioConnection(process)
    carrying = asyncio.create_task(connection.run(), name="mcp")
    try:
        yield connection
    finally:
        connection.close()
        await asyncio.shield(_shut_down(process, carrying))


async def _shut_down(process: asyncio.subprocess.Process, carrying: asyncio.Task[None]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    with suppress(TimeoutError):
        async with asyncio.timeout(GRACE_SECONDS):
            await process.wait()
    await asyncio.to_thread(_kill, process.pid)
    carrying.cancel()
    await asyncio.wait((carrying,))
    with suppress(TimeoutError):
        async with asyncio.timeout(GRACE_SECONDS):
            await process.wait()
    # If another process holds the pipe, asyncio never notices the end; there is no public API.
    process._transport.close()  # type: ignore[attr-defined] # noqa: SLF001 - see above


def _kill(pid: int) -> None:
    supervisor.kill_descendants(pid)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
