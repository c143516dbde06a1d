"""What service managers and terminals send: it ends when asked, quickly, and goes on later."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Origin

from tests.emulators.models.emulator import Models
from tests.emulators.models.script import Reply
from tests.emulators.telegram.chats import Chat
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.mischief import Hold
from tests.emulators.telegram.people import User
from tests.journeys.model_world import PATIENCE, done, held, staged, steps, writes
from tests.journeys.program import Program, program
from tests.thorough import long


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    shiftboss: Program
    telegram: TelegramEmulator
    boss: User
    chat: Chat

    def said(self, text: str) -> int:
        return sum(text in message.text for message in self.chat.from_bot)

    async def ended(self) -> int:
        """Its exit status, once it has ended by itself; it must not wait for ever."""
        async with asyncio.timeout(PATIENCE):
            return await self.shiftboss.dies()


@asynccontextmanager
async def scene(home: Path, **settings: str) -> AsyncGenerator[Scene, None]:
    async with TelegramEmulator() as telegram:
        boss = telegram.user(7, "Boss")
        base = {
            "TELEGRAM_BOT_TOKEN": telegram.token,
            "TELEGRAM_BASE_URL": telegram.base_url,
            "SHIFTBOSS_OWNERS": "telegram:7",
        }
        async with program(home, **base, **settings) as shiftboss:
            chat = telegram.private_chat(boss)
            yield Scene(shiftboss=shiftboss, telegram=telegram, boss=boss, chat=chat)


@asynccontextmanager
async def at_work(home: Path, **settings: str) -> AsyncGenerator[tuple[Scene, asyncio.Event], None]:
    """The first of two steps is under way until it is let go; its card says so."""
    go = asyncio.Event()
    async with staged() as (stage, access), scene(home, **access, **settings) as it:
        stage.on("work-cue", "plan", steps("hold on", "write it"))
        again = writes("a.txt", "x"), done("It is written.", "a.txt")
        stage.on("work-cue", "step", held(done("Held."), go), *again)
        await it.boss.says(it.chat, "/run work-cue")
        await it.chat.wait_for_text("📍 hold on")
        await stage.under_way("work-cue")
        yield it, go


async def test_asked_to_end_in_the_thick_of_it_it_ends_and_all_goes_on_at_the_next_start(
    tmp_path: Path,
) -> None:
    sending = Hold()
    async with at_work(tmp_path) as (it, go), AsyncExitStack() as pages:
        page = await pages.enter_async_context(_page(it.shiftboss))
        it.telegram.misbehave("sendMessage", sending)
        await it.boss.says(it.chat, "/list")
        await asyncio.wait_for(sending.entered.wait(), PATIENCE)

        os.kill(it.shiftboss.pid, signal.SIGTERM)
        sending.release()
        go.set()
        assert await it.ended() == 0
        await page.wait_closed()
        await it.boss.says(it.chat, "/chat")
        await it.shiftboss.start()
        await it.chat.wait_for_text("Task finished")
        await it.chat.wait_for_text("conversation")

        assert (it.said("Task finished"), it.said("Tasks ("), it.said("Sent again")) == (1, 1, 0)
        assert "Traceback" not in it.shiftboss.text
        assert (next((tmp_path / "work").glob("*/a.txt"))).read_text().strip() == "x"


async def test_a_stop_in_the_middle_of_a_step_is_told_on_its_card_which_then_goes_on(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path, SHIFTBOSS_STOP_GRACE_SECONDS="0.2") as (it, go):
        cards = len(it.chat.from_bot)
        assert await it.shiftboss.stop() == 0
        assert it.said("Paused while Shiftboss restarts") == 1, "told before it ended"
        assert len(it.chat.from_bot) == cards, "on the same card"

        go.set()
        await it.shiftboss.start()
        await it.chat.wait_for_text("Task finished")
        await it.chat.wait_until(lambda: it.said("Paused while Shiftboss restarts") == 0)

        assert len(it.chat.from_bot) == cards + 1, "the card, and the message of the end"
        assert "Traceback" not in it.shiftboss.text


@long
async def test_a_step_that_ends_in_time_is_not_run_again_after_the_restart(tmp_path: Path) -> None:
    async with at_work(tmp_path, SHIFTBOSS_STOP_GRACE_SECONDS="600") as (it, go):
        os.kill(it.shiftboss.pid, signal.SIGTERM)
        await it.shiftboss.says("stopping")
        go.set()
        assert await it.ended() == 0
        assert it.said("Paused while Shiftboss restarts") == 1
        with closing(sqlite3.connect(tmp_path / "shiftboss.db")) as store:
            runs = "SELECT attempt FROM node_runs WHERE status='done' AND path <> '@plan'"
            finished = store.execute(runs).fetchall()

        await it.shiftboss.start()
        await it.chat.wait_for_text("Task finished")
        with closing(sqlite3.connect(tmp_path / "shiftboss.db")) as store:
            attempts = store.execute(runs).fetchall()

        assert finished == [(1,)]
        assert set(attempts) == {(1,)}


@long
async def test_what_arrives_while_it_stops_is_answered_after_the_restart(tmp_path: Path) -> None:
    async with at_work(tmp_path, SHIFTBOSS_STOP_GRACE_SECONDS="600") as (it, go):
        os.kill(it.shiftboss.pid, signal.SIGTERM)
        await it.shiftboss.says("stopping")
        await it.boss.says(it.chat, "/list")
        go.set()
        assert await it.ended() == 0
        assert it.said("Tasks (") == 0

        await it.shiftboss.start()
        await it.chat.wait_for_text("Tasks (")
        await it.chat.wait_for_text("Task finished")
        assert it.said("Tasks (") == 1


@long
async def test_a_second_program_on_one_home_says_so_and_ends_also_while_the_first_is_stopping(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path, SHIFTBOSS_STOP_GRACE_SECONDS="600") as (it, go):
        running = await it.shiftboss.run_to_end("run")
        os.kill(it.shiftboss.pid, signal.SIGTERM)
        await it.shiftboss.says("stopping")
        stopping = await it.shiftboss.run_to_end("run")
        go.set()
        assert await it.ended() == 0

    for status, printed in (running, stopping):
        assert status == 2
        assert "another Shiftboss" in printed
        assert "Traceback" not in printed


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_it_at_once(tmp_path: Path, second: signal.Signals) -> None:
    async with scene(tmp_path, SHIFTBOSS_STOP_GRACE_SECONDS="600") as it:
        await it.boss.says(it.chat, '/run wait 10 minutes, then write "x" to a.txt')
        await it.chat.wait_for(lambda m: "🔄" in m.text and "10" in m.text)
        os.kill(it.shiftboss.pid, signal.SIGTERM)
        await it.shiftboss.says("stopping")
        os.kill(it.shiftboss.pid, second)
        assert await it.ended() == -second


@long
async def test_an_answer_that_is_being_typed_is_given_whole_after_the_next_start(
    tmp_path: Path,
) -> None:
    never = asyncio.Event()
    async with Models() as models:
        models.replies(
            Reply(
                text="An answer that takes its time, word by word. " * 5, hold=never, hold_after=3
            ),
            Reply(text="An answer, whole."),
        )
        key = {"OPENAI_API_KEY": models.key, "OPENAI_BASE_URL": models.openai_url}
        async with scene(tmp_path, **key) as it:
            await it.boss.says(it.chat, "How are you?")
            await it.telegram.wait_for_call("sendMessageDraft")
            assert await it.shiftboss.stop() == 0
            await it.shiftboss.start()
            await it.chat.wait_for_text("An answer, whole.")

            assert len(it.chat.from_bot) == 1
            assert "Traceback" not in it.shiftboss.text


@pytest.mark.parametrize("signals", [(signal.SIGTERM,) * 2, (signal.SIGINT,)])
async def test_it_ends_cleanly_however_it_is_asked(
    tmp_path: Path, signals: tuple[signal.Signals, ...]
) -> None:
    async with program(tmp_path) as shiftboss:
        for each in signals:
            os.kill(shiftboss.pid, each)
        async with asyncio.timeout(PATIENCE):
            # A second signal that comes after the first was taken ends it at once.
            assert await shiftboss.dies() in {0, -signals[-1]}
        assert "Traceback" not in shiftboss.text


@long
async def test_a_closed_terminal_and_a_frozen_hour_are_survived(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        os.kill(it.shiftboss.pid, signal.SIGHUP)
        os.kill(it.shiftboss.pid, signal.SIGSTOP)
        await it.boss.says(it.chat, "/list")
        await it.boss.says(it.chat, '/run write "x" to a.txt')
        os.kill(it.shiftboss.pid, signal.SIGCONT)
        await it.chat.wait_for_text("Tasks (")
        await it.chat.wait_for_text("Task finished")

        assert it.said("Tasks (") == 1
        assert await it.shiftboss.stop() == 0


@asynccontextmanager
async def _page(shiftboss: Program) -> AsyncGenerator[ClientConnection, None]:
    """An open web chat."""
    url = urlsplit(shiftboss.address)
    async with connect(
        f"ws://{url.netloc}/ws",
        origin=Origin(f"http://{url.netloc}"),
        additional_headers={"Authorization": f"Bearer {url.query.removeprefix('token=')}"},
    ) as page:
        await page.recv()
        yield page
