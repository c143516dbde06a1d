"""Chat platforms are connected, exchanged and removed while the program runs."""

from __future__ import annotations

import asyncio
import re
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.faults import HoldFault
from tests.journeys.program import ShiftbossProcess, running_program
from tests.journeys.test_setup import run_init
from tests.waiting import WAIT_SECONDS, wait_until

PAGE = "/dashboard/setup/telegram"

FIRST = "1001:first-emulated-token-not-a-secret"
SECOND = "1001:second-emulated-token-not-a-secret"


async def test_a_changed_token_is_used_at_once_and_what_waited_is_sent_by_it(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    async with TelegramEmulator(token=FIRST) as telegram:
        boss = telegram.user(7, "Boss")
        chat = telegram.private_chat(boss)

        def write_settings(token: str) -> None:
            lines = f"TELEGRAM_BASE_URL={telegram.base_url}\nTELEGRAM_BOT_TOKEN={token}\n"
            (home / ".env").write_text(lines)

        write_settings(FIRST)
        async with running_program(
            home, SHIFTBOSS_OWNERS="telegram:7", SHIFTBOSS_LANGUAGE="en"
        ) as program:
            await boss.says(chat, '/run wait 1 second, then write "hello" to a.txt')
            await chat.wait_for(lambda m: "a.txt" in m.text and m.from_bot)
            telegram.revoke_token()
            await telegram.wait_for_call("sendMessage", lambda call: call.status == 401)
            write_settings("1001:wrong-token-not-a-secret")
            _, refused = await program.run_to_end("reload")
            telegram.world.token = SECOND
            telegram.restore_token()
            waited = not [m for m in chat.from_bot if "Task finished" in m.text]
            del telegram.world.chats[boss.id]  # Nobody has opened a chat with the other bot.
            write_settings(SECOND)
            await telegram.wait_for_call("sendMessage", lambda call: call.status == 403)
            chat = telegram.private_chat(boss)
            await boss.says(chat, "/start")
            await chat.wait_for(lambda m: m.from_bot and "Task finished" in m.text)
            await boss.says(chat, "/status")
            await chat.wait_for(lambda m: m.from_bot and "Slots" in m.text)
            write_settings("")
            await program.wait_for_output("telegram: disconnected")
            seen = len(telegram.calls)
            status, after = await program.run_to_end("status")

    assert "Telegram rejects the token" in refused
    assert waited, "the old token is out of force, and no other is"
    assert status == 0
    assert "Telegram" not in after, "the removed channel is not shown any more"
    assert len(telegram.calls) == seen
    told = program.printed + refused
    assert not [each for each in (FIRST, SECOND, "wrong-token") if each in told]


async def test_a_token_pasted_on_the_page_is_answered_at_once_and_makes_one_owner(
    tmp_path: Path,
) -> None:
    async with TelegramEmulator(token=FIRST) as telegram:
        boss, other = telegram.user(7, "Boss <b>"), telegram.user(8, "Other")
        chat, others = telegram.private_chat(boss), telegram.private_chat(other)
        telegram.world.updates.webhook = "https://elsewhere.example/hook"
        settings = {"TELEGRAM_BASE_URL": telegram.base_url, "SHIFTBOSS_LANGUAGE": "en"}
        async with running_program(tmp_path / "home", **settings) as program, tab(program) as page:
            pid = program.pid
            wrong = await page.send(order="connect", token="1001:wrong-token-not-a-secret-aaaa")
            asked = len(telegram.calls)
            rubbish = await page.send(order="connect", token="<script>1:2</script>\0" * 20)
            stale = page.seen
            webhook = await page.send(order="connect", token=f"the token: {FIRST}\nKeep it safe")
            env = tmp_path / "home" / ".env"
            untouched = not env.exists()
            handle = re.findall(r'name="pending" value="([^"]+)"', webhook.text)[0]
            done = await page.send(order="connect", pending=handle, delete_webhook="1")
            second_tab = await page.send(order="remove", seen=stale)
            code = await page.wait_for(r"/start (\w{8})")
            await other.says(others, "/start NOTTHIS1")
            await others.wait_for(lambda m: m.from_bot and "Pairing code" in m.text)
            await boss.says(chat, f"/start {code}")
            await chat.wait_for(lambda m: m.from_bot and "You are an owner" in m.text)
            await page.wait_for("is now an owner")
            await other.says(others, f"/start {code}")
            await boss.says(chat, "/people")
            people = await chat.wait_for(lambda m: m.from_bot and "People with access" in m.text)
            # The same token again: a connection that rests begins anew.
            await page.send(order="connect", token=FIRST)
            await boss.says(chat, "/status")
            await chat.wait_for(lambda m: m.from_bot and "Slots" in m.text)
            shown = (await page.get()).text
            log = (tmp_path / "home" / "logs" / "shiftboss.log").read_text(encoding="utf-8")
            assert program.pid == pid
            mode = stat.S_IMODE(env.stat().st_mode)

    assert wrong.status_code == rubbish.status_code == webhook.status_code == 422
    assert "Telegram rejects the token" in wrong.text
    assert "No bot token found" in rubbish.text
    assert asked == 1, "what is no token is not sent to Telegram"
    assert "Delete the webhook" in webhook.text
    assert untouched
    assert done.status_code == 200
    assert "In groups it receives" in done.text or "every message" in done.text, (
        "told at once, without asking again"
    )
    assert program.printed.count("telegram: connected anew") == 2
    assert "changed in the meantime" in second_tab.text
    assert mode == 0o600
    assert "Other" not in people.text, "the code worked once"
    assert "Boss &lt;b&gt;" in shown
    for told in (wrong.text, webhook.text, done.text, shown, log, program.printed):
        assert FIRST not in told
        assert "wrong-token" not in told


async def test_a_kill_between_saving_the_token_and_connecting_loses_nothing(
    tmp_path: Path,
) -> None:
    async with TelegramEmulator(token=FIRST) as telegram:
        boss = telegram.user(7, "Boss")
        chat = telegram.private_chat(boss)
        hold = HoldFault()
        telegram.inject_fault("deleteWebhook", hold)
        settings = {"TELEGRAM_BASE_URL": telegram.base_url, "SHIFTBOSS_LANGUAGE": "en"}
        async with running_program(tmp_path / "home", **settings) as program:
            async with tab(program) as page:
                await page.send(order="connect", token=FIRST)
                async with asyncio.timeout(WAIT_SECONDS):
                    await hold.entered.wait()
                await program.kill()
            hold.release()
            await program.start()
            async with tab(program) as page:
                code = await page.wait_for(r"/start (\w{8})")
                await boss.says(chat, f"/start {code}")
                await chat.wait_for(lambda m: m.from_bot and "You are an owner" in m.text)
                await program.kill()
            await program.start()
            await boss.says(chat, "/people")
            await chat.wait_for(lambda m: m.from_bot and "People with access" in m.text)


async def test_init_connects_telegram_before_and_while_the_program_runs(tmp_path: Path) -> None:
    async with TelegramEmulator(token=FIRST) as telegram:
        boss = telegram.user(7, "Boss")
        chat = telegram.private_chat(boss)
        settings = {"TELEGRAM_BASE_URL": telegram.base_url, "SHIFTBOSS_LANGUAGE": "en"}
        program = ShiftbossProcess(tmp_path / "home", settings)
        program.home.mkdir()
        options = ("--channel", "telegram", "--token-stdin")
        wrong = await run_init(program, *options, key="1001:wrong-token-not-a-secret-aaaa")
        early = await run_init(program, *options, key=FIRST)
        code = re.findall(r"start=(\w{8})", early[1])[0]
        await program.start()
        try:
            waiting = asyncio.create_task(run_init(program, *options, "--wait", "90", key=FIRST))
            await boss.says(chat, f"/start {code}")
            await chat.wait_for(lambda m: m.from_bot and "You are an owner" in m.text)
            live = await waiting
            left = await run_init(program, "--channel", "telegram", "--disconnect")
            page = await program.run_to_end("status")
        finally:
            await program.kill_if_running()

    assert wrong[0] == 1
    assert "Telegram rejects the token" in wrong[1]
    assert early[0] == live[0] == left[0] == 0, early[1] + live[1] + left[1]
    assert "@shiftboss_bot" in early[1]
    assert "Boss has written" in live[1]
    assert "Telegram" not in page[1]
    assert FIRST not in wrong[1] + early[1] + live[1] + left[1] + program.printed
    assert "TELEGRAM" not in (program.home / ".env").read_text(encoding="utf-8")


@dataclass
class SetupTab:
    """The page on which Telegram is connected, in the browser of the local owner."""

    browser: httpx.AsyncClient
    seen: str = ""

    async def get(self) -> httpx.Response:
        return self._remember(await self.browser.get(PAGE))

    async def send(self, **fields: str) -> httpx.Response:
        sent = await self.browser.post(PAGE, data={"seen": self.seen, **fields})
        return self._remember(sent)

    async def wait_for(self, pattern: str) -> str:
        found: list[str] = []

        async def look() -> bool:
            found.extend(re.findall(pattern, (await self.get()).text))
            return bool(found)

        await wait_until(look)
        return found[-1]

    def _remember(self, page: httpx.Response) -> httpx.Response:
        self.seen = re.findall(r'name="seen" value="(\w+)"', page.text)[0]
        return page


@asynccontextmanager
async def tab(program: ShiftbossProcess) -> AsyncGenerator[SetupTab, None]:
    at = urlsplit(program.address)
    base = f"http://{at.netloc}"
    async with httpx.AsyncClient(
        base_url=base, headers={"origin": base}, follow_redirects=True, timeout=WAIT_SECONDS
    ) as browser:
        await browser.get(program.address)
        made = SetupTab(browser)
        await made.get()
        yield made
