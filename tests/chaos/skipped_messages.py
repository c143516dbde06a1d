"""A message that died in six lives is put aside with an apology: when that is the answer that was
promised, and what the Boss does then."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from bot.transports.inbox_worker import MAX_ATTEMPTS
from tests.chaos.channels import ChannelClient
from tests.chaos.inspection import read_points, rows

_LOOK_EVERY = 0.1
# A file and the message that came with it have one fate: that of the message.
_FAILED = (
    "SELECT id, error, CASE WHEN outcome LIKE 'joined %' THEN CAST(substr(outcome, 8) AS INTEGER)"
    " ELSE id END FROM inbox WHERE state = 'failed'"
)


def count_deaths(points: Sequence[str], number: int) -> int:
    """In how many lives that arrival was under way as they ended."""
    arrives, settled = f"moved inbox.>new {number}", ("inbox.new>handled", "inbox.new>failed")
    deaths = 0
    for life, _ in pairwise(_lives(points)):
        begun = [n for n, line in enumerate(life) if line in {arrives, f"begins {number}"}]
        if not begun:
            continue
        since = life[begun[-1] :]
        if f"begins {number}" == since[0] and "died inbox.count_attempt:before" in since[-1]:
            # That it was begun is not in the store.
            continue
        deaths += not any(line == f"moved {end} {number}" for line in since for end in settled)
    return deaths


def rightly_skipped(home: Path, points: Sequence[str]) -> Collection[int]:
    """The messages that were rightly given up: they died as often as one may, and the apology is
    there."""
    there = {key for (key,) in rows(home, "SELECT key FROM outbox")}
    return {
        number
        for number, error, leader in rows(home, _FAILED)
        # It may die once more as it is put aside: then one more is told of.
        if error
        in {f"failed {n} times" for n in range(MAX_ATTEMPTS, count_deaths(points, leader) + 1)}
        and f"reply:{leader}" in there
    }


def wrongly_skipped(home: Path, points: Sequence[str]) -> list[str]:
    """Messages that were skipped wrongly or without an apology."""
    failed = rows(home, _FAILED)
    rightly = rightly_skipped(home, points) if failed else ()
    return [
        f"inbox {number} is put aside after {count_deaths(points, leader)} deaths: {error}"
        for number, error, leader in failed
        if number not in rightly
    ]


async def resend_skipped(front: ChannelClient, home: Path) -> None:
    """The Boss does as the apology says, where the message has led to nothing."""
    told: set[int] = set()
    # An entry may be gone by the time its message is put aside: the story goes on once it is there.
    written: set[str] = set()
    while True:
        written |= {source for (source,) in rows(home, _WRITTEN_BY_HAND)}
        for number, text in skipped_without_effect(home, told, written):
            told.add(number)
            await front.send_message(text)
        await asyncio.sleep(_LOOK_EVERY)


_WRITTEN_BY_HAND = "SELECT source FROM memories WHERE source LIKE 'hand:%'"


def skipped_without_effect(
    home: Path, told: Collection[int], written: Collection[str]
) -> Iterator[tuple[int, str]]:
    """The numbers and texts of messages that were put aside before they led to a task or to an
    entry with one of the sources `written`."""
    failed = rows(home, "SELECT id, incoming, chat_id FROM inbox WHERE state = 'failed'")
    if all(number in told for number, *_ in failed):
        return
    rightly = rightly_skipped(home, read_points(home))
    for number, incoming, chat in failed:
        message = json.loads(incoming) if isinstance(incoming, str) else incoming
        if number in told or number not in rightly or message["kind"] != "message":
            continue
        source = f"message:{chat}:{message['message_id']}"
        if f"hand:inbox:{number}" in written:
            continue
        # A file that belonged to the message is in the store already.
        if message["text"] and not rows(home, "SELECT 1 FROM tasks WHERE source = ?", source):
            yield number, message["text"]


def _lives(points: Sequence[str]) -> Iterator[list[str]]:
    life: list[str] = []
    for line in points:
        if line == "a life" and life:
            yield life
            life = []
        life.append(line)
    yield life
