"""A CLI's process: its own group and environment, its words on stderr kept short, its end sure."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

MARK = "SHIFTBOSS_RUN"
"""In the environment of a CLI and of all it starts: by it those are found that left its group."""

GRACE = 2.0
_LOG = 1_000_000
_TAIL = 4_000
_CHUNK = 65_536
_SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD")
_SHORTEST_SECRET = 8
_BASE = (
    *("PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TERM", "TZ", "USER", "LOGNAME", "SHELL"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
)


class Launch(Protocol):
    """How to start it, after all: in `cwd`, in a session of its own."""

    @property
    def argv(self) -> tuple[str, ...]: ...

    @property
    def env(self) -> Mapping[str, str]: ...

    @property
    def cwd(self) -> Path: ...


class Launcher(Protocol):
    async def __call__(
        self,
        argv: Sequence[str],
        *,
        workspace: Path,
        home: Path,
        env: Mapping[str, str],
        readable: Sequence[Path],
        writable: bool,
    ) -> Launch:
        """Hold the program in: it may write in `home`, and in `workspace` if `writable`, use the
        network, and must be able to read `readable`, where it is installed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainLaunch:
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    cwd: Path


async def plain_launcher(
    argv: Sequence[str],
    *,
    workspace: Path,
    home: Path,  # noqa: ARG001 - the protocol's
    env: Mapping[str, str],
    readable: Sequence[Path],  # noqa: ARG001 - the protocol's
    writable: bool,  # noqa: ARG001 - the protocol's
) -> Launch:
    """Holds nothing in."""
    return PlainLaunch(argv=tuple(argv), env=env, cwd=workspace)


def tag(root: Path) -> str:
    """Begins the mark of all CLIs of this home."""
    return hashlib.sha256(os.fsencode(root)).hexdigest()[:12]


def sweep(root: Path) -> int:
    """End what a program that died has left running in this home; how many there were. One
    program at a time holds a home, so whatever carries its mark before the first CLI is started
    is left over. Blocks."""
    left = _marked(tag(root), whole=False)
    for pid in left:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return len(left)


def environment(
    around: Mapping[str, str], names: Sequence[str], given: Mapping[str, str], *, home: Path
) -> dict[str, str]:
    """Only what is on the list: no other secret of ours reaches the CLI."""
    passed = {name: around[name] for name in (*_BASE, *names) if around.get(name)}
    return {**passed, **given, "HOME": str(home)}


class CliProcess:
    """One process under way. `stop` it, whatever happens."""

    def __init__(self, process: asyncio.subprocess.Process, mark: str, errors: _Errors) -> None:
        self._process = process
        self._mark = mark
        self._errors = errors
        self._draining = asyncio.create_task(errors.drain(process.stderr))

    @classmethod
    async def start(
        cls, launch: Launch, *, log: Path, mark: str, line: int, secrets: Sequence[str] = ()
    ) -> CliProcess:
        """Raises OSError where it cannot be started. `line` is the longest it may write; `secrets`
        are kept from the log like those in its environment."""
        env = {**launch.env, MARK: mark}
        process = await asyncio.create_subprocess_exec(
            *launch.argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=launch.cwd,
            env=env,
            limit=line,
            start_new_session=True,
        )
        return cls(process, mark, _Errors(log, (*secrets, *_secrets(env))))

    @property
    def reader(self) -> asyncio.StreamReader:
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def writer(self) -> asyncio.StreamWriter:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def last_words(self) -> str:
        """The end of what it said on stderr, secrets masked."""
        return self._errors.tail

    async def stop(self, *, grace: float = GRACE) -> int | None:
        """TERM, then KILL, the whole group and those that left it."""
        if self._process.returncode is None:
            await self._everybody(signal.SIGTERM)
            # Over only when nobody holds its pipes any more, those that left the group neither.
            with suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await self._process.wait()
        await self._everybody(signal.SIGKILL)
        await self._process.wait()
        await self._finished_draining()
        # Else its transport lives until the garbage is collected.
        self.writer.close()
        return self._process.returncode

    def kill(self) -> None:
        """At once, and without waiting for anything."""
        self._signal(signal.SIGKILL)

    async def _everybody(self, number: signal.Signals) -> None:
        self._signal(number)
        for straggler in await asyncio.to_thread(_marked, self._mark):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(straggler, number)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    async def _finished_draining(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                await asyncio.shield(self._draining)
        self._draining.cancel()


class _Errors:
    """Reads stderr to its end, as a full pipe would stop the CLI; keeps what fits in the log."""

    def __init__(self, path: Path, secrets: tuple[str, ...]) -> None:
        self._path = path
        self._secrets = secrets
        self._left = _LOG
        self.tail = ""

    async def drain(self, stream: asyncio.StreamReader | None) -> None:
        if stream is None:
            return
        await asyncio.to_thread(self._rotate)
        while chunk := await stream.read(_CHUNK):
            text = _masked(chunk.decode("utf-8", "replace"), self._secrets)
            self.tail = (self.tail + text)[-_TAIL:]
            if self._left > 0:
                kept, self._left = text[: self._left], self._left - len(text)
                await asyncio.to_thread(self._append, kept)

    def _rotate(self) -> None:
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._path.exists() and self._path.stat().st_size > _LOG:
                self._path.replace(self._path.with_suffix(".1.log"))

    def _append(self, text: str) -> None:
        # A log that cannot be written is no reason to stop the work.
        with suppress(OSError), self._path.open("a", encoding="utf-8") as file:
            file.write(text)


def _secrets(env: Mapping[str, str]) -> Iterator[str]:
    for name, value in env.items():
        if any(word in name.upper() for word in _SECRET) and len(value) >= _SHORTEST_SECRET:
            yield value


def _masked(text: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def _marked(mark: str, *, whole: bool = True) -> list[int]:
    """Those of our own processes that carry the mark, or one that begins so; none where the
    system does not tell."""
    wanted = f"{MARK}={mark}{chr(0) if whole else '-'}".encode()
    found, own = [], os.getpid()
    with suppress(OSError):
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with suppress(OSError):
                    if int(folder.name) != own and wanted in (folder / "environ").read_bytes():
                        found.append(int(folder.name))
    return found
