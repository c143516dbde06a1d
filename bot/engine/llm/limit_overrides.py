"""Limits of a run that a persona or a step sets for itself."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bot.engine.llm.backend import RunLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitOverrides:
    """Replaces some of a run's limits; None keeps one. `tokens` are output tokens in total."""

    turns: int | None = None
    tokens: int | None = None
    seconds: float | None = None

    def __bool__(self) -> bool:
        return self != NO_OVERRIDES

    def apply(self, limits: RunLimits) -> RunLimits:
        return replace(
            limits,
            turns=limits.turns if self.turns is None else self.turns,
            output_tokens=limits.output_tokens if self.tokens is None else self.tokens,
            seconds=limits.seconds if self.seconds is None else self.seconds,
        )


NO_OVERRIDES = LimitOverrides()
