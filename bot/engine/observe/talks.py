"""The trace of an answer outside tasks: the calls of models, their tools and helpers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from bot.engine.observe import pieces
from bot.engine.observe.ids import errand_trace, helper_span, talk_prefix
from bot.engine.observe.trace import tree, without_secrets
from storage.agents.spans import SpanRepo, Turn
from storage.db import Database
from storage.records.people import ChatId
from storage.records.workers.spans import ModelCall, Span, SpanKind, SpanState, Trace

_ANSWERS = "chat"
"""The purpose of calls that answer; others look at its pictures, say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TalkTraces:
    """`since` is when this program began: a call that an earlier one has left open was cut off.
    `mask` takes out secrets."""

    db: Database
    spans: SpanRepo
    mask: Callable[[str], str]
    now: Callable[[], datetime]
    since: datetime

    async def talk_of(self, chat_id: ChatId) -> Trace | None:
        """The last answer in that chat, also while it is given; None where there is none."""
        async with self.db.read() as view:
            found = await self.spans.last_turn(talk_prefix(chat_id), tx=view)
            if found is None:
                return None
            errands = [errand_trace(helper_span(each.id)) for each in found.helpers]
            sent_off = await self.spans.calls_in(errands, tx=view)
        spans = assembled(found, sent_off, since=self.since)
        masked = tuple(without_secrets(span, self.mask) for span in spans)
        return Trace(id=found.calls[0].trace_id, task_id=None, at=self.now(), spans=masked)


def assembled(turn: Turn, sent_off: Sequence[ModelCall], *, since: datetime) -> Sequence[Span]:
    """All spans of it; `sent_off` are the calls of its helpers, which may go on when the answer is
    there."""
    whole = _whole(turn.calls[0])

    def at(_path: str, _time: datetime) -> str:
        return whole.id

    works = pieces.helpers(turn.helpers, at)
    # Of what began before this program did nothing runs any more.
    gone = [each for each in turn.calls if each.started_at < since]
    here = turn.calls[len(gone) :]
    answering = [*pieces.models(gone, {whole.id: since}, None), *pieces.models(here, {}, None)]
    ends = {each.id: each.ended_at for each in works}
    calls = [*answering, *pieces.models(sent_off, ends, None)]
    trace = turn.calls[0].trace_id
    tools = pieces.tools(turn.tools, calls, whose=trace, at=at, over=None)
    return tree(_ended(whole, answering), [*works, *calls, *tools])


def _whole(first: ModelCall) -> Span:
    return Span(
        id=first.parent_id,
        parent="",
        name=SpanKind.CHAT.value,
        kind=SpanKind.CHAT,
        state=SpanState.RUNNING,
        started_at=first.started_at,
        ended_at=None,
    )


def _ended(whole: Span, calls: Sequence[Span]) -> Span:
    """As its last call has; those before were tried again."""
    ends = [each.ended_at for each in calls if each.ended_at is not None]
    if len(ends) < len(calls):
        return whole
    answers = [each for each in calls if each.attributes.get("shiftboss.purpose") == _ANSWERS]
    last = (answers or calls)[-1]
    return replace(whole, state=last.state, ended_at=max(ends), error=last.error)
