"""Runs `git` without hooks, prompts or background processes."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

COMMAND_TIMEOUT = 300.0
"""Seconds per command; large checkouts take long."""

_TERMINATE_SECONDS = 5.0
_LOCK_POLL_SECONDS = 0.05
_PASSED_ENVIRONMENT = ("PATH", "HOME", "XDG_CONFIG_HOME", "TMPDIR", "SSL_CERT_FILE")

# Git must not act on its own in the Boss's name. Hooks and the file monitor run programs that a
# worker may have changed; signing needs a passphrase; autostash moves unfinished changes.
_GIT_CONFIG = (
    ("core.hooksPath", os.devnull),
    ("core.fsmonitor", "false"),
    ("commit.gpgSign", "false"),
    ("merge.autoStash", "false"),
    ("merge.verifySignatures", "false"),
    ("rerere.enabled", "false"),
    ("submodule.recurse", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("advice.addEmbeddedRepo", "false"),
)


class GitFailed(Exception):
    """Git is missing, failed or timed out; the message is the first line of its output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GitResult:
    status: int
    stdout: str
    stderr: str

    @property
    def succeeded(self) -> bool:
        return self.status == 0

    @property
    def error_line(self) -> str:
        lines = (self.stderr or self.stdout).strip().splitlines()
        return lines[0][:300] if lines else f"git ended with status {self.status}"


class GitRunner:
    """Runs git in a folder.

    Each command inherits `lock_descriptor`, so the lock is held while it lives, even after our
    death."""

    def __init__(self, folder: Path, *, lock_descriptor: int = -1, **variables: str) -> None:
        self.folder = folder
        self._lock_descriptor = lock_descriptor
        self._variables = variables

    def in_folder(self, folder: Path, **variables: str) -> GitRunner:
        """Return a runner with the same lock for another folder."""
        return GitRunner(folder, lock_descriptor=self._lock_descriptor, **variables)

    async def output(self, *args: str) -> str:
        """Return stdout without the last newline. Raises GitFailed if the command fails."""
        ran = await self.run(*args)
        if not ran.succeeded:
            raise GitFailed(ran.error_line)
        return ran.stdout.removesuffix("\n")

    async def run(self, *args: str) -> GitResult:
        """Raises GitFailed only if git can't start or times out."""
        given = [part for pair in _GIT_CONFIG for part in ("-c", "=".join(pair))]
        try:
            process = await asyncio.create_subprocess_exec(
                "git",
                *given,
                *args,
                cwd=self.folder,
                env=self._environment(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
                pass_fds=() if self._lock_descriptor < 0 else (self._lock_descriptor,),
            )
        except OSError as error:
            raise GitFailed(f"git cannot be run in {self.folder}: {error.strerror}") from error
        try:
            async with asyncio.timeout(COMMAND_TIMEOUT):
                out, said = await process.communicate()
        except TimeoutError as error:
            raise GitFailed(f"git {args[0]} took longer than {COMMAND_TIMEOUT:.0f} s") from error
        finally:
            if process.returncode is None:
                await _terminate(process)
        return GitResult(status=process.returncode or 0, stdout=_decode(out), stderr=_decode(said))

    def _environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in _PASSED_ENVIRONMENT if name in os.environ}
        quiet = {"GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true", "GIT_OPTIONAL_LOCKS": "0"}
        return {**kept, **quiet, "LC_ALL": "C", **self._variables}


@asynccontextmanager
async def exclusive_access(locks: Path, resource: Path) -> AsyncGenerator[int, None]:
    """Lock `resource` against other tasks and leftover git processes; yields the lock's
    descriptor."""
    guard = await asyncio.to_thread(_open_lock_file, locks, resource)
    try:
        async with asyncio.timeout(2 * COMMAND_TIMEOUT):
            # The holder may be a leftover process, so poll.
            while not _try_lock(guard):  # noqa: ASYNC110 - other processes send no events
                await asyncio.sleep(_LOCK_POLL_SECONDS)
        yield guard
    except TimeoutError as error:
        raise GitFailed("another git works on the project and does not end") from error
    finally:
        os.close(guard)


def _open_lock_file(locks: Path, with_what: Path) -> int:
    locks.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(os.fsencode(with_what)).hexdigest()[:16]
    return os.open(locks / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _try_lock(guard: int) -> bool:
    try:
        fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def _terminate(process: asyncio.subprocess.Process) -> None:
    """Send TERM first, so that git removes its lock files."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with suppress(TimeoutError):
            async with asyncio.timeout(_TERMINATE_SECONDS):
                await process.wait()
                return


def _decode(raw: bytes) -> str:
    return os.fsdecode(raw)
