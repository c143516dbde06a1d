"""The calls with which a session's transcript ends: its next run begins with their answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from bot.engine.llm.base import ERROR
from bot.engine.llm.calls import Leave, Permission, ToolCall
from cards.reasons import reason_told
from cards.words import words_for
from storage.agents.calls import CallRepo, number_of
from storage.db import Transaction
from storage.records.people import Language
from storage.records.tools import CallRecord, CallState
from storage.work.asked import withdraw

CUT_OFF = (
    f"{ERROR}it was cut off while it ran, and nobody knows how far it came."
    " Look at what it has done before you do it again."
)
NO_ANSWER = "There is no answer yet: the person has said something else instead."
_ENGLISH = words_for(Language.ENGLISH)


class Pending:
    def __init__(self, calls: CallRepo, now: Callable[[], datetime]) -> None:
        self._calls = calls
        self._now = now

    async def answers(self, session_id: str) -> Mapping[str, Permission]:
        """What the next run of the session is to know of them, by the model's own numbers. What
        was made already is not made again."""
        return {
            number_of(call): answer_to(call) for call in await self._calls.suspended(session_id)
        }

    async def settle(
        self, tx: Transaction, session_id: str, suspended: Sequence[ToolCall] = ()
    ) -> None:
        """The transcript has gone on: those before are answered, and these wait now."""
        await self.drop(tx, session_id)
        await self._calls.suspend(tx, session_id, [call.call_id for call in suspended])

    async def drop(self, tx: Transaction, session_id: str) -> None:
        """Nobody has to decide about them any more."""
        for call in await self._calls.suspended(session_id, tx=tx):
            if call.state is CallState.OPEN and call.approval_id:
                await withdraw(tx, call.approval_id, why="approval.gone_on", now=self._now())
            await self._calls.deliver(tx, call, now=self._now())


def answer_to(call: CallRecord) -> Permission:
    """What its worker is to know of a call that it did not get back from."""
    match call.state:
        case CallState.OPEN:
            return Permission(leave=Leave.DENY, text=NO_ANSWER)
        case CallState.ALLOWED:
            return Permission(leave=Leave.ALLOW)
        case CallState.DENIED:
            return Permission(leave=Leave.DENY, text=call.answer or reason_told(call.why, _ENGLISH))
        case CallState.ANSWERED:
            return Permission(leave=Leave.ANSWER, text=call.answer)
        case CallState.DONE | CallState.FAILED:
            return Permission(leave=Leave.ANSWER, text=call.outcome)
        case CallState.RUNNING | CallState.CUT:
            return Permission(leave=Leave.ANSWER, text=CUT_OFF)
