"""What a change changes, as people and models read it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import chain

LONGEST = 8_000
_MOST_LINES = 4_000
_NOTE = "[{} more lines are not shown]"


def unified(path: str, old: str, new: str) -> str:
    """A unified diff, cut with a note; empty where nothing changes."""
    before, after = old.split("\n"), new.split("\n")
    if before == after:
        return ""
    heads = (f"--- {path}", f"+++ {path}")
    if len(before) + len(after) > _MOST_LINES:
        # Comparing takes time by the square: what differs in one piece is said as one piece.
        return _cut(chain(heads, _whole(before, after)))
    lines = difflib.unified_diff(before, after, *heads, lineterm="")
    return _cut(chain(heads, list(lines)[2:]))


def _whole(before: list[str], after: list[str]) -> Iterable[str]:
    head, shortest = 0, min(len(before), len(after))
    while head < shortest and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < shortest - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    gone, come = before[head : len(before) - tail], after[head : len(after) - tail]
    yield f"@@ -{head + 1},{len(gone)} +{head + 1},{len(come)} @@"
    yield from (f"-{line}" for line in gone)
    yield from (f"+{line}" for line in come)


def _cut(lines: Iterable[str]) -> str:
    shown: list[str] = []
    room, left = LONGEST, 0
    for line in lines:
        text = line if len(line) <= room or shown else f"{line[:room]}…"
        if left or len(text) > room:
            left += 1
            continue
        shown.append(text)
        room -= len(text) + 1
    return "\n".join([*shown, _NOTE.format(left)] if left else shown)
