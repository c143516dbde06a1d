"""What a CLI says that it has used: tokens, money, both or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any

from bot.engine.llm.base import Usage

_MOST_REQUESTS = 10_000


class Meter:
    def __init__(self) -> None:
        self._used = Usage()
        self._before: Decimal | None = None
        self._money: Decimal | None = None
        self._requests: dict[str, tuple[int, int, int]] = {}
        self.context = 0

    @property
    def spent(self) -> Usage:
        used = self._by_request() if self._requests and not self._used.input_tokens else self._used
        if self._money is None:
            return used
        return replace(used, cost=max(self._money - (self._before or 0), Decimal(0)))

    def begin(self) -> None:
        """The session is open: what its money stands at was spent in earlier runs."""
        self._before, self._money = self._money, None
        self._requests.clear()

    def asked(self) -> None:
        """A prompt is on its way."""
        self._used = replace(self._used, requests=self._used.requests + 1)

    def update(self, told: Mapping[str, Any]) -> None:
        """The session's money so far, the length of its context, and with some what one request
        to their model took: told several times for the same."""
        self.context = _count(told.get("used")) or self.context
        cost = told.get("cost")
        if isinstance(cost, dict) and cost.get("currency") in {"USD", None}:
            amount = _money(cost.get("amount"))
            self._money = self._money if amount is None else amount
        self._of_request(told.get("_meta"))

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

    def _of_request(self, meta: object) -> None:
        usage = meta.get("usage") if isinstance(meta, dict) else None
        if not isinstance(meta, dict) or not isinstance(usage, dict):
            return
        number = next((str(meta[key]) for key in meta if str(key).endswith("messageId")), "")
        details = usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, dict) else 0
        plain, out = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
        if number and plain and len(self._requests) < _MOST_REQUESTS:
            self._requests[number] = (plain, out, min(plain, _count(cached)))

    def _by_request(self) -> Usage:
        plain, out, cached = map(sum, zip(*self._requests.values(), strict=True))
        return replace(self._used, input_tokens=plain, output_tokens=out, cache_read_tokens=cached)


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
