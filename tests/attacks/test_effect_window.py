"""What was approved stays so while it runs: coding CLIs and MCP servers that work in the same
folder are halted meanwhile."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from bot.engine.llm.folder_processes import FOLDER_PROCESSES
from bot.engine.sandbox import supervisor
from bot.engine.sandbox.process_halt import halted_processes
from bot.engine.sandbox.process_runner import close_pipes, kill_process, start_process
from bot.engine.sandbox.spec import SandboxedCommand, command_environment
from tests.bot.engine.sandbox.conftest import SandboxCell, any_cell
from tests.waiting import WAIT_SECONDS

__all__ = ["any_cell"]


# It replaces the script as soon as the command has begun, from each of its threads and processes.
RACER = """
import os, sys, threading, time
os.chdir(RACED)
def race(name):
    while not os.path.exists("go"):
        time.sleep(0.005)
    with open(name, "w") as new:
        new.write("echo evil")
    os.rename(name, "b.sh")
    open("done", "a").close()
for n in range(3):
    threading.Thread(target=race, args=(f"new{os.getpid()}{n}",)).start()
"""
FORKS, STAY = "import os; os.fork(); os.fork()", 'print("ready", flush=True); time.sleep(600)'
# Where nobody is halted, it runs what was put there.
LURED = (
    "touch go; n=0; while [ ! -e done ] && [ $n -lt 30 ]; do sleep 0.05; n=$((n+1)); done; sh b.sh"
)


@asynccontextmanager
async def racing(
    cell: SandboxCell, folder: Path
) -> AsyncGenerator[asyncio.subprocess.Process, None]:
    launch = cell.sandbox.wrap(
        SandboxedCommand(
            argv=("python3", "-c", f"{FORKS}; RACED = {str(cell.workspace)!r}{RACER}{STAY}"),
            workspace=folder,
            home=cell.home,
            env=command_environment(cell.around, view=cell.sandbox.view),
        )
    )
    process = await FOLDER_PROCESSES.start(
        folder,
        lambda: start_process(launch, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT),
    )
    try:
        assert process.stdout is not None
        for _ in range(4):
            assert await process.stdout.readline() == b"ready\n"
        yield process
    finally:
        await kill_process(process)
        await process.wait()
        close_pipes(process)


async def written(path: Path) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not path.exists():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("at", [".", ".."], ids=["same folder", "folder around it"])
async def test_who_works_in_the_folder_cannot_replace_a_script_under_a_command(
    any_cell: SandboxCell, at: str
) -> None:
    cell, work = any_cell, any_cell.workspace
    (work / "b.sh").write_text("echo harmless")
    async with racing(cell, Path(os.path.normpath(work / at))):
        async with halted_processes(work) as are_halted:
            assert are_halted
            ended = await cell.run(LURED)

        assert ended.head == b"harmless\n"
        await written(work / "done")


async def test_nobody_starts_in_the_folder_meanwhile(any_cell: SandboxCell) -> None:
    cell, work = any_cell, any_cell.workspace
    (work / "go").touch()

    async def join() -> None:
        async with racing(cell, work):
            await written(work / "done")

    async with halted_processes(work):
        joining = asyncio.create_task(join())
        await asyncio.sleep(0)
        assert FOLDER_PROCESSES.find(work) == []
        elsewhere = await FOLDER_PROCESSES.start(work.parent / "other", sleeper)
        elsewhere.kill()
        await elsewhere.wait()
        assert not (work / "done").exists()
    await joining


async def sleeper() -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec("sleep", "600")


async def test_who_is_halted_for_two_commands_waits_for_both(any_cell: SandboxCell) -> None:
    cell, work = any_cell, any_cell.workspace
    (work / "sub").mkdir()
    (work / "b.sh").write_text("echo harmless")
    async with racing(cell, work) as racer:
        async with halted_processes(work / "sub"):
            async with halted_processes(work):
                pass
            assert states(racer.pid) == {"T"}
        async with asyncio.timeout(WAIT_SECONDS):
            while "T" in states(racer.pid):
                await asyncio.sleep(0.01)


async def test_who_is_halted_goes_on_after_the_command_that_began_later(
    any_cell: SandboxCell,
) -> None:
    cell, work = any_cell, any_cell.workspace
    (work / "sub").mkdir()
    async with racing(cell, work) as racer, AsyncExitStack() as later:
        async with halted_processes(work / "sub"):
            assert await later.enter_async_context(halted_processes(work))
        assert states(racer.pid) == {"T"}
        await later.aclose()
        async with asyncio.timeout(WAIT_SECONDS):
            while "T" in states(racer.pid):
                await asyncio.sleep(0.01)


def states(pid: int) -> set[str]:
    """Of all threads of all descendants."""
    return {
        stat.read_text().rpartition(")")[2].split()[0]
        for each in supervisor.descendants(pid)
        for stat in Path(f"/proc/{each}/task").glob("*/stat")
    }


async def test_who_is_halted_can_be_ended(any_cell: SandboxCell) -> None:
    cell, work = any_cell, any_cell.workspace
    async with racing(cell, work) as racer, halted_processes(work):
        await kill_process(racer)
        await racer.wait()
    assert FOLDER_PROCESSES.find(work) == []
