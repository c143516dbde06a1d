"""Defines the sandbox protocol: visible files, environment and resource limits of a command."""

from __future__ import annotations

import os
import pwd
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

SYSTEM_FOLDERS = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix/store"),
    *("/snap", "/gnu/store", "/sys/devices/system/cpu"),
)
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PASSED_VARIABLES = frozenset({"LANG", "LANGUAGE", "TERM", "TZ", "COLORTERM", "NO_COLOR"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesystemView:
    """The files a command can see.

    `readable` are folders and files, `hidden` those within them to hide; links are resolved in
    both, and `links` lists top-level links such as /bin. `granted` covers the same files as whole
    paths, for sandboxes that can only grant access."""

    readable: tuple[Path, ...]
    hidden: tuple[Path, ...] = ()
    links: tuple[tuple[Path, str], ...] = ()
    granted: tuple[Path, ...] = ()

    def can_see(self, path: Path) -> bool:
        path = Path(os.path.realpath(path))
        seen = any(path.is_relative_to(each) for each in self.readable)
        return seen and not any(path.is_relative_to(each) for each in self.hidden)


def build_view(*, extra: Sequence[Path] = (), secrets: Sequence[Path] = ()) -> FilesystemView:
    """Build the view of system folders plus `extra`, without `secrets`. Blocking."""
    system = [Path(each) for each in SYSTEM_FOLDERS]
    links = tuple((path, str(path.readlink())) for path in system if path.is_symlink())
    named = dict.fromkeys(
        Path(os.path.realpath(path)) for path in (*system, Path(sys.base_prefix), *extra)
    )
    there = [path for path in named if path.exists() and path != Path("/")]
    readable = tuple(
        path for path in there if not any(path != at and path.is_relative_to(at) for at in there)
    )
    private = (*(Path(os.path.realpath(path)) for path in secrets), *_root_only_paths(Path("/etc")))
    hidden = tuple(dict.fromkeys(private))
    granted = tuple(part for root in readable for part in _grantable_paths(root, hidden))
    return FilesystemView(readable=readable, hidden=hidden, links=links, granted=granted)


def command_environment(
    source: Mapping[str, str],
    *,
    extra_names: Iterable[str] = (),
    view: FilesystemView | None = None,
    is_secret: Callable[[str], bool] = lambda _: False,
) -> dict[str, str]:
    """Return the variables of `source` that a command needs, plus `extra_names`, without those
    whose value has a secret in it."""
    names = {*_PASSED_VARIABLES, *extra_names}
    env = {name: value for name, value in source.items() if name in names or name.startswith("LC_")}
    path = source.get("PATH") or _DEFAULT_PATH
    if view is not None:
        seen = [
            part for part in path.split(":") if part.startswith("/") and view.can_see(Path(part))
        ]
        path = ":".join(seen) or _DEFAULT_PATH
    given = {"TERM": "dumb", "LANG": "C.UTF-8", **env, "PATH": path}
    return {name: value for name, value in given.items() if not is_secret(value)}


def common_git_folder(workspace: Path) -> Path | None:
    """Return the main repository of a linked worktree.

    The worktree's own claim is verified against the repository's entry, which commands can't
    write."""
    try:
        claim = workspace / ".git"
        if not stat.S_ISREG(claim.lstat().st_mode):
            return None
        git_path = claim.read_text(errors="replace")[:4096].removeprefix("gitdir:").strip()
        entry = Path(os.path.realpath(workspace / git_path))
        common = entry.parent.parent
        back = (entry / "gitdir").read_text(errors="replace").strip()
        is_git = entry.parent.name == "worktrees" and (common / "HEAD").is_file()
        outside = not entry.is_relative_to(workspace)
        known = Path(os.path.realpath(Path(back).parent)) == workspace
    except (OSError, ValueError):
        return None
    return common if is_git and outside and known else None


def _root_only_paths(folder: Path) -> Iterator[Path]:
    """Paths that only root may read are hidden if we run as root."""
    if os.geteuid() != 0:
        return
    with os.scandir(folder) as found:
        for entry in found:
            mode = entry.stat(follow_symlinks=False).st_mode
            if entry.is_symlink():
                continue
            if not mode & stat.S_IROTH:
                yield Path(entry.path)
            elif entry.is_dir(follow_symlinks=False):
                yield from _root_only_paths(Path(entry.path))


def _grantable_paths(root: Path, hidden: Sequence[Path]) -> Iterator[Path]:
    if root in hidden:
        return
    if not any(path.is_relative_to(root) for path in hidden):
        yield root
        return
    with os.scandir(root) as found:
        children = [Path(entry.path) for entry in found if not entry.is_symlink()]
    for child in children:
        yield from _grantable_paths(child, hidden)


_GIB = 1 << 30
SPARE_PROCESSES = 4096


# `0` is the process that writes.
_JOIN = (
    'n=$1; shift; while [ "$n" -gt 0 ]; do echo 0 >"$1" || exit 126; shift; n=$((n-1)); done;'
    ' exec "$@"'
)


class LimitEnforcement(StrEnum):
    """Who keeps commands from taking the machine's processes and memory: the kernel for all of them
    together, the kernel for the user's processes, or only our own check, four times a second."""

    CGROUP = "cgroup"
    USER = "user"
    NONE = "watch"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLimits:
    """Limits per process in bytes; `processes` is the total for `user`, the user ID of commands,
    not enforced for root.

    `cgroup` are the folders of the control group that all commands join; see `cgroups`."""

    memory: int
    file_size: int = 4 * _GIB
    processes: int
    cgroup: tuple[Path, ...] = ()
    user: int = field(default_factory=os.geteuid)

    @property
    def enforcement(self) -> LimitEnforcement:
        if self.cgroup:
            return LimitEnforcement.CGROUP
        return LimitEnforcement.USER if self.user else LimitEnforcement.NONE

    @property
    def drops_root(self) -> bool:
        """Whether we are root and commands are not; see `privilege_drop`."""
        return self.user != 0 and os.geteuid() == 0

    def join_cgroup(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Return the command that joins the control group and becomes `argv`. It ends with status
        126 if it cannot join."""
        if not self.cgroup:
            return tuple(argv)
        files = [str(folder / "cgroup.procs") for folder in self.cgroup]
        return ("/bin/sh", "-c", _JOIN, "sh", str(len(files)), *files, *argv)

    @property
    def shell_prefix(self) -> str:
        """Shell code that applies the limits, raises the OOM score and executes its arguments.

        Limits unknown to the shell are skipped."""
        most = (("-c", 0), ("-d", self.memory // 1024), ("-f", self.file_size // 512))
        own = "".join(f"ulimit {flag} {value} 2>/dev/null; " for flag, value in most)
        # Shells use different letters; the other letter is harmless.
        many = "".join(
            f"(ulimit {flag} {self.processes}) 2>/dev/null && ulimit {flag} {self.processes}; "
            for flag in ("-p", "-u")
        )
        first = "echo 1000 2>/dev/null >/proc/self/oom_score_adj; "
        return f'{first}{own}{many}exec "$@"'


def default_limits(
    spare_processes: int = SPARE_PROCESSES, *, user: int | None = None
) -> ProcessLimits:
    """Allow 3/4 of the memory, and these processes in addition to those that the user, by default
    our own, has now."""
    user = os.geteuid() if user is None else user
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return ProcessLimits(
        memory=max(_GIB, total * 3 // 4),
        processes=sum(_threads(user)) + spare_processes,
        user=user,
    )


_FIRST_USER_ID = 70_700
"""Above 65535 and below 100000 no system hands out IDs by itself; archives hold up to 2097151."""


def unused_user_id() -> int:
    """Return the ID of the user that commands of root run as: one that no account has."""
    user = _FIRST_USER_ID
    with suppress(KeyError):
        while pwd.getpwuid(user):
            user += 1
    return user


def _threads(user: int) -> Iterator[int]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if folder.stat().st_uid == user:
                yield len(list((folder / "task").iterdir()))
        except OSError:
            # The process has ended.
            continue


class SandboxKind(StrEnum):
    """From strong to none; without a sandbox every command needs an approval."""

    BUBBLEWRAP = "bwrap"
    LANDLOCK = "landlock"
    NONE = "none"

    @property
    def confines(self) -> bool:
        return self is not SandboxKind.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxedCommand:
    """A command to start in `workspace`; see `Sandbox.wrap`.

    `workspace` and `home` are existing absolute paths. `env` is the whole environment, except HOME
    and TMPDIR."""

    argv: Sequence[str]
    workspace: Path
    home: Path
    env: Mapping[str, str] = field(repr=False)
    network: bool = False
    readable: Sequence[Path] = ()
    writable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLaunch:
    """A sandboxed command, to be started in its own session.

    It ends with all its descendants when its process receives TERM or when we die."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    cwd: Path


class Sandbox(Protocol):
    @property
    def kind(self) -> SandboxKind: ...

    @property
    def program(self) -> Path | None:
        """The binary that isolates, if it is not Shiftboss itself."""
        ...

    @property
    def limits(self) -> ProcessLimits: ...

    def limits_for(self, *folders: Path) -> ProcessLimits:
        """The limits of a command that writes in the folders: as root, where they cannot be given
        to another user, those of root. Blocking, but short."""
        ...

    @property
    def view(self) -> FilesystemView:
        """The files visible in it besides the workspace."""
        ...

    def wrap(self, command: SandboxedCommand) -> SandboxLaunch:
        """Implementers must allow writing only in `home` and, if `writable`, in `workspace`. Only
        system folders and `readable` may be visible; other processes may not, and the network only
        if `network` is True. Blocking, but short."""
        ...


def temporary_folder(home: Path) -> Path:
    """Return a folder next to `home`; inside, the command could replace it with a link."""
    temporary = home.with_name(f"{home.name}.tmp")
    temporary.mkdir(exist_ok=True)
    return temporary
