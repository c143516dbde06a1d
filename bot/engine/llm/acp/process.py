"""Runs a CLI process in its own group and environment, logs its stderr, kills all it started, and
maps its failures to backend errors."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from bot.engine.llm.backend import (
    BackendDenied,
    BackendError,
    BackendNotReady,
    BackendReadiness,
    BackendUnavailable,
    RunLimitReached,
)
from bot.engine.llm.folder_processes import FOLDER_PROCESSES
from storage.data_directory import user_mask

# --- failures of a CLI as backend errors

AUTH_REQUIRED = -32000
METHOD_NOT_FOUND = -32601
_LOGIN = re.compile(
    r"auth(entication|enticate|orization)?[ _-]?(is )?(required|fail)|not logged in|\blog ?in\b|"
    r"unauthorized|invalid api key|\b401\b",
    re.IGNORECASE,
)
_OLD_NODE = re.compile(
    r"unsupported engine|requires? node|node(\.js)? version|ERR_REQUIRE_ESM|"
    r"SyntaxError: (Unexpected token|Invalid regular expression flags)",
    re.IGNORECASE,
)
_MAX_DETAIL = 300


class AcpFailure(StrEnum):
    """The value is the suffix of a text key `backend.cli_…`."""

    MISSING = "missing"
    OLD_NODE = "old_node"
    LOGIN = "login"
    DIED = "died"
    FLOOD = "flood"
    GARBAGE = "garbage"
    PROTOCOL = "protocol"
    SILENT = "silent"
    REFUSED = "refused"
    NO_RESULT = "no_result"
    MODE = "mode"

    @property
    def hint(self) -> str:
        return f"backend.cli_{self.value}"


# Retrying does not help with these.
_PERMANENT = {
    AcpFailure.MISSING,
    AcpFailure.OLD_NODE,
    AcpFailure.LOGIN,
    AcpFailure.GARBAGE,
    AcpFailure.PROTOCOL,
    AcpFailure.MODE,
}
_LIMITS = {AcpFailure.FLOOD, AcpFailure.SILENT}
_SETUP_HINTS = {
    failed.hint for failed in (AcpFailure.MISSING, AcpFailure.OLD_NODE, AcpFailure.LOGIN)
}


def failure_error(kind: AcpFailure, name: str, detail: str = "") -> Exception:
    """Build the backend error; `detail` is only logged and must be masked already."""
    shortened = " ".join(detail.split())[-_MAX_DETAIL:]
    message = f"{name}: {kind.value}" + (f": {shortened}" if shortened else "")
    if kind in _PERMANENT:
        return BackendDenied(message, hint=kind.hint)
    if kind in _LIMITS:
        return RunLimitReached(message, hint=kind.hint)
    if kind is AcpFailure.DIED:
        error = BackendUnavailable(message)
        error.hint = kind.hint
        return error
    return BackendError(message, hint=kind.hint)


def not_ready_error(readiness: BackendReadiness, name: str) -> BackendNotReady:
    return BackendNotReady(f"{name} cannot work: {readiness.problem}", hint=readiness.problem)


def is_setup_error(error: BackendError) -> bool:
    """Return True if the CLI's installation or login is the problem, not the request."""
    return isinstance(error, BackendDenied) and error.hint in _SETUP_HINTS


def classify_exit(stderr_tail: str) -> AcpFailure:
    """Return why a process ended, judged by the end of its stderr."""
    if _OLD_NODE.search(stderr_tail):
        return AcpFailure.OLD_NODE
    return AcpFailure.LOGIN if _LOGIN.search(stderr_tail) else AcpFailure.DIED


def classify_error_response(code: int, message: str, data: Any) -> AcpFailure:
    if code == AUTH_REQUIRED or _LOGIN.search(f"{message} {data}"[:2000]):
        return AcpFailure.LOGIN
    return AcpFailure.REFUSED


# --- the process

PROCESS_MARK_VARIABLE = "SHIFTBOSS_RUN"
"""Environment variable that identifies a CLI's descendants outside its process group."""

TERMINATE_GRACE = 2.0
_TIDY_PAUSE = 0.2
_PAGE = os.sysconf("SC_PAGE_SIZE")
MAX_IDLE_BYTES = max(1 << 29, os.sysconf("SC_PHYS_PAGES") * _PAGE // 8)
"""A process of more memory is not kept. Node.js takes the more the machine has."""
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
        self._own_processes: frozenset[int] = frozenset()
        self._draining = asyncio.create_task(errors.drain(process.stderr))

    @classmethod
    async def start(
        cls, launch: CliLaunch, *, log: Path, mark: str, max_line: int, secrets: Sequence[str]
    ) -> CliProcess:
        """Start the process. Raises OSError.

        `max_line` limits a line of output in bytes; `secrets` and secret environment variables are
        masked in the log."""
        env = {**launch.env, PROCESS_MARK_VARIABLE: mark}
        create = partial(
            asyncio.create_subprocess_exec,
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
        process = await FOLDER_PROCESSES.start(launch.cwd, create)
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
    def is_running(self) -> bool:
        return self._process.returncode is None

    async def note_own_processes(self) -> None:
        """Remember what runs before any work is done."""
        found = await asyncio.to_thread(_find_marked_processes, self._mark)
        self._own_processes = frozenset(found)

    async def is_tidy(self, install: Path | None, commands: Sequence[Sequence[str]]) -> bool:
        """Return True if the work has left nothing running and the memory of all processes is
        moderate.

        Only the CLI's own programs in `install` and these `commands` may have started meanwhile."""
        for pause in (0.0, _TIDY_PAUSE):
            await asyncio.sleep(pause)  # a command that has just ended may still be seen
            if await asyncio.to_thread(self._check_processes, install, commands):
                return True
        return False

    def _check_processes(self, install: Path | None, commands: Sequence[Sequence[str]]) -> bool:
        found = _find_marked_processes(self._mark)
        memory = sum(map(_resident_bytes, found))
        strange = [
            pid
            for pid in found
            if pid not in self._own_processes and not _is_expected(pid, install, commands)
        ]
        return not strange and memory <= MAX_IDLE_BYTES

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


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE
    except OSError:
        return 0


def _is_expected(pid: int, install: Path | None, commands: Sequence[Sequence[str]]) -> bool:
    """A script of the CLI looks like any other program of Node.js, so it counts as strange."""
    folder = Path(f"/proc/{pid}")
    try:
        words = (folder / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        program = (folder / "exe").readlink()
    except OSError:
        return not folder.exists()
    if any([os.fsencode(word) for word in command] == words for command in commands):
        return True
    return install is not None and program.is_relative_to(install) and program.name != "node"
