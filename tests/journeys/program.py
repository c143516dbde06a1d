"""The real program as a subprocess, spoken to only from outside."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from tests.journeys.fork_server import ForkedProcess, can_fork, run_fork, spawn_fork
from tests.journeys.program_store import lay_out_program_store, store_settings
from tests.waiting import WAIT_SECONDS, wait_until

_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/\?token=\S+")
_READY = re.compile(rf"{_ADDRESS.pattern}|Worker \S+ is ready")
_SHIFTBOSS = Path(sys.executable).parent / "shiftboss"


@dataclass
class ShiftbossProcess:
    """One data directory, and the process that runs on it now, if any. It is begun anew, or where
    `forks` as a fork of one that has loaded its modules."""

    use_fork_server: ClassVar[bool] = False

    home: Path
    settings: Mapping[str, str]
    command: tuple[str, ...] = (str(_SHIFTBOSS),)
    arguments: tuple[str, ...] = ("run",)
    output: list[str] = field(default_factory=list)
    _process: asyncio.subprocess.Process | ForkedProcess | None = None
    _readers: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        kept = {
            name: os.environ[name]
            for name in ("PATH", "HOME", "LANG", "PYTHONPATH")
            if name in os.environ
        }
        return {
            **kept,
            "SHIFTBOSS_HOME": str(self.home),
            "SHIFTBOSS_WEB_PORT": "0",
            "PYTHONUNBUFFERED": "1",
            # Calls that nobody asked for would be counted where calls are counted.
            "SHIFTBOSS_MEMORY": "{extract: false}",
            **({} if "DATABASE_URL" in self.settings else store_settings(self.home)),
            **self.settings,
        }

    @property
    def printed(self) -> str:
        """Everything it has printed and logged so far, over all its lives."""
        return "\n".join(self.output)

    @property
    def address(self) -> str:
        """The web chat's address with its token, as last printed."""
        return str(_ADDRESS.findall(self.printed)[-1])

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Start it and wait until it says where its web chat is, or that it does its part."""
        known = len(_READY.findall(self.printed))
        await self._spawn()
        async with asyncio.timeout(WAIT_SECONDS):
            while len(_READY.findall(self.printed)) == known:
                assert self._process is not None
                if self._process.returncode is not None:
                    await asyncio.gather(*self._readers)
                    raise AssertionError(f"it ended at once:\n{self.printed}")
                await asyncio.sleep(0.005)

    async def wait_for_exit(self) -> int:
        """Wait until it ends by itself; its exit status, negative for a signal."""
        return await self._wait_for_exit(None)

    async def kill(self) -> None:
        """kill -9: no goodbye."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._wait_for_exit()

    async def stop(self) -> int:
        """SIGTERM, as a service manager would; returns its exit status."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        return await self._wait_for_exit()

    async def kill_if_running(self) -> None:
        """Killed if it still runs."""
        if self._process is not None and self._process.returncode is None:
            await self.kill()

    async def run_to_end(self, *args: str) -> tuple[int, str]:
        """Run another `shiftboss` command on the same home: its exit status and output."""
        process = await self._begin((str(_SHIFTBOSS), *args))
        assert process.stdout is not None
        async with asyncio.timeout(WAIT_SECONDS):
            printed = await process.stdout.read()
            return await process.wait(), printed.decode(errors="replace")

    async def wait_for_output(self, wanted: str) -> None:
        """Wait until its output contains this."""
        await wait_until(lambda: wanted in self.printed)

    async def _spawn(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        self._process = await self._begin((*self.command, *self.arguments))
        assert self._process.stdout is not None
        self._readers.append(asyncio.create_task(self._read(self._process.stdout)))

    async def _begin(self, command: Sequence[str]) -> asyncio.subprocess.Process | ForkedProcess:
        if self.use_fork_server and can_fork(self.environment):
            return await spawn_fork(command, self.environment, self.home)
        return await asyncio.create_subprocess_exec(
            *command,
            env=self.environment,
            cwd=self.home,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def _read(self, printed: asyncio.StreamReader) -> None:
        async for line in printed:
            self.output.append(line.decode(errors="replace").rstrip("\n"))

    async def _wait_for_exit(self, timeout: float | None = WAIT_SECONDS) -> int:
        assert self._process is not None
        async with asyncio.timeout(timeout):
            status = await self._process.wait()
            await asyncio.gather(*self._readers)
        self._readers.clear()
        return status


def run_command(
    *args: str, environment: Mapping[str, str], folder: Path, said: bytes = b""
) -> subprocess.CompletedProcess[str]:
    """Run a `shiftboss` command to its end, with this on its standard input. Blocking."""
    command = [str(_SHIFTBOSS), *args]
    if ShiftbossProcess.use_fork_server and can_fork(environment):
        return run_fork(command, environment, folder, said)
    done = subprocess.run(
        command, env=environment, cwd=folder, input=said, capture_output=True, check=False
    )
    told = (done.stdout.decode(), done.stderr.decode())
    return subprocess.CompletedProcess(command, done.returncode, *told)


@asynccontextmanager
async def running_program(home: Path, **settings: str) -> AsyncGenerator[ShiftbossProcess, None]:
    """Started, and killed at the end if it still runs. An empty home gets a ready-made store:
    migrating one is a third of a start's CPU."""
    if not (home.exists() and any(home.iterdir())):
        lay_out_program_store(home)
    async with program_at_first_start(home, **settings) as made:
        yield made


@asynccontextmanager
async def program_at_first_start(
    home: Path, **settings: str
) -> AsyncGenerator[ShiftbossProcess, None]:
    """The same, but an empty home stays empty: the program makes its store."""
    made = ShiftbossProcess(home=home, settings=settings)
    try:
        await made.start()
        yield made
    finally:
        await made.kill_if_running()
