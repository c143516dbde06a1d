"""CPU seconds of a start with both channels, of `--help`, and of the first answer."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.figures import Figure, Measurement, Scale, at_most
from benchmarks.measurements import cpu_seconds, p50, wait_until_quiet
from benchmarks.running_program import both_channels
from tests.emulators.models.emulator import ModelEmulator
from tests.emulators.telegram.chats import TelegramChat
from tests.waiting import wait_until

_RUNS = 5
_ANSWERS = 4
_LOADED_SECONDS = 6.0
_QUIET_SECONDS = 1.5


async def measure(scale: Scale) -> list[Measurement]:
    """The program starts with Telegram and Feishu configured and is ready when it prints the
    address of its web chat. The second start on a home counts: the first one makes the database,
    once in its life. Each figure is the median of five runs.

    The first answer is that to a message on Telegram some seconds after the start, held against the
    median of the three that follow, until the process is quiet again. In these seconds the program
    loads what reads messages, and with a model API its library."""
    runs = scale.pick(_RUNS, 1)
    ready = [await _start() for _ in range(runs)]
    help_ = [_help() for _ in range(runs)]
    first = [await _first_answer("openai:gpt-4o") for _ in range(runs)]
    offline = [await _first_answer("offline") for _ in range(runs)]
    return [
        Figure("start to ready, both channels", p50(ready), "s CPU", at_most(1.6)),
        Figure("`shiftboss --help`", p50(help_), "s CPU", at_most(0.3)),
        Figure("first answer, OpenAI's API", p50(first), "× the next", at_most(1.3)),
        Figure("first answer, offline backend", p50(offline), "× the next", at_most(1.3)),
    ]


async def _start() -> float:
    with tempfile.TemporaryDirectory() as home:
        async with both_channels(Path(home)) as running:
            await running.program.stop()
            await running.program.start()
            return cpu_seconds(running.program.pid)


async def _first_answer(model: str) -> float:
    used: list[float] = []
    with tempfile.TemporaryDirectory() as home:
        async with (
            ModelEmulator() as models,
            both_channels(
                Path(home),
                SHIFTBOSS_OWNERS="telegram:1",
                SHIFTBOSS_MODEL=model,
                OPENAI_API_KEY=models.key,
                OPENAI_BASE_URL=models.openai_url,
            ) as running,
        ):
            await running.program.stop()
            await running.program.start()
            await running.feishu.wait_for_connections()
            pid, person = running.program.pid, running.telegram.user(1, "Boss")
            chat = running.telegram.private_chat(person)
            await asyncio.sleep(_LOADED_SECONDS)
            await wait_until_quiet(pid, _QUIET_SECONDS)
            for n in range(_ANSWERS):
                before, known = cpu_seconds(pid), _count_answers(chat)
                await person.says(chat, f"hello {n}")
                await wait_until(partial(_has_more, chat, known))
                await wait_until_quiet(pid, _QUIET_SECONDS)
                used.append(cpu_seconds(pid) - before)
    return used[0] / p50(used[1:])


def _count_answers(chat: TelegramChat) -> int:
    return sum(each.from_bot for each in chat.messages)


def _has_more(chat: TelegramChat, known: int) -> bool:
    return _count_answers(chat) > known


def _help() -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    shiftboss = Path(sys.executable).parent / "shiftboss"
    subprocess.run([shiftboss, "--help"], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
