"""Compaction of a long chat: calls, tokens, our own time, and whether every message survives."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from benchmarks.figures import Figure, Measurement, Scale, at_most
from bot.engine.memory.conversation_archive.compaction_plan import CompactionLimits
from bot.engine.memory.conversation_archive.history_tools import SummaryExpansion, expand_summaries
from bot.engine.memory.conversation_archive.search import ArchiveSearch
from bot.engine.memory.token_budget import estimate_tokens, truncate_to_tokens
from storage.memory.conversation_archive import ArchiveAccess
from storage.records.people import ChatId
from storage.records.workers import ModelSession
from tests.bot.engine.memory.conversation_archive.archive_builders import (
    SMALL,
    ArchiveSetup,
    assistant_message,
    build_archive,
    user_message,
)

_MESSAGES = 5_000
_AT_ONCE = 50
_FIRST = "我们的花园叫绿禾公园，钥匙在豆豆那里"
_ENGLISH = "The east gate opens at seven, the notes say, and whoever comes later rings twice. "
_CHINESE = "东门七点开，晚来的人按两次铃，值班表写在墙上，第三页有变更。"
_TARGET = re.compile(r"most (\d+) tokens")
_EVERYTHING = SummaryExpansion(depth=99, max_tokens=1 << 50, with_messages=True)


@dataclass
class _CountingModel:
    """Writes as many tokens as it is asked for, at once, and counts calls and tokens."""

    calls: int = 0
    read: int = 0
    wrote: int = 0

    def __call__(self, prompt: str) -> str:
        size, wanted = estimate_tokens(prompt), _TARGET.search(prompt)
        body = prompt.partition("<conversation>")[2] or prompt.partition("<summaries>")[2]
        text = truncate_to_tokens(body.strip(), int(wanted[1]) if wanted else 200)
        self.calls, self.read, self.wrote = (
            self.calls + 1,
            self.read + size,
            self.wrote + estimate_tokens(text),
        )
        return text


def _rows(first: int, last: int) -> Sequence[Any]:
    rows: list[Any] = []
    for n in range(first, last, 2):
        text = (_CHINESE if n % 4 else _ENGLISH) * (1 + n % 5)
        said = _FIRST if n == 0 else f"{n}: {text}"
        rows += [user_message(said), assistant_message(f"{n + 1}: {text}")]
    return rows


async def measure(scale: Scale) -> list[Measurement]:
    """A chat of 5,000 messages, half of them Chinese, is compacted: once when all of it is there,
    and once again and again while it grows by 50 messages. The emulated model answers at once with
    as much as it is asked for, so the time is our own. Tokens are our own estimate. Afterwards all
    summaries are expanded, and every message must be there."""
    messages, batch = scale.pick((_MESSAGES, _AT_ONCE), (100, 20))
    figures: list[Measurement] = []
    for name, step in (("at once", messages), ("as it grows", batch)):
        with tempfile.TemporaryDirectory() as home:
            figures += await _measure_chat(name, messages, step, Path(home), scale)
    return figures


async def _measure_chat(
    name: str, messages: int, step: int, home: Path, scale: Scale
) -> list[Figure]:
    counted = _CountingModel()
    limits = scale.pick(CompactionLimits(), SMALL)
    async with build_archive(home, limits) as w:
        w.model.text = counted
        session = await w.session()
        largest, compacting = 0, 0.0
        for first in range(0, messages, step):
            await w.say(session, _rows(first, first + step))
            begun = time.perf_counter()
            await _settle(w)
            compacting += time.perf_counter() - begun
            largest = max(largest, await _context(w, session))
        return [
            *await _size_figures(w, session, name, largest),
            Figure(f"{name}: calls", counted.calls),
            Figure(f"{name}: tokens read", counted.read),
            Figure(f"{name}: tokens written", counted.wrote),
            Figure(f"{name}: time of our own", compacting, "s", at_most(60)),
            *await _lookup_figures(w, session, name, messages),
        ]


async def _size_figures(
    w: ArchiveSetup, session: ModelSession, name: str, largest: int
) -> list[Figure]:
    before = sum(each.tokens for each in await w.archive.list_sizes(session.id))
    items = await w.summaries.list_context(session.id)
    return [
        Figure(f"{name}: tokens before", before),
        Figure(f"{name}: tokens after", await _context(w, session)),
        Figure(f"{name}: most tokens after a compaction", largest),
        Figure(f"{name}: summaries", len(items)),
        Figure(f"{name}: deepest summary", max(item.summary.depth for item in items)),
    ]


async def _lookup_figures(
    w: ArchiveSetup, session: ModelSession, name: str, messages: int
) -> list[Figure]:
    kept = await _count_messages(w, session)
    begun = time.perf_counter()
    await w.history.build(session.id)
    building = time.perf_counter() - begun
    begun = time.perf_counter()
    is_found = await _find(w)
    finding = time.perf_counter() - begun
    lost = messages - kept + (not is_found)
    return [
        Figure(f"{name}: history built for a model", 1000 * building, "ms"),
        Figure(f"{name}: first message found by its words", 1000 * finding, "ms"),
        Figure(f"{name}: messages lost", lost, "", at_most(0)),
    ]


async def _settle(w: ArchiveSetup) -> None:
    """Compact until nothing is due any more; the clock passes over the guard's pauses."""
    await w.compactor.compact_due()
    while (due := await w.debts.next_due()) is not None:
        w.clock.advance_to(due)
        w.clock.advance(minutes=11)
        await w.compactor.compact_due()


async def _context(w: ArchiveSetup, session: ModelSession) -> int:
    items = await w.summaries.list_context(session.id)
    after = items[-1].through if items else 0
    sizes = await w.archive.list_sizes(session.id, after=after)
    return sum(item.summary.tokens for item in items) + sum(each.tokens for each in sizes)


async def _count_messages(w: ArchiveSetup, session: ModelSession) -> int:
    """The messages that come back from expanding every summary, and those not summarised."""
    items = await w.summaries.list_context(session.id)
    looking = ArchiveSearch(w.archive, w.summaries, w.indexer)
    lines, _ = await expand_summaries(
        looking, [item.summary for item in items], _EVERYTHING, ZoneInfo("UTC")
    )
    numbers = {int(line.split("#")[1].split("]")[0]) for line in lines if line[1:5] == "chat"}
    after = items[-1].through if items else 0
    return len(numbers) + len(await w.archive.list_sizes(session.id, after=after))


async def _find(w: ArchiveSetup) -> bool:
    looking = ArchiveSearch(w.archive, w.summaries, w.indexer)
    found = await looking.search_words(ArchiveAccess(chat=ChatId("c1")), ["绿禾"], 5)
    return any(each.line is not None and each.line.message == 1 for each in found)
