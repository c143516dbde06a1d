"""Resident memory of the idle program, its idle CPU, and its memory after ten chats."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.figures import Figure, Measurement, Scale, at_most
from benchmarks.measurements import cpu_seconds, resident_mib, wait_until_quiet
from benchmarks.running_program import BenchmarkProgram, both_channels
from tests.emulators.models.emulator import ModelEmulator

_CHATS = 10
_SETTLING_SECONDS = 6.0
_QUIET_SECONDS = 1.5
_WATCHED_SECONDS = 20.0


async def measure(scale: Scale) -> list[Measurement]:
    """The program idles with Telegram and Feishu connected, after a second start on the same home:
    the first one has run the migrations. It is measured when it has loaded what reads messages,
    some seconds after the start. Then owners write once each on Telegram, first
    with the offline backend, then in programs of their own with an emulated OpenAI and an
    emulated Anthropic API, whose libraries are loaded by the first message. Anthropic's SDK
    alone holds 37 MiB: importing it loads some 2,900 modules of types."""
    return [
        *await _offline(scale),
        await _with_a_model(scale, "OpenAI", lambda models: models.openai_url),
        await _with_a_model(scale, "Anthropic", lambda models: models.url),
    ]


async def _offline(scale: Scale) -> list[Figure]:
    watched = scale.pick(_WATCHED_SECONDS, 0.1)
    chats = scale.pick(_CHATS, 1)
    with tempfile.TemporaryDirectory() as home:
        async with both_channels(Path(home), SHIFTBOSS_OWNERS=_owners(chats)) as running:
            await _restart(running)
            await asyncio.sleep(scale.pick(_SETTLING_SECONDS, 0.0))
            await wait_until_quiet(running.program.pid, scale.pick(_QUIET_SECONDS, 0.0))
            idle, before = resident_mib(running.program.pid), cpu_seconds(running.program.pid)
            await asyncio.sleep(watched)
            share = 100 * (cpu_seconds(running.program.pid) - before) / watched
            await _talk(running, chats)
            talked = resident_mib(running.program.pid)
    return [
        Figure("idle, both channels, no model called yet", idle, "MiB", at_most(110)),
        Figure(f"idle CPU over {watched:g} s", share, "% of a core", at_most(0.5)),
        Figure(f"after {chats} chats with the offline backend", talked, "MiB"),
    ]


async def _with_a_model(scale: Scale, provider: str, url: Callable[[ModelEmulator], str]) -> Figure:
    chats, prefix = scale.pick(_CHATS, 1), provider.upper()
    with tempfile.TemporaryDirectory() as home:
        async with (
            ModelEmulator() as models,
            both_channels(
                Path(home),
                SHIFTBOSS_OWNERS=_owners(chats),
                **{f"{prefix}_API_KEY": models.key, f"{prefix}_BASE_URL": url(models)},
            ) as running,
        ):
            await _restart(running)
            await _talk(running, chats)
            talked = resident_mib(running.program.pid)
    return Figure(f"after {chats} chats with {provider}'s API", talked, "MiB", at_most(170))


async def _restart(running: BenchmarkProgram) -> None:
    await running.program.stop()
    await running.program.start()
    await running.feishu.wait_for_connections()


def _owners(count: int) -> str:
    return ",".join(f"telegram:{n}" for n in range(1, count + 1))


async def _talk(running: BenchmarkProgram, chats: int) -> None:
    for n in range(1, chats + 1):
        person = running.telegram.user(n, f"Boss {n}")
        chat = running.telegram.private_chat(person)
        await person.says(chat, "hello")
        await chat.wait_for(lambda message: message.from_bot)
