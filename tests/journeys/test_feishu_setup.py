"""A newcomer connects Feishu by a scanned code: the real program, both emulated platforms."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.feishu.users import FeishuUser
from tests.journeys.program import ShiftbossProcess, running_program
from tests.thoroughness import thorough_only
from tests.waiting import wait_until

PAGE = "/dashboard/setup/feishu"


@pytest.fixture
async def feishu() -> AsyncIterator[FeishuEmulator]:
    async with FeishuEmulator("cli_new", "the-new-secret-0123456789") as emulator:
        emulator.registration.interval = 0.05
        yield emulator


@pytest.fixture
async def lark(feishu: FeishuEmulator) -> AsyncIterator[FeishuEmulator]:
    async with FeishuEmulator("cli_lark", "the-lark-secret-0123456789", is_lark=True) as emulator:
        feishu.registration.share_codes_with(emulator.registration)
        yield emulator


@asynccontextmanager
async def browser_of(program: ShiftbossProcess) -> AsyncIterator[httpx.AsyncClient]:
    at = urlsplit(program.address)
    base = f"http://{at.netloc}"
    async with httpx.AsyncClient(base_url=base, headers={"origin": base}) as browser:
        await browser.get(f"/?{at.query}")
        yield browser


async def show_code(browser: httpx.AsyncClient) -> str:
    """The address in the code."""
    shown = await browser.post(PAGE, data={"order": "show_code"}, follow_redirects=True)
    return unescape(re.findall(r'href="(http[^"]+user_code=[^"]+)"', shown.text)[0])


async def wait_for_page(browser: httpx.AsyncClient, words: str) -> str:
    async def is_shown() -> bool:
        return words in unescape((await browser.get(PAGE)).text)

    await wait_until(is_shown)
    return unescape((await browser.get(PAGE)).text)


async def ask_for_tasks(fs: FeishuEmulator, boss: FeishuUser) -> None:
    """An owner is answered; a stranger would get a pairing code."""
    await fs.wait_for_connections()
    chat = fs.private_chat(boss)
    await boss.says(chat, "/list")
    await chat.wait_for(lambda m: "Tasks (0)" in f"{m.header} {m.text}")


def read_log(home: Path) -> str:
    return (home / "logs" / "shiftboss.log").read_text(encoding="utf-8")


async def test_from_a_declined_code_to_the_first_answer_in_feishu(
    feishu: FeishuEmulator, tmp_path: Path
) -> None:
    boss = feishu.user("Boss")
    async with (
        running_program(tmp_path, FEISHU_DOMAIN=feishu.domain) as program,
        browser_of(program) as browser,
    ):
        await show_code(browser)
        feishu.registration.deny(feishu.registration.newest)
        await wait_for_page(browser, "was declined")
        await show_code(browser)
        feishu.advance(3600)
        await wait_for_page(browser, "has expired")
        url = await show_code(browser)
        again = await wait_for_page(browser, url)
        feishu.registration.scan(url, boss)
        done = await wait_for_page(browser, "</code> is connected.")
        await ask_for_tasks(feishu, boss)
        chat = feishu.private_chat(boss)
        greeting = await chat.wait_for(lambda m: "Feishu is connected" in f"{m.header} {m.text}")
        assert await program.stop() == 0

    assert "is now an owner" in greeting.text
    told = again + done + program.printed + read_log(tmp_path)
    assert feishu.app_secret not in told
    assert not [each for each in feishu.registration.codes if each.device_code in told]
    assert feishu.app_secret in (tmp_path / ".env").read_text(encoding="utf-8")


async def test_a_program_that_was_killed_over_a_code_tells_of_it_and_connects_lark_by_another(
    feishu: FeishuEmulator, lark: FeishuEmulator, tmp_path: Path
) -> None:
    boss = lark.user("Boss")
    (tmp_path / ".env").write_text(f"FEISHU_DOMAIN={feishu.domain}\n", encoding="utf-8")
    async with running_program(tmp_path, LARK_DOMAIN=lark.domain) as program:
        async with browser_of(program) as browser:
            lost = await show_code(browser)
            await program.kill()
        feishu.registration.scan(lost, boss, on=lark)
        await program.start()
        async with browser_of(program) as browser:
            told = await wait_for_page(browser, "ended while a code was shown")
            feishu.registration.scan(await show_code(browser), boss, on=lark)
            await wait_for_page(browser, "</code> is connected.")
            await ask_for_tasks(lark, boss)
        await program.kill()
        await program.start()
        await ask_for_tasks(lark, boss)

    assert "connect it by hand" in told
    env = (tmp_path / ".env").read_text(encoding="utf-8")
    assert f"FEISHU_DOMAIN={lark.domain}" in env
    assert f"SHIFTBOSS_OWNERS=feishu:{boss.open_id}" in env
    assert feishu.app_secret not in env


@thorough_only
async def test_a_platform_that_asks_for_patience_gets_it(
    feishu: FeishuEmulator, tmp_path: Path
) -> None:
    boss = feishu.user("Boss")
    async with (
        running_program(tmp_path, FEISHU_DOMAIN=feishu.domain) as program,
        browser_of(program) as browser,
    ):
        url = await show_code(browser)
        code = feishu.registration.newest
        code.interval = 1
        await feishu.wait_until(lambda: code.interval > 5)
        polls = len(feishu.registration.forms)
        feishu.registration.scan(url, boss)
        await wait_for_page(browser, "</code> is connected.")

    assert len(feishu.registration.forms) == polls + 1


async def test_init_shows_the_code_in_a_terminal_and_connects_before_the_first_start(
    feishu: FeishuEmulator, tmp_path: Path
) -> None:
    boss = feishu.user("Boss")
    program = ShiftbossProcess(tmp_path, {"FEISHU_DOMAIN": feishu.domain})
    waiting = asyncio.create_task(program.run_to_end("init", "--channel", "feishu"))
    try:
        await feishu.wait_until(lambda: bool(feishu.registration.codes))
        feishu.registration.deny(feishu.registration.newest)
        declined = await waiting
        waiting = asyncio.create_task(program.run_to_end("init", "--channel", "feishu"))
        await feishu.wait_until(lambda: len(feishu.registration.codes) > 1)
        shown = re.findall(r"http\S+user_code=\S+", declined[1])[0]
        url = shown.replace("USER-0001", feishu.registration.newest.user_code)
        feishu.registration.scan(url, boss)
        status, printed = await waiting
        await program.start()
        await ask_for_tasks(feishu, boss)
    finally:
        waiting.cancel()
        await program.kill_if_running()

    assert declined[0] == 1
    assert "was declined" in declined[1]
    assert status == 0, printed
    assert "▀" in printed
    assert "is now an owner" in printed
    assert feishu.app_secret not in printed + read_log(tmp_path)


async def test_init_connects_an_app_that_exists_while_the_program_runs(
    feishu: FeishuEmulator, tmp_path: Path
) -> None:
    command = ("init", "--channel", "feishu", "--app-id", feishu.app_id, "--secret-stdin")
    async with running_program(tmp_path, FEISHU_DOMAIN=feishu.domain) as program:

        async def init(secret: str) -> tuple[int, str]:
            process = await asyncio.create_subprocess_exec(
                *program.command,
                *command,
                env=program.environment,
                cwd=program.home,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            printed, _ = await process.communicate(f"{secret}\n".encode())
            return process.returncode or 0, printed.decode()

        wrong = await init("not-the-secret-0123456789")
        right = await init(feishu.app_secret)
        await feishu.wait_for_connections()

    assert wrong[0] == 1
    assert "rejects the app ID or its secret" in wrong[1]
    assert right[0] == 0, right[1]
    told = wrong[1] + right[1] + program.printed + read_log(tmp_path)
    assert feishu.app_secret not in told
    assert "not-the-secret" not in told
