"""A command has none of the rights of the user who runs Shiftboss, least of all root's, and leaves
nothing behind that gives them to somebody else."""

from __future__ import annotations

import os
import platform
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from bot.engine.sandbox import supervisor
from bot.engine.sandbox.backends import BubblewrapSandbox
from tests.bot.engine.sandbox.conftest import SandboxCell, cell

__all__ = ["cell"]

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="about commands of root")

SET_ID_WAYS = {
    "chmod": "chmod u+s x",
    "chmod of the group": "chmod g+s x",
    "chmod by number": "chmod 4755 x",
    "install": "install -m 4755 /bin/true x",
    "copied with its mode": "cp -p /usr/bin/passwd x; cp -p /bin/su x; cp -p /bin/mount x",
    "open": "python3 -c \"import os; os.open('x2', os.O_CREAT | os.O_WRONLY, 0o6755)\"",
    "open in a folder": "python3 -c \"import os; d = os.open('.', 0);"
    " os.open('x2', os.O_CREAT | os.O_WRONLY, 0o6755, dir_fd=d)\"",
    "mknod": "python3 -c \"import os; os.mknod('x2', 0o106755)\"",
    "fchmod": "python3 -c \"import os; os.fchmod(os.open('x', 0), 0o4755)\"",
    "a nameless file": "python3 -c \"import os; f = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o4755);"
    " os.link(f'/proc/self/fd/{f}', 'x2', follow_symlinks=True)\"",
    "an archive": "python3 -c \"import tarfile; t = tarfile.open('a.tar', 'w');"
    " i = t.gettarinfo('x'); i.mode = 0o6755; t.addfile(i, open('x', 'rb')); t.close()\";"
    " tar -xpf a.tar",
    "fchmodat2": "python3 -c \"import ctypes; print(ctypes.CDLL(None).syscall(452, -100, b'x',"
    ' 0o4755, 0))"',
    "openat2": 'python3 -c "import ctypes, struct; print(ctypes.CDLL(None).syscall(437, -100,'
    " b'x2', struct.pack('=QQQ', 0o101, 0o4755, 0), 24))\"",
}


def judge(machine: str, arch: int, number: int, *args: int) -> int:
    """The filter's verdict on a system call, as the kernel reaches it."""
    code = supervisor.build_mode_filter(machine)
    data = struct.pack("=iIQ6Q", number, arch, 0, *args, *[0] * (6 - len(args)))
    at, value = 0, 0
    while True:
        kind, yes, no, operand = struct.unpack_from("=HBBI", code, 8 * at)
        match kind:
            case 0x20:
                (value,) = struct.unpack_from("=I", data, operand)
            case 0x15 | 0x35 | 0x45:
                holds = {0x15: value == operand, 0x35: value >= operand, 0x45: value & operand}
                at += yes if holds[kind] else no
            case _:
                return int(operand)
        at += 1


X86, I386, ARM64, ARM = 0xC000003E, 0x40000003, 0xC00000B7, 0x40000028
ALLOW, REFUSE, UNKNOWN = 0x7FFF0000, 0x0005000D, 0x00050026


@pytest.mark.parametrize(
    ("machine", "arch", "chmod", "fchmodat", "openat"),
    [
        ("x86_64", X86, 90, 268, 257),
        ("x86_64", I386, 15, 306, 295),
        ("aarch64", ARM64, 52, 53, 56),
        ("aarch64", ARM, 15, 333, 322),
    ],
)
def test_the_filter_holds_for_every_way_to_call_the_kernel(
    machine: str, arch: int, chmod: int, fchmodat: int, openat: int
) -> None:
    for mode, verdict in ((0o4755, REFUSE), (0o2755, REFUSE), (0o1755, ALLOW), (0o644, ALLOW)):
        assert judge(machine, arch, chmod, 3, mode) == verdict
        assert judge(machine, arch, fchmodat, 3, 4, mode) == verdict
        assert judge(machine, arch, 452, 3, 4, mode) == verdict
        assert judge(machine, arch, openat, 3, 4, 0o101, mode) == verdict
        # Without a file to make, the mode is whatever stood in the register.
        assert judge(machine, arch, openat, 3, 4, 0, mode) == ALLOW
    assert [judge(machine, arch, number) for number in (425, 437, 39)] == [UNKNOWN, UNKNOWN, ALLOW]
    assert judge(machine, 0xC0000015, 0) == REFUSE


def test_numbers_of_another_table_are_refused() -> None:
    assert judge("x86_64", X86, 0x40000000 + 90, 0, 0o755) == REFUSE
    assert supervisor.build_mode_filter("sparc") == b""


@pytest.mark.skipif(platform.machine() not in {"x86_64", "aarch64"}, reason="no filter for it")
@pytest.mark.parametrize("name", SET_ID_WAYS)
async def test_no_command_leaves_a_program_that_gives_our_rights_to_other_users(
    cell: SandboxCell, name: str
) -> None:
    await cell.run(f"cp /bin/true x; chmod 755 x; {SET_ID_WAYS[name]}")

    modes = {path.name: path.stat().st_mode & 0o7000 for path in cell.workspace.iterdir()}
    assert modes.pop("x") == 0
    assert not any(modes.values())


async def test_other_modes_can_be_set(cell: SandboxCell) -> None:
    if os.geteuid() == 0 and not isinstance(cell.sandbox, BubblewrapSandbox):
        pytest.skip("Landlock as root refuses every change of a mode")

    said = await cell.says("touch a; chmod 750 a; mkdir -m 711 d; (umask 077; touch b); ls -l")

    assert "Operation not permitted" not in said
    found = {path.name: path.stat().st_mode & 0o7777 for path in cell.workspace.iterdir()}
    assert (found["a"], found["b"], found["d"]) == (0o750, 0o600, 0o711)


@pytest.mark.parametrize("hardened", [True, False])
async def test_a_command_has_no_capability_and_gets_none(cell: SandboxCell, hardened: bool) -> None:
    if isinstance(cell.sandbox, BubblewrapSandbox) and not hardened:
        cell = replace(cell, sandbox=replace(cell.sandbox, flags=()))

    said = await cell.says("grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status; sudo -n id")

    facts = dict(line.split(":\t") for line in said.splitlines() if ":\t" in line)
    if os.geteuid() == 0 or isinstance(cell.sandbox, BubblewrapSandbox):
        assert int(facts["CapBnd"], 16) == 0
    assert [int(facts[f"Cap{which}"], 16) for which in ("Eff", "Prm", "Inh", "Amb")] == [0] * 4
    assert (facts["NoNewPrivs"], facts["Seccomp"]) == ("1", "2")
    assert "uid=" not in said


@as_root
@pytest.mark.parametrize(
    "way",
    [
        *("cat {other}", "echo x >> {other}", "chown 1234 mine", "chmod 600 /etc/hostname"),
        *("mount -t tmpfs none /mnt", "chroot / true", "mknod disk b 8 0", "renice -n -5 $$"),
        *("hostname pwned", "date -s 2020-01-01", "mount -o remount,rw /etc", "cat /etc/shadow"),
        *("echo x > /etc/shiftboss-was-here", "echo x > /proc/sys/kernel/core_pattern"),
        *("echo h > /proc/sysrq-trigger", "unshare -Ur true", "unshare -m true"),
        *("nsenter -t 1 -m true", "kill -0 {pid}", "setpriv --reuid 1234 true", "dmesg -C"),
        *(
            "ulimit -Hn 99999999",
            "insmod /dev/null",
            "sysctl -w vm.swappiness=1",
        ),
    ],
)
async def test_root_s_own_powers_do_not_reach_into_a_command(cell: SandboxCell, way: str) -> None:
    shown = cell.secret.parent / "shown"
    shown.mkdir()
    other = shown / "of-another-user"
    other.write_text("theirs")
    other.chmod(0o600)
    os.chown(other, 1234, 1234)
    hostname, script = os.uname().nodename, way.format(other=other, pid=os.getpid())

    ended = await cell.run(f"touch mine; {script}", readable=(shown,))

    assert ended.status != 0
    assert b"theirs" not in ended.head
    assert other.read_text() == "theirs"
    assert os.uname().nodename == hostname
    assert not Path("/etc/shiftboss-was-here").exists()
    assert (cell.workspace / "mine").stat().st_uid == 0
