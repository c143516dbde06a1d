"""How long a session may become before its beginning is summarised, and how that is bounded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

_SMALL_TAIL = 0.3
"""Where little fits: so that summaries and the end together are not too long again at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """All in tokens where nothing else is said. `context` is what a model is told at most."""

    context: int = 100_000
    share: float = 0.75
    """Of the context: beyond it a session is made shorter."""
    tail: int = 64
    """Messages at the end that stay as they are."""
    tail_share: float = 0.5
    """Of the context, which those messages may not pass."""

    chunk: int = 20_000
    least_chunk: int = 2_000
    leaf_ratio: float = 0.35
    leaf: int = 2_400
    least_leaf: int = 192
    hard_leaf_ratio: float = 0.2
    hard_leaf_share: float = 0.55
    least_hard_leaf: int = 96
    condensed: int = 2_000
    least_condensed: int = 512
    fallback: int = 512
    longest: float = 3.0
    """Times its target, beyond which a summary is cut."""

    leaves: int = 8
    """Summaries of messages that make one of the next depth, and how many of those make another."""
    branches: int = 4
    pressed: int = 2
    """Either, where that alone is not enough."""

    passes: int = 12
    span: timedelta = timedelta(seconds=120)
    call_seconds: float = 60.0

    @property
    def threshold(self) -> int:
        return int(self.context * self.share)

    @property
    def tail_tokens(self) -> int:
        return int(self.context * self.tail_share)

    @property
    def prefix(self) -> int:
        """How long all summaries together may be."""
        return max(min(2_000, self.threshold // 4), min(20_000, self.threshold // 2))

    @property
    def smallest(self) -> int:
        """A chunk worth a call: with a small context, less is."""
        return min(self.least_chunk, self.threshold // 10)

    def within(self, window: int) -> Limits:
        """For a model that takes so many tokens all together; 0 where that is not known. Half of
        them are for the session: the rest is what stands beside it, and the answer."""
        context = window // 2
        if not window or context >= self.context:
            return self
        chunk = min(self.chunk, window // 4)
        return replace(
            self,
            context=context,
            tail_share=min(self.tail_share, _SMALL_TAIL),
            chunk=chunk,
            leaf=min(self.leaf, chunk // 3),
            condensed=min(self.condensed, chunk // 3),
            least_condensed=min(self.least_condensed, chunk // 4),
        )

    def leaf_target(self, source: int, *, hard: bool = False) -> int:
        if hard:
            most = int(self.hard_leaf_share * self.leaf)
            return max(self.least_hard_leaf, min(most, int(self.hard_leaf_ratio * source)))
        return max(self.least_leaf, min(self.leaf, int(self.leaf_ratio * source)))

    @property
    def condensed_target(self) -> int:
        return max(self.least_condensed, self.condensed)
