"""Exchanges JSON-RPC messages with an MCP server process over stdio.

Whatever the process does, each request ends in time with a result or McpError."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

from bot.engine.sandbox import supervisor
from bot.engine.sandbox.spec import SandboxLaunch

MAX_LINE_BYTES = 8_000_000
GRACE_SECONDS = 2.0
"""Seconds for a server to exit after its input is closed."""

_NO_SUCH_METHOD = -32601
MAX_ERROR_CHARS = 300
"""Characters of a server's error message that are reported."""


class McpError(Exception):
    """The server failed or did not answer; `reason_key` is a text key under `mcp.why`, the message
    is for the model."""

    def __init__(self, reason_key: str, text: str) -> None:
        self.reason_key = reason_key
        super().__init__(text)


class McpTransport(Protocol):
    """A connection to an MCP server; implementers must answer or fail each request in time."""

    async def request(self, method: str, params: Mapping[str, Any], *, seconds: float) -> Any:
        """Return the result within `seconds`. Raises McpError."""
        ...

    async def notify(self, method: str) -> None: ...


def unwrap_response(message: Mapping[str, Any]) -> Any:
    """Return a response's result. Raises McpError for errors."""
    if "error" in message:
        error = message["error"]
        text = error.get("message") if isinstance(error, dict) else error
        raise McpError("refused", str(text)[:MAX_ERROR_CHARS])
    return message.get("result")


class McpStdioTransport:
    """Satisfies `McpTransport` for one process; requests may overlap."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._last_id = 0
        self._end_reason = ""

    async def request(self, method: str, params: Mapping[str, Any], *, seconds: float) -> Any:
        if self._end_reason:
            raise McpError("ended", self._end_reason)
        self._last_id += 1
        number = self._last_id
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(seconds):
                await self._send({"id": number, "method": method, "params": params})
                return await answer
        except TimeoutError:
            raise McpError("slow", f"it gave no answer within {seconds:g} s") from None
        finally:
            self._waiting.pop(number, None)

    async def notify(self, method: str) -> None:
        await self._send({"method": method})

    async def listen(self) -> None:
        """Process the server's output until it ends; runs concurrently with requests."""
        why = "the server has ended"
        try:
            assert self._process.stdout is not None
            while line := await self._process.stdout.readline():
                await self._receive(line)
        except ValueError:
            why = "the server sent a message that is too large"
        finally:
            self._end_reason = why
            for each in self._waiting.values():
                if not each.done():
                    each.set_exception(McpError("ended", why))

    async def _receive(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return  # some servers also print other output
        if not isinstance(message, dict):
            return
        if "method" in message:
            if message.get("id") is not None:
                await self._refuse(message)
            return
        answer = self._waiting.get(message["id"]) if isinstance(message.get("id"), int) else None
        if answer is None or answer.done():
            return
        try:
            answer.set_result(unwrap_response(message))
        except McpError as error:
            answer.set_exception(error)

    async def _refuse(self, message: Mapping[str, Any]) -> None:
        """Answer pings and reject other requests."""
        if message["method"] == "ping":
            await self._send({"id": message["id"], "result": {}})
            return
        error = {"code": _NO_SUCH_METHOD, "message": "not offered"}
        await self._send({"id": message["id"], "error": error})

    async def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        line = json.dumps({"jsonrpc": "2.0", **message}, default=str) + "\n"
        try:
            self._process.stdin.write(line.encode("utf-8", "replace"))
            await self._process.stdin.drain()
        except (OSError, RuntimeError) as error:
            raise McpError("ended", "the server has ended") from error


@asynccontextmanager
async def open_stdio(launch: SandboxLaunch) -> AsyncGenerator[McpStdioTransport, None]:
    """Start the process, and kill it with its descendants at the end. Raises McpError."""
    try:
        process = await asyncio.create_subprocess_exec(
            *launch.argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=launch.cwd,
            env=launch.env,
            start_new_session=True,
            limit=MAX_LINE_BYTES,
        )
    except (OSError, ValueError) as error:
        raise McpError("start", f"it could not be started: {error}") from error
    transport = McpStdioTransport(process)
    listening = asyncio.create_task(transport.listen(), name="mcp")
    try:
        yield transport
    finally:
        await asyncio.shield(_shut_down(process, listening))


async def _shut_down(process: asyncio.subprocess.Process, listening: asyncio.Task[None]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    with suppress(TimeoutError):
        async with asyncio.timeout(GRACE_SECONDS):
            await process.wait()
    await asyncio.to_thread(_kill, process.pid)
    listening.cancel()
    await asyncio.wait((listening,))
    if not listening.cancelled():
        listening.exception()  # retrieved because no request waits for it
    with suppress(TimeoutError):
        async with asyncio.timeout(GRACE_SECONDS):
            await process.wait()
    # If another process holds the pipe, asyncio never notices the end; there is no public API.
    process._transport.close()  # type: ignore[attr-defined] # noqa: SLF001 - see above


def _kill(pid: int) -> None:
    supervisor.kill_descendants(pid)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
