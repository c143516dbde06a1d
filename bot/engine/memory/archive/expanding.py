"""The way down from summaries to what they were made of, as far as a number of tokens goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from zoneinfo import ZoneInfo

from bot.engine.memory.archive.looking import Looking
from bot.engine.memory.archive.tokens import tokens
from storage.records.memory.archive import Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class Expansion:
    """`depth` is how many levels down; `messages` says that leaves show theirs."""

    depth: int
    tokens: int
    messages: bool = False


async def expanded(
    looking: Looking, summaries: Sequence[Summary], expansion: Expansion, zone: ZoneInfo
) -> tuple[list[str], bool]:
    """Lines, depth first, nothing twice; False where something was left out."""
    way = _Way(looking, expansion, zone, expansion.tokens)
    for summary in summaries:
        if not await way.down(summary, expansion.depth):
            return way.lines, False
    return way.lines, True


@dataclass
class _Way:
    looking: Looking
    expansion: Expansion
    zone: ZoneInfo
    room: int
    lines: list[str] = field(default_factory=list)
    shown: set[str] = field(default_factory=set)
    gone_down: set[str] = field(default_factory=set)

    async def down(self, summary: Summary, left: int) -> bool:
        """False where no more fits: then everything stops."""
        if summary.id in self.gone_down:
            return True
        if left or not summary.depth:
            self.gone_down.add(summary.id)
        if not summary.depth:
            return await self._leaf(summary, alone=left == self.expansion.depth)
        for part in await self.looking.parts(summary) if left else ():
            if not self._show(part) or not await self.down(part, left - 1):
                return False
        return True

    def _show(self, summary: Summary) -> bool:
        if summary.id in self.shown:
            return True
        self.shown.add(summary.id)
        return self._add(_named(summary))

    async def _leaf(self, summary: Summary, *, alone: bool) -> bool:
        if not self.expansion.messages:
            return not alone or self._show(summary)
        for part in await self.looking.messages(summary):
            at = f"{part.at.astimezone(self.zone):%Y-%m-%d %H:%M}"
            line = f"[{summary.session_id}#{part.message}] ({part.role}, {at}): {part.text}"
            if part.text and not self._add(line):
                return False
        return True

    def _add(self, line: str) -> bool:
        self.room -= tokens(line)
        if self.room < 0:
            return False
        self.lines.append(line)
        return True


def _named(summary: Summary) -> str:
    return f"[{summary.id} depth {summary.depth}] {summary.content}"
