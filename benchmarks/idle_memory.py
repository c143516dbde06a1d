"""Resident memory with both channels: idle, after ten chats, and idle CPU."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from benchmarks.figures import cpu_seconds, held, resident_mib
from benchmarks.setting import Setting, both_channels
from tests.emulators.models.emulator import Models

_BAR = 120.0
_CPU_BAR = 0.5
_CHATS = 10
_WATCHED = 20.0
_OWNERS = ",".join(f"telegram:{n}" for n in range(1, _CHATS + 1))


async def measure() -> list[str]:
    return [*await _offline(), await _with_a_model()]


async def _offline() -> list[str]:
    with tempfile.TemporaryDirectory() as home:
        # The second start is what idles for months: the first one has run the migrations.
        async with both_channels(Path(home), SHIFTBOSS_OWNERS=_OWNERS) as first:
            await first.program.stop()
            await first.program.start()
            await first.feishu.connected()
            await asyncio.sleep(3)
            idle, before = resident_mib(first.program.pid), cpu_seconds(first.program.pid)
            await asyncio.sleep(_WATCHED)
            share = 100 * (cpu_seconds(first.program.pid) - before) / _WATCHED
            await _talk(first)
            talked = resident_mib(first.program.pid)
    return [
        held("idle, both channels, no model called yet", idle, "MiB", _BAR),
        held(f"idle CPU over {_WATCHED:.0f} s", share, "%", _CPU_BAR),
        f"after {_CHATS} chats with the offline backend: {talked:.0f} MiB",
    ]


async def _with_a_model() -> str:
    with tempfile.TemporaryDirectory() as home:
        async with (
            Models() as models,
            both_channels(
                Path(home),
                SHIFTBOSS_OWNERS=_OWNERS,
                ANTHROPIC_API_KEY=models.key,
                ANTHROPIC_BASE_URL=models.url,
            ) as running,
        ):
            await _talk(running)
            talked = resident_mib(running.program.pid)
    return f"after {_CHATS} chats with a model API, its libraries loaded: {talked:.0f} MiB"


async def _talk(setting: Setting) -> None:
    for n in range(1, _CHATS + 1):
        person = setting.telegram.user(n, f"Boss {n}")
        chat = setting.telegram.private_chat(person)
        await person.says(chat, "hello")
        await chat.wait_for(lambda message: message.from_bot, timeout=30)
