"""The real `git`, asked without hooks, prompts or background work, and never left running."""

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

LONGEST = 300.0
"""Seconds one command may take; a large checkout needs some."""

_PATIENCE = 5.0
_LOOK_AGAIN = 0.05
_KEPT_VARIABLES = ("PATH", "HOME", "XDG_CONFIG_HOME", "TMPDIR", "SSL_CERT_FILE")

# What is not the Boss's own doing must not act in the Boss's name. Hooks and the file monitor run
# programs, which a worker may have changed in its tree; signing asks for a passphrase; autostash
# moves the Boss's unfinished changes about.
_CONFIGURED = (
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
    """Git is missing, refused or took too long. The text is the first line of what it said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a command ended. `out` and `said` are what it wrote to its two outputs."""

    status: int
    out: str
    said: str

    @property
    def good(self) -> bool:
        return self.status == 0

    @property
    def complaint(self) -> str:
        lines = (self.said or self.out).strip().splitlines()
        return lines[0][:300] if lines else f"git ended with status {self.status}"


class Git:
    """Runs `git` in a folder. `guard` is a descriptor that every command holds on to as long as
    it lives, also when we do not."""

    def __init__(self, at: Path, *, guard: int = -1, **variables: str) -> None:
        self.folder = at
        self._guard = guard
        self._variables = variables

    def at(self, folder: Path, **variables: str) -> Git:
        """The same, elsewhere."""
        return Git(folder, guard=self._guard, **variables)

    async def out(self, *args: str) -> str:
        """What it printed, without the last newline; GitFailed unless it went well."""
        ran = await self.run(*args)
        if not ran.good:
            raise GitFailed(ran.complaint)
        return ran.out.removesuffix("\n")

    async def run(self, *args: str) -> Ran:
        """GitFailed only if it could not be run or did not end in time."""
        given = [part for pair in _CONFIGURED for part in ("-c", "=".join(pair))]
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
                pass_fds=() if self._guard < 0 else (self._guard,),
            )
        except OSError as error:
            raise GitFailed(f"git cannot be run in {self.folder}: {error.strerror}") from error
        try:
            async with asyncio.timeout(LONGEST):
                out, said = await process.communicate()
        except TimeoutError as error:
            raise GitFailed(f"git {args[0]} took longer than {LONGEST:.0f} s") from error
        finally:
            if process.returncode is None:
                await _end(process)
        return Ran(status=process.returncode or 0, out=_text(out), said=_text(said))

    def _environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        quiet = {"GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true", "GIT_OPTIONAL_LOCKS": "0"}
        return {**kept, **quiet, "LC_ALL": "C", **self._variables}


@asynccontextmanager
async def alone(locks: Path, with_what: Path) -> AsyncGenerator[int, None]:
    """Nobody else of this data directory works on `with_what` meanwhile: neither another task
    nor a git that a killed Shiftboss has left behind. Yields the guard to run git with."""
    guard = await asyncio.to_thread(_opened, locks, with_what)
    try:
        async with asyncio.timeout(2 * LONGEST):
            # Whoever holds it may be a process that knows nothing of us.
            while not _taken(guard):  # noqa: ASYNC110 - no event tells of another process
                await asyncio.sleep(_LOOK_AGAIN)
        yield guard
    except TimeoutError as error:
        raise GitFailed("another git works on the project and does not end") from error
    finally:
        os.close(guard)


def _opened(locks: Path, with_what: Path) -> int:
    locks.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(os.fsencode(with_what)).hexdigest()[:16]
    return os.open(locks / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _taken(guard: int) -> bool:
    try:
        fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def _end(process: asyncio.subprocess.Process) -> None:
    """Asked first: git then takes its lock files away."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await process.wait()
                return


def _text(raw: bytes) -> str:
    return os.fsdecode(raw)
