"""Plans compaction: its limits, and which messages or summaries to summarise next. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import groupby

from storage.records.conversation_archive import ContextSummary, MessageSize, TranscriptRole

_SMALL_TAIL_SHARE = 0.2
_SMALL_PREFIX_SHARE = 0.2
"""Shares of the tail and of all summaries in a small context: what a sweep leaves is well below the
threshold, so that many turns fit before the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionLimits:
    """Limits, in tokens unless stated. `context_tokens` is the most that a model receives."""

    context_tokens: int = 100_000
    threshold_share: float = 0.75
    """Share of the context above which a session is compacted."""
    tail_messages: int = 64
    """Messages at the end that stay as they are."""
    tail_share: float = 0.5
    """Maximum share of the context for these messages."""
    prefix_share: float = 0.375
    """Maximum share of the context for all summaries together."""

    chunk_tokens: int = 20_000
    min_chunk_tokens: int = 2_000
    leaf_ratio: float = 0.35
    leaf_tokens: int = 2_400
    min_leaf_tokens: int = 192
    hard_leaf_ratio: float = 0.2
    hard_leaf_share: float = 0.55
    min_hard_leaf_tokens: int = 96
    condensed_tokens: int = 2_000
    min_condensed_tokens: int = 512
    fallback_tokens: int = 512
    overrun_factor: float = 3.0
    """A summary longer than this multiple of its target is cut."""

    leaf_fanout: int = 8
    """Number of neighbouring summaries that are condensed into one of the next depth."""
    condensed_fanout: int = 4
    pressure_fanout: int = 2
    """The same when the limits are still exceeded."""

    max_passes: int = 12
    max_duration: timedelta = timedelta(seconds=120)

    @property
    def threshold_tokens(self) -> int:
        return int(self.context_tokens * self.threshold_share)

    @property
    def tail_tokens(self) -> int:
        return int(self.context_tokens * self.tail_share)

    @property
    def prefix_tokens(self) -> int:
        """Maximum length of all summaries together."""
        return min(20_000, int(self.context_tokens * self.prefix_share))

    @property
    def smallest_chunk_tokens(self) -> int:
        """Minimum chunk worth a model call; smaller for a small context."""
        return min(self.min_chunk_tokens, self.threshold_tokens // 10)

    def for_window(self, window: int) -> CompactionLimits:
        """Limits for a model's context window (0 if unknown). Half of it is for the session; the
        rest is for the system prompt and the answer."""
        context = window // 2
        if not window or context >= self.context_tokens:
            return self
        chunk = min(self.chunk_tokens, window // 4)
        return replace(
            self,
            context_tokens=context,
            tail_share=min(self.tail_share, _SMALL_TAIL_SHARE),
            prefix_share=min(self.prefix_share, _SMALL_PREFIX_SHARE),
            chunk_tokens=chunk,
            leaf_ratio=self.leaf_ratio / 2,
            leaf_tokens=min(self.leaf_tokens, chunk // 6),
            condensed_tokens=min(self.condensed_tokens, chunk // 6),
            min_condensed_tokens=min(self.min_condensed_tokens, chunk // 8),
        )

    def leaf_target(self, source: int, *, hard: bool = False) -> int:
        if hard:
            most = int(self.hard_leaf_share * self.leaf_tokens)
            return max(self.min_hard_leaf_tokens, min(most, int(self.hard_leaf_ratio * source)))
        return max(self.min_leaf_tokens, min(self.leaf_tokens, int(self.leaf_ratio * source)))

    @property
    def condensed_target(self) -> int:
        return max(self.min_condensed_tokens, self.condensed_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLength:
    """A session's summaries and remaining messages. `reported` is the backend's own count, 0 if
    unknown or outdated."""

    items: Sequence[ContextSummary]
    messages: Sequence[MessageSize]
    reported: int = 0

    @property
    def summary_tokens(self) -> int:
        return sum(each.summary.tokens for each in self.items)

    @property
    def tokens(self) -> int:
        return self.summary_tokens + sum(each.tokens for each in self.messages)

    @property
    def effective_tokens(self) -> int:
        return max(self.tokens, self.reported)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafPass:
    """Summarise these messages."""

    messages: Sequence[MessageSize]

    @property
    def tokens(self) -> int:
        return sum(each.tokens for each in self.messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class CondensePass:
    """Condense these summaries into one of the next depth."""

    parts: Sequence[ContextSummary]

    @property
    def tokens(self) -> int:
        return sum(each.summary.tokens for each in self.parts)

    @property
    def depth(self) -> int:
        return self.parts[0].summary.depth + 1


def next_pass(length: SessionLength, limits: CompactionLimits) -> LeafPass | CondensePass | None:
    """The next pass: the oldest messages before the tail first, then summaries if they are too long
    together. None if nothing is left to do."""
    return next_leaf_pass(length.messages, limits) or _next_condense_pass(length, limits)


def next_leaf_pass(messages: Sequence[MessageSize], limits: CompactionLimits) -> LeafPass | None:
    before = messages[: tail_start(messages, limits)]
    chunk = before[: _count_fitting([each.tokens for each in before], limits.chunk_tokens)]
    end = _keep_calls_together(before, len(chunk))
    if sum(each.tokens for each in before[:end]) < limits.smallest_chunk_tokens:
        return None
    return LeafPass(messages=before[:end])


def tail_start(messages: Sequence[MessageSize], limits: CompactionLimits) -> int:
    """Index of the first message of the tail: the last messages, everything since the user's last
    message, and no tool result without its call."""
    start, held = len(messages), 0
    while start and len(messages) - start < limits.tail_messages:
        held += messages[start - 1].tokens
        if held > limits.tail_tokens and start < len(messages):
            break
        start -= 1
    spoken = [n for n, each in enumerate(messages) if TranscriptRole.USER in each.roles]
    start = min(start, spoken[-1]) if spoken else start
    while start and start < len(messages) and TranscriptRole.TOOL in messages[start].roles:
        start -= 1
    return start


def _count_fitting(sizes: Sequence[int], most: int) -> int:
    """Number of leading items that fit; at least one."""
    held = 0
    for n, size in enumerate(sizes):
        held += size
        if held > most and n:
            return n
    return len(sizes)


def _keep_calls_together(before: Sequence[MessageSize], end: int) -> int:
    """Move the end so that tool calls and results stay together: backwards, or forwards if nothing
    would remain."""

    def splits(at: int) -> bool:
        return at < len(before) and TranscriptRole.TOOL in before[at].roles

    back = end
    while back and splits(back):
        back -= 1
    if back:
        return back
    while splits(end):
        end += 1
    return end


def _next_condense_pass(state: SessionLength, limits: CompactionLimits) -> CondensePass | None:
    if state.summary_tokens <= limits.prefix_tokens:
        return None
    return _find_condense_pass(state.items, limits, pressed=False) or _find_condense_pass(
        state.items, limits, pressed=True
    )


def _find_condense_pass(
    items: Sequence[ContextSummary], limits: CompactionLimits, *, pressed: bool
) -> CondensePass | None:
    """Enough neighbours of the shallowest possible depth."""
    for depth in sorted({each.summary.depth for each in items}):
        least = (
            limits.pressure_fanout
            if pressed
            else limits.leaf_fanout
            if depth == 0
            else limits.condensed_fanout
        )
        for run in _same_depth_runs(items, depth):
            chunk = run[
                : _count_fitting([each.summary.tokens for each in run], limits.chunk_tokens)
            ]
            fold = CondensePass(parts=chunk)
            if len(chunk) >= least and fold.tokens >= limits.smallest_chunk_tokens:
                return fold
    return None


def _same_depth_runs(items: Sequence[ContextSummary], depth: int) -> list[list[ContextSummary]]:
    """Neighbouring summaries of this depth, oldest first."""
    grouped = groupby(items, key=lambda each: each.summary.depth)
    return [list(run) for found, run in grouped if found == depth]
