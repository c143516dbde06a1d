"""Programs begun as forks of a process that has loaded the modules and run once (`warm_run`).

Loading them is most of what a start costs, and the gate has hundreds of starts. Everything that
the program does is done by each fork for itself, from its command line on, with caches that are
filled already. What loading and a first use may get wrong is seen by all who begin a program anew:
SHIFTBOSS_THOROUGH=1, the benchmarks, `tests/test_imports.py`, the tests of `memory search --batch`,
and whoever gives it an environment that only a new interpreter reads.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import NoReturn

from bot.cli.dataclass_methods import share_dataclass_methods
from bot.cli.serving import loading_modules

FORK_SERVER_VARIABLE = "SHIFTBOSS_TESTS_FORK_SERVER"
"""The address of one that several processes use."""
_MAX_REQUEST_BYTES = 100_000
"""Bytes of an order: a command line, an environment."""
_PRELOADED = (
    "bot.__main__",
    "bot.app.program",
    "bot.app.channels",
    "bot.transports.feishu.transport",
    "bot.transports.telegram.session",
    "bot.transports.telegram.transport",
    "bot.transports.web.transport",
    # What libraries load when they are first used, at every start.
    "alembic.config",
    "anyio._backends._asyncio",
    "apscheduler.executors.asyncio",
    "apscheduler.schedulers.asyncio",
    "apscheduler.triggers.date",
    "httpcore",
    "telegramify_markdown.rich",
    "uvicorn.lifespan.off",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.websockets_sansio_impl",
    # Loaded on first use: by nearly every test of a model 2.2 s CPU, of a CLI 0.9 s, of an MCP
    # server 0.4 s, by a command 25 ms, by a message 200 ms.
    "bot.cli.local_execution",
    "bot.engine.agent.requested_files",
    "bot.engine.llm.acp.run",
    "bot.engine.llm.api.agent_loop",
    "bot.engine.llm.offline.backend",
    "bot.engine.memory.consent_rules",
    "bot.engine.memory.explicit_statements",
    "bot.engine.schedule.time_phrases",
    "cards.render.web",
    "genai_prices.data",
    "markdown_it",
    "mcp.client.stdio",
    "openai.resources.chat.completions",
    "pydantic_ai.models.anthropic",
    "pydantic_ai.models.openai",
    "pydantic_ai.providers.openai",
)
_one_order = threading.Lock()
_HARMLESS_VARIABLES = {"PYTHONPATH", "PYTHONUNBUFFERED"}


def can_fork(environment: Mapping[str, str]) -> bool:
    """Whether nothing in it is read by an interpreter when it begins."""
    return not any(
        name.startswith("PYTHON") and name not in _HARMLESS_VARIABLES for name in environment
    )


class ForkedProcess:
    """Like `asyncio.subprocess.Process`, for a process that another process waits for."""

    def __init__(self, pid: int, stdout: asyncio.StreamReader, end: asyncio.StreamReader) -> None:
        self.pid = pid
        self.stdout = stdout
        self._end = asyncio.create_task(_read_exit_status(end))

    @property
    def returncode(self) -> int | None:
        return self._end.result() if self._end.done() else None

    async def wait(self) -> int:
        return await asyncio.shield(self._end)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)


async def spawn_fork(
    command: Sequence[str], environment: Mapping[str, str], folder: Path
) -> ForkedProcess:
    """Begin the program: `command` is a script of this environment, or this Python and a file."""
    out, out_of_it = os.pipe()
    try:
        with Path(os.devnull).open("rb") as nothing:
            streams = [nothing.fileno(), out_of_it, out_of_it]
            pid, end = _order(command, environment, folder, streams)
    finally:
        os.close(out_of_it)
    return ForkedProcess(pid, await _reader(out), await _reader(end))


def run_fork(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, said: bytes
) -> subprocess.CompletedProcess[str]:
    """Like `subprocess.run`. Blocking."""
    with TemporaryFile() as stdin, TemporaryFile() as stdout, TemporaryFile() as stderr:
        stdin.write(said)
        stdin.seek(0)
        streams = [stream.fileno() for stream in (stdin, stdout, stderr)]
        _, end = _order(command, environment, folder, streams)
        with os.fdopen(end, "rb") as ended:
            status = os.waitstatus_to_exitcode(int(ended.read()))
        told = [os.pread(stream, os.fstat(stream).st_size, 0).decode() for stream in streams[1:]]
    return subprocess.CompletedProcess(command, status, *told)


def _order(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, streams: list[int]
) -> tuple[int, int]:
    """Begin the program on these streams. Returns its pid, and what its status is read from when
    it has ended."""
    end, end_of_it = os.pipe()
    order = {"command": command, "environment": dict(environment), "folder": str(folder)}
    door = _fork_server()
    try:
        with _one_order:
            socket.send_fds(door, [json.dumps(order).encode()], [*streams, end_of_it])
            return int(door.recv(32)), end
    finally:
        os.close(end_of_it)


async def _reader(descriptor: int) -> asyncio.StreamReader:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await loop.connect_read_pipe(lambda: protocol, os.fdopen(descriptor, "rb", 0))
    return reader


async def _read_exit_status(end: asyncio.StreamReader) -> int:
    return os.waitstatus_to_exitcode(int(await end.read()))


@cache
def _fork_server() -> socket.socket:
    """This process's connection to it; begun here unless there is one for several processes."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    door.connect(os.environ.get(FORK_SERVER_VARIABLE) or start_fork_server())
    atexit.register(door.close)
    return door


def start_fork_server() -> str:
    """Returns the address at which it takes orders. It loads the modules at the first one, and ends
    with this process."""
    folder = TemporaryDirectory(prefix="shiftboss-tests-")
    address = str(Path(folder.name) / "fork-server")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(address)
    listener.listen()
    nurse = subprocess.Popen(
        [sys.executable, "-m", __name__, str(listener.fileno())],
        pass_fds=[listener.fileno()],
        stdin=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    listener.close()

    def close() -> None:
        nurse.communicate()
        folder.cleanup()

    atexit.register(close)
    return address


def _serve(listener: socket.socket) -> dict[str, object] | None:
    """Returns an order in each child, None when standard input has ended."""
    waking, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes)
    alive: dict[int, int] = {}
    doors: list[socket.socket] = []
    while True:
        ready, _, _ = select.select([sys.stdin, waking, listener, *doors], [], [])
        if sys.stdin in ready:
            return None
        if waking in ready:
            os.read(waking, 4096)
            _reap(alive)
        if listener in ready:
            if not doors:
                _preload()
                # An event loop has taken it meanwhile.
                signal.set_wakeup_fd(wakes)
            doors.append(listener.accept()[0])
        for door in [each for each in doors if each in ready]:
            told, given = b"", list[int]()
            with suppress(ConnectionError):
                told, given, _, _ = socket.recv_fds(door, _MAX_REQUEST_BYTES, 4)
            if not told:
                doors.remove(door)
                door.close()
                continue
            *streams, end = given
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for descriptor in (waking, wakes, end, *alive.values()):
                    os.close(descriptor)
                for each in (listener, *doors):
                    each.close()
                for number, stream in enumerate(streams):
                    os.dup2(stream, number)
                    os.close(stream)
                order: dict[str, object] = json.loads(told)
                return order
            for stream in streams:
                os.close(stream)
            alive[pid] = end
            # Whoever ordered it may have died meanwhile.
            with suppress(ConnectionError):
                door.send(str(pid).encode())


def _reap(alive: dict[int, int]) -> None:
    while alive:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        end = alive.pop(pid)
        with suppress(BrokenPipeError):
            os.write(end, str(status).encode())
        os.close(end)


def _become(command: Sequence[str], environment: Mapping[str, str], folder: str) -> NoReturn:
    """Be that program, and end as it does."""
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.chdir(folder)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, write_through=True)  # type: ignore[union-attr]  # they are texts
    sys.argv = [*command[command[0] == sys.executable :]]
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            raise
        _end(end.code or 0)
    _end(0)


def _end(status: int) -> NoReturn:
    """What an interpreter does at its end, but for taking apart all that was loaded: that would
    copy every page shared with the parent, 0.3 s CPU."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


def _preload() -> None:
    share_dataclass_methods()
    from tests.journeys.warm_run import warm_up

    with loading_modules():
        for name in _PRELOADED:
            __import__(name)
        _build_command_line()
        warm_up()


def _build_command_line() -> None:
    """Typer builds it from the functions at each start, 35 ms CPU."""
    import typer.main

    from bot.cli.command_line import create_cli

    built = typer.main.get_command(create_cli())
    typer.main.get_command = lambda typer_instance: built


if __name__ == "__main__":
    ordered = _serve(socket.socket(fileno=int(sys.argv[1])))
    if ordered is not None:
        _become(**ordered)  # type: ignore[arg-type]  # as `born` has written it
