"""One person on Telegram, Feishu, the web and in the shell, with a kill in between."""

from __future__ import annotations

import re
from pathlib import Path

from tests.journeys.platform_world import code_in, label, platform_world
from tests.journeys.web_page import WebPageClient, open_web_page


async def _ask_page(page: WebPageClient, command: str, part: str) -> str:
    await page.send_message(command)
    return str((await page.next_frame("", part))["html"])


async def test_one_person_on_three_channels_and_in_the_shell(tmp_path: Path) -> None:
    async with platform_world(tmp_path / "home") as here:
        await here.ask("/remember My dog is Rex", expects="Rex")
        await here.ask_on_feishu("/remember My cat is Mia", expects="Mia")
        await here.start_task()

        code = code_in(await here.ask("/link", expects="Link another account"))
        await here.ask_on_feishu(f"/link {code}", expects="The code is right")
        asked = await here.feishu_chat.wait_for(lambda m: "Link these accounts?" in m.header)
        await here.feishu_owner.presses(asked, label(asked, "✅"))
        await here.telegram_chat.wait_for(lambda m: "Accounts linked" in m.text)
        await here.program.kill()
        await here.program.start()
        await here.wait_until_connected()

        async with open_web_page(here.program) as page:
            await page.send_message("/remember My canary is Pip")
            await page.next_frame("", "Pip")
            await page.send_message("/link")
            shown = await page.next_frame("", "Link another account")
        code = code_in(re.sub("<[^>]+>", " ", shown["html"]))
        await here.ask(f"/link {code}", expects="The code is right")
        to_confirm = await here.telegram_chat.wait_for(
            lambda m: "Link these accounts?" in m.text and bool(m.buttons)
        )
        await here.telegram_owner.presses(to_confirm, label(to_confirm, "✅"))
        await here.telegram_chat.wait_for(lambda m: "Web chat" in m.text and "linked" in m.text)

        async with open_web_page(here.program) as page:
            in_web = [
                await _ask_page(page, command, part)
                for command, part in (
                    ("/memory list", "canary"),
                    ("/list", "wait 10 minutes"),
                    ("/cost", "💰"),
                )
            ]
        _, in_shell = await here.program.run_to_end("memory", "list")
        on_feishu = await here.ask_on_feishu("/memory list", expects="Rex")
        tasks = await here.ask_on_feishu("/list", expects="wait 10 minutes")
        accounts = await here.ask("/unlink", expects="Your accounts (3)")
        _, ended = await here.program.run_to_end("unlink", "feishu")
        apart = await here.ask_on_feishu("/memory list", expects="Mia")
        left = await here.ask("/memory list", expects="Rex")

    assert all(name in in_web[0] for name in ("Rex", "Mia", "Pip")), "one person on the page, too"
    assert "Rex" in in_shell
    assert "Mia" in in_shell
    assert "Mia" in on_feishu
    assert "wait 10 minutes" in tasks
    assert "main account" in accounts
    assert "is separate again" in ended
    assert "Rex" not in apart
    assert "Pip" in left, "the page's account stays linked"
    assert "Mia" not in left
