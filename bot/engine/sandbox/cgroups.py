"""Makes the control group in which the kernel limits the processes and memory of all commands
together: under cgroup v2 where we may make one, else under v1 with its `pids` and `memory`."""

from __future__ import annotations

import atexit
import logging
import os
import re
import secrets
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path

log = logging.getLogger(__name__)

_ROOT = Path("/sys/fs/cgroup")
_PREFIX = "shiftboss-"
_MAIN = f"{_PREFIX}main"
_CONTROLLERS = ("pids", "memory")
_DELEGATED = "user.delegate"
"""The mark that systemd puts on a group with `Delegate=yes`."""
_USER_MANAGER = re.compile(r"/user@\d+\.service(/|$)")
_ASK_SECONDS = 10
_MOVES = 20
_END_SECONDS = 1.0

_made: set[Path] = set()
"""By this program; one that became this program by a restart made others."""


def make_command_cgroup(processes: int, memory: int, *, root: Path = _ROOT) -> tuple[Path, ...]:
    """Make the group for the commands of this process and return its folders; empty if this machine
    gives us none. `memory` is in bytes. Blocking."""
    for make in (_make_v2, _make_v1):
        try:
            folders = make(root, Path("/proc/self/cgroup").read_text(encoding="utf-8"))
            for folder in folders:
                _set_limits(folder, processes, memory)
        except (OSError, LookupError) as error:
            log.debug("no control group for commands: %s", error)
        else:
            atexit.register(_remove, folders)
            return folders
    return ()


def _make_v2(root: Path, memberships: str) -> tuple[Path, ...]:
    """Within our own group if it is delegated to us, so that it ends with us however we end; else
    beside it, where we may."""
    if not (root / "cgroup.controllers").is_file():
        raise LookupError("cgroup v2 is not mounted")
    own = root / _find_path(memberships, "").lstrip("/")
    if own.name == _MAIN:
        # We have moved already, and have become this program again since.
        return (_make_folder(own.parent),)
    if own == root or _is_delegated(own):
        with suppress(OSError, LookupError):
            return (_make_inside(own),)
    if own != root and _has_controllers(own.parent / "cgroup.subtree_control"):
        return (_make_folder(own.parent),)
    raise LookupError(f"{own} is not delegated, and nothing can be made beside it")


def _make_inside(own: Path) -> Path:
    """Only groups without processes have groups with limits: we move to one of our own first. The
    root of the whole hierarchy, which has no type, is free to have both."""
    if not _has_controllers(own / "cgroup.controllers"):
        raise LookupError(f"{own} has no controllers for processes and memory")
    if (own / "cgroup.type").is_file():
        _move_processes(own, own / _MAIN)
    enabled = " ".join(f"+{name}" for name in _CONTROLLERS)
    (own / "cgroup.subtree_control").write_text(enabled, encoding="ascii")
    return _make_folder(own)


def _move_processes(own: Path, inside: Path) -> None:
    """A process may start others or end while we read."""
    inside.mkdir(exist_ok=True)
    for _ in range(_MOVES):
        left = (own / "cgroup.procs").read_text(encoding="ascii").split()
        if not left:
            return
        for pid in left:
            with suppress(ProcessLookupError):
                (inside / "cgroup.procs").write_text(pid, encoding="ascii")


def _is_delegated(own: Path) -> bool:
    """The system's manager marks what it delegates. A user's manager cannot, so it is asked: what
    it has not delegated, it may take back at any time."""
    with suppress(OSError):
        return os.getxattr(own, _DELEGATED) == b"1"
    manager = shutil.which("systemctl")
    if manager is None or not _USER_MANAGER.search(str(own.parent)):
        return False
    show = (manager, "--user", "show", "--property=Delegate", "--value", "--", own.name)
    try:
        shown = subprocess.run(  # noqa: S603 - no shell, and a name from the kernel
            show, capture_output=True, timeout=_ASK_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return shown.stdout.strip() == b"yes"


def _make_v1(root: Path, memberships: str) -> tuple[Path, ...]:
    parents = [root / name / _find_path(memberships, name).lstrip("/") for name in _CONTROLLERS]
    if not all((parent / "cgroup.procs").is_file() for parent in parents):
        raise LookupError("the controllers of cgroup v1 are not mounted")
    return tuple(_make_folder(parent) for parent in parents)


def _find_path(memberships: str, controller: str) -> str:
    """Lines have the form `number:controllers:path`; the controllers of v2 are empty."""
    for line in memberships.splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            return path
    raise LookupError(f"this process is in no control group of {controller or 'v2'}")


def _has_controllers(file: Path) -> bool:
    return {*_CONTROLLERS} <= {*file.read_text(encoding="ascii").split()}


def _make_folder(parent: Path) -> Path:
    """Remove those that ended programs left, also this process as the program that it was before a
    restart."""
    for left in parent.glob(f"{_PREFIX}[0-9]*"):
        pid, started, *_ = left.name.removeprefix(_PREFIX).split("-")
        is_ours = pid == str(os.getpid()) and left not in _made
        if is_ours or _read_start(pid) != started:
            with suppress(OSError):
                left.rmdir()
    folder = parent / f"{_PREFIX}{os.getpid()}-{_read_start('self')}-{secrets.token_hex(3)}"
    folder.mkdir()
    _made.add(folder)
    return folder


def _read_start(pid: str) -> str:
    """The start of a process in clock ticks since boot; empty if there is none."""
    try:
        fields = Path("/proc", pid, "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The name of the program, in parentheses, may have anything in it.
    return fields.rpartition(")")[2].split()[19]


def _set_limits(folder: Path, processes: int, memory: int) -> None:
    """Raises OSError if the kernel refuses a limit."""
    values = {"pids.max": processes, "memory.max": memory, "memory.limit_in_bytes": memory}
    known = [name for name in values if (folder / name).is_file()]
    if not known:
        raise LookupError(f"{folder} limits nothing")
    for name in known:
        (folder / name).write_text(str(values[name]), encoding="ascii")
    # Without this, a command that reaches its limit continues in the machine's swap.
    with suppress(OSError):
        if (folder / "memory.swap.max").is_file():
            (folder / "memory.swap.max").write_text("0", encoding="ascii")


def _remove(folders: tuple[Path, ...]) -> None:
    """Kill what still runs in the group, where the kernel can (v2 since Linux 5.14)."""
    for folder in folders:
        with suppress(OSError):
            if (folder / "cgroup.kill").is_file():
                (folder / "cgroup.kill").write_text("1", encoding="ascii")
        deadline = time.monotonic() + _END_SECONDS
        while folder.exists() and time.monotonic() < deadline:
            try:
                folder.rmdir()
            except OSError:
                # Killed processes leave their group a moment later.
                time.sleep(0.01)
