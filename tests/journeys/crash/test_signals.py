"""Signals of service managers and terminals: Shiftboss stops quickly and continues at the next
start."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.emulators.models.emulator import ModelEmulator
from tests.emulators.models.script import ScriptedReply
from tests.emulators.telegram.chats import TelegramChat
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.faults import DropBeforeFault, FaultPlans, HoldFault
from tests.emulators.telegram.users import TelegramUser
from tests.journeys.model_world import (
    held_reply,
    plan_reply,
    scripted_model,
    step_reply,
    write_call,
)
from tests.journeys.program import ShiftbossProcess, running_program
from tests.journeys.program_store import open_store
from tests.journeys.web_page import open_web_page
from tests.thoroughness import thorough_only
from tests.waiting import WAIT_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalScene:
    shiftboss: ShiftbossProcess
    telegram: TelegramEmulator
    boss: TelegramUser
    chat: TelegramChat

    def count_messages(self, text: str) -> int:
        return sum(text in message.text for message in self.chat.from_bot)

    async def wait_for_exit_status(self) -> int:
        """Its exit status, once it has ended by itself; it must not wait for ever."""
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.shiftboss.wait_for_exit()


@asynccontextmanager
async def signal_scene(home: Path, **settings: str) -> AsyncGenerator[SignalScene, None]:
    async with TelegramEmulator() as telegram:
        boss = telegram.user(7, "Boss")
        base = {
            **telegram.settings,
            "SHIFTBOSS_OWNERS": "telegram:7",
        }
        async with running_program(home, **base, **settings) as shiftboss:
            chat = telegram.private_chat(boss)
            yield SignalScene(shiftboss=shiftboss, telegram=telegram, boss=boss, chat=chat)


@asynccontextmanager
async def working_scene(
    home: Path, **settings: str
) -> AsyncGenerator[tuple[SignalScene, asyncio.Event], None]:
    """The first of two steps is under way until it is let go; its card says so."""
    go = asyncio.Event()
    async with scripted_model() as (stage, access), signal_scene(home, **access, **settings) as it:
        stage.script("work-cue", "plan", plan_reply("hold on", "write it"))
        again = write_call("a.txt", "x"), step_reply("It is written.", "a.txt")
        stage.script("work-cue", "step", held_reply(step_reply("Held."), go), *again)
        await it.boss.says(it.chat, "/run work-cue")
        await it.chat.wait_for_text("📍 hold on")
        await stage.wait_for_request("work-cue")
        yield it, go


async def test_a_last_edit_that_was_too_late_is_made_by_the_next_start(tmp_path: Path) -> None:
    async with working_scene(tmp_path) as (it, go):
        card = await it.chat.wait_for(lambda m: "📍 hold on" in m.text)
        it.telegram.inject_fault("editMessageText", DropBeforeFault(), times=1000)
        go.set()
        await it.chat.wait_for_text("Task finished")
        os.kill(it.shiftboss.pid, signal.SIGTERM)
        assert await it.wait_for_exit_status() == 0
        assert "📍" in card.text, "the edit came in time: nothing is proved"

        it.telegram.world.fault_plans = FaultPlans()
        await it.shiftboss.start()
        await it.chat.wait_until(lambda: "📍" not in card.text)

        assert "2/2 steps" in card.text
        assert it.count_messages("Task finished") == 1


async def test_sigterm_during_work_ends_the_program_and_the_work_continues_at_the_next_start(
    tmp_path: Path,
) -> None:
    sending = HoldFault()
    async with working_scene(tmp_path) as (it, go), AsyncExitStack() as pages:
        page = await pages.enter_async_context(open_web_page(it.shiftboss))
        await page.next_frame("")
        it.telegram.inject_fault("sendMessage", sending)
        await it.boss.says(it.chat, "/list")
        await asyncio.wait_for(sending.entered.wait(), WAIT_SECONDS)

        os.kill(it.shiftboss.pid, signal.SIGTERM)
        sending.release()
        go.set()
        assert await it.wait_for_exit_status() == 0
        await page.wait_closed()
        await it.boss.says(it.chat, "/chat")
        await it.shiftboss.start()
        await it.chat.wait_for_text("Task finished")
        await it.chat.wait_for_text("conversation")

        assert (
            it.count_messages("Task finished"),
            it.count_messages("Tasks ("),
            it.count_messages("Sent again"),
        ) == (1, 1, 0)
        assert "Traceback" not in it.shiftboss.printed
        assert (next((tmp_path / "work").glob("*/a.txt"))).read_text().strip() == "x"


async def test_a_shutdown_during_a_step_is_shown_on_its_card_which_then_continues(
    tmp_path: Path,
) -> None:
    async with working_scene(tmp_path, SHIFTBOSS_STOP_GRACE_SECONDS="0.2") as (it, go):
        cards = len(it.chat.from_bot)
        assert await it.shiftboss.stop() == 0
        assert it.count_messages("Paused while Shiftboss restarts") == 1, "told before it ended"
        assert len(it.chat.from_bot) == cards, "on the same card"

        go.set()
        await it.shiftboss.start()
        await it.chat.wait_for_text("Task finished")
        await it.chat.wait_until(lambda: it.count_messages("Paused while Shiftboss restarts") == 0)

        assert len(it.chat.from_bot) == cards + 1, "the card, and the message of the end"
        assert "Traceback" not in it.shiftboss.printed


@thorough_only
async def test_a_step_that_ends_in_time_is_not_run_again_after_the_restart(tmp_path: Path) -> None:
    async with working_scene(tmp_path, SHIFTBOSS_STOP_GRACE_SECONDS="600") as (it, go):
        os.kill(it.shiftboss.pid, signal.SIGTERM)
        await it.shiftboss.wait_for_output("stopping")
        go.set()
        assert await it.wait_for_exit_status() == 0
        assert it.count_messages("Paused while Shiftboss restarts") == 1
        with open_store(tmp_path) as store:
            runs = "SELECT attempt FROM node_runs WHERE status='done' AND path <> '@plan'"
            finished = store.execute(runs).fetchall()

        await it.shiftboss.start()
        await it.chat.wait_for_text("Task finished")
        with open_store(tmp_path) as store:
            attempts = store.execute(runs).fetchall()

        assert finished == [(1,)]
        assert set(attempts) == {(1,)}


@thorough_only
async def test_messages_during_shutdown_are_answered_after_the_restart(tmp_path: Path) -> None:
    async with working_scene(tmp_path, SHIFTBOSS_STOP_GRACE_SECONDS="600") as (it, go):
        os.kill(it.shiftboss.pid, signal.SIGTERM)
        await it.shiftboss.wait_for_output("stopping")
        await it.boss.says(it.chat, "/list")
        go.set()
        assert await it.wait_for_exit_status() == 0
        assert it.count_messages("Tasks (") == 0

        await it.shiftboss.start()
        await it.chat.wait_for_text("Tasks (")
        await it.chat.wait_for_text("Task finished")
        assert it.count_messages("Tasks (") == 1


@thorough_only
async def test_a_second_program_on_one_data_directory_is_refused_also_while_the_first_is_stopping(
    tmp_path: Path,
) -> None:
    async with working_scene(tmp_path, SHIFTBOSS_STOP_GRACE_SECONDS="600") as (it, go):
        running = await it.shiftboss.run_to_end("run")
        os.kill(it.shiftboss.pid, signal.SIGTERM)
        await it.shiftboss.wait_for_output("stopping")
        stopping = await it.shiftboss.run_to_end("run")
        go.set()
        assert await it.wait_for_exit_status() == 0

    for status, printed in (running, stopping):
        assert status == 2
        assert "another Shiftboss" in printed
        assert "Traceback" not in printed


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_it_at_once(tmp_path: Path, second: signal.Signals) -> None:
    async with signal_scene(tmp_path, SHIFTBOSS_STOP_GRACE_SECONDS="600") as it:
        await it.boss.says(it.chat, '/run wait 10 minutes, then write "x" to a.txt')
        await it.chat.wait_for(lambda m: "🔄" in m.text and "10" in m.text)
        os.kill(it.shiftboss.pid, signal.SIGTERM)
        await it.shiftboss.wait_for_output("stopping")
        os.kill(it.shiftboss.pid, second)
        assert await it.wait_for_exit_status() == -second


@thorough_only
async def test_an_answer_interrupted_while_streaming_is_given_whole_after_the_next_start(
    tmp_path: Path,
) -> None:
    never = asyncio.Event()
    async with ModelEmulator() as models:
        models.replies(
            ScriptedReply(
                text="An answer that takes its time, word by word. " * 5, hold=never, hold_after=3
            ),
            ScriptedReply(text="An answer, whole."),
        )
        key = {"OPENAI_API_KEY": models.key, "OPENAI_BASE_URL": models.openai_url}
        async with signal_scene(tmp_path, **key) as it:
            await it.boss.says(it.chat, "How are you?")
            await it.telegram.wait_for_call("sendMessageDraft")
            assert await it.shiftboss.stop() == 0
            await it.shiftboss.start()
            await it.chat.wait_for_text("An answer, whole.")

            assert len(it.chat.from_bot) == 1
            assert "Traceback" not in it.shiftboss.printed


@pytest.mark.parametrize("signals", [(signal.SIGTERM,) * 2, (signal.SIGINT,)])
async def test_every_termination_signal_ends_it_cleanly(
    tmp_path: Path, signals: tuple[signal.Signals, ...]
) -> None:
    async with running_program(tmp_path) as shiftboss:
        for each in signals:
            os.kill(shiftboss.pid, each)
        async with asyncio.timeout(WAIT_SECONDS):
            # A second signal that comes after the first was taken ends it at once.
            assert await shiftboss.wait_for_exit() in {0, -signals[-1]}
        assert "Traceback" not in shiftboss.printed


@thorough_only
async def test_sighup_and_a_suspended_hour_are_survived(tmp_path: Path) -> None:
    async with signal_scene(tmp_path) as it:
        os.kill(it.shiftboss.pid, signal.SIGHUP)
        os.kill(it.shiftboss.pid, signal.SIGSTOP)
        await it.boss.says(it.chat, "/list")
        await it.boss.says(it.chat, '/run write "x" to a.txt')
        os.kill(it.shiftboss.pid, signal.SIGCONT)
        await it.chat.wait_for_text("Tasks (")
        await it.chat.wait_for_text("Task finished")

        assert it.count_messages("Tasks (") == 1
        assert await it.shiftboss.stop() == 0
