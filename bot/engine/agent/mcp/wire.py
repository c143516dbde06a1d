"""JSON-RPC with a process over its standard input and output, as the Model Context Protocol has it.

Whatever the other side does (it ends, hangs, floods, lies), a request here ends in time with an
answer or with McpFailed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

from bot.engine.agent.sandbox import keeper
from bot.engine.agent.sandbox.base import Launch

LONGEST_LINE = 8_000_000
GRACE = 2.0
"""Seconds in which a server may end by itself once its input is closed."""

_NO_SUCH_METHOD = -32601
COMPLAINT = 300
"""So much of what a server complains about is told."""


class McpFailed(Exception):
    """The server cannot be used, or did not answer. `why` is a key under `mcp.why`; the text is
    for the model."""

    def __init__(self, why: str, text: str) -> None:
        self.why = why
        super().__init__(text)


class Line(Protocol):
    """A way to a server."""

    async def request(self, method: str, params: Mapping[str, Any], *, seconds: float) -> Any:
        """Its answer in time, else McpFailed."""
        ...

    async def notify(self, method: str) -> None: ...


def answer_in(told: Mapping[str, Any]) -> Any:
    """What a response brings; raises McpFailed for an error."""
    if "error" in told:
        error = told["error"]
        said = error.get("message") if isinstance(error, dict) else error
        raise McpFailed("refused", str(said)[:COMPLAINT])
    return told.get("result")


class Wire:
    """Satisfies `Line`. One process. Requests may overlap."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._last = 0
        self._ended = ""

    async def request(self, method: str, params: Mapping[str, Any], *, seconds: float) -> Any:
        if self._ended:
            raise McpFailed("ended", self._ended)
        self._last += 1
        number = self._last
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(seconds):
                await self._send({"id": number, "method": method, "params": params})
                return await answer
        except TimeoutError:
            raise McpFailed("slow", f"it gave no answer within {seconds:g} s") from None
        finally:
            self._waiting.pop(number, None)

    async def notify(self, method: str) -> None:
        await self._send({"method": method})

    async def listen(self) -> None:
        """Take in what the server says, until it ends; to be run beside the requests."""
        why = "the server has ended"
        try:
            assert self._process.stdout is not None
            while line := await self._process.stdout.readline():
                await self._take(line)
        except ValueError:
            why = "the server said more at once than can be taken in"
        finally:
            self._ended = why
            for each in self._waiting.values():
                if not each.done():
                    each.set_exception(McpFailed("ended", why))

    async def _take(self, line: bytes) -> None:
        try:
            told = json.loads(line)
        except (ValueError, RecursionError):
            return  # some servers print other things as well
        if not isinstance(told, dict):
            return
        if "method" in told:
            if told.get("id") is not None:
                await self._refuse(told)
            return
        answer = self._waiting.get(told["id"]) if isinstance(told.get("id"), int) else None
        if answer is None or answer.done():
            return
        try:
            answer.set_result(answer_in(told))
        except McpFailed as error:
            answer.set_exception(error)

    async def _refuse(self, told: Mapping[str, Any]) -> None:
        """What a server asks of us: we are there, and offer nothing."""
        if told["method"] == "ping":
            await self._send({"id": told["id"], "result": {}})
            return
        error = {"code": _NO_SUCH_METHOD, "message": "not offered"}
        await self._send({"id": told["id"], "error": error})

    async def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        line = json.dumps({"jsonrpc": "2.0", **message}, default=str) + "\n"
        try:
            self._process.stdin.write(line.encode("utf-8", "replace"))
            await self._process.stdin.drain()
        except (OSError, RuntimeError) as error:
            raise McpFailed("ended", "the server has ended") from error


@asynccontextmanager
async def wired(launch: Launch) -> AsyncGenerator[Wire, None]:
    """Start it, and end it with all that it has started. Raises McpFailed."""
    try:
        process = await asyncio.create_subprocess_exec(
            *launch.argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=launch.cwd,
            env=launch.env,
            start_new_session=True,
            limit=LONGEST_LINE,
        )
    except (OSError, ValueError) as error:
        raise McpFailed("start", f"it could not be started: {error}") from error
    wire = Wire(process)
    listening = asyncio.create_task(wire.listen(), name="mcp")
    try:
        yield wire
    finally:
        await asyncio.shield(_ended(process, listening))


async def _ended(process: asyncio.subprocess.Process, listening: asyncio.Task[None]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    with suppress(TimeoutError):
        async with asyncio.timeout(GRACE):
            await process.wait()
    await asyncio.to_thread(_kill, process.pid)
    listening.cancel()
    await asyncio.wait((listening,))
    if not listening.cancelled():
        listening.exception()  # whatever it was, nobody waits for an answer any more
    with suppress(TimeoutError):
        async with asyncio.timeout(GRACE):
            await process.wait()
    # Where something still holds the pipe, asyncio never notices the end: no public way.
    process._transport.close()  # type: ignore[attr-defined] # noqa: SLF001 - as just said


def _kill(pid: int) -> None:
    keeper.end_all(pid)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
