"""Runs a command to its end, sure that it has one: all that it started ends with it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum

from bot.engine.agent.sandbox import keeper
from bot.engine.agent.sandbox.base import Launch

MOST_PROCESSES = 1_000
MOST_PRINTED = 100_000_000
KEPT = 2_000_000
"""Bytes of the beginning, and as many of the end."""

_GRACE = 2.0
_LOOK = 0.25
_CHUNK = 65_536


class End(StrEnum):
    """How it came to its end: by itself, or because it took more than it may."""

    EXITED = "exited"
    TIME = "time"
    PRINTED = "printed"
    PROCESSES = "processes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """`status` is the exit code, 128 and more for a signal. Of what it printed, standard output
    and error together, `head` and `tail` are kept, and `dropped` bytes between them are not."""

    end: End
    status: int
    head: bytes
    tail: bytes
    dropped: int
    seconds: float


class CannotRun(Exception):
    """The command could not even be started."""


class _Printed:
    """Keeps the beginning and the end of what goes by."""

    def __init__(self, kept: int) -> None:
        self._most = kept
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._in_tail = 0
        self.dropped = 0

    @property
    def size(self) -> int:
        return len(self._head) + self._in_tail + self.dropped

    @property
    def head(self) -> bytes:
        return bytes(self._head)

    @property
    def tail(self) -> bytes:
        return b"".join(self._tail)

    def add(self, part: bytes) -> None:
        room = self._most - len(self._head)
        self._head += part[:room]
        if part[room:]:
            self._tail.append(part[room:])
            self._in_tail += len(part) - max(0, room)
        while self._tail and self._in_tail - len(self._tail[0]) >= self._most:
            gone = len(self._tail.popleft())
            self._in_tail -= gone
            self.dropped += gone


async def run(
    launch: Launch,
    *,
    seconds: float,
    kept: int = KEPT,
    most_printed: int = MOST_PRINTED,
    most_processes: int = MOST_PROCESSES,
) -> Ended:
    """Run it without input. Raises CannotRun. Cancelled, it kills everything and then goes."""
    began = time.monotonic()
    printed = _Printed(kept)
    async with _started(launch) as process:
        ending = asyncio.create_task(_read_to_the_end(process, printed, most_printed))
        watching = asyncio.create_task(_watch(process.pid, most_processes))
        both = (ending, watching)
        try:
            async with asyncio.timeout(seconds):
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            end = next(each.result() for each in both if each.done())
        except TimeoutError:
            end = End.TIME
            await _asked_to_end(process, ending)
        finally:
            for each in both:
                each.cancel()
            await asyncio.wait(both)
    return Ended(
        end=end,
        status=_status(process.returncode or 0),
        head=printed.head,
        tail=printed.tail,
        dropped=printed.dropped,
        seconds=time.monotonic() - began,
    )


@asynccontextmanager
async def _started(launch: Launch) -> AsyncGenerator[asyncio.subprocess.Process, None]:
    """The process, and whatever happens nothing of it is left behind."""
    try:
        process = await asyncio.create_subprocess_exec(
            *launch.argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=launch.cwd,
            env=launch.env,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise CannotRun(str(error)) from error
    try:
        yield process
    finally:
        await _killed(process)


async def _read_to_the_end(
    process: asyncio.subprocess.Process, printed: _Printed, most: int
) -> End:
    assert process.stdout is not None
    while part := await process.stdout.read(_CHUNK):
        printed.add(part)
        if printed.size > most:
            return End.PRINTED
    await process.wait()
    return End.EXITED


async def _watch(pid: int, most: int) -> End:
    # No event tells of another process.
    while True:
        if len(await asyncio.to_thread(keeper.descendants, pid, most + 1)) > most:
            return End.PROCESSES
        await asyncio.sleep(_LOOK)


async def _asked_to_end(process: asyncio.subprocess.Process, ending: asyncio.Task[End]) -> None:
    """TERM goes to the command and its children: what holds them in ends after them."""
    for pid in await asyncio.to_thread(keeper.descendants, process.pid):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGTERM)
    await asyncio.wait((ending,), timeout=_GRACE)


async def _killed(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    if process.returncode is None or not process.stdout.at_eof():
        # In a thread that a second cancellation does not stop.
        await asyncio.shield(asyncio.to_thread(_kill, process.pid))
    # First, or the pipe that nobody reads keeps asyncio from noticing the end.
    with suppress(TimeoutError):
        async with asyncio.timeout(_GRACE):
            while await process.stdout.read(_CHUNK):
                pass
            await process.wait()
    # Where what got away without a sandbox still holds the pipe: there is no public way.
    process._transport.close()  # type: ignore[attr-defined] # noqa: SLF001 - as just said


def _kill(pid: int) -> None:
    keeper.end_all(pid)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _status(code: int) -> int:
    return code if code >= 0 else 128 - code
