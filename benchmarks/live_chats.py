"""Resident memory while answers are being made in several chats at the same time."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from benchmarks.figures import Figure, Measurement, Scale
from benchmarks.measurements import resident_mib
from benchmarks.running_program import BenchmarkProgram, both_channels
from tests.emulators.models.emulator import ModelEmulator
from tests.emulators.models.script import ScriptedReply

_LIVE = (1, 5, 20)
_TEXT = " ".join(f"word{number}" for number in range(200))


async def measure(scale: Scale) -> list[Measurement]:
    """The chats are Telegram's, the model is an emulated Anthropic one, and each answer stops in
    its middle until all of them are measured."""
    stages = scale.pick(_LIVE, (1, 2))
    owners = ",".join(f"telegram:{n}" for n in range(1, max(stages) + 1))
    released = asyncio.Event()
    with tempfile.TemporaryDirectory() as home:
        async with (
            ModelEmulator() as models,
            both_channels(
                Path(home),
                SHIFTBOSS_OWNERS=owners,
                ANTHROPIC_API_KEY=models.key,
                ANTHROPIC_BASE_URL=models.url,
            ) as running,
        ):
            models.replies(lambda _: ScriptedReply(text=_TEXT, hold=released, hold_after=30))
            figures = [_resident("before any chat", running)]
            begun = 0
            for live in stages:
                await asyncio.gather(*(_begin(running, n) for n in range(begun + 1, live + 1)))
                begun = live
                figures.append(_resident(f"answers under way: {live}", running))
            released.set()
            await asyncio.gather(*(_end(running, n) for n in range(1, begun + 1)))
            figures.append(_resident("all answered", running))
    return [*figures]


def _resident(name: str, running: BenchmarkProgram) -> Figure:
    return Figure(name, resident_mib(running.program.pid), "MiB")


async def _begin(running: BenchmarkProgram, n: int) -> None:
    person = running.telegram.user(n, f"Boss {n}")
    chat = running.telegram.private_chat(person)
    await person.says(chat, f"tell me about number {n}")
    await chat.wait_until(lambda: any("word5" in draft.text for draft in chat.drafts))


async def _end(running: BenchmarkProgram, n: int) -> None:
    chat = running.telegram.private_chat(running.telegram.user(n, f"Boss {n}"))
    await chat.wait_for(lambda message: "word199" in message.text)
