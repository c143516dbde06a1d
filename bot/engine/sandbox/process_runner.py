"""Starts confined processes, runs a command to its end, and kills everything it started; keeps the
home folders of commands, one per workspace or server."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from bot.engine.sandbox import supervisor
from bot.engine.sandbox.spec import SandboxLaunch
from storage.data_directory import user_mask
from storage.file_trees import delete_tree

# --- home folders of commands, one per workspace or server

MAX_UNUSED_DAYS = 30
"""Homes contain tools' caches and settings, which are recreated when needed."""

_DAY = 24 * 60 * 60.0
_DELETED_PREFIX = ".gone-"
_TEMPORARY_SUFFIX = ".tmp"
"""Suffix of a sandbox's temporary folder next to a home; see `spec.temporary_folder`."""


class CommandHomes:
    """Home folders in `root`."""

    def __init__(self, root: Path, *, now: Callable[[], float] = time.time) -> None:
        self._root = root
        self._now = now
        # Acquired and pruned in different threads.
        self._lock = threading.Lock()
        self._in_use: Counter[str] = Counter()

    @asynccontextmanager
    async def acquire(self, name: str) -> AsyncGenerator[Path, None]:
        """Yield a home that is not removed while in use. Raises OSError."""
        home = await asyncio.to_thread(self._acquire, name)
        try:
            yield home
        finally:
            with self._lock:
                self._in_use[name] -= 1

    def prune(self) -> int:
        """Remove homes unused for long; return their number. Blocking. Raises OSError."""
        if not self._root.is_dir():
            return 0
        before = self._now() - MAX_UNUSED_DAYS * _DAY
        homes = [each for each in self._root.iterdir() if not each.name.endswith(_TEMPORARY_SUFFIX)]
        gone = sum(self._set_aside(each, before) for each in homes)
        for each in self._root.glob(f"{_DELETED_PREFIX}*"):
            delete_tree(each)
        return gone

    def _acquire(self, name: str) -> Path:
        home = self._root / name
        with self._lock:
            home.mkdir(parents=True, exist_ok=True, mode=0o700)
            now = self._now()
            os.utime(home, (now, now))
            self._in_use[name] += 1
        return home

    def _set_aside(self, home: Path, before: float) -> bool:
        """Rename the home first, so that its name is free at once."""
        if home.name.startswith(_DELETED_PREFIX) or home.is_symlink() or not home.is_dir():
            return False
        with self._lock:
            if self._in_use[home.name] or home.stat().st_mtime >= before:
                return False
            for each in (home, home.with_name(f"{home.name}{_TEMPORARY_SUFFIX}")):
                with suppress(FileNotFoundError):
                    each.rename(each.with_name(f"{_DELETED_PREFIX}{os.urandom(4).hex()}"))
        return True


# --- processes, and one command to its end

MAX_PROCESSES = 1_000
MAX_OUTPUT_BYTES = 100_000_000
KEPT_BYTES = 2_000_000
"""Bytes kept of the beginning, and the same of the end."""

_KILL_DELAY = 2.0
_WATCH_INTERVAL = 0.25
_CHUNK = 65_536


class ExitCause(StrEnum):
    """Why the command ended: normally or by exceeding a limit."""

    EXITED = "exited"
    TIMEOUT = "time"
    OUTPUT_LIMIT = "printed"
    PROCESS_LIMIT = "processes"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessResult:
    """The result of a command; `status` is the exit code, 128 plus the number for signals.

    `head` and `tail` are the kept parts of stdout and stderr combined; `dropped` is the number of
    bytes between them. If they were kept apart, `errors` is the beginning of stderr."""

    cause: ExitCause
    status: int
    head: bytes
    tail: bytes
    dropped: int
    seconds: float
    errors: bytes = b""


class ProcessStartError(Exception):
    """The command could not be started."""


class _OutputBuffer:
    """Keeps the beginning and end of a stream."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self.dropped = 0

    @property
    def size(self) -> int:
        return len(self._head) + self._tail_size + self.dropped

    @property
    def head(self) -> bytes:
        return bytes(self._head)

    @property
    def tail(self) -> bytes:
        return b"".join(self._tail)

    def add(self, part: bytes) -> None:
        room = self._limit - len(self._head)
        self._head += part[:room]
        if part[room:]:
            self._tail.append(part[room:])
            self._tail_size += len(part) - max(0, room)
        while self._tail and self._tail_size - len(self._tail[0]) >= self._limit:
            gone = len(self._tail.popleft())
            self._tail_size -= gone
            self.dropped += gone


async def run_process(
    launch: SandboxLaunch,
    *,
    seconds: float,
    kept_bytes: int = KEPT_BYTES,
    max_output: int = MAX_OUTPUT_BYTES,
    max_processes: int = MAX_PROCESSES,
    splits_errors: bool = False,
) -> ProcessResult:
    """Run the command without input; with `splits_errors`, what it prints to stderr is kept apart.
    Raises ProcessStartError.

    On cancellation it kills all processes first."""
    began = time.monotonic()
    printed, errors = _OutputBuffer(kept_bytes), _OutputBuffer(kept_bytes)
    async with _running(launch, splits_errors=splits_errors) as process:
        ending = asyncio.create_task(_read_output(process, printed, errors, max_output))
        watching = asyncio.create_task(_watch_process_count(process.pid, max_processes))
        both = (ending, watching)
        try:
            async with asyncio.timeout(seconds):
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            end = next(each.result() for each in both if each.done())
        except TimeoutError:
            end = ExitCause.TIMEOUT
            await _terminate(process, ending)
        finally:
            for each in both:
                each.cancel()
            await asyncio.wait(both)
    code = process.returncode or 0
    return ProcessResult(
        cause=end,
        # Negative for signals.
        status=code if code >= 0 else 128 - code,
        head=printed.head,
        tail=printed.tail,
        dropped=printed.dropped,
        seconds=time.monotonic() - began,
        errors=errors.head,
    )


async def start_process(
    launch: SandboxLaunch, *, stdin: int, stderr: int, max_line: int = _CHUNK
) -> asyncio.subprocess.Process:
    """Start the process in a group of its own, with its stdout in a pipe. Raises ProcessStartError.

    `stdin` and `stderr` are constants of `subprocess`; `max_line` limits a line read, in bytes."""
    try:
        return await asyncio.create_subprocess_exec(
            *launch.argv,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=launch.cwd,
            env=launch.env,
            start_new_session=True,
            umask=user_mask(),
            limit=max_line,
        )
    except (OSError, ValueError) as error:
        raise ProcessStartError(str(error)) from error


async def kill_process(process: asyncio.subprocess.Process) -> None:
    """Kill its group and its descendants; a cancellation waits until that is done."""
    await asyncio.shield(asyncio.to_thread(_kill, process.pid))


def close_pipes(process: asyncio.subprocess.Process) -> None:
    """Close our ends although an escaped process still holds the others: asyncio then never notices
    the end, and there is no public API."""
    process._transport.close()  # type: ignore[attr-defined] # noqa: SLF001 - see above


@asynccontextmanager
async def _running(
    launch: SandboxLaunch, *, splits_errors: bool
) -> AsyncGenerator[asyncio.subprocess.Process, None]:
    """Start the process and clean up everything it started."""
    stderr = subprocess.PIPE if splits_errors else subprocess.STDOUT
    process = await start_process(launch, stdin=subprocess.DEVNULL, stderr=stderr)
    try:
        yield process
    finally:
        await _shut_down(process)


async def _read_output(
    process: asyncio.subprocess.Process, printed: _OutputBuffer, errors: _OutputBuffer, most: int
) -> ExitCause:
    assert process.stdout is not None

    async def read(stream: asyncio.StreamReader, kept: _OutputBuffer) -> bool:
        """Whether it ends within the limit."""
        while part := await stream.read(_CHUNK):
            kept.add(part)
            if printed.size + errors.size > most:
                return False
        return True

    if process.stderr is None:
        ends = await read(process.stdout, printed)
    else:
        streams = ((process.stdout, printed), (process.stderr, errors))
        reading = [asyncio.create_task(read(*each)) for each in streams]
        try:
            ends = all(await asyncio.gather(*reading))
        finally:
            for each in reading:
                each.cancel()
    if not ends:
        return ExitCause.OUTPUT_LIMIT
    await process.wait()
    return ExitCause.EXITED


async def _watch_process_count(pid: int, most: int) -> ExitCause:
    # There is no notification of new processes.
    while True:
        if len(await asyncio.to_thread(supervisor.descendants, pid, most + 1)) > most:
            return ExitCause.PROCESS_LIMIT
        await asyncio.sleep(_WATCH_INTERVAL)


async def _terminate(process: asyncio.subprocess.Process, ending: asyncio.Task[ExitCause]) -> None:
    """Send TERM to the descendants; the sandbox's own process exits after them."""
    for pid in await asyncio.to_thread(supervisor.descendants, process.pid):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGTERM)
    await asyncio.wait((ending,), timeout=_KILL_DELAY)


async def _shut_down(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    if process.returncode is None or not process.stdout.at_eof():
        await kill_process(process)
    # Drain the pipe first; otherwise asyncio doesn't notice the end.
    with suppress(TimeoutError):
        async with asyncio.timeout(_KILL_DELAY):
            while await process.stdout.read(_CHUNK):
                pass
            await process.wait()
    close_pipes(process)


def _kill(pid: int) -> None:
    supervisor.kill_descendants(pid)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
