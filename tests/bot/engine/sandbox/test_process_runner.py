"""Whatever a command does, it ends, and nothing of it stays behind."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from bot.engine.sandbox.process_runner import (
    ExitCause,
    ProcessResult,
    ProcessStartError,
    run_process,
)
from bot.engine.sandbox.spec import SandboxLaunch
from tests.bot.engine.sandbox.conftest import SandboxCell
from tests.waiting import WAIT_SECONDS

DAEMON = """python3 -c "import os
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.execvp('sleep', ['sleep', '{mark}'])" """


def _alive(mark: str) -> list[str]:
    """Processes whose command line holds the mark."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes()
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if mark.encode() in line and state != "Z":
            found.append(folder.name)
    return found


async def _gone(mark: str) -> None:
    """Nothing of it is left: what the kernel was told to kill, it kills when it comes to it."""
    async with asyncio.timeout(WAIT_SECONDS):
        while _alive(mark):
            await asyncio.sleep(0.01)


async def _stopped(cell: SandboxCell, command: str) -> ProcessResult:
    """Stopped once it has begun, however long a busy machine takes to begin it."""
    ended = await cell.run(command, seconds=0.5)
    for seconds in (15, WAIT_SECONDS):
        if not ended.head:
            ended = await cell.run(command, seconds=seconds)
    return ended


@pytest.fixture
def mark() -> str:
    """A number of seconds that nobody else sleeps."""
    return f"77{os.getpid()}"


async def test_the_exit_code_and_both_outputs_come_back(any_cell: SandboxCell) -> None:
    ended = await any_cell.run("echo out; echo err >&2; exit 7")

    assert (ended.cause, ended.status) == (ExitCause.EXITED, 7)
    assert sorted(ended.head.split()) == [b"err", b"out"]


async def test_there_is_no_input(any_cell: SandboxCell) -> None:
    assert (await any_cell.run("cat; read line; echo $?")).head == b"1\n"


async def test_what_hangs_is_stopped(any_cell: SandboxCell, mark: str) -> None:
    ended = await _stopped(any_cell, f"echo begun; sleep {mark}")

    assert (ended.cause, ended.head) == (ExitCause.TIMEOUT, b"begun\n")
    await _gone(mark)


async def test_asked_to_end_it_may_still_say_so(any_cell: SandboxCell) -> None:
    ended = await _stopped(any_cell, "trap 'echo bye; exit' TERM; echo on; sleep 60 & wait")

    assert (ended.cause, ended.head) == (ExitCause.TIMEOUT, b"on\nbye\n")


async def test_what_ignores_being_asked_is_killed(any_cell: SandboxCell, mark: str) -> None:
    ended = await any_cell.run(f"trap '' TERM INT HUP; sleep {mark}; sleep {mark}", seconds=0.3)

    assert ended.cause is ExitCause.TIMEOUT
    await _gone(mark)


@pytest.mark.parametrize(
    "command",
    [
        "sleep {mark} & echo done",
        "(setsid sleep {mark} &); echo done",
        "setsid nohup sleep {mark} >/dev/null 2>&1 & echo done",
        "(trap '' TERM; setsid bash -c 'setsid sleep {mark} & setsid sleep {mark}' &); echo done",
        DAEMON + "; echo done",
    ],
)
async def test_what_goes_to_the_background_ends_with_its_command(
    any_cell: SandboxCell, mark: str, command: str
) -> None:
    ended = await any_cell.run(command.format(mark=mark))

    assert (ended.cause, ended.head) == (ExitCause.EXITED, b"done\n")
    await _gone(mark)


async def test_cancelled_it_takes_everything_along(any_cell: SandboxCell, mark: str) -> None:
    begun = any_cell.workspace / "begun"
    os.mkfifo(begun)
    running = asyncio.create_task(
        any_cell.run(f"trap '' TERM; (setsid sleep {mark} &); echo x > begun; sleep {mark}")
    )
    await asyncio.to_thread(begun.read_text)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    await _gone(mark)


async def test_a_flood_is_cut_off_and_only_its_ends_are_kept(any_cell: SandboxCell) -> None:
    ended = await any_cell.run("echo first; yes", most_printed=20_000_000)

    assert ended.cause is ExitCause.OUTPUT_LIMIT
    assert ended.head.startswith(b"first\n")
    assert len(ended.head) + len(ended.tail) < 5_000_000
    assert len(ended.head) + len(ended.tail) + ended.dropped >= 20_000_000


async def test_of_much_output_beginning_and_end_are_kept(any_cell: SandboxCell) -> None:
    ended = await any_cell.run("seq 1000000")

    assert ended.cause is ExitCause.EXITED
    assert ended.head.startswith(b"1\n2\n")
    assert ended.tail.endswith(b"999999\n1000000\n")
    assert len(ended.head) + len(ended.tail) + ended.dropped == 6_888_896


async def test_a_fork_bomb_is_ended(any_cell: SandboxCell, mark: str) -> None:
    """A patient one: the real thing is the same, and no neighbour of this test."""
    ended = await any_cell.run(
        f"for i in $(seq 120); do sleep {mark} & done; wait", most_processes=60
    )

    assert ended.cause is ExitCause.PROCESS_LIMIT
    await _gone(mark)


async def test_what_grows_without_end_is_stopped_by_its_own_limit(any_cell: SandboxCell) -> None:
    told = await any_cell.says("ulimit -d; ulimit -c; ulimit -f; cat /proc/self/oom_score_adj")

    memory, core, file, score = told.split()
    assert int(memory) > 0
    assert (core, score) == ("0", "1000")
    assert file != "unlimited"


async def test_what_closes_its_outputs_is_still_waited_for(
    any_cell: SandboxCell, mark: str
) -> None:
    ended = await any_cell.run(f"exec >&- 2>&-; sleep {mark}", seconds=0.4)

    assert ended.cause is ExitCause.TIMEOUT
    await _gone(mark)


async def test_what_is_no_program_is_said(any_cell: SandboxCell) -> None:
    nowhere = SandboxLaunch(argv=("/no/such/program",), env={}, cwd=any_cell.workspace)

    with pytest.raises(ProcessStartError):
        await run_process(nowhere, seconds=1)
