"""Stops models that fall silent or repeat themselves: the same tool call, or the same words without
end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

from bot.engine.llm import stored_messages
from bot.engine.llm.api.error_mapping import ModelSilent
from bot.engine.llm.backend import RunLimitReached
from bot.engine.llm.stored_messages import MessageRow
from bot.engine.llm.tool_calls import ERROR_PREFIX, call_fingerprint

MAX_REPEATED_TEXT = 4_000
"""Characters of a streamed answer that may be one short text again and again."""
_MAX_PERIOD = 500
_LOOK_EVERY = 500
_ANCHOR = 40
MAX_REPEATS = 2
"""How often the same calls with the same arguments and results are made one after the other."""
_MAX_CIRCLE = 4
REFUSAL = (
    f"{ERROR_PREFIX}not made: this very call has brought the same result {MAX_REPEATS} times and"
    " would bring it again. Do something else, or end with what you have."
)
REFUSAL_OF_SUCCESS = (
    f"Not made again: this very call has succeeded {MAX_REPEATS} times. Its work is done: report"
    " that, or do what is still missing."
)
"""Small models take a refusal for a failure of their task."""
_T = TypeVar("_T")


class RepeatedCalls(RunLimitReached):
    """The model repeated a call although it was told that it repeats itself."""

    hint = "backend.repeats"


class RepeatedTextGuard:
    """Watches a streamed answer: small models may repeat one sentence up to their limit."""

    def __init__(self) -> None:
        self._tail = ""
        self._unchecked = 0

    def feed(self, piece: str) -> bool:
        """Return whether the answer ends in `MAX_REPEATED_TEXT` characters that repeat a text of
        at most 500."""
        self._tail = (self._tail + piece)[-MAX_REPEATED_TEXT - _MAX_PERIOD :]
        self._unchecked += len(piece)
        if self._unchecked < _LOOK_EVERY:
            return False
        self._unchecked = 0
        window = self._tail[-MAX_REPEATED_TEXT:]
        if len(window) < MAX_REPEATED_TEXT:
            return False
        before = window.rfind(window[-_ANCHOR:], 0, -1)
        period = len(window) - _ANCHOR - before
        return before >= 0 and period <= _MAX_PERIOD and window[period:] == window[:-period]


@dataclass(frozen=True, slots=True)
class RepeatableCall:
    """`fingerprint` is a hash of `tool` and arguments."""

    tool: str
    fingerprint: str


class RepeatedCallGuard:
    """Finds calls that go round in a circle: one to four calls, twice over with the same arguments
    and the same results, and the first of them again. `waiting_tools` may look at something that
    changes by itself: only repeated alone do they count.

    `history` ends in the turn that the run continues, so that its calls count too."""

    def __init__(
        self, history: Sequence[Any] = (), waiting_tools: frozenset[str] = frozenset()
    ) -> None:
        self._waiting_tools = waiting_tools
        self._made: list[tuple[RepeatableCall, str]] = []
        self._circle: dict[RepeatableCall, str] = {}
        for call, result in _turn_results(history):
            if result in {REFUSAL, REFUSAL_OF_SUCCESS}:
                self._circle = self._find_circle(call)
            else:
                self.record(call, result)

    @property
    def refused_tools(self) -> frozenset[str]:
        """The tools of the circle that the model was told of, until it makes another call."""
        return frozenset(call.tool for call in self._circle)

    def refuse(self, call: RepeatableCall) -> str:
        """Return the refusal of a call that must not be made; empty for others. Raises
        RepeatedCalls once the model was told."""
        if call in self._circle:
            raise RepeatedCalls("the same call again, after the model was told")
        self._circle = self._find_circle(call)
        if not self._circle:
            return ""
        failed = any(each.startswith(ERROR_PREFIX) for each in self._circle.values())
        return REFUSAL if failed else REFUSAL_OF_SUCCESS

    def record(self, call: RepeatableCall, result: str) -> None:
        self._made = [*self._made[1 - MAX_REPEATS * _MAX_CIRCLE :], (call, result)]
        self._circle = {}

    def _find_circle(self, call: RepeatableCall) -> dict[RepeatableCall, str]:
        """The calls and results of the circle that this call would begin again."""
        for size in range(1, _MAX_CIRCLE + 1):
            last = self._made[-size * MAX_REPEATS :]
            circle = dict(last[:size])
            if last[0:1] and last[0][0] == call and last == last[:size] * MAX_REPEATS:
                waits = any(each.tool in self._waiting_tools for each in circle)
                return {} if waits and size > 1 else circle
        return {}


def _turn_results(history: Sequence[Any]) -> Iterator[tuple[RepeatableCall, str]]:
    """Yield the calls since the last prompt and their results."""
    rows = [row for row in history if stored_messages.is_message(row)]
    first = max((at + 1 for at, row in enumerate(rows) if _is_prompt(row)), default=0)
    calls: dict[str, RepeatableCall] = {}
    for row in rows[first:]:
        ids = [call for call, _ in stored_messages.requested_calls(row)]
        for id_, (name, arguments) in zip(ids, stored_messages.call_arguments(row), strict=True):
            calls[id_] = RepeatableCall(name, call_fingerprint(name, arguments))
        for part in row["parts"]:
            id_, text = stored_messages.answered_call_id(part), stored_messages.result_text(part)
            if id_ in calls and text is not None:
                yield calls[id_], text


def _is_prompt(row: MessageRow) -> bool:
    return not stored_messages.is_response(row) and not stored_messages.has_tool_results(row)


async def watch_silence(
    stream: AbstractAsyncContextManager[AsyncIterator[_T]],
    *,
    notice_after: float,
    fail_after: float,
    is_busy: Callable[[], Any],
) -> AsyncGenerator[_T | None, None]:
    """Yield the stream's events, and None once nothing has come for `notice_after` seconds. Raises
    ModelSilent after `fail_after` seconds: a service may keep its connection alive for ever. While
    `is_busy` nothing is expected of it."""
    queue = asyncio.Queue[tuple[_T] | None]()

    async def pump() -> None:
        # In one task, since the library's cancel scopes may not move to another.
        try:
            async with stream as events:
                async for event in events:
                    queue.put_nowait((event,))
                    await queue.join()
        finally:
            queue.put_nowait(None)

    task = asyncio.create_task(pump(), name="model stream")
    silent = 0.0
    try:
        while True:
            wait = min((fail_after if silent else notice_after) - silent, fail_after)
            try:
                # Not `asyncio.wait_for`: before Python 3.12 it loses a cancellation that comes
                # together with the event.
                async with asyncio.timeout(wait):
                    item = await queue.get()
            except TimeoutError:
                silent = 0.0 if is_busy() else silent + wait
                if silent >= fail_after:
                    raise ModelSilent(f"the model was silent for {fail_after:g} seconds") from None
                if silent:
                    yield None
                continue
            if item is None:
                break
            silent = 0.0
            yield item[0]
            queue.task_done()
        await task
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()
