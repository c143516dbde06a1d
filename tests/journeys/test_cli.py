"""The command line: beside a running program, and without one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

from storage.home import Home
from tests.journeys.model_world import web_page
from tests.journeys.program import Program, program
from tests.thorough import long

_QUIET = {"SHIFTBOSS_LOG_LEVEL": "ERROR"}
_TASK = 'write "hello" to a.txt'


def alone(home: Path, **settings: str) -> Program:
    """A home on which no program runs."""
    home.mkdir(parents=True, exist_ok=True)
    return Program(home=home, settings={**_QUIET, **settings})


async def told(shiftboss: Program, *typed: str) -> Any:
    """What a command says with --json. It must not have been refused."""
    status, said = await shiftboss.run_to_end(*typed, "--json")
    assert status == 0, said
    return json.loads(said[said.index("{") :])


def rows(home: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Everything in the store."""
    with sqlite3.connect(home / "shiftboss.db") as db:
        tables = [
            name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")
        ]
        return {name: db.execute(f'SELECT * FROM "{name}"').fetchall() for name in tables}


async def test_an_agent_keeps_its_work_from_the_first_word_to_the_last(tmp_path: Path) -> None:
    shiftboss = alone(tmp_path / "home")
    await shiftboss.start()
    try:
        await live_through(shiftboss)
    finally:
        await shiftboss.end()


@long
async def test_an_agent_keeps_its_work_where_no_program_runs(tmp_path: Path) -> None:
    shiftboss = alone(tmp_path / "home")
    made = await told(shiftboss, "task", "add", "My report", "--self")
    await told(shiftboss, "log", "add", made["id"], "plan", "- read")
    await told(shiftboss, "subtask", "add", made["id"], "read it")
    assert (await told(shiftboss, "next"))["task"]["id"] == made["id"]
    assert (await told(shiftboss, "subtask", "done", made["id"], "read it"))["left"] == 0
    assert (await told(shiftboss, "task", "show", made["id"]))["status"] == "completed"


async def live_through(shiftboss: Program) -> None:
    instruction = '-p look at "this"\n@bob /stop -- and that'
    made = await told(shiftboss, "task", "add", "My report", "-i", instruction, "--self")
    assert (made["title"], made["instruction"]) == ("My report", instruction)
    assert (made["priority"], made["self"]) == ("normal", True)
    task = made["id"]

    noted = await told(shiftboss, "log", "add", task, "plan", "- read\n- write")
    assert (noted["kind"], noted["text"]) == ("plan", "- read\n- write")
    planned = await told(shiftboss, "subtask", "add", task, "read it", 'write "it"')
    assert [step["title"] for step in planned["steps"]] == ["read it", 'write "it"']
    done = await told(shiftboss, "subtask", "done", task, "read it", "-s", "read -s twice")
    assert done["left"] == 1
    assert (await told(shiftboss, "log", "ls", task))["logs"]
    assert (await told(shiftboss, "log", "search", "read"))["logs"]
    assert (await told(shiftboss, "task", "phase", task, "-n writing"))["stage"] == "-n writing"

    assert (await told(shiftboss, "next"))["task"]["id"] == task
    assert (await told(shiftboss, "resume"))["task"]["id"] == task
    assert [t["id"] for t in (await told(shiftboss, "task", "ls"))["tasks"]] == [task]

    await told(shiftboss, "task", "interrupt", task, "-m", "half-way")
    assert (await told(shiftboss, "task", "show", task))["status"] == "paused"
    ended = await told(shiftboss, "task", "done", task, "-s", "--force -- it is", "--force")
    assert (ended["status"], ended["summary"]) == ("completed", "--force -- it is")
    assert (await told(shiftboss, "task", "ls"))["tasks"] == []
    assert len((await told(shiftboss, "task", "ls", "-a"))["tasks"]) == 1


@pytest.mark.parametrize("running", [True, False])
async def test_a_refusal_is_status_1_and_an_error_in_json(tmp_path: Path, running: bool) -> None:
    shiftboss = alone(tmp_path / "home")
    if running:
        await shiftboss.start()
    try:
        status, said = await shiftboss.run_to_end("task", "show", "nothing", "--json")
        assert status == 1
        assert "nothing" in json.loads(said)["error"]

        status, said = await shiftboss.run_to_end("approve", "--json")
        assert (status, "error" in json.loads(said)) == (1, True)

        status, said = await shiftboss.run_to_end("log", "add", "nothing", "finding", "x")
        assert (status, "Traceback" in said, bool(said.strip())) == (1, False, True)
    finally:
        await shiftboss.end()


@long
async def test_what_is_queued_without_a_program_is_done_and_told_by_the_next(
    tmp_path: Path,
) -> None:
    shiftboss = alone(tmp_path / "home")
    made = await told(shiftboss, "task", "add", _TASK)
    assert (made["status"], made["running"]) == ("pending", False)

    try:
        await shiftboss.start()
        async with asyncio.timeout(60):
            while (await told(shiftboss, "task", "show", made["id"]))["status"] != "completed":
                await asyncio.sleep(0.1)
    finally:
        await shiftboss.end()


@pytest.mark.parametrize("running", [True, False])
async def test_what_a_script_asks_is_not_in_the_web_chat_and_what_it_begins_is(
    tmp_path: Path, running: bool
) -> None:
    shiftboss = alone(tmp_path / "home")
    if running:
        await shiftboss.start()
    try:
        await told(shiftboss, "task", "ls")
        await told(shiftboss, "next")
        made = await told(shiftboss, "task", "add", _TASK)
        if running:
            assert (await shiftboss.run_to_end("say", "/list"))[0] == 0
        else:
            await shiftboss.start()
        async with asyncio.timeout(60):
            while f"task:{made['id']}:end" not in str(rows(shiftboss.home)["outbox"]):
                await asyncio.sleep(0.05)
        async with web_page(shiftboss) as page:
            await page.says("/help")
            await page.frame("item", "/help")
        async with web_page(shiftboss) as page:
            past = await page.frame("past")
        seen = [item.get("text", "") or item.get("html", "") for item in past["items"]]
    finally:
        await shiftboss.end()

    assert made["id"] in "".join(seen)
    ours = [each for each in seen if made["id"] not in each]
    assert ours[0] == "/help", "the first that was said here"
    assert len(ours) == 2


async def test_a_home_held_by_something_that_takes_no_commands_is_one_line(
    tmp_path: Path,
) -> None:
    shiftboss = alone(tmp_path / "home")
    with Home(shiftboss.home):
        status, said = await shiftboss.run_to_end("next")

    assert status == 2
    assert f"process {os.getpid()}" in said
    assert len(said.splitlines()) == 1


@long
async def test_commands_at_the_same_moment_take_turns(tmp_path: Path) -> None:
    shiftboss = alone(tmp_path / "home")
    await told(shiftboss, "next")

    ended = await asyncio.gather(
        *(shiftboss.run_to_end("task", "add", f"number {n}", "--self") for n in range(4))
    )

    assert [status for status, _ in ended] == [0, 0, 0, 0]
    assert len((await told(shiftboss, "task", "ls"))["tasks"]) == 4


async def test_dispatch_once_does_one_task_and_leaves_its_card_for_the_next_run(
    tmp_path: Path,
) -> None:
    shiftboss = alone(tmp_path / "home")
    first = await told(shiftboss, "task", "add", _TASK, "-p", "urgent")
    second = await told(shiftboss, "task", "add", _TASK)

    done = await told(shiftboss, "dispatch", "--once")

    assert (done["ran"]["id"], done["ran"]["status"]) == (first["id"], "completed")
    assert (await told(shiftboss, "task", "show", second["id"]))["status"] == "pending"
    ending = [
        row for row in rows(shiftboss.home)["outbox"] if f"task:{first['id']}:end" in str(row)
    ]
    assert len(ending) == 1
    assert "queued" in ending[0]
    assert (await told(shiftboss, "dispatch", "--once"))["ran"]["id"] == second["id"]
    assert await told(shiftboss, "dispatch", "--once") == {"ran": None, "busy": False}


async def test_a_dry_run_prints_the_prompt_and_changes_nothing(tmp_path: Path) -> None:
    shiftboss = alone(tmp_path / "home")
    made = await told(shiftboss, "task", "add", _TASK)
    before = rows(shiftboss.home)

    found = await told(shiftboss, "dispatch", "--dry-run")
    status, said = await shiftboss.run_to_end("dispatch", "--dry-run")

    assert rows(shiftboss.home) == before
    assert (found["task"]["id"], found["kind"]) == (made["id"], "plan")
    assert f"Task: {_TASK}" in found["prompt"]
    assert (status, found["prompt"] in said) == (0, True)


@long
async def test_dispatch_beside_a_running_program_leaves_it_the_queue(tmp_path: Path) -> None:
    async with program(tmp_path / "home", **_QUIET) as shiftboss:
        once, said = await shiftboss.run_to_end("dispatch", "--once")
        for_ever, told_so = await shiftboss.run_to_end("dispatch")
        look, _ = await shiftboss.run_to_end("dispatch", "--dry-run")

        assert (once, for_ever, look) == (0, 2, 0)
        assert f"process {shiftboss.pid}" in said
        assert f"process {shiftboss.pid}" in told_so


@long
async def test_dispatch_works_the_queue_until_it_is_told_to_stop(tmp_path: Path) -> None:
    shiftboss = alone(tmp_path / "home")
    made = [(await told(shiftboss, "task", "add", _TASK))["id"] for _ in range(2)]
    process = await asyncio.create_subprocess_exec(
        *shiftboss.command,
        "dispatch",
        env=shiftboss.environment,
        cwd=shiftboss.home,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(60):
            while not all(completed(shiftboss.home, task) for task in made):
                await asyncio.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 60) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@long
async def test_commands_reach_who_works_the_queue_without_a_chat(tmp_path: Path) -> None:
    shiftboss = alone(tmp_path / "home")
    await told(shiftboss, "next")
    process = await asyncio.create_subprocess_exec(
        *shiftboss.command,
        "dispatch",
        env=shiftboss.environment,
        cwd=shiftboss.home,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        assert b"Working the queue" in await asyncio.wait_for(process.stdout.readline(), 60)
        made = await told(shiftboss, "task", "add", _TASK)
        async with asyncio.timeout(60):
            while not completed(shiftboss.home, made["id"]):
                await asyncio.sleep(0.05)
        listed = await told(shiftboss, "task", "show", made["id"])
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 60) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

    assert listed["status"] == "completed"


async def test_setup_adds_the_rules_once_and_keeps_what_is_there(tmp_path: Path) -> None:
    shiftboss = alone(tmp_path / "home")
    file = shiftboss.home / "AGENTS.md"
    file.write_bytes("# 规矩\r\n\r\n先想再做。".encode())

    first, said = await shiftboss.run_to_end("setup", "--inject-agents")
    once = file.read_bytes()
    second, again = await shiftboss.run_to_end("setup", "--inject-agents")

    assert (first, second) == (0, 0)
    assert said != again
    assert file.read_bytes() == once
    text = once.decode()
    assert text.startswith("# 规矩\r\n\r\n先想再做。\r\n\r\n## 工作都走 Shiftboss")
    assert "shiftboss task add" in text
    assert text.count("\n") == text.count("\r\n")


async def test_setup_makes_the_file_where_it_is_wanted_in_the_language_wanted(
    tmp_path: Path,
) -> None:
    (tmp_path / "agents").mkdir()
    shiftboss = alone(tmp_path / "home", OPENCLAW_WORKSPACE=str(tmp_path / "agents"))

    status, _ = await shiftboss.run_to_end("setup", "--inject-agents")
    named, _ = await shiftboss.run_to_end(
        "setup", "--inject-agents", "--file", str(tmp_path / "zh.md"), "--language", "zh"
    )
    nowhere, why = await shiftboss.run_to_end(
        "setup", "--inject-agents", "--file", str(tmp_path / "no" / "such" / "A.md")
    )

    assert (status, named, nowhere) == (0, 0, 1)
    assert "Queue before doing" in (tmp_path / "agents" / "AGENTS.md").read_text()
    assert "先入队" in (tmp_path / "zh.md").read_text()
    assert len(why.splitlines()) == 1


def completed(home: Path, task: str) -> bool:
    with sqlite3.connect(home / "shiftboss.db") as db:
        (status,) = db.execute("SELECT status FROM tasks WHERE id = ?", (task,)).fetchone()
    return bool(status == "completed")
