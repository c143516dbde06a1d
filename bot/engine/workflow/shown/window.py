"""Which lines of a long plan a card has room for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from storage.records.tasks import NodeStatus, Step

MOST_LINES = 22

_UNDER_WAY = {NodeStatus.RUNNING, NodeStatus.WAITING, NodeStatus.FAILED}


@dataclass(frozen=True, slots=True)
class Window:
    """`before` and `behind` count what is left out, each line with all that it stands for."""

    lines: tuple[Step, ...]
    before: int = 0
    behind: int = 0


def window(lines: Sequence[Step], most: int = MOST_LINES) -> Window:
    """What goes on now with all that is around it, then what is nearest to that: rather what comes
    than what was."""
    if len(lines) <= most:
        return Window(tuple(lines))
    now = _now(lines)
    kept: set[int] = set()
    for n in now:
        wanted = {n, *_around(lines, n)}
        if len(kept | wanted) <= most:
            kept |= wanted
    kept |= _nearest(len(lines), now, kept, most - len(kept))
    first = min(kept)
    return Window(
        tuple(line for n, line in enumerate(lines) if n in kept),
        before=sum(1 + line.folded for line in lines[:first]),
        behind=sum(1 + line.folded for n, line in enumerate(lines) if n > first and n not in kept),
    )


def _now(lines: Sequence[Step]) -> list[int]:
    """Where it is: else at the first line that nothing was done of, else at the end."""
    going = [n for n, line in enumerate(lines) if line.asked or line.status in _UNDER_WAY]
    if going:
        return going
    left = (n for n, line in enumerate(lines) if line.status is NodeStatus.PENDING)
    return [next(left, len(lines) - 1)]


def _around(lines: Sequence[Step], n: int) -> list[int]:
    """The lines that it stands under."""
    found: list[int] = []
    depth = lines[n].depth
    while n and depth:
        n -= 1
        if lines[n].depth < depth:
            depth = lines[n].depth
            found.append(n)
    return found


def _nearest(size: int, now: Sequence[int], kept: set[int], most: int) -> set[int]:
    """Three lines of what comes for one of what was."""
    far: dict[int, float] = {}
    for n in now:
        for other in range(max(0, n - most), min(size, n + 3 * most + 1)):
            distance = (other - n) / 3 if other > n else float(n - other)
            far[other] = min(distance, far.get(other, distance))
    free = sorted((each for each in far if each not in kept), key=far.__getitem__)
    return set(free[:most])
