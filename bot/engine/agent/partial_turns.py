"""Stores a session's turn reply by reply, and continues one that was cut off.

The transcript grows with each reply of the model; the results of its calls are in `tool_calls`
until the next reply arrives with them. A session whose process died ends in a reply: its calls are
made again under their IDs, and `permissions.service` answers those that were made."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from bot.engine.llm import stored_messages
from bot.engine.llm.backend import (
    AnswerCutByBudget,
    BackendDenied,
    BackendUnavailable,
    BudgetExceeded,
    PartialTurn,
)
from bot.engine.llm.failover import is_about_account
from bot.engine.llm.stored_messages import MessageRow
from bot.engine.llm.tool_calls import AgentTool, find_argument_error
from bot.engine.permissions.requests import SuspendedCalls
from storage.db import Transaction
from storage.records.workers import ModelSession
from storage.sessions import SessionRepo


@dataclass(frozen=True, slots=True)
class ResumedTurn:
    """The messages of a turn that was cut off."""

    rows: Sequence[MessageRow]

    @property
    def text(self) -> str:
        """The answer's text so far."""
        return "\n\n".join(filter(None, map(stored_messages.response_text, self.rows)))

    @property
    def reply_count(self) -> int:
        return sum(map(stored_messages.is_response, self.rows))

    async def repeat_calls_in_memory(self, tools: Sequence[AgentTool]) -> None:
        """Make calls again whose effect ended with the process. Those of the last reply are made
        anyway."""
        by_name = {tool.name: tool for tool in tools if tool.in_memory}
        for row in self.rows[:-1]:
            for name, arguments in stored_messages.call_arguments(row):
                if name in by_name and not find_argument_error(by_name[name].schema, arguments):
                    await by_name[name].run(arguments)


@dataclass(frozen=True, slots=True)
class PartialTurnStore:
    sessions: SessionRepo
    suspended_calls: SuspendedCalls

    async def append(
        self,
        tx: Transaction,
        session_id: str,
        turn: PartialTurn,
        *,
        key: str,
        heard: int,
        now: datetime,
    ) -> None:
        """Append a reply; the turn stays open under `key`. It contains the first `heard` messages
        of people."""
        await self.sessions.append_open_turn(
            tx,
            session_id,
            turn.messages,
            turn=open_turn_id(key),
            heard=heard,
            tokens=turn.context_tokens,
            now=now,
        )

    async def load(self, session: ModelSession) -> ResumedTurn:
        """Return the session's open turn."""
        rows = await self.sessions.list_messages(session.id, after=session.open_turn_start)
        return ResumedTurn([row for row in rows if stored_messages.is_message(row)])

    async def abandon(self, tx: Transaction, session_id: str, *, now: datetime) -> None:
        """Close the session's open turn: what its last calls have brought is appended."""
        last = await self.sessions.find_last_message(tx, session_id)
        parts = []
        if last is not None and stored_messages.is_message(last):
            outcomes = await self.suspended_calls.get_lost_outcomes(tx, session_id)
            parts = [
                stored_messages.missing_result_part(call, tool, outcomes[call], last)
                for call, tool in stored_messages.requested_calls(last)
                if call in outcomes
            ]
        results = [stored_messages.request_message(parts)] if parts else []
        await self.sessions.abandon_open_turn(tx, session_id, results, now=now)


def can_resume(session: ModelSession, turn_key: str) -> bool:
    """Return True if the session ends in a cut-off turn of the request with this key."""
    return bool(turn_key) and session.open_turn == open_turn_id(turn_key)


def is_resumable(error: BaseException) -> bool:
    """Return True if the same request can continue where this error ended it. A request that
    reached a limit, was refused, or got a useless answer starts again: its transcript might be
    refused every time."""
    if not isinstance(error, Exception):
        return True  # cancelled: stopped, paused or cut in on
    if isinstance(error, BackendDenied):
        return is_about_account(error)  # another service may go on
    return isinstance(error, BackendUnavailable | BudgetExceeded | AnswerCutByBudget)


def open_turn_id(turn_key: str) -> str:
    """Return what a session's `open_turn` is while it holds a part of the request's turn."""
    return hashlib.sha256(turn_key.encode("utf-8", "surrogatepass")).hexdigest()
