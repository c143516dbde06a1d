"""Starts a command of root as an unprivileged user to whom its folders seem to belong.

Runs as a standalone program; see `drop_command`. In a mount namespace of its own the owner of each
folder and the user of commands change places (ID-mapped mounts): what the command makes belongs to
the folder's owner on the disk, and nothing on the disk changes for the command's sake."""

from __future__ import annotations

import ctypes
import importlib
import marshal
import os
import signal
import stat
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    class DropSpec(TypedDict):
        """`user` is the user and group ID to run as. `own` folders are given to it, with the home
        first, `readable` paths only to read. `links` are paths with what they lead to, `cwd` is the
        working directory. `supervised` says that the command is for `supervisor`, not a program."""

        user: int
        own: list[str]
        readable: list[str]
        links: dict[str, str]
        cwd: str
        supervised: bool


_LIBC = ctypes.CDLL(None, use_errno=True)
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_CLONE, _RECURSIVE, _EMPTY_PATH, _FROM_EMPTY_PATH = 1, 0x8000, 0x1000, 4
_READ_ONLY, _NO_SET_ID, _ID_MAPPED = 1, 2, 0x100000
_NEW_USERS, _NEW_MOUNTS = 0x10000000, 0x20000
_PRIVATE, _DETACH = 0x4000 | 0x40000, 2
_SET_DUMPABLE, _CAPBSET_DROP, _NO_NEW_PRIVS = 4, 24, 38
_LAST_CAPABILITY = 63
_MAX_ID = (1 << 32) - 2
_CANNOT_START = 126
_USER_NAME = "shiftboss-command"
"""Programs such as Node.js fail where their user has no name."""


def drop_command(spec: DropSpec, argv: Sequence[str]) -> tuple[str, ...]:
    """Return the command that root starts to run `argv` as the user of commands. It ends with
    status 126 if it cannot."""
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib is slow to load
    start = (
        f"import sys; sys.path.insert(0, {here!r}); import privilege_drop;"
        " sys.exit(privilege_drop.main())"
    )
    return (sys.executable, "-I", "-S", "-c", start, marshal.dumps(dict(spec.items())).hex(), *argv)


def main() -> int:
    spec: DropSpec = marshal.loads(bytes.fromhex(sys.argv.pop(1)))  # noqa: S302 - our own data
    # Loaded as root: the command's user may not be able to read our code.
    supervisor = importlib.import_module("supervisor") if spec["supervised"] else None
    try:
        give_folders(spec)
        _become(spec["user"])
        os.chdir(spec["cwd"])
        if supervisor is None:
            os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 - no shell needed
    except OSError as error:
        os.write(2, f"cannot run as an unprivileged user: {error}\n".encode())
        return _CANNOT_START
    return int(supervisor.main())


def give_folders(spec: DropSpec) -> None:
    """Needs root, and leaves this process in a mount namespace of its own."""
    user, namespaces = spec["user"], _UserNamespaces()
    trees = {path: _open_mapped(path, user, namespaces) for path in spec["own"]}
    for path in spec["readable"]:
        if path not in trees and os.path.exists(path):  # noqa: PTH110 - as above
            trees[path] = _open_readable(path, user, namespaces)
    namespaces.close()
    _check(_LIBC.unshare(_NEW_MOUNTS))
    _check(_LIBC.mount(None, b"/", None, _PRIVATE, None))
    _name_user(user, spec["own"][0])
    blocked = {_blocking_folder(path) for path in trees} - {""}
    kinds = {path: stat.S_ISDIR(os.fstat(tree).st_mode) for path, tree in trees.items()}
    mask = os.umask(0o022)
    for folder in blocked:
        # Hides everything else in it, also from the program that isolates.
        _mount_tmpfs(folder)
    for path in sorted(trees, key=len):
        if any(path.startswith(f"{folder}/") for folder in blocked):
            _make_mount_point(path, is_folder=kinds[path])
        _move_mount(trees[path], path)
    for link, target in spec["links"].items():
        if any(link.startswith(f"{folder}/") for folder in blocked):
            with suppress(FileExistsError):
                _make_mount_point(os.path.dirname(link), is_folder=True)  # noqa: PTH120 - as above
                os.symlink(target, link)  # noqa: PTH211 - as above
    os.umask(mask)


class _UserNamespaces:
    """Descriptors of user namespaces in which an owner and the user of commands change places."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, int], int] = {}

    def swapping(self, owner: int, group: int, user: int) -> int:
        made = self._made.get((owner, group))
        if made is None:
            made = self._made[owner, group] = _make_user_namespace(owner, group, user)
        return made

    def close(self) -> None:
        for descriptor in self._made.values():
            os.close(descriptor)


def _make_user_namespace(owner: int, group: int, user: int) -> int:
    ready, made = os.pipe()
    child = os.fork()
    if child == 0:
        failed = _LIBC.unshare(_NEW_USERS)
        os.write(made, b"x" if failed else b"+")
        signal.pause()
    try:
        if os.read(ready, 1) != b"+":
            raise OSError("there are no user namespaces")
        for kind, theirs in (("uid", owner), ("gid", group)):
            with open(f"/proc/{child}/{kind}_map", "w", encoding="ascii") as table:  # noqa: PTH123 - as above
                table.write(_swap(theirs, user))
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(ready)
        os.close(made)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _swap(one: int, other: int) -> str:
    """A map in which two IDs change places and all others stay: no file is without an owner."""
    low, high = sorted((one, other))
    ranges = [(0, 0, low), (low + 1, low + 1, high - low - 1), (high + 1, high + 1, _MAX_ID - high)]
    ranges += [(low, high, 1), (high, low, 1)] if low != high else [(low, low, 1)]
    return "".join(f"{inside} {seen} {count}\n" for inside, seen, count in ranges if count > 0)


def _open_mapped(path: str, user: int, namespaces: _UserNamespaces, attributes: int = 0) -> int:
    """Return a descriptor of a copy of the mount, which belongs to `user` instead of its owner."""
    tree = _open_tree(path)
    try:
        owner = os.fstat(tree)
        mapped = namespaces.swapping(owner.st_uid, owner.st_gid, user)
        _set_attributes(tree, _ID_MAPPED | _NO_SET_ID | attributes, mapped)
    except OSError:
        os.close(tree)
        raise
    return tree


def _open_readable(path: str, user: int, namespaces: _UserNamespaces) -> int:
    """As the file system's modes allow it where it cannot be mapped."""
    with suppress(OSError):
        return _open_mapped(path, user, namespaces, _READ_ONLY)
    tree = _open_tree(path)
    _set_attributes(tree, _READ_ONLY | _NO_SET_ID)
    return tree


def _open_tree(path: str) -> int:
    flags = _CLONE | _RECURSIVE | os.O_CLOEXEC
    return _check(_LIBC.syscall(_OPEN_TREE, -100, os.fsencode(path), flags))


def _set_attributes(tree: int, attributes: int, user_namespace: int = 0) -> None:
    wanted = struct.pack("=QQQQ", attributes, 0, 0, user_namespace)
    size, flags = ctypes.c_size_t(len(wanted)), _EMPTY_PATH | _RECURSIVE
    _check(_LIBC.syscall(_MOUNT_SETATTR, tree, b"", flags, wanted, size))


def _move_mount(tree: int, path: str) -> None:
    to = os.fsencode(path)
    _check(_LIBC.syscall(_MOVE_MOUNT, tree, b"", -100, to, _FROM_EMPTY_PATH))
    os.close(tree)


def _mount_tmpfs(folder: str) -> None:
    _check(_LIBC.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, b"mode=0755,size=1m"))


def _name_user(user: int, staging: str) -> None:
    """Add the user of commands to the account names; `staging` is any folder."""
    names = os.path.realpath("/etc/passwd")
    try:
        with open(names, "rb") as known:  # noqa: PTH123 - as above
            text = known.read()
    except OSError:
        return
    _mount_tmpfs(staging)
    made = f"{staging}/passwd"
    with open(made, "wb") as table:  # noqa: PTH123 - as above
        os.fchmod(table.fileno(), 0o644)
        line = f"{_USER_NAME}:x:{user}:{user}::/:/bin/sh\n"
        table.write(text.rstrip(b"\n") + b"\n" + line.encode())
    tree = _open_tree(made)
    _check(_LIBC.umount2(os.fsencode(staging), _DETACH))
    _set_attributes(tree, _READ_ONLY)
    _move_mount(tree, names)


def _blocking_folder(path: str) -> str:
    """Return the first folder on the way that other users may not pass; empty if there is none."""
    at = ""
    for part in path.split("/")[1:-1]:
        at = f"{at}/{part}"
        if not os.stat(at).st_mode & stat.S_IXOTH:  # noqa: PTH116 - as above
            return at
    return ""


def _make_mount_point(path: str, *, is_folder: bool) -> None:
    os.makedirs(path if is_folder else os.path.dirname(path), 0o755, exist_ok=True)  # noqa: PTH103, PTH120 - as above
    if not is_folder:
        with open(path, "a", encoding="ascii"):  # noqa: PTH123 - as above
            pass


def _become(user: int) -> None:
    for capability in range(_LAST_CAPABILITY):
        # Fails for unknown capabilities.
        _LIBC.prctl(_CAPBSET_DROP, capability, 0, 0, 0)
    _check(_LIBC.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0))
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    # Cleared by the change of user, after which our own /proc entry would belong to root.
    _check(_LIBC.prctl(_SET_DUMPABLE, 1, 0, 0, 0))


def _check(answer: int) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer
