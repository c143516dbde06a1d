"""An agent keeps its own work in the real program, loses its head, and finds its way back."""

from __future__ import annotations

import re
from pathlib import Path

from tests.journeys.program import ShiftbossProcess, running_program
from tests.thoroughness import thorough_only

_ID = re.compile(r"Task (\w+) is now tracked here")


async def say(running: ShiftbossProcess, text: str, *, good: bool = True) -> str:
    status, printed = await running.run_to_end("say", text)
    assert (status == 0) is good, printed
    return printed


async def test_an_agent_keeps_a_journal_and_continues_from_it_after_a_crash(
    tmp_path: Path,
) -> None:
    async with running_program(tmp_path, SHIFTBOSS_LANGUAGE="en") as running:
        made = _ID.search(await say(running, "/run --self -p urgent Move the billing database"))
        assert made is not None
        task = made[1]
        assert "no plan yet" in await say(
            running, f"/log {task} finding the billing database is UTF-16"
        )
        await say(running, f"/plan {task} Copy the tables, then check them.")
        await say(running, f"/subtask add {task} copy：tables → copy → check")
        await say(running, f"/subtask done {task} copy：tables -s 12 tables")
        await say(running, f"/phase {task} checking")
        cut = await say(running, f"/log {task} decision {'why ' * 200}")
        await say(running, f"/interrupt {task} lunch")
        await running.kill()

    async with running_program(tmp_path, SHIFTBOSS_LANGUAGE="en") as running:
        recap = await say(running, "/resume")
        resumed = await say(running, f"/resume {task}")
        following = await say(running, "/next")
        wrong = await say(running, f"/subtask done {task} paste", good=False)
        await say(running, f"/subtask done {task} copy")
        last = await say(running, f"/subtask done {task} 3")
        late = await say(running, f"/log {task} error too late", good=False)
        other = await say(running, "/run --self Back up the billing database")

    assert "500 characters" in cut
    (whole,) = (tmp_path / "files" / "logs" / task).iterdir()
    assert whole.read_text(encoding="utf-8").count("why") == 200
    for answer in ("Paused", "checking", "1/3", "Copy the tables", "Move the billing", "UTF-16"):
        assert answer in recap
    assert "Resumed" in resumed
    assert "Keep going" in following
    assert task in following
    assert "copy：tables" in wrong
    assert "the task is finished" in last
    assert "Completed" in late
    assert task in other


@thorough_only
async def test_five_errors_block_the_task_and_are_shown_on_its_card(tmp_path: Path) -> None:
    async with running_program(tmp_path, SHIFTBOSS_LANGUAGE="en") as running:
        made = _ID.search(await say(running, "/run --self Print the labels"))
        assert made is not None
        told = [await say(running, f"/log {made[1]} error paper jam {n}") for n in range(1, 6)]
        detail = await say(running, f"/get {made[1]}")
        await say(running, f"/done {made[1]} --force")

    assert "Change your approach" in told[2]
    assert "5/5" in told[4]
    assert "Blocked" in detail
