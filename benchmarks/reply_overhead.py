"""Message in to reply out without a model, against a bare echo bot."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.figures import Figure, Measurement, Scale, at_most
from benchmarks.measurements import p50, p95, wait_until_quiet
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.journeys.program import program_at_first_start

_PEOPLE = 100
_WARM_UP = 20
_QUIET_SECONDS = 1.0


async def measure(scale: Scale) -> list[Measurement]:
    """A person on Telegram sends `/chat` and waits for the reply. The peer is the smallest bot
    that python-telegram-bot can be: it sends the same text back. The two take turns, message by
    message, so that a slow moment of the machine hits both; every person writes once, so that no
    rate limit of a chat slows either. They begin when the program is quiet: with so many owners it
    writes the first memory files of each after its first start. Between a message and its reply
    Shiftboss commits three times to disk (arrived, answered, about to be sent); the echo commits
    nothing. The emulator's connections have some 40 ms of latency, as a network would."""
    warm_up = scale.pick(_WARM_UP, 1)
    people = warm_up + scale.pick(_PEOPLE, 2)
    owners = ",".join(f"telegram:{n}" for n in range(1, people + 1))
    async with TelegramEmulator() as ours, TelegramEmulator() as theirs:
        with tempfile.TemporaryDirectory() as home:
            async with (
                _echo_peer(theirs),
                program_at_first_start(
                    Path(home),
                    **ours.settings,
                    SHIFTBOSS_OWNERS=owners,
                ) as program,
            ):
                await wait_until_quiet(program.pid, scale.pick(_QUIET_SECONDS, 0.05))
                pairs = [(await _ask(ours, n), await _ask(theirs, n)) for n in range(1, people + 1)]
    mine = [pair[0] for pair in pairs[warm_up:]]
    echo = [pair[1] for pair in pairs[warm_up:]]
    return [
        Figure("reply, p50", p50(mine), "ms"),
        Figure("echo, p50", p50(echo), "ms"),
        Figure("reply against echo, p50", p50(mine) / p50(echo), "×", at_most(1.5)),
        Figure("reply, p95", p95(mine), "ms"),
        Figure("echo, p95", p95(echo), "ms"),
        Figure("reply against echo, p95", p95(mine) / p95(echo), "×", at_most(1.5)),
    ]


@asynccontextmanager
async def _echo_peer(telegram: TelegramEmulator) -> AsyncGenerator[None, None]:
    peer = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.echo_peer", telegram.token, telegram.base_url
    )
    try:
        yield
    finally:
        peer.terminate()
        await peer.wait()


async def _ask(telegram: TelegramEmulator, n: int) -> float:
    """Milliseconds from a person's message to the reply."""
    person = telegram.user(n, f"Boss {n}")
    chat = telegram.private_chat(person)
    begun = time.perf_counter()
    await person.says(chat, "/chat")
    await chat.wait_for(lambda message: message.from_bot)
    return 1000 * (time.perf_counter() - begun)
