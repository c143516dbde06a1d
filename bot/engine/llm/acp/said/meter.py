"""What a CLI says that it has used: tokens, money, both or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any

from bot.engine.llm.base import Usage


class Meter:
    def __init__(self) -> None:
        self._used = Usage()
        self._before: Decimal | None = None
        self._money: Decimal | None = None
        self.context = 0

    @property
    def spent(self) -> Usage:
        if self._money is None:
            return self._used
        return replace(self._used, cost=max(self._money - (self._before or 0), Decimal(0)))

    def begin(self) -> None:
        """The session is open: what its money stands at was spent in earlier runs."""
        self._before, self._money = self._money, None

    def asked(self) -> None:
        """A prompt is on its way."""
        self._used = replace(self._used, requests=self._used.requests + 1)

    def update(self, told: Mapping[str, Any]) -> None:
        """The session's money so far and the length of its context."""
        self.context = _count(told.get("used")) or self.context
        cost = told.get("cost")
        if isinstance(cost, dict) and cost.get("currency") in {"USD", None}:
            amount = _money(cost.get("amount"))
            self._money = self._money if amount is None else amount

    def answered(self, told: object) -> None:
        """The tokens of one turn."""
        if not isinstance(told, dict):
            return
        plain, out = _count(told.get("inputTokens")), _count(told.get("outputTokens"))
        read, wrote = _count(told.get("cachedReadTokens")), _count(told.get("cachedWriteTokens"))
        # Some count what was cached among the input, as we do, and some beside it.
        beside = _count(told.get("totalTokens")) >= plain + out + read + wrote
        used = self._used
        self._used = replace(
            used,
            input_tokens=used.input_tokens + plain + (read + wrote if beside else 0),
            output_tokens=used.output_tokens + out,
            cache_read_tokens=used.cache_read_tokens + read,
            cache_write_tokens=used.cache_write_tokens + wrote,
        )


def _count(told: object) -> int:
    return told if isinstance(told, int) and not isinstance(told, bool) and told > 0 else 0


def _money(told: object) -> Decimal | None:
    if isinstance(told, bool) or not isinstance(told, int | float | str):
        return None
    try:
        amount = Decimal(str(told))
    except InvalidOperation:
        return None
    return amount if amount.is_finite() and amount >= 0 else None
