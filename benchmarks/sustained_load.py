"""Many chats on three channels for minutes, beside running tasks: what is lost, how long commands
wait for their answers, and how the process grows."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.figures import Figure, Measurement, Scale, at_most
from benchmarks.measurements import p50, p95, resident_mib
from benchmarks.running_program import BenchmarkProgram, both_channels
from tests.chaos.invariants import unanswered_messages
from tests.emulators.telegram.chats import TelegramChat, TelegramMessage
from tests.journeys.web_page import WebPageClient, open_web_page
from tests.waiting import WAIT_SECONDS

_CHATS = 200
_SECONDS = 600
_PER_SECOND = 30
_TASKS = 100
_ALONE = 20

Ask = Callable[[str, str], Awaitable[None]]
"""Says the first text in a chat, and waits for a message of the bot with the second."""


@dataclass
class _Tally:
    delays: list[float] = field(default_factory=list)
    unanswered: int = 0
    sent: int = 0


async def measure(scale: Scale) -> list[Measurement]:
    """200 chats (120 on Telegram, 79 on Feishu, the web chat) together send 30 commands a second
    for ten minutes, while a hundred tasks run; the program keeps its own limits for each
    platform. A command is answered when its own message from the bot is in its chat. The process
    is measured once all chats have spoken and at the end. Tasks before it, alone, show what one
    leaves in the database."""
    chats, seconds = scale.pick(_CHATS, 6), scale.pick(_SECONDS, 2)
    rate, tasks, alone = scale.pick(_PER_SECOND, 5), scale.pick(_TASKS, 1), scale.pick(_ALONE, 1)
    telegrams = chats * 3 // 5
    tally = _Tally()
    with tempfile.TemporaryDirectory() as home:
        async with both_channels(
            Path(home),
            SHIFTBOSS_OWNERS=",".join(f"telegram:{n}" for n in range(1, telegrams + 1)),
            SHIFTBOSS_LANGUAGE="en",
            FEISHU_MONTHLY_QUOTA="0",
        ) as running:
            asks = [
                *(_telegram_chat(running, n) for n in range(1, telegrams + 1)),
                *[await _feishu_chat(running, n) for n in range(chats - telegrams - 1)],
            ]
            empty = _database_bytes(Path(home))
            await _run_tasks(running, alone)
            task_bytes = (_database_bytes(Path(home)) - empty) / alone
            # Only now: a page that nobody reads while the members are let in loses its connection.
            async with open_web_page(running.program) as page:
                asks.append(_web_chat(page))
                work = asyncio.create_task(_run_tasks(running, tasks, first=alone))
                await _load(asks, tally, rate=rate, seconds=seconds // 5)
                before = resident_mib(running.program.pid)
                await _load(asks, tally, rate=rate, seconds=seconds - seconds // 5)
                await work
                grown = resident_mib(running.program.pid)
        broken, completed = _store_figures(Path(home))
    return [
        Figure("commands sent", tally.sent),
        Figure("commands without an answer", tally.unanswered, "", at_most(0)),
        Figure("stored messages whose end is not as recorded", broken, "", at_most(0)),
        Figure("tasks not completed", alone + tasks - completed, "", at_most(0)),
        Figure("database, a completed task", task_bytes / 1_000, "kB", at_most(60)),
        Figure("command to answer, p50", p50(tally.delays), "s"),
        Figure("command to answer, p95", p95(tally.delays), "s", at_most(1)),
        Figure("resident memory after the first fifth", before, "MiB"),
        Figure("growth until the end", 100 * (grown / before - 1), "%", at_most(10)),
    ]


async def _load(asks: list[Ask], tally: _Tally, *, rate: int, seconds: int) -> None:
    """Send at an even pace, whether or not earlier ones are answered."""
    waiting: list[asyncio.Task[None]] = []
    begun = time.monotonic()
    for number in range(rate * max(1, seconds)):
        await asyncio.sleep(max(0.0, begun + number / rate - time.monotonic()))
        tally.sent += 1
        ask = asks[tally.sent % len(asks)]
        waiting.append(asyncio.create_task(_ask(ask, tally, f"q{tally.sent}z")))
    await asyncio.gather(*waiting)


async def _ask(ask: Ask, tally: _Tally, word: str) -> None:
    begun = time.monotonic()
    try:
        await ask(f"/get {word}", word)
    except (TimeoutError, AssertionError):
        tally.unanswered += 1
    else:
        tally.delays.append(time.monotonic() - begun)


def _telegram_chat(running: BenchmarkProgram, n: int) -> Ask:
    person = running.telegram.user(n, f"Boss {n}")
    chat = running.telegram.private_chat(person)

    async def ask(text: str, expected: str) -> None:
        await person.says(chat, text)
        await chat.wait_for(
            lambda message: message.from_bot and expected in message.text, timeout=WAIT_SECONDS
        )

    return ask


async def _feishu_chat(running: BenchmarkProgram, n: int) -> Ask:
    """A member of the team, let in by the command line as a person of the machine does."""
    person = running.feishu.user(f"Member {n}")
    chat = running.feishu.private_chat(person)
    await person.says(chat, "hello")
    code = (await chat.wait_for(lambda message: "airing code" in message.text)).text
    word = next(each for each in code.split() if each.isupper() and len(each) >= 6)
    status, printed = await running.program.run_to_end("pair", word)
    assert status == 0, printed

    async def ask(text: str, expected: str) -> None:
        await person.says(chat, text)
        await chat.wait_for(lambda message: expected in message.text, timeout=WAIT_SECONDS)

    return ask


def _web_chat(page: WebPageClient) -> Ask:
    lock = asyncio.Lock()

    async def ask(text: str, expected: str) -> None:
        # One page reads its frames in order.
        async with lock:
            await page.send_message(text)
            await page.next_frame("", expected, timeout=WAIT_SECONDS)

    return ask


async def _run_tasks(running: BenchmarkProgram, tasks: int, *, first: int = 0) -> None:
    """Tasks of one person, one after another."""
    person = running.telegram.user(1, "Boss 1")
    chat = running.telegram.private_chat(person)
    for number in range(first, first + tasks):
        text = f'/run wait 1 second, then write "done" to file{number}.txt'
        await person.says(chat, text)
        with suppress(TimeoutError, AssertionError):
            await _wait_for_file(chat, f"file{number}.txt")


async def _wait_for_file(chat: TelegramChat, name: str) -> None:
    def came(message: TelegramMessage) -> bool:
        return message.upload is not None and message.upload.name == name

    await chat.wait_for(came, timeout=WAIT_SECONDS)


def _database_bytes(home: Path) -> int:
    """In use, pages of the write-ahead log included."""
    with closing(sqlite3.connect(home / "shiftboss.db")) as store:
        facts = ("page_count", "freelist_count", "page_size")
        pages, free, size = (store.execute(f"PRAGMA {each}").fetchone()[0] for each in facts)
    return int((pages - free) * size)


def _store_figures(home: Path) -> tuple[int, int]:
    """How many events did not end as recorded, and the completed tasks."""
    with closing(sqlite3.connect(home / "shiftboss.db")) as store:
        broken = [*unanswered_messages(lambda sql: store.execute(sql).fetchall())]
        query = "SELECT count(*) FROM tasks WHERE status = 'completed'"
        return len(broken), int(store.execute(query).fetchone()[0])
