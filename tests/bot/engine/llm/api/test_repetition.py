"""Which streamed answers count as endless repetition, however they are cut into pieces."""

from __future__ import annotations

import asyncio
import random
import string
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing

import pytest

from bot.engine.llm.api.error_mapping import ModelSilent
from bot.engine.llm.api.repetition import MAX_REPEATED_TEXT, RepeatedTextGuard, watch_silence
from tests.waiting import WAIT_SECONDS

TICKS = 40
"""More than the endless stream below needs for several events."""


def ends_early(text: str, seed: int = 1) -> bool:
    chance, guard, at = random.Random(seed), RepeatedTextGuard(), 0
    while at < len(text):
        size = chance.randint(1, 80)
        if guard.feed(text[at : at + size]):
            return True
        at += size
    return False


def words(count: int, seed: int) -> str:
    chance = random.Random(seed)
    return " ".join("".join(chance.choices(string.ascii_lowercase, k=6)) for _ in range(count))


@pytest.mark.parametrize("period", [1, 2, 13, 60, 333, 500])
@pytest.mark.parametrize("seed", range(5))
def test_a_short_text_again_and_again_is_endless(period: int, seed: int) -> None:
    unit = "".join(random.Random(seed).choices(string.printable, k=period))

    assert ends_early(words(300, seed) + unit * (3 * MAX_REPEATED_TEXT // period), seed)


@pytest.mark.parametrize(
    "text",
    [
        words(20_000, 1),
        "".join(f"row {number}, 0, 0, 0\n" for number in range(5_000)),
        "a" * 3_000 + words(500, 2) + "a" * 3_000,
        (words(120, 3) + "\n") * 60,
        ("-" * 90 + "\n") * 30 + words(2_000, 4),
    ],
    ids=["prose", "a table", "runs", "long paragraphs", "lines"],
)
def test_long_answers_that_only_resemble_it_are_not(text: str) -> None:
    assert not ends_early(text)


async def test_an_answer_is_cancelled_at_whatever_moment_that_comes() -> None:
    for ticks in range(TICKS):
        closed = asyncio.Event()
        reading = asyncio.create_task(read(watch(endless_stream(closed))))
        for _ in range(ticks):
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait([reading], timeout=WAIT_SECONDS)

        assert reading.cancelled(), f"cancelled after {ticks} turns of the loop"
        assert closed.is_set() or not ticks


async def test_a_silence_is_told_once_and_ends_with_the_next_event() -> None:
    go = asyncio.Event()
    seen: list[int | None] = []
    async with aclosing(watch(waiting_stream(go.wait()), notice_after=0.01)) as events:
        async for event in events:
            seen.append(event)
            go.set()

    assert seen == [None, 1]


async def test_nothing_is_expected_of_a_model_while_a_tool_runs() -> None:
    stream = waiting_stream(asyncio.sleep(0.3))
    watched = watch(stream, notice_after=0.01, fail_after=0.02, is_busy=True)
    assert [event async for event in watched] == [1]


async def test_a_stream_that_stays_silent_has_failed() -> None:
    watched = watch(waiting_stream(asyncio.Event().wait()), notice_after=0.01, fail_after=0.02)
    with pytest.raises(ModelSilent, match=r"0\.02 seconds"):
        [event async for event in watched]


def watch(
    events: AsyncGenerator[int],
    *,
    notice_after: float = 30,
    fail_after: float = 60,
    is_busy: bool = False,
) -> AsyncGenerator[int | None]:
    return watch_silence(
        aclosing(events), notice_after=notice_after, fail_after=fail_after, is_busy=lambda: is_busy
    )


async def read(stream: AsyncGenerator[int | None]) -> None:
    async with aclosing(stream) as events:
        async for _ in events:
            pass


async def endless_stream(closed: asyncio.Event) -> AsyncGenerator[int]:
    try:
        while True:
            for _ in range(3):
                await asyncio.sleep(0)
            yield 1
    finally:
        closed.set()


async def waiting_stream(until: Awaitable[object]) -> AsyncGenerator[int]:
    await until
    yield 1
