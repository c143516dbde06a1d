"""Message in to reply out, no model: Shiftboss against a bare echo doing the same send."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.figures import held, p50, p95
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.journeys.program import program

_PEOPLE = 120
_WARM_UP = 20
_BAR = 1.5


async def measure() -> list[str]:
    """The two take turns, message by message, so that a slow moment hits both."""
    owners = ",".join(f"telegram:{n}" for n in range(1, _PEOPLE + 1))
    async with TelegramEmulator() as ours, TelegramEmulator() as theirs:
        peer = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "benchmarks.echo_peer", theirs.token, theirs.base_url
        )
        try:
            with tempfile.TemporaryDirectory() as home:
                async with program(
                    Path(home),
                    TELEGRAM_BOT_TOKEN=ours.token,
                    TELEGRAM_BASE_URL=ours.base_url,
                    SHIFTBOSS_OWNERS=owners,
                ):
                    pairs = [
                        (await _ask(ours, n), await _ask(theirs, n)) for n in range(1, _PEOPLE + 1)
                    ][_WARM_UP:]
        finally:
            peer.terminate()
            await peer.wait()
    mine, echo = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return [
        _line("p50", p50(mine), p50(echo)),
        _line("p95", p95(mine), p95(echo)),
    ]


async def _ask(telegram: TelegramEmulator, n: int) -> float:
    """Milliseconds from the person's message to the reply, each person once: no chat is paced."""
    person = telegram.user(n, f"Boss {n}")
    chat = telegram.private_chat(person)
    begun = time.perf_counter()
    await person.says(chat, "/chat")
    await chat.wait_for(lambda message: message.from_bot, timeout=30)
    return 1000 * (time.perf_counter() - begun)


def _line(name: str, mine: float, echo: float) -> str:
    told = f"{name}: {mine:.1f} ms against {echo:.1f} ms for the echo, ratio"
    return held(told, mine / echo, "", _BAR)
