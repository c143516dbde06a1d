"""Which messages or summaries are to be summarised next. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from bot.engine.memory.archive.limits import Limits
from storage.records.memory.archive import Item, Size, Speaker


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A session as a model sees it: summaries, then messages as they are. `reported` is how long
    its backend says that it is, 0 where that is not known or no longer true."""

    items: Sequence[Item]
    messages: Sequence[Size]
    reported: int = 0

    @property
    def summary_tokens(self) -> int:
        return sum(each.summary.tokens for each in self.items)

    @property
    def tokens(self) -> int:
        return self.summary_tokens + sum(each.tokens for each in self.messages)

    @property
    def current(self) -> int:
        return max(self.tokens, self.reported)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """These messages are to be one summary."""

    messages: Sequence[Size]

    @property
    def tokens(self) -> int:
        return sum(each.tokens for each in self.messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """These summaries are to be one of the next depth."""

    parts: Sequence[Item]

    @property
    def tokens(self) -> int:
        return sum(each.summary.tokens for each in self.parts)

    @property
    def depth(self) -> int:
        return self.parts[0].summary.depth + 1


def next_pass(state: State, limits: Limits) -> Leaf | Fold | None:
    """The oldest messages before the tail as long as there are any; then summaries, where those
    are too long all together; None where nothing is left to do."""
    return next_leaf(state.messages, limits) or _next_fold(state, limits)


def next_leaf(messages: Sequence[Size], limits: Limits) -> Leaf | None:
    before = messages[: tail_start(messages, limits)]
    chunk = before[: _fitting([each.tokens for each in before], limits.chunk)]
    end = _pair_end(before, len(chunk))
    if sum(each.tokens for each in before[:end]) < limits.smallest:
        return None
    return Leaf(messages=before[:end])


def tail_start(messages: Sequence[Size], limits: Limits) -> int:
    """Where those begin that stay as they are: the last ones, all since somebody spoke last, and
    no result of a tool without its call."""
    start, held = len(messages), 0
    while start and len(messages) - start < limits.tail:
        held += messages[start - 1].tokens
        if held > limits.tail_tokens and start < len(messages):
            break
        start -= 1
    spoken = [n for n, each in enumerate(messages) if Speaker.USER in each.roles]
    start = min(start, spoken[-1]) if spoken else start
    while start and start < len(messages) and Speaker.TOOL in messages[start].roles:
        start -= 1
    return start


def _fitting(sizes: Sequence[int], most: int) -> int:
    """How many of the first are not longer than that together; one at least."""
    held = 0
    for n, size in enumerate(sizes):
        held += size
        if held > most and n:
            return n
    return len(sizes)


def _pair_end(before: Sequence[Size], end: int) -> int:
    """The end moved so that calls and their results stay together: back, or on where nothing
    would be left."""

    def splits(at: int) -> bool:
        return at < len(before) and Speaker.TOOL in before[at].roles

    back = end
    while back and splits(back):
        back -= 1
    if back:
        return back
    while splits(end):
        end += 1
    return end


def _next_fold(state: State, limits: Limits) -> Fold | None:
    if state.summary_tokens <= limits.prefix:
        return None
    return _fold_of(state.items, limits, pressed=False) or _fold_of(
        state.items, limits, pressed=True
    )


def _fold_of(items: Sequence[Item], limits: Limits, *, pressed: bool) -> Fold | None:
    """Of the shallowest depth that has enough neighbours."""
    for depth in sorted({each.summary.depth for each in items}):
        least = limits.pressed if pressed else limits.leaves if depth == 0 else limits.branches
        for run in _runs(items, depth):
            chunk = run[: _fitting([each.summary.tokens for each in run], limits.chunk)]
            fold = Fold(parts=chunk)
            if len(chunk) >= least and fold.tokens >= limits.smallest:
                return fold
    return None


def _runs(items: Sequence[Item], depth: int) -> list[list[Item]]:
    """Neighbours of that depth, the oldest first."""
    grouped = groupby(items, key=lambda each: each.summary.depth)
    return [list(run) for found, run in grouped if found == depth]
