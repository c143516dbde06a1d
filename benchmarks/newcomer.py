"""Seconds from a clone to the first finished task, as somebody new to Shiftboss gets there."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from playwright.async_api import Page, expect

from benchmarks.figures import Figure, LeftOut, Measurement, Scale, at_most
from tests.browser import CHROMIUM, open_browser, open_visitor
from tests.emulators.models.emulator import ModelEmulator
from tests.journeys.program import ShiftbossProcess
from tests.waiting import WAIT_SECONDS

_REPOSITORY = Path(__file__).parent.parent
_TASK = "Write a haiku about queues and save it to haiku.md"
_SECONDS = 120
_TERMINAL = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"


async def measure(scale: Scale) -> list[Measurement]:
    """No editor, no account, a new home and an emulated model. The README's command is run in a new
    clone: virtual environment and `pip install`, from the package index and the cache that this
    machine has. Then by the terminal: `shiftboss init` answered at its prompts, `shiftboss task
    add`, `shiftboss dispatch --once`. Or by the page: `shiftboss run`, *Connect a model*, the form,
    *Test and use*, the work in plain words, *Start*, and its file. Once each; the sum counts."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        began = time.monotonic()
        shiftboss = Path(sys.executable).parent / "shiftboss"
        if scale is Scale.FULL:
            shiftboss = await _install(root)
        installed = time.monotonic() - began
        async with ModelEmulator() as models:
            figures: list[Measurement] = [Figure("clone and install", installed, "s")]
            by_terminal = await _by_terminal(shiftboss, root / "terminal", models)
            figures += _whole("terminal", installed, by_terminal)
            if CHROMIUM is None:
                return [*figures, LeftOut("by the page", "no Chromium on the machine")]
            by_page = await _by_page(shiftboss, root / "page", models)
            return [*figures, *_whole("page", installed, by_page)]


def _whole(way: str, installed: float, rest: float) -> list[Figure]:
    return [
        Figure(f"then by the {way}", rest, "s"),
        Figure(f"clone to finished task, by the {way}", installed + rest, "s", at_most(_SECONDS)),
    ]


async def _install(root: Path) -> Path:
    clone = root / "shiftboss"
    await _run("git", "clone", "--quiet", str(_REPOSITORY), str(clone))
    await _run(sys.executable, "-m", "venv", str(clone / ".venv"))
    await _run(str(clone / ".venv/bin/pip"), "install", "-q", "-e", str(clone))
    return clone / ".venv/bin/shiftboss"


async def _by_terminal(shiftboss: Path, home: Path, models: ModelEmulator) -> float:
    home.mkdir()
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    newcomer = {**kept, "HOME": str(home)}
    began = time.monotonic()
    answers = (
        ("Number [1]: ", "3"),
        ("/v1]: ", models.openai_url),
        ("for none): ", models.key),
        ("chosen for you): ", ""),
        ("Telegram too? [y/N]: ", ""),
        ("Lark too? [y/N]: ", ""),
    )
    printed = await _answer_prompts((str(shiftboss), "init"), answers, newcomer)
    assert "✅" in printed, printed
    assert "pydantic" not in printed, printed
    await _run(str(shiftboss), "task", "add", _TASK, env=newcomer)
    ended = await _run(str(shiftboss), "dispatch", "--once", env=newcomer)
    assert "completed" in ended, ended
    assert [*home.rglob("haiku.md")]
    return time.monotonic() - began


async def _by_page(shiftboss: Path, home: Path, models: ModelEmulator) -> float:
    program = ShiftbossProcess(home, {}, command=(str(shiftboss),))
    async with open_browser() as browser:
        visitor = await open_visitor(browser)
        began = time.monotonic()
        await program.start()
        try:
            await visitor.open(program.address)
            await _connect(visitor.page, models)
            await visitor.wait_until_online()
            await visitor.send_message(_TASK)
            await visitor.page.get_by_role("button", name="Start").click()
            ending = visitor.bot_messages("Task finished")
            await expect(ending.get_by_role("link", name="haiku.md")).to_have_count(1)
            return time.monotonic() - began
        finally:
            await program.kill_if_running()


async def _connect(page: Page, models: ModelEmulator) -> None:
    await page.get_by_role("link", name="Connect a model").click()
    await page.get_by_role("link", name="Local or compatible server").click()
    await page.get_by_label("API address").fill(models.openai_url)
    await page.get_by_label("API key").fill(models.key)
    await page.get_by_role("button", name="Test and use").click()
    await page.get_by_role("link", name="Go to the chat").click()


async def _run(*command: str, env: Mapping[str, str] | None = None) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0, printed.decode()
    return printed.decode()


async def _answer_prompts(
    command: Sequence[str], answers: Sequence[tuple[str, str]], env: Mapping[str, str]
) -> str:
    """Run it in a terminal of its own, with an answer to each prompt; returns what it printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _TERMINAL,
        *command,
        env=env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    printed = b""
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            for prompt, answer in answers:
                printed += await process.stdout.readuntil(prompt.encode())
                process.stdin.write(f"{answer}\n".encode())
                await process.stdin.drain()
            printed += await process.stdout.read()
            assert await process.wait() == 0, printed.decode()
    finally:
        if process.returncode is None:
            process.kill()
    return printed.decode()
