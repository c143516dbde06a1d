"""Counts the tokens and money of a run from what a CLI reports, and estimates what it does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from math import ceil
from typing import Any

from bot.engine.llm.backend import TokenUsage

_MOST_REQUESTS = 10_000
_MOST_TOKENS = 1_000_000_000
"""A report of more would not fit into the store."""
_MAX_DEPTH = 20
_ASCII_PER_TOKEN = 4
_TOKENS_PER_OTHER = 1.5
_MODEL_OUTPUT = ("agent_message_chunk", "agent_thought_chunk", "tool_call")


@dataclass(slots=True)
class _Turn:
    """The model requests of one prompt, as far as they can be seen; none between prompts.

    `context` is the session's length after the current request, `earlier` the sum of it over the
    requests before, and `output` what the model wrote. `results` are of tools that no request has
    sent yet. `unseen_requests` ended before the CLI told the length, `told` if it did."""

    context: int = 0
    earlier: int = 0
    output: int = 0
    results: int = 0
    requests: int = 0
    unseen_requests: int = 0
    tools_ended: bool = False
    told: int = 0
    reported: dict[str, TokenUsage] = field(default_factory=dict)

    def next_turn(self) -> _Turn:
        return _Turn(context=self.context + self.results)

    def begin_request(self) -> None:
        self.earlier += self.context
        self.context += self.results
        self.results, self.tools_ended = 0, False
        self.requests += 1
        self.unseen_requests += 1

    def correct(self, context: int) -> None:
        """Set the length of the session. Its beginning, which was not reported, was part of each
        request."""
        self.earlier += max(0, context - self.context) * self.unseen_requests
        self.context = self.told = context
        self.unseen_requests = 0

    def usage(self, report: TokenUsage | None = None) -> TokenUsage:
        """`report` is what the CLI says of the turn: of all its requests, or of the last only."""
        if report is None and self.reported:
            return sum(self.reported.values(), TokenUsage())
        total = self.earlier + self.context
        if report is None and not self.requests:
            return TokenUsage()
        if report is None:
            read = max(0, total - self.output)
            return TokenUsage(
                input_tokens=read,
                output_tokens=self.output,
                estimated_input=read,
                estimated_output=self.output,
            )
        # All requests together read more than the last one alone.
        if self.requests <= 1 or report.input_tokens > self.told:
            return report
        missing = max(0, total - report.input_tokens - report.output_tokens)
        return report + TokenUsage(input_tokens=missing, estimated_input=missing)


class AcpUsageMeter:
    """Tokens that the CLI reports for neither requests nor turns are estimated from the texts that
    were sent and received; its own instructions and tools are invisible."""

    def __init__(self) -> None:
        self._ended = TokenUsage()
        self._turn = _Turn()
        self._cost_before: Decimal | None = None
        self._cost: Decimal | None = None
        self.context_tokens = 0

    @property
    def usage(self) -> TokenUsage:
        used = self._ended + self._turn.usage()
        if self._cost is None:
            return used
        return replace(used, cost=max(self._cost - (self._cost_before or 0), Decimal(0)))

    def start_run(self) -> None:
        """Count cost from here; the amount so far belongs to earlier runs."""
        self._cost_before, self._cost = self._cost, None
        self._turn = self._turn.next_turn()

    def count_prompt(self, text: str) -> None:
        self._end_turn(None)
        self._turn.context += _estimate(text)
        self._turn.requests = 1
        self._ended += TokenUsage(requests=1)

    def record_content(self, update: Mapping[str, Any]) -> None:
        """Record what the model wrote or a tool returned during a turn."""
        turn, kind = self._turn, update.get("sessionUpdate")
        if kind in _MODEL_OUTPUT:
            if turn.tools_ended:
                turn.begin_request()
            wrote = _estimate(update.get("rawInput" if kind == "tool_call" else "content"))
            turn.output += wrote
            turn.context += wrote
        # A tuple: what comes may not be hashable.
        if update.get("status") in ("completed", "failed"):
            shown, raw = _estimate(update.get("content")), _estimate(update.get("rawOutput"))
            turn.results += max(shown, raw)  # most CLIs send the same result in both
            turn.tools_ended = True

    def record_update(self, update: Mapping[str, Any]) -> None:
        """Record the session's cost, context length and, if present, the tokens of one model
        request.

        CLIs may report the same request several times."""
        if used := _count(update.get("used")):
            self.context_tokens = used
            self._turn.correct(used)
        cost = update.get("cost")
        if isinstance(cost, dict) and cost.get("currency") in {"USD", None}:
            amount = _money(cost.get("amount"))
            self._cost = self._cost if amount is None else amount
        self._record_request(update.get("_meta"))

    def record_turn(self, usage: object) -> None:
        """End the turn; `usage` is the CLI's report, if it gives one."""
        self._end_turn(_turn_report(usage) if isinstance(usage, dict) else None)

    def _end_turn(self, report: TokenUsage | None) -> None:
        self._ended += self._turn.usage(report)
        self._turn = self._turn.next_turn()

    def _record_request(self, meta: object) -> None:
        usage = meta.get("usage") if isinstance(meta, dict) else None
        if not isinstance(meta, dict) or not isinstance(usage, dict):
            return
        number = next((str(meta[key]) for key in meta if str(key).endswith("messageId")), "")
        details = usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, dict) else 0
        plain, out = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
        if number and plain and len(self._turn.reported) < _MOST_REQUESTS:
            self._turn.reported[number] = TokenUsage(
                input_tokens=plain, output_tokens=out, cache_read_tokens=min(plain, _count(cached))
            )


def _turn_report(usage: Mapping[str, Any]) -> TokenUsage | None:
    plain, out = _count(usage.get("inputTokens")), _count(usage.get("outputTokens"))
    read, wrote = _count(usage.get("cachedReadTokens")), _count(usage.get("cachedWriteTokens"))
    if not plain + out + read + wrote:
        return None
    # Some CLIs include cached tokens in the input, as we do; others add them.
    beside = _count(usage.get("totalTokens")) >= plain + out + read + wrote
    return TokenUsage(
        input_tokens=plain + (read + wrote if beside else 0),
        output_tokens=out,
        cache_read_tokens=read,
        cache_write_tokens=wrote,
    )


def _estimate(data: object, depth: int = 0) -> int:
    """Tokens of the texts in some JSON."""
    if isinstance(data, str):
        plain = len(data) if data.isascii() else len(data.encode("ascii", "ignore"))
        return ceil(plain / _ASCII_PER_TOKEN + (len(data) - plain) * _TOKENS_PER_OTHER)
    if isinstance(data, dict):
        data = [each for name, each in data.items() if name not in {"data", "type"}]
    if not isinstance(data, list) or depth >= _MAX_DEPTH:
        return 0
    return sum(_estimate(each, depth + 1) for each in data)


def _count(data: object) -> int:
    if isinstance(data, bool) or not isinstance(data, int) or data <= 0:
        return 0
    return min(data, _MOST_TOKENS)


def _money(data: object) -> Decimal | None:
    if isinstance(data, bool) or not isinstance(data, int | float | str):
        return None
    try:
        amount = Decimal(str(data))
    except InvalidOperation:
        return None
    return amount if amount.is_finite() and amount >= 0 else None
