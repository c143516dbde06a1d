"""A command that takes processes or memory without end meets its limit, not the machine."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.engine.llm.backend import WorkerMode
from bot.engine.sandbox import cgroups
from bot.engine.sandbox.backends import BubblewrapSandbox, SupervisedSandbox
from bot.engine.sandbox.process_runner import CommandHomes
from bot.engine.sandbox.spec import LimitEnforcement, SandboxKind, build_view, default_limits
from bot.engine.tools.shell_exec import CommandShell, exec_tool
from tests.bot.engine.sandbox.conftest import SandboxCell, cell
from tests.journeys.model_world import model_world, run_call, script_task
from tests.waiting import wait_until

__all__ = ["cell"]

MOST = 48
WANTED = 150
"""Each bomb stops by itself at so many processes, which wait for their end."""

MEGABYTES = 1 << 20
_GO_ON = "2>/dev/null; echo it-goes-on"
BOMBS = {
    "in the background": f"for i in $(seq {WANTED}); do sleep 60 & done {_GO_ON}",
    "each in its own session": f"for i in $(seq {WANTED}); do setsid sleep 60 & done {_GO_ON}",
    "without a parent": f"for i in $(seq {WANTED}); do (sleep 60 &) ; done {_GO_ON}",
    "ignoring signals": f"trap '' TERM HUP; for i in $(seq {WANTED}); do sleep 60 & done {_GO_ON}",
    "a pipe of pipes": "f() { [ $1 -gt 0 ] && { f $(($1-1)) | f $(($1-1)); }; sleep 60; }; f 8"
    f" {_GO_ON}",
    "threads": "python3 -c 'import threading, time\n"
    f"for i in range({WANTED}): threading.Thread(target=time.sleep, args=(60,)).start()' {_GO_ON}",
}

TAKE = f"""
import glob, os, sys, time
taken = b"x" * {90 * MEGABYTES}
open("taken-" + sys.argv[1], "w").close()
while len(glob.glob("taken-*")) < 5 and not os.path.exists("over"):
    time.sleep(0.01)
if not os.path.exists("over"):
    open("together-" + sys.argv[1], "w").close()
while not os.path.exists("over"):
    time.sleep(0.01)
"""
"""Holds its memory until it is over; `together` says that five have had it at once."""


@pytest.fixture
def limited(cell: SandboxCell) -> Iterator[SandboxCell]:
    """In a control group with few processes and little memory, or skipped."""
    folders = cgroups.make_command_cgroup(MOST, 200 * MEGABYTES)
    if not folders:
        pytest.skip("this machine gives us no control group")
    assert isinstance(cell.sandbox, BubblewrapSandbox | SupervisedSandbox)
    limits = replace(cell.sandbox.limits, cgroup=folders)
    yield replace(cell, sandbox=replace(cell.sandbox, limits=limits))
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


def group(of: SandboxCell) -> Path:
    return next(path for path in of.sandbox.limits.cgroup if (path / "pids.max").is_file())


def has_met_limit(of: SandboxCell) -> bool:
    return "max 0" not in (group(of) / "pids.events").read_text()


async def cancel(running: asyncio.Task[Any]) -> None:
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


@pytest.mark.parametrize("name", BOMBS)
async def test_a_fork_bomb_reaches_its_limit_and_the_machine_answers(
    limited: SandboxCell, name: str
) -> None:
    seen: list[int] = []
    bombing = asyncio.create_task(limited.run(BOMBS[name]))
    while not has_met_limit(limited):
        assert not bombing.done()
        seen.append(int((group(limited) / "pids.current").read_text()))
        answer = await asyncio.to_thread(subprocess.run, ("true",), check=False)
        assert answer.returncode == 0

    seen.append(int((group(limited) / "pids.current").read_text()))
    await cancel(bombing)

    assert max(seen) <= MOST
    await wait_until(lambda: not (group(limited) / "cgroup.procs").read_text())


async def test_a_command_that_takes_all_memory_is_ended_alone(limited: SandboxCell) -> None:
    take = f"python3 -c \"x = b'x' * {400 * MEGABYTES}; print(6 * 7, 1)\"; echo it-goes-on"

    said = (await limited.run(take)).head.decode()

    assert "42 1" not in said


async def test_many_processes_do_not_share_more_memory_than_one(limited: SandboxCell) -> None:
    (limited.workspace / "take.py").write_text(TAKE)
    running = asyncio.create_task(
        limited.run("for n in 1 2 3 4 5; do (python3 take.py $n; touch ended-$n) & done; wait")
    )

    def count(files: str) -> int:
        return len([*limited.workspace.glob(files)])

    await wait_until(lambda: running.done() or count("ended-*") or count("together-*") == 5)
    (limited.workspace / "over").touch()
    await running

    assert count("together-*") < 5


@pytest.mark.parametrize(
    "way",
    [
        "echo $$ > {up}/cgroup.procs",
        "echo 0 > {up}/tasks",
        "echo max > {group}/pids.max",
        "echo 100000 > {group}/pids.max",
        "mkdir {group}/inner && echo 0 > {group}/inner/cgroup.procs",
        "mkdir /tmp/c && mount -t cgroup2 none /tmp/c && echo $$ > /tmp/c/cgroup.procs",
        "unshare -UrCm sh -c 'mount -t cgroup2 none /mnt && echo $$ > /mnt/cgroup.procs'",
    ],
)
async def test_a_command_does_not_leave_its_group(limited: SandboxCell, way: str) -> None:
    at = group(limited)

    await limited.run(f"({way.format(group=at, up=at.parent)}) 2>/dev/null; sleep 1 & sleep 1")

    assert (at / "pids.max").read_text().strip() == str(MOST)
    assert not (at / "inner").exists()
    assert "max 0" in (at / "pids.events").read_text()
    later = asyncio.create_task(
        limited.run(f"({way.format(group=at, up=at.parent)}) 2>/dev/null; {BOMBS['threads']}")
    )
    await wait_until(lambda: later.done() or has_met_limit(limited))
    assert has_met_limit(limited), "it had left the group"
    await cancel(later)


async def test_a_command_whose_group_is_gone_does_not_run(limited: SandboxCell) -> None:
    for folder in limited.sandbox.limits.cgroup:
        folder.rmdir()

    ended = await limited.run("touch ran")

    assert ended.status == 126
    assert not (limited.workspace / "ran").exists()


@pytest.mark.parametrize("refuses", [True, False])
async def test_as_root_without_a_group_nothing_runs_unless_a_setting_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuses: bool
) -> None:
    monkeypatch.setattr("bot.engine.sandbox.spec.os.geteuid", lambda: 0)
    sandbox = SupervisedSandbox(kind=SandboxKind.NONE, view=build_view(), limits=default_limits())
    assert sandbox.limits.enforcement is LimitEnforcement.NONE

    async def here() -> SupervisedSandbox:
        return sandbox

    shell = CommandShell(
        sandbox=here,
        homes=CommandHomes(tmp_path / "homes"),
        env=lambda _: {"PATH": "/usr/bin:/bin"},
        refuses_unlimited=refuses,
    )

    said = await exec_tool(tmp_path, shell, WorkerMode.EXECUTE).run({"command": "touch ran"})

    assert ("SHIFTBOSS_TOOLS_AS_ROOT" in said) is refuses
    assert (tmp_path / "ran").exists() is not refuses


async def test_the_program_answers_while_a_task_of_it_bombs(tmp_path: Path) -> None:
    trusting = {"SHIFTBOSS_TOOLS_SECURITY": "full", "SHIFTBOSS_TOOLS_ASK": "off"}
    async with model_world(
        tmp_path / "home", "openai", SHIFTBOSS_TOOLS_PROCESSES="100", **trusting
    ) as world:
        if "control group limits" not in await world.ask("/status", expects="sandbox"):
            pytest.skip("this machine gives us no control group")
        (at,) = (
            path
            for path in Path("/sys/fs/cgroup").rglob(f"shiftboss-{world.program.pid}-*")
            if (path / "pids.max").is_file()
        )
        boss, chat = world.new_owner()
        await boss.says(
            chat, script_task(world.script, "bomb", run_call(BOMBS["without a parent"]))
        )
        seen = []
        while "max 0" in (at / "pids.events").read_text():
            seen.append(int((at / "pids.current").read_text()))
            assert re.search("Shiftboss", await world.ask("/status", expects="sandbox"))
        assert re.search("Shiftboss", await world.ask("/status", expects="sandbox"))
        seen.append(int((at / "pids.current").read_text()))

        def is_over() -> bool:
            for pid in (at / "cgroup.procs").read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            return any("It is done: bomb." in m.text for m in chat.from_bot)

        await wait_until(is_over)

        assert max(seen) <= 100
        assert (at / "pids.max").read_text().strip() == "100"


def test_a_machine_without_control_groups_gives_none(tmp_path: Path) -> None:
    assert cgroups.make_command_cgroup(10, MEGABYTES, root=tmp_path) == ()


_UNIT = "user.slice/user-1000.slice/user@1000.service/app.slice/shiftboss.service"


@pytest.fixture
def unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The group of a user's service in a hierarchy of plain files, with one process in it; a
    systemctl says that it is delegated."""
    own = tmp_path / "cgroup" / _UNIT
    own.mkdir(parents=True)
    (tmp_path / "cgroup/cgroup.controllers").write_text("")
    for group in (own, own.parent):
        (group / "cgroup.controllers").write_text("cpu memory pids\n")
        (group / "cgroup.subtree_control").write_text("memory pids\n")
        (group / "cgroup.procs").write_text("")
        (group / "cgroup.type").write_text("domain\n")
    say_delegated(tmp_path, "yes")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return own


def say_delegated(folder: Path, answer: str) -> None:
    program = folder / "systemctl"
    program.write_text(f'#!/bin/sh\n[ "$6" = shiftboss.service ] && echo {answer}\n')
    program.chmod(0o755)


def make_v2(unit: Path, path: str = _UNIT) -> Path:
    root = unit.parents[4]
    (made,) = cgroups._make_v2(root, f"0::/{path}\n")
    return made


def test_a_delegated_group_is_split_in_two(unit: Path) -> None:
    """So that the manager ends the commands' group with the service, however it ends."""
    (unit / "cgroup.subtree_control").write_text("")

    made = make_v2(unit)

    assert made.parent == unit
    assert (unit / "shiftboss-main").is_dir()
    assert (unit / "cgroup.subtree_control").read_text() == "+pids +memory"


def test_processes_of_a_delegated_group_are_moved_also_those_that_start_meanwhile(
    unit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starting = [["123", "124"], ["125"]]
    (unit / "cgroup.procs").write_text("123")
    moved: list[str] = []
    read, write = Path.read_text, Path.write_text

    def read_processes(self: Path, encoding: str | None = None, errors: str | None = None) -> str:
        if self == unit / "cgroup.procs":
            return "\n".join(starting.pop(0)) if starting else ""
        return read(self, encoding, errors)

    def move(self: Path, data: str, encoding: str | None = None) -> int:
        if self == unit / "shiftboss-main" / "cgroup.procs":
            if data == "124":
                raise ProcessLookupError("it has ended")
            moved.append(data)
        return write(self, data, encoding)

    monkeypatch.setattr(Path, "read_text", read_processes)
    monkeypatch.setattr(Path, "write_text", move)

    assert make_v2(unit).parent == unit
    assert moved == ["123", "125"]


def test_a_program_that_restarted_itself_goes_on_beside_its_own_group(unit: Path) -> None:
    """It has the same process ID, and is where the one before moved it."""
    before = make_v2(unit)
    cgroups._made.discard(before)

    made = make_v2(unit, f"{_UNIT}/shiftboss-main")

    assert made.parent == unit
    assert not before.exists()


def test_what_is_not_delegated_is_left_to_its_manager(unit: Path, tmp_path: Path) -> None:
    say_delegated(tmp_path, "no")

    made = make_v2(unit)

    assert made.parent == unit.parent
    assert not (unit / "shiftboss-main").exists()


def test_the_group_of_a_program_that_was_killed_is_removed_by_the_next(unit: Path) -> None:
    """Also where its process ID has gone to another process."""
    gone = [unit / "shiftboss-1-1-aaaaaa", unit / "shiftboss-4194305-5-bbbbbb"]
    for folder in gone:
        folder.mkdir()

    made = make_v2(unit)

    assert made.exists()
    assert not any(folder.exists() for folder in gone)


async def test_commands_end_with_the_program_that_made_their_group(limited: SandboxCell) -> None:
    at = group(limited)
    if not (at / "cgroup.kill").is_file():
        pytest.skip("this kernel kills no groups")
    escaped = subprocess.Popen(
        limited.sandbox.limits.join_cgroup(("sleep", "600")), start_new_session=True
    )
    await wait_until(lambda: (at / "cgroup.procs").read_text().split() == [str(escaped.pid)])

    await asyncio.to_thread(cgroups._remove, limited.sandbox.limits.cgroup)

    assert escaped.wait() == -signal.SIGKILL
    assert not at.exists()
