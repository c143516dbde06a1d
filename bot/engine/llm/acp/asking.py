"""Leave for the calls of one run: asked of whoever decides, waited for, and remembered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from bot.engine.llm.acp.memory import Wish, WishBook, exact
from bot.engine.llm.acp.said.updates import Calls
from bot.engine.llm.acp.said.wishes import is_change_of_mode, outcome
from bot.engine.llm.base import Mode, RunRequest
from bot.engine.llm.calls import CallKind, Leave, Permission, ToolCall
from bot.engine.llm.events import AgentEvent, ToolFinished

_NUMBER = 100
_HASH = 12
_AGAIN = "/again"
_LOOKING = {CallKind.READ, CallKind.SEARCH, CallKind.FETCH, CallKind.THINK}
_ALLOWED = Permission(leave=Leave.ALLOW)
_LATER = Permission(leave=Leave.LATER)


class Asking:
    """`tell` gets an event, or None when something has changed here."""

    def __init__(
        self,
        request: RunRequest,
        mode: Mode,
        calls: Calls,
        *,
        patience: float,
        tell: Callable[[AgentEvent | None], Awaitable[None]],
    ) -> None:
        self._request = request
        self._mode = mode
        self._calls = calls
        self._patience = patience
        self._tell = tell
        self._book: WishBook | None = None
        self._allowed: dict[str, str] = {}
        self._settled = {
            call_id for call_id, said in request.answers.items() if said.leave is not Leave.DENY
        }
        self._given: dict[str, str] = {}
        self._over = asyncio.Event()
        self.under_way = 0
        self.suspended: list[ToolCall] = []
        self.denied: list[tuple[ToolCall, str]] = []
        self.broken: BaseException | None = None

    async def begin(self, book: WishBook) -> list[tuple[Wish | None, str, Permission]]:
        """The session is known. Gives what was decided about calls of earlier runs; those that
        were allowed are asked for once by their old numbers, to the letter."""
        self._book = book
        known = await asyncio.to_thread(book.only, tuple(self._request.answers))
        decided = [
            (known.get(call_id), call_id, said) for call_id, said in self._request.answers.items()
        ]
        for wish, call_id, said in decided:
            if wish is not None and said.leave is Leave.ALLOW:
                self._allowed[wish.exact] = call_id
        return decided

    async def wish(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """The protocol's answer to one request for permission."""
        told = params.get("toolCall")
        told = told if isinstance(told, dict) else {}
        options = params.get("options")
        if is_change_of_mode(told):
            return outcome(options, allow=False)
        call = self._calls.wish(told)
        for event in self._calls.started(call):
            await self._tell(event)
        said = await self._leave(call.call_id, self._known(_bound(call)))
        return outcome(options, allow=said.leave is Leave.ALLOW)

    async def ended(self, event: ToolFinished) -> None:
        """For the audit of what was allowed."""
        call_id = self._given.pop(event.call_id, None)
        if call_id is not None and self._request.permit is not None:
            size = len(event.summary.encode("utf-8", "replace"))
            await self._request.permit.ended(
                call_id, good=event.good, outcome=event.summary, size=size
            )

    def _known(self, call: ToolCall) -> ToolCall:
        """As whoever decides knows it. What was decided before holds for one call: when the same
        is wanted again, by whatever number, it is another."""
        if call_id := self._allowed.pop(exact(call), ""):
            return replace(call, call_id=call_id)
        if call.call_id in self._settled:
            return replace(call, call_id=f"{call.call_id}{_AGAIN}")
        return call

    async def _leave(self, number: str, call: ToolCall) -> Permission:
        """`number` is what the CLI calls the call."""
        if self._request.permit is None:
            looks = self._mode is Mode.EXECUTE or call.kind in _LOOKING
            return _ALLOWED if looks else Permission(leave=Leave.DENY)
        self.under_way += 1
        await self._tell(None)
        try:
            said = await self._decided(call)
        finally:
            self.under_way -= 1
        if said.leave is Leave.ALLOW:
            self._given[number] = call.call_id
        elif said.leave is not Leave.LATER:
            self.denied.append((call, said.text))
        await self._tell(None)
        return said

    async def _decided(self, call: ToolCall) -> Permission:
        """LATER as well where another call of this run has become one for later: the process
        ends, and whoever decides finds this call open."""
        permit = self._request.permit
        assert permit is not None
        if self._book is not None:
            await asyncio.to_thread(self._book.add, call)
        asked = asyncio.ensure_future(permit(call, patience=self._patience))
        over = asyncio.ensure_future(self._over.wait())
        try:
            await asyncio.wait({asked, over}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
            if not asked.done():
                asked.cancel()
        said = self._said(asked)
        if said.leave is Leave.LATER:
            self.suspended.append(call)
            self._over.set()
        return said

    def _said(self, asked: asyncio.Future[Permission]) -> Permission:
        if not asked.done() or asked.cancelled():
            return _LATER
        if (broken := asked.exception()) is not None:
            self.broken = self.broken or broken
            return Permission(leave=Leave.DENY)
        return asked.result()


def _bound(call: ToolCall) -> ToolCall:
    """Its number with what it does: a number used again for another call is another."""
    return replace(call, call_id=f"{call.call_id[:_NUMBER]}:{exact(call)[:_HASH]}")
