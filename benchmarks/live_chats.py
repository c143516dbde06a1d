"""Resident memory with 1, 5 and 20 chats in which an answer is being made at the same time."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from benchmarks.figures import resident_mib
from benchmarks.setting import Setting, both_channels
from tests.emulators.models.emulator import Models
from tests.emulators.models.script import Asked, Reply

_LIVE = (1, 5, 20)
_TEXT = " ".join(f"word{number}" for number in range(200))


async def measure() -> list[str]:
    """The chats are Telegram's, the model Anthropic's; each answer stops in its middle."""
    owners = ",".join(f"telegram:{n}" for n in range(1, max(_LIVE) + 1))
    go = asyncio.Event()
    with tempfile.TemporaryDirectory() as home:
        async with (
            Models() as models,
            both_channels(
                Path(home),
                SHIFTBOSS_OWNERS=owners,
                ANTHROPIC_API_KEY=models.key,
                ANTHROPIC_BASE_URL=models.url,
            ) as running,
        ):
            models.replies(lambda asked: _held(asked, go))
            idle = resident_mib(running.program.pid)
            lines = [f"before any: {idle:.0f} MiB"]
            begun = 0
            for live in _LIVE:
                await asyncio.gather(*(_begin(running, n) for n in range(begun + 1, live + 1)))
                begun = live
                lines.append(f"{live} live: {resident_mib(running.program.pid):.0f} MiB")
            go.set()
            await asyncio.gather(*(_end(running, n) for n in range(1, begun + 1)))
            lines.append(f"all answered: {resident_mib(running.program.pid):.0f} MiB")
    return lines


def _held(_asked: Asked, go: asyncio.Event) -> Reply:
    return Reply(text=_TEXT, hold=go, hold_after=30)


async def _begin(setting: Setting, n: int) -> None:
    person = setting.telegram.user(n, f"Boss {n}")
    chat = setting.telegram.private_chat(person)
    await person.says(chat, f"tell me about number {n}")
    await chat.wait_until(lambda: any("word5" in draft.text for draft in chat.drafts), timeout=60)


async def _end(setting: Setting, n: int) -> None:
    chat = setting.telegram.private_chat(setting.telegram.user(n, f"Boss {n}"))
    await chat.wait_for(lambda message: "word199" in message.text, timeout=60)
