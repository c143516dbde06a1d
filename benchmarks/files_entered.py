"""The number of product files that a command, a chat answer and a task go through."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from benchmarks import profiled_program
from benchmarks.figures import Figure, Measurement, Scale
from benchmarks.measurements import wait_until_quiet
from tests.emulators.models.emulator import ModelEmulator
from tests.emulators.telegram.chats import TelegramChat
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.users import TelegramUser
from tests.journeys.program import ShiftbossProcess
from tests.waiting import WAIT_SECONDS

_QUIET_SECONDS = 1.0
_STORIES = (
    ("`/help`", "/help", "Commands"),
    ("a chat answer over an API", "hello", "You said: hello"),
    ("`/run` to its final card", "/run write three words to words.txt", "Task finished"),
)
"""Name, message, and what stands in the message that ends it."""


async def measure(scale: Scale) -> list[Measurement]:
    """The real program runs with a profile function in every thread. It records the files of
    `bot`, `handlers`, `cards` and `storage` in which a function is entered, from the moment a
    Telegram message is sent to the moment its reply, or the task's final card, is there. Imports
    do not count, and a coroutine that goes on counts as entered. The chat answer and the task use
    an emulated Anthropic API; the owner has said something before, so that none of this is the
    first contact, and the program is quiet before each message."""
    quiet = scale.pick(_QUIET_SECONDS, 0.1)
    async with profiled_program_on_telegram() as run:
        await run.say("/chat", "No conversation yet")
        figures: list[Measurement] = []
        for name, text, end in _STORIES:
            await run.wait_until_quiet(quiet)
            files = await run.entered_by(text, end)
            figures.append(Figure(f"files entered by {name}", len(files)))
    return figures


@dataclass(kw_only=True)
class ProfiledRun:
    """A program that records on demand, and an owner who writes to it."""

    folder: Path
    program: ShiftbossProcess
    owner: TelegramUser
    chat: TelegramChat
    _numbers: count[int] = field(default_factory=count)

    async def say(self, text: str, end: str) -> None:
        """Say it, and wait until the bot shows a message with `end` in it."""
        await self.owner.says(self.chat, text)
        await self.chat.wait_for(lambda message: message.from_bot and end in message.text)

    async def wait_until_quiet(self, seconds: float) -> None:
        """Wait until the last answer is complete, and what it has caused is done."""
        shown = -1
        while shown != self._shown():
            shown = self._shown()
            await wait_until_quiet(self.program.pid, seconds)

    def _shown(self) -> int:
        """How many messages and versions of messages the chat has shown."""
        return sum(1 + message.edits for message in self.chat.messages)

    async def entered_by(self, text: str, end: str) -> list[str]:
        """The product files entered between the message and the end of its answer."""
        await self._order("start")
        await self.say(text, end)
        record = self.folder / f"record{next(self._numbers)}.json"
        await self._order(str(record))
        async with asyncio.timeout(WAIT_SECONDS):
            while not record.exists():
                await asyncio.sleep(0.01)
        return list(json.loads(record.read_text()))

    async def _order(self, order: str) -> None:
        await asyncio.to_thread((self.folder / "pipe").write_text, f"{order}\n")


@asynccontextmanager
async def profiled_program_on_telegram() -> AsyncGenerator[ProfiledRun, None]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.mkfifo(folder / "pipe")
        async with TelegramEmulator() as telegram, ModelEmulator() as models:
            program = ShiftbossProcess(
                home=folder / "home",
                settings={
                    **telegram.settings,
                    "SHIFTBOSS_OWNERS": "telegram:1",
                    "ANTHROPIC_API_KEY": models.key,
                    "ANTHROPIC_BASE_URL": models.url,
                    profiled_program.PIPE_VARIABLE: str(folder / "pipe"),
                },
                command=(sys.executable, profiled_program.__file__),
            )
            try:
                await program.start()
                owner = telegram.user(1, "Boss")
                chat = telegram.private_chat(owner)
                yield ProfiledRun(folder=folder, program=program, owner=owner, chat=chat)
            finally:
                await program.kill_if_running()
