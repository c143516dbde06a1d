"""The command line: beside a running program, and without one."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bot.cli.service import unit_text
from bot.config.settings import Settings
from storage.data_directory import DataDirectoryLock
from tests.journeys.program import ShiftbossProcess, running_program
from tests.journeys.program_store import lay_out_program_store, open_store
from tests.journeys.web_page import open_web_page
from tests.thoroughness import thorough_only
from tests.waiting import WAIT_SECONDS, wait_until

_QUIET = {"SHIFTBOSS_LOG_LEVEL": "ERROR"}
_LOG = "logs/shiftboss.log"
_TASK = 'write "hello" to a.txt'


def stopped_program(home: Path, **settings: str) -> ShiftbossProcess:
    """A home on which no program runs."""
    lay_out_program_store(home)
    return ShiftbossProcess(home=home, settings={**_QUIET, **settings})


async def run_json(shiftboss: ShiftbossProcess, *typed: str) -> Any:
    """The output of a command with --json. It must not have been refused."""
    status, said = await shiftboss.run_to_end(*typed, "--json")
    assert status == 0, said
    return json.loads(said[said.index("{") :])


def rows(home: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Everything in the store."""
    with open_store(home) as db:
        return {name: db.execute(f'SELECT * FROM "{name}"').fetchall() for name in db.list_tables()}


async def test_an_agent_records_a_whole_task_through_a_running_program(tmp_path: Path) -> None:
    shiftboss = stopped_program(tmp_path / "home")
    await shiftboss.start()
    try:
        await record_whole_task(shiftboss)
    finally:
        await shiftboss.kill_if_running()


@thorough_only
async def test_an_agent_records_its_work_without_a_running_program(tmp_path: Path) -> None:
    shiftboss = stopped_program(tmp_path / "home")
    made = await run_json(shiftboss, "task", "add", "My report", "--self")
    await run_json(shiftboss, "log", "add", made["id"], "plan", "- read")
    await run_json(shiftboss, "subtask", "add", made["id"], "read it")
    assert (await run_json(shiftboss, "next"))["task"]["id"] == made["id"]
    assert (await run_json(shiftboss, "subtask", "done", made["id"], "read it"))["left"] == 0
    assert (await run_json(shiftboss, "task", "show", made["id"]))["status"] == "completed"


async def record_whole_task(shiftboss: ShiftbossProcess) -> None:
    instruction = '-p look at "this"\n@bob /stop -- and that'
    made = await run_json(shiftboss, "task", "add", "My report", "-i", instruction, "--self")
    assert (made["title"], made["instruction"]) == ("My report", instruction)
    assert (made["priority"], made["self"]) == ("normal", True)
    task = made["id"]

    noted = await run_json(shiftboss, "log", "add", task, "plan", "- read\n- write")
    assert (noted["kind"], noted["text"]) == ("plan", "- read\n- write")
    planned = await run_json(shiftboss, "subtask", "add", task, "read it", 'write "it"')
    assert [step["title"] for step in planned["steps"]] == ["read it", 'write "it"']
    done = await run_json(shiftboss, "subtask", "done", task, "read it", "-s", "read -s twice")
    assert done["left"] == 1
    assert (await run_json(shiftboss, "log", "ls", task))["logs"]
    assert (await run_json(shiftboss, "log", "search", "read"))["logs"]
    assert (await run_json(shiftboss, "task", "phase", task, "-n writing"))["stage"] == "-n writing"

    assert (await run_json(shiftboss, "next"))["task"]["id"] == task
    assert (await run_json(shiftboss, "resume"))["task"]["id"] == task
    assert [t["id"] for t in (await run_json(shiftboss, "task", "ls"))["tasks"]] == [task]

    await run_json(shiftboss, "task", "interrupt", task, "-m", "half-way")
    assert (await run_json(shiftboss, "task", "show", task))["status"] == "paused"
    ended = await run_json(shiftboss, "task", "done", task, "-s", "--force -- it is", "--force")
    assert (ended["status"], ended["summary"]) == ("completed", "--force -- it is")
    assert (await run_json(shiftboss, "task", "ls"))["tasks"] == []
    assert len((await run_json(shiftboss, "task", "ls", "-a"))["tasks"]) == 1


@pytest.mark.parametrize("running", [True, False])
async def test_a_refused_command_exits_1_with_an_error_in_json(
    tmp_path: Path, running: bool
) -> None:
    shiftboss = stopped_program(tmp_path / "home")
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

        status, said = await shiftboss.run_to_end("task", "shwo", "x")
        assert (status, said.count("\n"), "'show'" in said) == (2, 1, True), "wrong usage"
        assert (await shiftboss.run_to_end("task", "show", "-h"))[0] == 0
    finally:
        await shiftboss.kill_if_running()


async def test_status_says_once_that_no_program_runs(tmp_path: Path) -> None:
    shiftboss = stopped_program(tmp_path / "home")
    status, said = await shiftboss.run_to_end("status")
    told = await run_json(shiftboss, "status")

    assert status == 0
    assert said.lower().count("not running") == 1, said
    assert told["running"] is False


@thorough_only
async def test_a_task_queued_without_a_program_is_done_and_reported_by_the_next_one(
    tmp_path: Path,
) -> None:
    shiftboss = stopped_program(tmp_path / "home")
    made = await run_json(shiftboss, "task", "add", _TASK)
    assert (made["status"], made["running"]) == ("pending", False)

    try:
        await shiftboss.start()
        async with asyncio.timeout(WAIT_SECONDS):
            while (await run_json(shiftboss, "task", "show", made["id"]))["status"] != "completed":
                await asyncio.sleep(0.1)
    finally:
        await shiftboss.kill_if_running()


@pytest.mark.parametrize("running", [True, False])
async def test_a_scripts_questions_stay_out_of_the_web_chat_and_its_tasks_appear_there(
    tmp_path: Path, running: bool
) -> None:
    shiftboss = stopped_program(tmp_path / "home")
    if running:
        await shiftboss.start()
    try:
        await run_json(shiftboss, "task", "ls")
        await run_json(shiftboss, "next")
        made = await run_json(shiftboss, "task", "add", _TASK)
        if running:
            assert (await shiftboss.run_to_end("say", "/list"))[0] == 0
        else:
            await shiftboss.start()
        async with asyncio.timeout(WAIT_SECONDS):
            while f"task:{made['id']}:end" not in str(rows(shiftboss.home)["outbox"]):
                await asyncio.sleep(0.05)
        async with open_web_page(shiftboss) as page:
            await page.send_message("/help")
            await page.next_frame("item", "/help")
        async with open_web_page(shiftboss) as page:
            past = await page.next_frame("past")
        seen = [item.get("text", "") or item.get("html", "") for item in past["items"]]
    finally:
        await shiftboss.kill_if_running()

    assert made["id"] in "".join(seen)
    ours = [each for each in seen if made["id"] not in each]
    assert ours[0] == "/help", "the first that was said here"
    assert len(ours) == 2


async def test_a_data_directory_locked_by_a_silent_process_gives_a_one_line_error(
    tmp_path: Path,
) -> None:
    shiftboss = stopped_program(tmp_path / "home")
    with DataDirectoryLock(shiftboss.home):
        status, said = await shiftboss.run_to_end("next")

    assert status == 2
    assert f"process {os.getpid()}" in said
    assert len(said.splitlines()) == 1


@thorough_only
async def test_simultaneous_commands_take_turns(tmp_path: Path) -> None:
    shiftboss = stopped_program(tmp_path / "home")
    await run_json(shiftboss, "next")

    ended = await asyncio.gather(
        *(shiftboss.run_to_end("task", "add", f"number {n}", "--self") for n in range(4))
    )

    assert [status for status, _ in ended] == [0, 0, 0, 0]
    assert len((await run_json(shiftboss, "task", "ls"))["tasks"]) == 4


async def test_dispatch_once_does_one_task_and_leaves_its_card_for_the_next_run(
    tmp_path: Path,
) -> None:
    shiftboss = stopped_program(tmp_path / "home")
    first = await run_json(shiftboss, "task", "add", _TASK, "-p", "urgent")
    second = await run_json(shiftboss, "task", "add", _TASK)

    done = await run_json(shiftboss, "dispatch", "--once")

    assert (done["ran"]["id"], done["ran"]["status"]) == (first["id"], "completed")
    assert (await run_json(shiftboss, "task", "show", second["id"]))["status"] == "pending"
    ending = [
        row for row in rows(shiftboss.home)["outbox"] if f"task:{first['id']}:end" in str(row)
    ]
    assert len(ending) == 1
    assert "queued" in ending[0]
    assert (await run_json(shiftboss, "dispatch", "--once"))["ran"]["id"] == second["id"]
    assert await run_json(shiftboss, "dispatch", "--once") == {"ran": None, "busy": False}


async def test_a_dry_run_prints_the_prompt_and_changes_nothing(tmp_path: Path) -> None:
    shiftboss = stopped_program(tmp_path / "home")
    made = await run_json(shiftboss, "task", "add", _TASK)
    before = rows(shiftboss.home)

    found = await run_json(shiftboss, "dispatch", "--dry-run")
    status, said = await shiftboss.run_to_end("dispatch", "--dry-run")

    assert rows(shiftboss.home) == before
    assert (found["task"]["id"], found["kind"]) == (made["id"], "plan")
    assert f"Task: {_TASK}" in found["prompt"]
    assert (status, found["prompt"] in said) == (0, True)


@thorough_only
async def test_dispatch_leaves_the_queue_to_a_running_program(tmp_path: Path) -> None:
    async with running_program(tmp_path / "home", **_QUIET) as shiftboss:
        once, said = await shiftboss.run_to_end("dispatch", "--once")
        for_ever, told_so = await shiftboss.run_to_end("dispatch")
        look, _ = await shiftboss.run_to_end("dispatch", "--dry-run")

        assert (once, for_ever, look) == (0, 2, 0)
        assert f"process {shiftboss.pid}" in said
        assert f"process {shiftboss.pid}" in told_so


@thorough_only
async def test_dispatch_works_the_queue_until_it_is_stopped(tmp_path: Path) -> None:
    shiftboss = stopped_program(tmp_path / "home")
    made = [(await run_json(shiftboss, "task", "add", _TASK))["id"] for _ in range(2)]
    process = await asyncio.create_subprocess_exec(
        *shiftboss.command,
        "dispatch",
        env=shiftboss.environment,
        cwd=shiftboss.home,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        await wait_until(lambda: all(completed(shiftboss.home, task) for task in made))
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), WAIT_SECONDS) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@thorough_only
async def test_commands_reach_a_dispatch_process_that_has_no_chat(tmp_path: Path) -> None:
    shiftboss = stopped_program(tmp_path / "home")
    await run_json(shiftboss, "next")
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
        assert b"Running the queue" in await asyncio.wait_for(
            process.stdout.readline(), WAIT_SECONDS
        )
        made = await run_json(shiftboss, "task", "add", _TASK)
        await wait_until(lambda: completed(shiftboss.home, made["id"]))
        listed = await run_json(shiftboss, "task", "show", made["id"])
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), WAIT_SECONDS) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

    assert listed["status"] == "completed"


async def test_setup_adds_the_rules_once_and_keeps_existing_content(tmp_path: Path) -> None:
    shiftboss = stopped_program(tmp_path / "home")
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


async def test_setup_creates_the_requested_file_in_the_requested_language(
    tmp_path: Path,
) -> None:
    (tmp_path / "agents").mkdir()
    shiftboss = stopped_program(tmp_path / "home", OPENCLAW_WORKSPACE=str(tmp_path / "agents"))

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
    with open_store(home) as db:
        (status,) = db.execute("SELECT status FROM tasks WHERE id = ?", (task,)).fetchone()
    return bool(status == "completed")


async def test_a_program_in_the_background_starts_stops_and_shows_its_log(tmp_path: Path) -> None:
    # As systemd waits for it.
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    manager.bind(str(tmp_path / "notify"))
    shiftboss = stopped_program(
        tmp_path / "home", SHIFTBOSS_LOG_LEVEL="INFO", NOTIFY_SOCKET=str(tmp_path / "notify")
    )
    status, refused = await stopped_program(
        tmp_path / "home",
        SHIFTBOSS_WEB_HOST="192.0.2.1",
        SHIFTBOSS_WEB_TOKEN="kxq7Vd02mRzt9LwBf4Hs",
    ).run_to_end("start")
    assert (status, "192.0.2.1" in refused) == (2, True)

    assert "Shiftboss is not running." in (await shiftboss.run_to_end("stop"))[1]
    status, started = await shiftboss.run_to_end("start")
    try:
        assert (status, "/?token=" in started) == (0, True)
        assert manager.recv(100) == b"READY=1"
        assert "is running already" in (await shiftboss.run_to_end("start"))[1]
        assert (await shiftboss.run_to_end("say", "/list"))[0] == 0
        log = (await shiftboss.run_to_end("logs", "-n", "1"))[1]
        assert log.count("\n") == 1
        assert "token=" not in (await shiftboss.run_to_end("logs", "-n", "1000"))[1]
    finally:
        status, stopped = await shiftboss.run_to_end("stop")
    assert (status, "has stopped" in stopped) == (0, True)
    with DataDirectoryLock(shiftboss.home):
        assert "stopping after the running steps" in (shiftboss.home / _LOG).read_text()
    manager.close()


def test_the_unit_of_a_user_is_one_that_systemd_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / 'my "home" 100%'
    settings = Settings.model_construct(home=home, stop_grace_seconds=10)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    unit = tmp_path / "shiftboss.service"
    unit.write_text(unit_text(settings))

    assert '100%%"' in unit.read_text()
    if program := shutil.which("systemd-analyze"):
        done = subprocess.run(
            [program, "verify", "--user", str(unit)], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
