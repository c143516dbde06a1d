"""Resident memory with both channels: idle, after ten chats, and idle CPU."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from benchmarks.figures import cpu_seconds, held, resident_mib
from benchmarks.setting import both_channels

_BAR = 120.0
_CPU_BAR = 0.5
_CHATS = 10
_WATCHED = 20.0


async def measure() -> list[str]:
    owners = ",".join(f"telegram:{n}" for n in range(1, _CHATS + 1))
    with tempfile.TemporaryDirectory() as home:
        # The second start is what idles for months: the first one has run the migrations.
        async with both_channels(Path(home), SHIFTBOSS_OWNERS=owners) as first:
            await first.program.stop()
            await first.program.start()
            await first.feishu.connected()
            await asyncio.sleep(3)
            idle, before = resident_mib(first.program.pid), cpu_seconds(first.program.pid)
            await asyncio.sleep(_WATCHED)
            share = 100 * (cpu_seconds(first.program.pid) - before) / _WATCHED
            for n in range(1, _CHATS + 1):
                person = first.telegram.user(n, f"Boss {n}")
                chat = first.telegram.private_chat(person)
                await person.says(chat, "hello")
                await chat.wait_for(lambda message: message.from_bot)
            talked = resident_mib(first.program.pid)
    return [
        held("idle, both channels, no model called yet", idle, "MiB", _BAR),
        held(f"idle CPU over {_WATCHED:.0f} s", share, "%", _CPU_BAR),
        f"after {_CHATS} chats with the offline backend: {talked:.0f} MiB",
    ]
