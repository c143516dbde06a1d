"""Calls of a turn that was cut off: its transcript is lost, so that the worker does not know of
them and wants them again. What looks may be looked at twice; what changes something is answered
with what came of it, once for each time that it was made."""

from __future__ import annotations

from collections.abc import Sequence

from bot.engine.agent.leave.pending import CUT_OFF
from bot.engine.agent.tools.sessions_spawn import TOOL as SESSIONS_SPAWN
from bot.engine.agent.workbench import Job
from bot.engine.llm.base import ERROR
from bot.engine.llm.calls import CallKind, ToolCall, exact_hash
from storage.agents.calls import CallRepo
from storage.db import Transaction
from storage.records.tools import CallRecord, CallState

_LOOKS = {CallKind.READ, CallKind.SEARCH, CallKind.FETCH, CallKind.THINK, CallKind.ASK}
_MADE = (
    "[This was made already, by an earlier answer of yours that was cut off, and is not made"
    " again. What came of it follows. If it has to be done once more, call it once more.]"
)
_MOST = 10
_TITLE = 120
_HEAD = """\
[An earlier answer of yours in this conversation was cut off; you do not remember it. It had made
these calls:
{calls}
Do not repeat what they did. The same call with the same arguments is not made again, but answered
with what came of it.]"""


_SAFE = {SESSIONS_SPAWN}
"""Called again for the same message it finds the helper that was sent off before."""


def changes(tool: str, kind: str) -> bool:
    return tool not in _SAFE and kind not in _LOOKS


class Earlier:
    """What the job's session made since its transcript last went on. Only talk is
    concerned: steps and helpers are told in their own ways how their last try ended."""

    def __init__(self, calls: CallRepo, job: Job) -> None:
        self._calls = calls
        self._job = job
        self._own: set[int] = set()
        self._told: set[int] = set()

    def mark(self, record: CallRecord) -> None:
        """That one is of this turn."""
        self._own.add(record.id)

    async def made(self, tx: Transaction, call: ToolCall) -> CallRecord | None:
        """A call of a lost turn that is exactly this and that nobody has been told of."""
        talks = self._job.is_talk and not self._job.depth
        if not talks or not changes(call.name, call.kind):
            return None
        wanted = exact_hash(call.name, call.arguments)
        for each in await self._calls.lost(tx, self._job.session):
            if each.command_hash == wanted and each.id not in self._own | self._told:
                self._told.add(each.id)
                return each
        return None


def told_of(made: CallRecord) -> str:
    """For the model: how it came out, as far as anybody knows."""
    match made.state:
        case CallState.DONE:
            return f"{_MADE}\n\n{made.outcome}"
        case CallState.FAILED:
            return f"{ERROR}{_MADE}\n\n{made.outcome}"
        case _:
            return CUT_OFF


def brief(lost: Sequence[CallRecord]) -> str:
    """What to say before the next answer; empty where nothing was changed."""
    made = [each for each in lost if changes(each.tool, each.kind)]
    lines = [f"- {' '.join(each.title.split())[:_TITLE]} ({_end(each)})" for each in made[-_MOST:]]
    return _HEAD.format(calls="\n".join(lines)) if lines else ""


def _end(made: CallRecord) -> str:
    match made.state:
        case CallState.DONE:
            return "done"
        case CallState.FAILED:
            return "failed"
        case _:
            return "cut off while it ran: look how far it came"
