"""Runs `git` without hooks, prompts, background processes or programs of the repository."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import re
import signal
import subprocess
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from storage.data_directory import user_mask

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
    # A folder that looks like a bare repository is a worker's way to bring a configuration.
    ("safe.bareRepository", "explicit"),
)
_CONFIGURED_PROGRAM = re.compile(
    r"filter\..*\.(?:clean|smudge|process|required)|diff\.external|diff\..*\.(?:command|textconv)"
    r"|merge\..*\.driver|core\.(?:sshcommand|gitproxy|editor|pager|askpass|alternaterefscommand)"
    r"|credential\.(?:.*\.)?helper|gpg\.(?:.*\.)?(?:program|defaultkeycommand)|sequence\.editor"
    r"|pager\..*|interactive\.difffilter|remote\..*\.(?:uploadpack|receivepack|vcs)"
    r"|submodule\..*\.update|uploadpack\.packobjectshook|trailer\..*\.(?:command|cmd)"
    r"|hook\..*\.command|gc\.recentobjectshook"
    # Git LFS, which the user's configuration may name as a filter, runs these.
    r"|lfs\.extension\..*\.(?:clean|smudge)|lfs\.customtransfer\..*\.path"
    r"|lfs\.(?:.*\.)?standalonetransferagent",
    re.IGNORECASE | re.DOTALL,
)
"""Settings by which a configuration makes git run a program, or content pass through one."""
_LIST_CONFIG = ("config", "--list", "-z", "--show-scope")
_REPOSITORY_SCOPES = {"local", "worktree"}
_CONDITIONAL_INCLUDE = re.compile(r"includeif\..*\.path", re.IGNORECASE | re.DOTALL)
_MERGE_DRIVER = re.compile(r"merge\..*\.driver", re.IGNORECASE | re.DOTALL)


_Setting: TypeAlias = tuple[str, str, str]
"""Scope, name and value."""


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
    """Runs git in a folder whose repository a worker may have made or changed: no program that its
    configuration names is run, only what the configuration of the user and the machine names.

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
        named = await self._run(_LIST_CONFIG, {})
        if not named.succeeded:
            return named
        settings = _parse_config(named.stdout)
        if (condition := _find_conditional_include(settings)) is not None:
            return GitResult(status=128, stdout="", stderr=f"{condition} is not supported")
        return await self._run(args, _disable_programs(settings))

    async def _run(self, args: Sequence[str], overrides: Mapping[str, str]) -> GitResult:
        try:
            process = await asyncio.create_subprocess_exec(
                *_command(args),
                cwd=self.folder,
                env=_environment() | self._variables | _config_variables(overrides),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
                umask=user_mask(),
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


def run_git_blocking(folder: Path, *args: str, seconds: float) -> str:
    """Return stdout of a command run as `GitRunner` does, for code in a thread; empty if it fails
    or takes longer."""
    overrides: Mapping[str, str] = {}
    printed = ""
    for command in (_LIST_CONFIG, args):
        try:
            ran = subprocess.run(  # noqa: S603 - fixed program
                _command(command),
                cwd=folder,
                env=_environment() | _config_variables(overrides),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=seconds,
                check=False,
                umask=user_mask(),
            )
        except (OSError, subprocess.SubprocessError):
            return ""
        if ran.returncode:
            return ""
        printed = _decode(ran.stdout)
        if command is _LIST_CONFIG:
            settings = _parse_config(printed)
            if _find_conditional_include(settings) is not None:
                return ""
            overrides = _disable_programs(settings)
    return printed


def _command(args: Sequence[str]) -> list[str]:
    return ["git", *(part for pair in _GIT_CONFIG for part in ("-c", "=".join(pair))), *args]


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _PASSED_ENVIRONMENT if name in os.environ}
    quiet = {"GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true", "GIT_OPTIONAL_LOCKS": "0"}
    # Git would fetch a missing object by itself, by a program that the repository may name.
    # So would Git LFS, from where the repository's .lfsconfig says.
    local = {
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_LFS_SKIP_SMUDGE": "1",
    }
    return {**kept, **quiet, **local, "LC_ALL": "C"}


def _parse_config(listed: str) -> Sequence[_Setting]:
    """Parse what `git config --list -z --show-scope` says: scopes and `key\\nvalue`, in turn."""
    parts = listed.split("\0")
    pairs = (pair.partition("\n") for pair in parts[1::2])
    return [(scope, key, value) for scope, (key, _, value) in zip(parts[::2], pairs, strict=False)]


def _find_conditional_include(settings: Sequence[_Setting]) -> str | None:
    """A setting by which a repository includes a file on some branches or in some worktrees only:
    what that one names would be known too late."""
    for scope, key, _ in settings:
        if scope in _REPOSITORY_SCOPES and _CONDITIONAL_INCLUDE.fullmatch(key):
            return key
    return None


def _disable_programs(settings: Sequence[_Setting]) -> Mapping[str, str]:
    """Return values that take the place of a repository's programs."""
    trusted: dict[str, str] = {}
    found: dict[str, None] = {}
    for scope, key, value in settings:
        if not _CONFIGURED_PROGRAM.fullmatch(key):
            continue
        if scope in _REPOSITORY_SCOPES:
            found[key] = None
        elif scope != "command":
            trusted[key] = value
    return {key: trusted.get(key, _harmless_value(key)) for key in found}


def _harmless_value(key: str) -> str:
    # An empty merge driver would keep our side unasked; this one makes a conflict.
    return "false" if _MERGE_DRIVER.fullmatch(key) else ""


def _config_variables(values: Mapping[str, str]) -> dict[str, str]:
    """Settings as variables: names and values may contain any character there."""
    if not values:
        return {}
    made = {"GIT_CONFIG_COUNT": str(len(values))}
    for number, (key, value) in enumerate(values.items()):
        made |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return made


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
