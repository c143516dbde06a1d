"""A chat of 5,000 messages made shorter: passes, seconds, tokens in and out, and nothing lost.

The emulated model writes as much as it is asked for, and at once: the time is all ours.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from benchmarks.figures import held
from bot.engine.memory.archive.expanding import Expansion, expanded
from bot.engine.memory.archive.limits import Limits
from bot.engine.memory.archive.looking import Looking
from bot.engine.memory.archive.tokens import shortened, tokens
from storage.memory.archive.hearing import Hearing
from storage.records.people import ChatId
from storage.sessions import Session
from tests.bot.engine.memory.archive.world import World, answered, asked, world

_MESSAGES = 5_000
_AT_ONCE = 50
_FIRST = "我们的花园叫绿禾公园，钥匙在豆豆那里"
_ENGLISH = "The east gate opens at seven, the notes say, and whoever comes later rings twice. "
_CHINESE = "东门七点开，晚来的人按两次铃，值班表写在墙上，第三页有变更。"
_TARGET = re.compile(r"most (\d+) tokens")
_MOST_SECONDS = 60.0
_EVERYTHING = Expansion(depth=99, tokens=1 << 50, messages=True)


@dataclass
class _Counted:
    """What the model read and wrote."""

    calls: int = 0
    read: int = 0
    wrote: int = 0

    def __call__(self, prompt: str) -> str:
        size, wanted = tokens(prompt), _TARGET.search(prompt)
        body = prompt.partition("<conversation>")[2] or prompt.partition("<summaries>")[2]
        text = shortened(body.strip(), int(wanted[1]) if wanted else 200)
        self.calls, self.read, self.wrote = (
            self.calls + 1,
            self.read + size,
            self.wrote + tokens(text),
        )
        return text


def _rows(first: int, last: int) -> Sequence[Any]:
    rows: list[Any] = []
    for n in range(first, last, 2):
        text = (_CHINESE if n % 4 else _ENGLISH) * (1 + n % 5)
        said = _FIRST if n == 0 else f"{n}: {text}"
        rows += [asked(said), answered(f"{n + 1}: {text}")]
    return rows


async def measure() -> list[str]:
    lines = []
    for name, step in (("found at once", _MESSAGES), ("as it grows", _AT_ONCE)):
        with tempfile.TemporaryDirectory() as home:
            lines += await _measured(name, step, Path(home))
    return lines


async def _measured(name: str, step: int, home: Path) -> list[str]:
    counted = _Counted()
    async with world(home, Limits()) as w:
        w.writer.text = counted
        session = await w.session()
        largest, compacting = 0, 0.0
        for first in range(0, _MESSAGES, step):
            await w.say(session, _rows(first, first + step))
            begun = time.perf_counter()
            await _settle(w)
            compacting += time.perf_counter() - begun
            largest = max(largest, await _context(w, session))
        before = sum(each.tokens for each in await w.said.sizes(session.id))
        kept = await _whole(w, session)
        begun = time.perf_counter()
        await w.history.told(session.id)
        telling = time.perf_counter() - begun
        begun = time.perf_counter()
        found = await _find(w)
        finding = time.perf_counter() - begun
        items = await w.summaries.items(session.id)
        after = await _context(w, session)
    depths = [item.summary.depth for item in items]
    return [
        f"{name}: {_MESSAGES:,} messages, {before:,} tokens → {after:,}",
        f"  {len(items)} summaries, the deepest {max(depths)}; at most {largest:,} after a look",
        f"  {counted.calls} calls, {counted.read:,} tokens read, {counted.wrote:,} written",
        f"  told in {telling * 1000:.0f} ms; the first message found in {finding * 1000:.0f} ms",
        held("messages lost", float(_MESSAGES - kept) + (not found), "", 0.0),
        held("time of ours", compacting, "s", _MOST_SECONDS),
    ]


async def _settle(w: World) -> None:
    """Until nothing is due any more, however long the guard pauses."""
    await w.compactor.look()
    while (due := await w.debts.next_due()) is not None:
        w.clock.pass_until(due)
        w.clock.pass_by(minutes=11)
        await w.compactor.look()


async def _context(w: World, session: Session) -> int:
    items = await w.summaries.items(session.id)
    after = items[-1].through if items else 0
    sizes = await w.said.sizes(session.id, after=after)
    return sum(item.summary.tokens for item in items) + sum(each.tokens for each in sizes)


async def _whole(w: World, session: Session) -> int:
    """How many messages come back when everything is expanded, and the rest told."""
    items = await w.summaries.items(session.id)
    looking = Looking(w.said, w.summaries, w.reading)
    lines, _ = await expanded(
        looking, [item.summary for item in items], _EVERYTHING, ZoneInfo("UTC")
    )
    numbers = {int(line.split("#")[1].split("]")[0]) for line in lines if line[1:5] == "chat"}
    after = items[-1].through if items else 0
    return len(numbers) + len(await w.said.sizes(session.id, after=after))


async def _find(w: World) -> bool:
    looking = Looking(w.said, w.summaries, w.reading)
    found = await looking.words(Hearing(chat=ChatId("c1")), ["绿禾"], 5)
    return any(each.line is not None and each.line.message == 1 for each in found)
