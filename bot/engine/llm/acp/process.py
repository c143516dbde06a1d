"""Runs a CLI process in its own group and environment, logs its stderr and kills all it started."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from storage.data_directory import user_mask

PROCESS_MARK_VARIABLE = "SHIFTBOSS_RUN"
"""Environment variable that identifies a CLI's descendants outside its process group."""

TERMINATE_GRACE = 2.0
_MAX_LOG = 1_000_000
_MAX_TAIL = 4_000
_CHUNK = 65_536
_SECRET_NAMES = ("KEY", "TOKEN", "SECRET", "PASSWORD")
_MIN_SECRET_LENGTH = 8
_BASE_VARIABLES = (
    *("PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TERM", "TZ", "USER", "LOGNAME", "SHELL"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
)


class CliLaunch(Protocol):
    """How to start the CLI; it runs in `cwd`, in its own session."""

    @property
    def argv(self) -> tuple[str, ...]: ...

    @property
    def env(self) -> Mapping[str, str]: ...

    @property
    def cwd(self) -> Path: ...


class CliLauncher(Protocol):
    async def __call__(
        self,
        argv: Sequence[str],
        *,
        workspace: Path,
        home: Path,
        env: Mapping[str, str],
        readable: Sequence[Path],
        writable: bool,
    ) -> CliLaunch:
        """Restrict the program.

        It must be able to write to `home`, to `workspace` if `writable`, use the network and read
        `readable`, where it is installed."""
        ...


def home_mark(root: Path) -> str:
    """Return the prefix of the marks of all CLIs in this data directory."""
    return hashlib.sha256(os.fsencode(root)).hexdigest()[:12]


def kill_leftover_processes(root: Path) -> int:
    """Kill CLI processes left by a crash; return their number. Blocking.

    One process at a time uses a data directory, so marked processes found before the first start
    are leftovers."""
    left = _find_marked_processes(home_mark(root), exact=False)
    for pid in left:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return len(left)


def build_environment(
    environ: Mapping[str, str], names: Sequence[str], fixed_env: Mapping[str, str], *, home: Path
) -> dict[str, str]:
    """Pass only listed variables, so that no other secrets reach the CLI."""
    passed = {name: environ[name] for name in (*_BASE_VARIABLES, *names) if environ.get(name)}
    return {**passed, **fixed_env, "HOME": str(home)}


class CliProcess:
    """A running process; callers must call `stop`."""

    def __init__(self, process: asyncio.subprocess.Process, mark: str, errors: _StderrLog) -> None:
        self._process = process
        self._mark = mark
        self._stderr_log = errors
        self._draining = asyncio.create_task(errors.drain(process.stderr))

    @classmethod
    async def start(
        cls, launch: CliLaunch, *, log: Path, mark: str, max_line: int, secrets: Sequence[str]
    ) -> CliProcess:
        """Start the process. Raises OSError.

        `max_line` limits a line of output in bytes; `secrets` and secret environment variables are
        masked in the log."""
        env = {**launch.env, PROCESS_MARK_VARIABLE: mark}
        process = await asyncio.create_subprocess_exec(
            *launch.argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=launch.cwd,
            env=env,
            limit=max_line,
            start_new_session=True,
            umask=user_mask(),
        )
        return cls(process, mark, _StderrLog(log, (*secrets, *_secret_values(env))))

    @property
    def reader(self) -> asyncio.StreamReader:
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def writer(self) -> asyncio.StreamWriter:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def stderr_tail(self) -> str:
        """The end of stderr, secrets masked."""
        return self._stderr_log.tail

    async def stop(self) -> int | None:
        """Send TERM, then KILL, to the group and its stragglers."""
        if self._process.returncode is None:
            await self._signal_all(signal.SIGTERM)
            # wait() returns only when no process holds the pipes, including stragglers.
            with suppress(TimeoutError):
                async with asyncio.timeout(TERMINATE_GRACE):
                    await self._process.wait()
        await self._signal_all(signal.SIGKILL)
        await self._process.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(TERMINATE_GRACE):
                await asyncio.shield(self._draining)
        self._draining.cancel()
        # Otherwise the transport stays open until garbage collection.
        self.writer.close()
        return self._process.returncode

    def kill(self) -> None:
        """Kill the group without waiting."""
        self._signal(signal.SIGKILL)

    async def _signal_all(self, number: signal.Signals) -> None:
        self._signal(number)
        for straggler in await asyncio.to_thread(_find_marked_processes, self._mark):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(straggler, number)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


class _StderrLog:
    """Drains stderr, because a full pipe would block the CLI, and logs a limited part."""

    def __init__(self, path: Path, secrets: tuple[str, ...]) -> None:
        self._path = path
        self._secrets = secrets
        self._remaining = _MAX_LOG
        self.tail = ""

    async def drain(self, stream: asyncio.StreamReader | None) -> None:
        if stream is None:
            return
        await asyncio.to_thread(self._rotate)
        while chunk := await stream.read(_CHUNK):
            text = _redact(chunk.decode("utf-8", "replace"), self._secrets)
            self.tail = (self.tail + text)[-_MAX_TAIL:]
            if self._remaining > 0:
                kept, self._remaining = text[: self._remaining], self._remaining - len(text)
                await asyncio.to_thread(self._append, kept)

    def _rotate(self) -> None:
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._path.exists() and self._path.stat().st_size > _MAX_LOG:
                self._path.replace(self._path.with_suffix(".1.log"))

    def _append(self, text: str) -> None:
        # An unwritable log must not stop the work.
        with suppress(OSError), self._path.open("a", encoding="utf-8") as file:
            file.write(text)


def _secret_values(env: Mapping[str, str]) -> Iterator[str]:
    for name, value in env.items():
        if any(word in name.upper() for word in _SECRET_NAMES) and len(value) >= _MIN_SECRET_LENGTH:
            yield value


def _redact(text: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def _find_marked_processes(mark: str, *, exact: bool = True) -> list[int]:
    """Return our processes with the mark, or with it as a prefix if not `exact`; none without
    /proc."""
    wanted = f"{PROCESS_MARK_VARIABLE}={mark}{chr(0) if exact else '-'}".encode()
    found, own = [], os.getpid()
    with suppress(OSError):
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with suppress(OSError):
                    if int(folder.name) != own and wanted in (folder / "environ").read_bytes():
                        found.append(int(folder.name))
    return found
