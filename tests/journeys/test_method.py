"""An agent keeps its own work in the real program, loses its head, and finds its way back."""

from __future__ import annotations

import re
from pathlib import Path

from tests.journeys.program import Program, program
from tests.thorough import long

_ID = re.compile(r"Kept here as (\w+)")


async def said(running: Program, text: str, *, good: bool = True) -> str:
    status, printed = await running.run_to_end("say", text)
    assert (status == 0) is good, printed
    return printed


async def test_an_agent_works_by_the_method_and_takes_its_work_up_after_a_crash(
    tmp_path: Path,
) -> None:
    async with program(tmp_path, SHIFTBOSS_LANGUAGE="en") as running:
        made = _ID.search(await said(running, "/run --self -p urgent Move the billing database"))
        assert made is not None
        task = made[1]
        assert "no plan yet" in await said(
            running, f"/log {task} finding the billing database is UTF-16"
        )
        await said(running, f"/plan {task} Copy the tables, then check them.")
        await said(running, f"/subtask add {task} copy：tables → copy → check")
        await said(running, f"/subtask done {task} copy：tables -s 12 tables")
        await said(running, f"/phase {task} checking")
        cut = await said(running, f"/log {task} decision {'why ' * 200}")
        await said(running, f"/interrupt {task} lunch")
        await running.kill()

    async with program(tmp_path, SHIFTBOSS_LANGUAGE="en") as running:
        recap = await said(running, "/resume")
        resumed = await said(running, f"/resume {task}")
        following = await said(running, "/next")
        wrong = await said(running, f"/subtask done {task} paste", good=False)
        await said(running, f"/subtask done {task} copy")
        last = await said(running, f"/subtask done {task} 3")
        late = await said(running, f"/log {task} error too late", good=False)
        other = await said(running, "/run --self Back up the billing database")

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


@long
async def test_five_errors_block_the_task_and_its_card_tells(tmp_path: Path) -> None:
    async with program(tmp_path, SHIFTBOSS_LANGUAGE="en") as running:
        made = _ID.search(await said(running, "/run --self Print the labels"))
        assert made is not None
        told = [await said(running, f"/log {made[1]} error paper jam {n}") for n in range(1, 6)]
        detail = await said(running, f"/get {made[1]}")
        await said(running, f"/done {made[1]} --force")

    assert "change your approach" in told[2]
    assert "5/5" in told[4]
    assert "Stuck" in detail or "Blocked" in detail
