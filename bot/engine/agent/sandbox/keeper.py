"""Holds one command in where there is no bubblewrap, and ends all that it started when it ends.

A program of its own that knows nothing of Shiftboss; see `command`. What it runs, with all
descendants, is limited by Landlock (files), seccomp (sockets) and rlimits before it begins. The
keeper itself is not: what leaves its parents becomes its child, and it kills that.

It imports little: each command waits for it to start.
"""

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

    class Spec(TypedDict):
        """`parent` is the process to die with; `limits` are by their names in `resource`. The
        rest matters only where it is `confined`: paths, and whether there are sockets."""

        parent: int
        limits: dict[str, int]
        confined: bool
        network: bool
        readable: list[str]
        writable: list[str]


PATIENCE = 1
"""Whole seconds between TERM and KILL."""

LEAST_ABI = 3
"""Before it, Landlock did not keep a program from cutting off files elsewhere."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_SET_PDEATHSIG, _SET_SECCOMP, _CAPBSET_DROP, _SET_SUBREAPER, _NO_NEW_PRIVS = 1, 22, 24, 36, 38
_CREATE, _ADD, _RESTRICT = 444, 445, 446
_LAST_CAPABILITY = 63

_READ_FILE, _READ_FOLDER, _EXECUTE = 1 << 2, 1 << 3, 1 << 0
_READ = _READ_FILE | _READ_FOLDER | _EXECUTE
_TRUNCATE, _WRITE_FILE = 1 << 14, 1 << 1
_OF_FILES = _READ_FILE | _EXECUTE | _WRITE_FILE | _TRUNCATE
_ALL = (1 << 15) - 1
_DEVICES = 1 << 6 | 1 << 11
_SCOPES = 0b11
_SCOPES_SINCE = 6
_USABLE = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_LOOKED_AT = ("/proc",)

# By machine: its number, and those of the calls socket and prlimit64.
_ARCHES = {"x86_64": (0xC000003E, 41, 302), "aarch64": (0xC00000B7, 198, 261)}
# chmod, chown, setxattr and their kin, of which Landlock knows nothing: root could do harm by them.
_CHANGES = {
    "x86_64": (*range(90, 95), *range(188, 191), *range(197, 200), 260, 268, 452, 463, 466, 469),
    "aarch64": (5, 6, 7, 14, 15, 16, 52, 53, 54, 55, 452, 463, 466, 469),
}
_IO_URING, _X32 = 425, 0x40000000
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ARCH, _NUMBER, _FIRST = 4, 0, 16
_ALLOW, _REFUSE, _UNKNOWN = 0x7FFF0000, 0x00050000 | 13, 0x00050000 | 38


def command(spec: Spec, argv: Sequence[str]) -> tuple[str, ...]:
    """What to run to have `argv` run so."""
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib is slow to load
    start = f"import sys; sys.path.insert(0, {here!r}); import keeper; sys.exit(keeper.main())"
    return (sys.executable, "-I", "-S", "-c", start, marshal.dumps(dict(spec.items())).hex(), *argv)


def landlock_abi() -> int:
    """0 where there is none, or where it cannot be used with a filter for sockets."""
    if os.uname().machine not in _ARCHES:
        return 0
    return max(0, int(_LIBC.syscall(_CREATE, None, ctypes.c_size_t(0), 1)))


def descendants(root: int, most: int = 1 << 20) -> list[int]:
    """The processes that `root` started and those these started, nearest first."""
    found: list[int] = []
    waiting = [root]
    while waiting and len(found) < most:
        children = _children(waiting.pop())
        found += children
        waiting += children
    return found


def end_all(root: int, *, reap: bool = False) -> None:
    """Kill all descendants of `root`: stopped first, so that none has time for another child.
    `reap` those that are our own children: only for who has no others. Blocks for up to a
    second where one cannot be killed."""
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
    spec: Spec = marshal.loads(bytes.fromhex(sys.argv[1]))  # noqa: S302 - from ourselves
    _prctl(_SET_SUBREAPER, 1)
    _prctl(_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != spec["parent"]:
        return 1
    signal.signal(signal.SIGTERM, _asked_to_end)
    signal.signal(signal.SIGALRM, _end_now)
    child = os.fork()
    if child == 0:
        _become(spec, sys.argv[2:])
    status = _waited(child)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end_all(os.getpid(), reap=True)
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


def _waited(child: int) -> int:
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _asked_to_end(_number: int, _frame: FrameType | None) -> None:
    _signal(descendants(os.getpid()), signal.SIGTERM)
    signal.alarm(PATIENCE)


def _end_now(_number: int, _frame: FrameType | None) -> None:
    end_all(os.getpid(), reap=True)
    os._exit(128 + signal.SIGTERM)


def _become(spec: Spec, argv: list[str]) -> None:
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _prctl(_SET_PDEATHSIG, signal.SIGKILL)
        _limit(spec["limits"])
        if spec["confined"]:
            _confine(spec)
        os.execvpe(argv[0], argv, dict(os.environ))  # noqa: S606 - no shell is wanted
    except OSError as error:
        os.write(2, f"cannot run {argv[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _limit(limits: dict[str, int]) -> None:
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:  # noqa: PTH123 - as above
        score.write("1000")
    for name, most in limits.items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (allowed, allowed))


def _confine(spec: Spec) -> None:
    """Everything fails closed: a step that does not work raises OSError."""
    for capability in range(_LAST_CAPABILITY):
        # Beyond the last that this kernel knows, or as a plain user, there is nothing to drop.
        _LIBC.prctl(_CAPBSET_DROP, capability, 0, 0, 0)
    _prctl(_NO_NEW_PRIVS, 1)
    scopes = _SCOPES if landlock_abi() >= _SCOPES_SINCE else 0
    attributes = struct.pack("=QQQ", _ALL, 0, scopes)
    size = len(attributes) if scopes else 8
    rules = _checked(_LIBC.syscall(_CREATE, attributes, ctypes.c_size_t(size), 0))
    for path in (*spec["readable"], *_LOOKED_AT):
        _allow(rules, path, _READ)
    for path in spec["writable"]:
        _allow(rules, path, _ALL & ~_DEVICES)
    for path in _USABLE:
        _allow(rules, path, _READ_FILE | _WRITE_FILE)
    _checked(_LIBC.syscall(_RESTRICT, rules, 0))
    os.close(rules)
    _filter(network=spec["network"])


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    if not os.path.isdir(path):  # noqa: PTH112 - as above
        rights &= _OF_FILES
    beneath = struct.pack("=Qi", rights, place)
    _checked(_LIBC.syscall(_ADD, rules, 1, beneath, 0))
    os.close(place)


def _filter(*, network: bool) -> None:
    """No sockets at all; with a network all but those that files lead to, as a daemon behind one
    may do anything. No io_uring, which makes sockets unseen, no limits for other processes, and no
    other machine's calls."""
    machine = os.uname().machine
    arch, make_socket, set_limit = _ARCHES[machine]
    changes = _CHANGES[machine] if os.geteuid() == 0 else ()
    # What a test that holds, or else one that does not, leads to; 0 is the next line, 2 is after
    # the next two.
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
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *each) for each in program))
    filter_ = struct.pack("@HP", len(program), ctypes.addressof(code))
    _checked(_LIBC.prctl(_SET_SECCOMP, 2, filter_, 0, 0))


def _prctl(option: int, value: int) -> None:
    _checked(_LIBC.prctl(option, value, 0, 0, 0))


def _checked(answer: int) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer
