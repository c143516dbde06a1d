"""Makes the control group in which the kernel limits the processes and memory of all commands
together: under cgroup v2 where we may make one, else under v1 with its `pids` and `memory`."""

from __future__ import annotations

import atexit
import logging
import os
import secrets
from contextlib import suppress
from pathlib import Path

log = logging.getLogger(__name__)

_ROOT = Path("/sys/fs/cgroup")
_PREFIX = "shiftboss-"
_CONTROLLERS = ("pids", "memory")


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
    """Beside our own group, or within it if it is delegated to us: then we move to a group of our
    own first, since only groups without processes have groups with limits."""
    if not (root / "cgroup.controllers").is_file():
        raise LookupError("cgroup v2 is not mounted")
    own = root / _find_path(memberships, "").lstrip("/")
    if own != root and _has_controllers(own.parent / "cgroup.subtree_control"):
        with suppress(OSError):
            return (_make_folder(own.parent),)
    if not _has_controllers(own / "cgroup.controllers"):
        raise LookupError(f"{own} has no controllers for processes and memory")
    inside = own / f"{_PREFIX}main"
    inside.mkdir(exist_ok=True)
    for pid in (own / "cgroup.procs").read_text(encoding="ascii").split():
        (inside / "cgroup.procs").write_text(pid, encoding="ascii")
    enabled = " ".join(f"+{name}" for name in _CONTROLLERS)
    (own / "cgroup.subtree_control").write_text(enabled, encoding="ascii")
    return (_make_folder(own),)


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
    for left in parent.glob(f"{_PREFIX}[0-9]*"):
        if not Path("/proc", left.name.split("-")[1]).exists():
            with suppress(OSError):
                left.rmdir()
    folder = parent / f"{_PREFIX}{os.getpid()}-{secrets.token_hex(3)}"
    folder.mkdir()
    return folder


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
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()
