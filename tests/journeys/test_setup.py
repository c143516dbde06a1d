"""A newcomer connects a model by `shiftboss init`, without an editor or a restart."""

from __future__ import annotations

import asyncio
import os
import pty
import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.emulators.models.emulator import ModelEmulator
from tests.journeys.program import ShiftbossProcess
from tests.waiting import WAIT_SECONDS


async def run_init(program: ShiftbossProcess, *options: str, key: str = "") -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *program.command,
        "init",
        *options,
        env=program.environment,
        cwd=program.home,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate(f"{key}\n".encode())
    assert process.returncode is not None
    return process.returncode, printed.decode()


async def test_from_a_fresh_home_to_the_first_finished_task(tmp_path: Path) -> None:
    async with ModelEmulator() as models:
        program = ShiftbossProcess(tmp_path / "home", {})
        program.home.mkdir()
        local = ("--with", "local", "--base-url", models.openai_url, "--key-stdin")
        assert (await run_init(program, "--with", "offline"))[0] == 0
        assert (await run_init(program))[0] == 2, "without a terminal nothing is asked"
        await program.start()
        try:
            wrong = await run_init(program, *local, key="sk-wrong-0123456789abcdef")
            right = await run_init(program, *local, key=models.key)
            title = await finish_a_task(program)
        finally:
            await program.kill_if_running()

    assert wrong[0] == 1
    assert "rejected the key" in wrong[1]
    assert right[0] == 0, right[1]
    assert "from now on" in right[1]
    assert "hello.txt" in title
    assert len(models.requests) > 1, "the task was done by the model"
    told = wrong[1] + right[1] + program.printed
    log = (program.home / "logs" / "shiftboss.log").read_text(encoding="utf-8")
    assert models.key not in told + log
    assert "sk-wrong" not in told + log


async def finish_a_task(program: ShiftbossProcess) -> str:
    at = urlsplit(program.address)
    headers = {"authorization": f"Bearer {parse_qs(at.query)['token'][0]}"}
    base = f"http://{at.netloc}/api/v1"
    async with httpx.AsyncClient(base_url=base, headers=headers) as api:
        made = await api.post("/tasks", json={"text": 'write "hi" to hello.txt'})
        task = f"/tasks/{made.json()['task']['id']}"

        async def is_done() -> bool:
            shown = (await api.get(task)).json()["task"]
            return bool(shown["status"] == "completed")

        async with asyncio.timeout(WAIT_SECONDS):
            while not await is_done():
                await asyncio.sleep(0.2)
        return str((await api.get(task)).json()["task"]["title"])


@pytest.mark.parametrize("is_running", [False, True])
async def test_the_setup_is_in_chinese_in_a_chinese_terminal(
    tmp_path: Path, is_running: bool
) -> None:
    async with ModelEmulator() as models:
        program = ShiftbossProcess(tmp_path / "home", {"LANG": "zh_CN.UTF-8"})
        program.home.mkdir()
        try:
            if is_running:
                await program.start()
            told = await answer_in_terminal(
                program,
                ("编号", "9"),
                ("数字", "3"),
                ("API 地址", models.openai_url),
                ("API 密钥", "sk-wrong-0123456789abcdef"),
                ("模型", ""),
                ("编号", "3"),
                ("API 地址", models.openai_url),
                ("API 密钥", models.key),
                ("模型", ""),
                ("接入 Telegram", "n"),
                ("接入飞书", "n"),
            )
        finally:
            await program.kill_if_running()

    assert "不接受这个密钥" in told, "the failed test is told in Chinese too"
    assert not re.findall(r"[A-Za-z]{3,} [a-z]{2,} [a-z]{2,}", told.replace("pip install", ""))


async def answer_in_terminal(program: ShiftbossProcess, *answers: tuple[str, str]) -> str:
    """What `init` has shown, after each prompt was answered that contains the words."""
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *program.command,
        "init",
        env={**program.environment, "PYTHONIOENCODING": "utf-8"},
        cwd=program.home,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    shown, at = b"", 0

    async def read_until(words: str) -> int:
        """The place behind the words."""
        nonlocal shown
        while (found := shown.find(words.encode(), at)) < 0:
            async with asyncio.timeout(WAIT_SECONDS):
                shown += await asyncio.to_thread(os.read, ours, 4096)
        return found + len(words.encode())

    try:
        for words, answer in answers:
            at = await read_until(words)
            # What is typed before the end of a hidden prompt is thrown away.
            at = await read_until(": ")
            os.write(ours, f"{answer}\n".encode())
        await read_until("EMBEDDING_MODEL")
        async with asyncio.timeout(WAIT_SECONDS):
            assert await process.wait() == 0, shown.decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(ours)
    return shown.decode()
