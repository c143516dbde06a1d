"""Confines a command without Bubblewrap and kills all its descendants when it ends.

Runs as a standalone program; see `supervisor_command`. Landlock (files), seccomp (sockets) and
rlimits apply to the command and its descendants, but not to the supervisor: it adopts orphans and
kills them. Few imports, because every command waits for its start."""

from __future__ import annotations

import ctypes
import marshal
import os
import resource
import signal
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    class SupervisorSpec(TypedDict):
        """`parent` is the process to die with; `limits` use the names in `resource`.

        The other fields apply only if `confined`."""

        parent: int
        limits: dict[str, int]
        confined: bool
        network: bool
        readable: list[str]
        writable: list[str]


KILL_DELAY_SECONDS = 1
"""Whole seconds between TERM and KILL."""

MIN_LANDLOCK_ABI = 3
"""Earlier versions don't restrict truncating files."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_SET_PDEATHSIG, _SET_SECCOMP, _CAPBSET_DROP, _SET_SUBREAPER, _NO_NEW_PRIVS = 1, 22, 24, 36, 38
_CREATE, _ADD, _RESTRICT = 444, 445, 446
_LAST_CAPABILITY = 63

_READ_FILE, _READ_FOLDER, _EXECUTE = 1 << 2, 1 << 3, 1 << 0
_READ = _READ_FILE | _READ_FOLDER | _EXECUTE
_TRUNCATE, _WRITE_FILE = 1 << 14, 1 << 1
_FILE_RIGHTS = _READ_FILE | _EXECUTE | _WRITE_FILE | _TRUNCATE
_ALL_RIGHTS = (1 << 15) - 1
_DEVICE_RIGHTS = 1 << 6 | 1 << 11
_SCOPES = 0b11
_SCOPES_SINCE = 6
_USABLE_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_READABLE_PSEUDO_FILES = ("/proc",)

# Audit architecture and the numbers of `socket` and `prlimit64`.
_ARCHES = {"x86_64": (0xC000003E, 41, 302), "aarch64": (0xC00000B7, 198, 261)}
# chmod, chown, setxattr and similar, which Landlock doesn't cover: dangerous as root.
_METADATA_CALLS = {
    "x86_64": (*range(90, 95), *range(188, 191), *range(197, 200), 260, 268, 452, 463, 466, 469),
    "aarch64": (5, 6, 7, 14, 15, 16, 52, 53, 54, 55, 452, 463, 466, 469),
}
_IO_URING, _OPENAT2, _X32 = 425, 437, 0x40000000
_LOAD, _EQUAL, _AT_LEAST, _HAS_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ARCH, _NUMBER, _FIRST = 4, 0, 16
_ALLOW, _REFUSE, _UNKNOWN = 0x7FFF0000, 0x00050000 | 13, 0x00050000 | 38

# System calls that give a file its mode, by audit architecture: number → index of the argument, and
# for those that open also numbers → index of their flags, after which the mode follows.
_MODE_CALLS: dict[str, dict[int, tuple[dict[int, int], dict[int, int]]]] = {
    "x86_64": {
        0xC000003E: ({90: 1, 91: 1, 268: 2, 452: 2, 85: 1, 133: 1, 259: 2}, {2: 1, 257: 2}),
        0x40000003: ({15: 1, 94: 1, 306: 2, 452: 2, 8: 1, 14: 1, 297: 2}, {5: 1, 295: 2}),
    },
    "aarch64": {
        0xC00000B7: ({52: 1, 53: 2, 452: 2, 33: 2}, {56: 2}),
        0x40000028: ({15: 1, 94: 1, 333: 2, 452: 2, 8: 1, 14: 1, 324: 2}, {5: 1, 322: 2}),
    },
}
_SET_ID_BITS, _CREATES = 0o6000, 0o20000100


def supervisor_command(spec: SupervisorSpec, argv: Sequence[str]) -> tuple[str, ...]:
    """Return the command that runs `argv` under a supervisor."""
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib is slow to load
    start = (
        f"import sys; sys.path.insert(0, {here!r}); import supervisor; sys.exit(supervisor.main())"
    )
    return (sys.executable, "-I", "-S", "-c", start, marshal.dumps(dict(spec.items())).hex(), *argv)


def supervisor_arguments(command: Sequence[str]) -> tuple[str, ...]:
    """Return what `main` reads of a command of `supervisor_command`."""
    return tuple(command[command.index("-c") + 2 :])


def landlock_abi() -> int:
    """Return the version; 0 if unavailable or if seccomp doesn't support the architecture."""
    if os.uname().machine not in _ARCHES:
        return 0
    return max(0, int(_LIBC.syscall(_CREATE, None, ctypes.c_size_t(0), 1)))


def build_mode_filter(machine: str) -> bytes:
    """A seccomp program that refuses to make set-user-ID and set-group-ID files, which would give
    our rights to other users of the machine; empty for an unknown architecture.

    Calls whose arguments a filter cannot see do not exist: openat2 and io_uring."""
    calls = _MODE_CALLS.get(machine, {})
    lines: list[tuple[str, int, str, str, int]] = [("", _LOAD, "", "", _ARCH)]
    lines += [("", _EQUAL, f"calls {arch}", "", arch) for arch in calls]
    lines += [("", _RETURN, "", "", _REFUSE)]
    for arch, (modes, opens) in calls.items():
        lines += [(f"calls {arch}", _LOAD, "", "", _NUMBER)]
        lines += [("", _AT_LEAST, "refuse", "", _X32)]
        lines += [("", _EQUAL, "unknown", "", number) for number in (_IO_URING, _OPENAT2)]
        lines += [("", _EQUAL, f"mode {at}", "", number) for number, at in modes.items()]
        lines += [("", _EQUAL, f"open {at}", "", number) for number, at in opens.items()]
        lines += [("", _RETURN, "", "", _ALLOW)]
    for at in (1, 2):
        lines += [(f"open {at}", _LOAD, "", "", _FIRST + 8 * at)]
        lines += [("", _HAS_BITS, f"mode {at + 1}", "allow", _CREATES)]
    for at in (1, 2, 3):
        lines += [(f"mode {at}", _LOAD, "", "", _FIRST + 8 * at)]
        lines += [("", _HAS_BITS, "refuse", "allow", _SET_ID_BITS)]
    ends = {"allow": _ALLOW, "refuse": _REFUSE, "unknown": _UNKNOWN}
    lines += [(name, _RETURN, "", "", value) for name, value in ends.items()]
    places = {label: at for at, (label, *_) in enumerate(lines) if label}
    return b"".join(
        struct.pack("=HBBI", code, *(places.get(to, at + 1) - at - 1 for to in (yes, no)), value)
        for at, (_, code, yes, no, value) in enumerate(lines)
        if calls
    )


def descendants(root: int, limit: int = 1 << 20) -> list[int]:
    """Return the descendants of `root`, nearest first."""
    found: list[int] = []
    waiting = [root]
    while waiting and len(found) < limit:
        children = _children(waiting.pop())
        found += children
        waiting += children
    return found


def kill_descendants(root: int, *, reap: bool = False) -> None:
    """Kill all descendants, stopping them first so that they can't fork.

    `reap` waits for our own children and is for callers without others. Blocks for up to a second
    if a process can't be killed."""
    stopped: set[int] = set()
    for _ in range(500):
        found = descendants(root)
        if not found:
            return
        if set(found) <= stopped:
            _signal(found, signal.SIGKILL)
            if reap:
                _reap()
            time.sleep(0.002)
        else:
            _signal(found, signal.SIGSTOP)
            stopped |= set(found)


def main() -> int:
    spec: SupervisorSpec = marshal.loads(bytes.fromhex(sys.argv[1]))  # noqa: S302 - our own data
    _prctl(_SET_SUBREAPER, 1)
    _prctl(_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != spec["parent"]:
        return 1
    signal.signal(signal.SIGTERM, _on_terminate)
    signal.signal(signal.SIGALRM, _on_kill_timer)
    child = os.fork()
    if child == 0:
        _exec_child(spec, sys.argv[2:])
    status = _wait_for(child)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    kill_descendants(os.getpid(), reap=True)
    return status


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - pathlib is slow to load
            with suppress(OSError), open(f"/proc/{pid}/task/{thread}/children") as told:  # noqa: PTH123 - as above
                found += map(int, told.read().split())
    return found


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _wait_for(child: int) -> int:
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _on_terminate(_number: int, _frame: FrameType | None) -> None:
    _signal(descendants(os.getpid()), signal.SIGTERM)
    signal.alarm(KILL_DELAY_SECONDS)


def _on_kill_timer(_number: int, _frame: FrameType | None) -> None:
    kill_descendants(os.getpid(), reap=True)
    os._exit(128 + signal.SIGTERM)


def _exec_child(spec: SupervisorSpec, argv: list[str]) -> None:
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _prctl(_SET_PDEATHSIG, signal.SIGKILL)
        _apply_limits(spec["limits"])
        if spec["confined"]:
            _confine(spec)
        os.execvpe(argv[0], argv, dict(os.environ))  # noqa: S606 - no shell needed
    except OSError as error:
        os.write(2, f"cannot run {argv[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _apply_limits(limits: dict[str, int]) -> None:
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:  # noqa: PTH123 - as above
        score.write("1000")
    for name, most in limits.items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (allowed, allowed))


def _confine(spec: SupervisorSpec) -> None:
    """Fails closed: any failing step raises OSError."""
    for capability in range(_LAST_CAPABILITY):
        # Fails for unknown capabilities and plain users, where nothing has to be dropped.
        _LIBC.prctl(_CAPBSET_DROP, capability, 0, 0, 0)
    _prctl(_NO_NEW_PRIVS, 1)
    scopes = _SCOPES if landlock_abi() >= _SCOPES_SINCE else 0
    attributes = struct.pack("=QQQ", _ALL_RIGHTS, 0, scopes)
    size = len(attributes) if scopes else 8
    rules = _check_result(_LIBC.syscall(_CREATE, attributes, ctypes.c_size_t(size), 0))
    for path in (*spec["readable"], *_READABLE_PSEUDO_FILES):
        _allow_path(rules, path, _READ)
    for path in spec["writable"]:
        _allow_path(rules, path, _ALL_RIGHTS & ~_DEVICE_RIGHTS)
    for path in _USABLE_DEVICES:
        _allow_path(rules, path, _READ_FILE | _WRITE_FILE)
    _check_result(_LIBC.syscall(_RESTRICT, rules, 0))
    os.close(rules)
    _install_seccomp(network=spec["network"])


def _allow_path(rules: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        # The command could not reach it either.
        return
    if not os.path.isdir(path):  # noqa: PTH112 - as above
        rights &= _FILE_RIGHTS
    beneath = struct.pack("=Qi", rights, place)
    _check_result(_LIBC.syscall(_ADD, rules, 1, beneath, 0))
    os.close(place)


def _install_seccomp(*, network: bool) -> None:
    """Block all sockets, or only Unix sockets with `network`, because daemons behind them are
    unrestricted.

    Also blocks io_uring, which can create sockets, limits of other processes and system calls of
    other architectures."""
    machine = os.uname().machine
    arch, make_socket, set_limit = _ARCHES[machine]
    changes = _METADATA_CALLS[machine] if os.geteuid() == 0 else ()
    # Jump targets if a test holds and if it fails: 0 is the next line, 2 skips two lines.
    tests = [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 0, _REFUSE, arch),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, _REFUSE, 0, _X32),
        (_EQUAL, _UNKNOWN, 0, _IO_URING),
        *((_EQUAL, _REFUSE, 0, number) for number in changes),
        (_EQUAL, 0, 2, set_limit),
        (_LOAD, 0, 0, _FIRST),
        (_EQUAL, _ALLOW, _REFUSE, 0),
        (_EQUAL, 0, _ALLOW, make_socket),
        (_LOAD, 0, 0, _FIRST),
        (_EQUAL, _REFUSE, _ALLOW if network else _REFUSE, 1),
    ]
    ends = {end: len(tests) + at for at, end in enumerate((_ALLOW, _REFUSE, _UNKNOWN))}
    program = [
        (code, *(ends[to] - at - 1 if to in ends else to for to in (yes, no)), value)
        for at, (code, yes, no, value) in enumerate(tests)
    ]
    program += [(_RETURN, 0, 0, end) for end in ends]
    for code in (
        build_mode_filter(machine),
        b"".join(struct.pack("=HBBI", *each) for each in program),
    ):
        buffer = ctypes.create_string_buffer(code)
        filter_ = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
        _check_result(_LIBC.prctl(_SET_SECCOMP, 2, filter_, 0, 0))


def _prctl(option: int, value: int) -> None:
    _check_result(_LIBC.prctl(option, value, 0, 0, 0))


def _check_result(answer: int) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer
