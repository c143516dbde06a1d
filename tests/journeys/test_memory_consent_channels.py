"""Tests on Telegram, Feishu and the web, without a model, that forbidden words are in no file once
their conversations have ended, whatever the order of words, wish and kill."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.emulators.telegram.chats import TelegramChat
from tests.journeys.platform_world import PlatformWorld, label, platform_world
from tests.journeys.test_memory_consent import SWEPT_WITHIN, back_up, files_with, is_swept
from tests.journeys.web_page import open_web_page
from tests.waiting import wait_until

_SEEDS = [int(each) for each in os.environ.get("CONSENT_SEEDS", "1").split(",")]
_IN_DOUBT = "May I remember this message"


@dataclass(kw_only=True)
class _Talk:
    """A person who talks on three channels. Each word that they forbid is in `forbidden`."""

    here: PlatformWorld
    group: TelegramChat
    forbidden: list[str] = field(default_factory=list)

    def word(self) -> str:
        self.forbidden.append(f"kestrel{7000 + len(self.forbidden)}x")
        return self.forbidden[-1]

    async def in_the_same_message(self) -> None:
        await self.here.ask(f"Off the record, my locker has the code {self.word()}")
        await self.here.ask(f"我的柜子密码是 {self.word()}，这个别记")

    async def before(self) -> None:
        await self.here.ask(f"My locker has the code {self.word()}", expects="")
        await self.here.ask("forget what I just said", expects="forgotten")

    async def by_reply(self) -> None:
        here, word = self.here, self.word()
        known = {each.id for each in here.telegram_chat.from_bot}
        said = await here.telegram_owner.says(here.telegram_chat, f"My bank code is {word}")
        await here.telegram_chat.wait_for(lambda m: m.id not in known and m.from_bot)
        await here.ask("I like green tea in the morning")
        await here.ask("don't remember this", reply_to=said, expects="forgotten")

    async def announced(self) -> None:
        await self.here.ask("My next message is off the record.", expects="next message")
        await self.here.ask(f"I will marry {self.word()} in June")

    async def by_an_edit(self) -> None:
        here, word = self.here, self.word()
        known = {each.id for each in here.telegram_chat.from_bot}
        said = await here.telegram_owner.says(here.telegram_chat, f"My bike is called {word}")
        await here.telegram_chat.wait_for(lambda m: m.id not in known and m.from_bot)
        await here.telegram_owner.edits(said, f"My bike is called {word}, don't remember this")
        await here.ask("I like my tea with milk")

    async def with_a_file(self) -> None:
        here, word = self.here, self.word()
        known = {each.id for each in here.telegram_chat.from_bot}
        await here.telegram_owner.sends_document(
            here.telegram_chat, f"{word}.txt", f"code {word}".encode(), "off the record: my file"
        )
        await here.telegram_chat.wait_for(lambda m: m.id not in known and m.from_bot)

    async def in_doubt(self) -> None:
        here = self.here
        await here.ask(
            f"kindly leave that unrecorded: {self.word()} is my horse", expects=_IN_DOUBT
        )
        word = self.word()
        known = {each.id for each in here.telegram_chat.from_bot}
        await here.telegram_owner.says(
            here.telegram_chat, f"kindly leave that unrecorded: {word} is my goat"
        )
        asked = await here.telegram_chat.wait_for(
            lambda m: m.id not in known and _IN_DOUBT in m.text and bool(m.buttons)
        )
        await here.telegram_owner.presses(asked, label(asked, "Don't keep"))

    async def with_memory_off(self) -> None:
        await self.here.ask("/memory off", expects="Memory is off")
        await self.here.ask(f"I live in {self.word()} street")
        await self.here.ask("/memory on", expects="")

    async def in_a_group(self) -> None:
        await self.here.ask(
            f"off the record, the merger is {self.word()}", chat=self.group, mention=True
        )

    async def on_feishu(self) -> None:
        here = self.here
        await here.ask_on_feishu(f"I earn {self.word()} a month, this is off the record")
        await here.ask_on_feishu(f"My shed has the code {self.word()}")
        await here.ask_on_feishu("忘掉我刚才说的", expects="forgotten")
        await here.ask_on_feishu("下一条消息请不要记录", expects="next message")
        await here.ask_on_feishu(f"My cousin is called {self.word()}")

    async def on_the_page(self) -> None:
        async with open_web_page(self.here.program) as page:
            for text, part in (
                (f"Don't remember this: I moved to {self.word()}", ""),
                (f"My cellar has the code {self.word()}", ""),
                ("forget what I just said", "forgotten"),
                ("/incognito", "ncognito"),
                (f"My doctor is called {self.word()}", ""),
            ):
                await page.send_message(text)
                await page.next_frame("" if part else "stored", part)

    async def killed(self) -> None:
        await self.here.telegram_owner.says(
            self.here.telegram_chat, f"Off the record, I was born in {self.word()}"
        )
        await asyncio.sleep(random.random() / 2)
        await self.here.program.kill()
        await self.here.program.start()
        await self.here.wait_until_connected()

    async def backed_up(self) -> None:
        await asyncio.to_thread(back_up, self.here.program.home)

    def acts(self) -> list[Callable[[], Awaitable[None]]]:
        return [
            self.in_the_same_message, self.before, self.by_reply, self.announced, self.by_an_edit,
            self.with_a_file, self.in_doubt, self.with_memory_off, self.in_a_group,
            self.on_feishu, self.on_the_page, self.killed, self.backed_up,
        ]  # fmt: skip

    async def end(self) -> None:
        await self.here.ask("/new", expects="conversation")
        await self.here.ask("/new", chat=self.group, mention=True, expects="conversation")
        await self.here.ask_on_feishu("/new", expects="conversation")
        async with open_web_page(self.here.program) as page:
            await page.send_message("/new")
            await page.next_frame("stored")


async def _wait_until_swept(home: Path) -> None:
    async def swept() -> bool:
        return await asyncio.to_thread(is_swept, home)

    await wait_until(swept, 3 * SWEPT_WITHIN)


def _left(home: Path, words: Sequence[str]) -> dict[str, list[str]]:
    return {each: found for each in words if (found := files_with(home, each))}


@pytest.mark.parametrize("seed", _SEEDS)
async def test_forbidden_words_leave_every_file_in_whatever_order_things_happen(
    tmp_path: Path, seed: int
) -> None:
    async with platform_world(tmp_path / "home") as here:
        group = here.telegram.group("Team")
        talk = _Talk(here=here, group=group)
        await here.telegram_owner.adds_bot(group)
        await here.ask("My parrot is called harrier8080 by the way")
        acts = talk.acts()
        random.Random(seed).shuffle(acts)
        for act in acts:
            await act()
        await talk.end()
        await _wait_until_swept(here.program.home)
        left = await asyncio.to_thread(_left, here.program.home, talk.forbidden)
        kept = await asyncio.to_thread(files_with, here.program.home, "harrier8080")

    assert left == {}
    assert kept, "what nobody forbade is kept, and can be found so"
