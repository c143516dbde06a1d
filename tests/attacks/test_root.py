"""A command has none of the rights of the user who runs Shiftboss, least of all root's, and leaves
nothing behind that gives them to somebody else."""

from __future__ import annotations

import asyncio
import os
import platform
import struct
import subprocess
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from bot.engine.llm import workspace_files
from bot.engine.llm.backend import WorkerMode
from bot.engine.sandbox import backends, supervisor
from bot.engine.sandbox.backends import BubblewrapSandbox, SupervisedSandbox
from bot.engine.sandbox.process_runner import CommandHomes
from bot.engine.sandbox.spec import LimitEnforcement, Sandbox, SandboxKind, default_limits
from bot.engine.tools.shell_exec import CommandShell, exec_tool
from tests.attacks.test_limits import BOMBS
from tests.bot.engine.sandbox.conftest import SandboxCell, build_cell
from tests.thoroughness import sampled
from tests.waiting import WAIT_SECONDS

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="about commands of root")
THEIRS = 1234
"""A user of the machine."""


@pytest.fixture(
    params=[(kind, keeps) for kind in SandboxKind if kind.confines for keeps in (False, True)],
    ids=lambda param: f"{param[0]}-{'root' if param[1] else 'dropped'}",
)
def cell(request: pytest.FixtureRequest, tmp_path: Path) -> SandboxCell:
    """Also as root's own user ID, for machines where commands cannot have another one."""
    kind, keeps_root = request.param
    if keeps_root and os.geteuid():
        pytest.skip("we are not root")
    return build_cell(kind, tmp_path.resolve(), keeps_root=keeps_root)


@pytest.fixture(params=[kind for kind in SandboxKind if kind.confines], ids=str)
def dropped(request: pytest.FixtureRequest, tmp_path: Path) -> SandboxCell:
    if os.geteuid():
        pytest.skip("we are not root")
    return build_cell(request.param, tmp_path.resolve())


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
    if cell.sandbox.limits.user == 0 and not isinstance(cell.sandbox, BubblewrapSandbox):
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
        *("mount -t tmpfs none /mnt", "chroot / true", "mknod disk b 8 0", "renice -n -20 $$"),
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


async def test_a_command_of_root_is_another_user_for_the_kernel(dropped: SandboxCell) -> None:
    wait = "until [ -e seen ]; do sleep 0.125; done"
    running = asyncio.create_task(dropped.says(f"whoami; id -G; {wait}"))
    seen: set[str] = set()
    while not running.done():
        for pid in supervisor.descendants(os.getpid()):
            with suppress(OSError):
                if Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x000.125\0":
                    seen.add(Path(f"/proc/{pid}/status").read_text())
                    (dropped.workspace / "seen").touch()
        await asyncio.sleep(0.01)

    user = dropped.sandbox.limits.user
    assert seen
    for status in seen:
        for name in ("Uid", "Gid"):
            assert f"{name}:\t" + "\t".join([str(user)] * 4) in status
        assert "\nGroups:\t \n" in status
    assert (await running).split() == ["shiftboss-command", str(user)]


@pytest.mark.parametrize("name", [*BOMBS][: sampled(len(BOMBS), 2)])
async def test_the_kernel_limits_the_processes_of_root_s_commands_by_itself(
    dropped: SandboxCell, name: str
) -> None:
    user = dropped.sandbox.limits.user
    limits = default_limits(40, user=user)
    assert limits.enforcement is LimitEnforcement.USER
    assert isinstance(dropped.sandbox, BubblewrapSandbox | SupervisedSandbox)
    few = replace(dropped, sandbox=replace(dropped.sandbox, limits=limits))

    said = await few.run(f"({BOMBS[name]}); pgrep -c . >/dev/null; echo over", seconds=3)
    aloud = BOMBS[name].replace("2>/dev/null", "2>&1")
    refused = await few.run(aloud, seconds=3)
    if not refused.head:  # a busy machine has not made so many by then
        refused = await few.run(aloud, seconds=WAIT_SECONDS)

    assert said is not None
    assert b"fork" in refused.head or b"start new thread" in refused.head, refused
    assert (await few.run("echo again")).head == b"again\n"


async def test_what_a_command_makes_belongs_to_us_and_serves_the_next(dropped: SandboxCell) -> None:
    (dropped.workspace / "ours").write_text("1\n")
    (dropped.workspace / "ours").chmod(0o600)

    await dropped.run(
        "echo 2 >> ours; mkdir -m 700 d; echo 3 > d/made; ln -s made d/link; mv ours d"
    )
    workspace_files.write_text(dropped.workspace, "d/made", "4")
    ended = await dropped.run("cat d/ours d/link; rm -r d; git init -q . && git status --short")

    assert (ended.status, ended.head) == (0, b"1\n2\n4")
    assert {each.lstat().st_uid for each in dropped.workspace.iterdir()} <= {0}
    assert not (dropped.workspace / "d").exists()


async def test_in_somebody_s_folder_everything_stays_theirs(dropped: SandboxCell) -> None:
    """Also behind a folder that only they may enter."""
    house = dropped.secret.parent / "theirs"
    project = house / "project"
    project.mkdir(parents=True)
    (project / "notes").write_text("1\n")
    (project / "root's").write_text("kept")
    for each in (project / "notes", project, house):
        os.chown(each, THEIRS, THEIRS)
    house.chmod(0o700)
    (house / "diary").write_text("private")
    there = replace(dropped, workspace=project)

    ended = await there.run(
        'echo 2 >> notes; mkdir d; touch d/made; echo x >> "root\'s"; cat ../diary; true'
    )
    workspace_files.write_text(project, "d/written/by-a-tool", "3")
    again = await there.run("echo 4 >> d/written/by-a-tool; cat d/written/by-a-tool notes")

    assert b"private" not in ended.head
    assert again.head == b"34\n1\n2\n"
    assert (project / "root's").read_text() == "kept"
    made = {path.name: path.stat().st_uid for path in project.rglob("*") if path.name != ".git"}
    assert made.pop("root's") == 0
    assert set(made.values()) == {THEIRS}


async def test_a_readable_folder_of_root_is_not_changed(dropped: SandboxCell) -> None:
    """It seems to belong to the command."""
    shown = dropped.secret.parent / "shown"
    shown.mkdir()
    (shown / "tool").write_text("kept")
    (shown / "tool").chmod(0o600)

    ended = await dropped.run(
        f"cat {shown}/tool; chmod 777 {shown}/tool {shown}; echo x >> {shown}/tool;"
        f" rm -f {shown}/tool; touch {shown}/new; mv {shown} {shown}2; ln {shown}/tool mine",
        readable=(shown,),
    )

    assert ended.head.startswith(b"kept")
    assert (shown / "tool").read_text() == "kept"
    assert ((shown / "tool").stat().st_mode & 0o777, list(shown.iterdir())) == (
        0o600,
        [shown / "tool"],
    )


async def test_a_command_that_may_not_write_does_not(dropped: SandboxCell) -> None:
    (dropped.workspace / "kept").write_text("1")

    await dropped.run("echo 2 >> kept; chmod 777 kept; touch new; rm kept", writable=False)

    assert [path.name for path in dropped.workspace.iterdir()] == ["kept"]
    assert (dropped.workspace / "kept").read_text() == "1"
    assert (dropped.workspace / "kept").stat().st_mode & 0o777 != 0o777


@as_root
@pytest.mark.parametrize("refuses", [True, False])
async def test_where_a_file_system_knows_no_other_owner_commands_are_refused(
    dropped: SandboxCell, refuses: bool
) -> None:
    place = dropped.secret.parent / "old-disk"
    place.mkdir()
    if subprocess.run(("mount", "-t", "ramfs", "none", str(place)), check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        await _try_command(dropped.sandbox, place, refuses)
    finally:
        subprocess.run(("umount", "-l", str(place)), check=True)


async def _try_command(sandbox: Sandbox, place: Path, refuses: bool) -> None:
    async def here() -> Sandbox:
        return sandbox

    shell = CommandShell(
        sandbox=here,
        homes=CommandHomes(place.parent / "homes"),
        env=lambda _: {"PATH": "/usr/bin:/bin"},
        refuses_unlimited=refuses,
    )
    backends._mappable_devices.clear()

    said = await exec_tool(place, shell, WorkerMode.EXECUTE).run({"command": "touch ran; id -u"})

    assert ("SHIFTBOSS_TOOLS_AS_ROOT" in said) is refuses
    assert (place / "ran").exists() is not refuses
    assert refuses or said.strip() == "0"
    backends._mappable_devices.clear()


def test_a_tool_that_writes_makes_no_program_that_gives_rights(tmp_path: Path) -> None:
    """The file stays another's, and its new content is a worker's."""
    (tmp_path / "x").write_text("theirs")
    (tmp_path / "x").chmod(0o6755)

    workspace_files.write_text(tmp_path, "x", "a worker's")

    assert (tmp_path / "x").stat().st_mode & 0o7777 == 0o755
