"""Calls of models, written down as they begin; how they end is stored with what they cost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Self

from bot.engine.observe.ids import errand_trace, talk_span, talk_trace, trace_id, workflow_span
from storage.agents.spans import SpanRepo
from storage.db import Database, Transaction
from storage.errors import StoreUnavailable
from storage.records.people import ChatId
from storage.records.tasks import TaskId
from storage.records.workers.spans import Attribute, ModelCall, SpanState
from storage.usage import Bill

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a call came out. `error` is the class of what went wrong, never its words."""

    state: SpanState
    bill: Bill
    finish: str = ""
    error: str = ""

    @classmethod
    def well(cls, bill: Bill, *, stopped: bool, cut: bool) -> Self:
        """`stopped` waits for answers of people; `cut` was the answer, by its length."""
        if stopped:
            return cls(state=SpanState.LEFT, bill=bill, finish="tool_calls")
        return cls(state=SpanState.DONE, bill=bill, finish="length" if cut else "stop")

    @classmethod
    def badly(cls, bill: Bill, error: BaseException, *, left: bool) -> Self:
        """`left` may go on later."""
        failed = SpanState.FAILED if isinstance(error, Exception) else SpanState.CUT
        state = SpanState.LEFT if left else failed
        return cls(state=state, bill=bill, error=type(error).__name__)

    @property
    def attributes(self) -> Mapping[str, Attribute]:
        bill = self.bill
        told: dict[str, Attribute] = {
            "gen_ai.usage.input_tokens": bill.input_tokens,
            "gen_ai.usage.output_tokens": bill.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": bill.cache_read_tokens,
            "gen_ai.usage.cache_creation.input_tokens": bill.cache_write_tokens,
            "shiftboss.requests": bill.requests,
        }
        named: dict[str, Attribute] = {
            "gen_ai.response.model": bill.model,
            "gen_ai.response.finish_reasons": [self.finish] if self.finish else [],
            "error.type": self.error,
        }
        told |= {name: value for name, value in named.items() if value}
        if bill.cost_micros is not None:
            told["shiftboss.cost_micros"] = bill.cost_micros
        return told


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStart:
    """A call about to be made for a task, or else as part of talk: `turn` is what is answered.
    `parent` is the span it is made under, empty for that of the whole."""

    task_id: TaskId | None
    chat_id: ChatId | None = None
    turn: str = ""
    parent: str
    purpose: str
    backend: str
    model: str
    session_id: str
    instead_of: str = ""

    @property
    def trace(self) -> str:
        if self.task_id is not None:
            return trace_id(self.task_id)
        return talk_trace(self.chat_id or "", self.turn) if self.turn else errand_trace(self.parent)

    @property
    def whole(self) -> str:
        """The span of the whole."""
        if self.task_id is not None:
            return workflow_span(self.task_id)
        return talk_span(self.chat_id or "", self.turn)

    @property
    def attributes(self) -> dict[str, Attribute]:
        told: dict[str, Attribute] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": self.backend,
            "gen_ai.conversation.id": self.session_id,
            "shiftboss.purpose": self.purpose,
        }
        if self.model:
            told["gen_ai.request.model"] = self.model
        if self.instead_of:
            told["shiftboss.instead_of"] = self.instead_of
        return told


@dataclass(slots=True)
class Recorder:
    """`mask` takes out secrets; `new_id` gives sixteen hexadecimal digits."""

    db: Database
    repo: SpanRepo
    mask: Callable[[str], str]
    new_id: Callable[[], str]
    now: Callable[[], datetime]
    _told: bool = field(default=False, init=False)

    async def begin(self, start: CallStart) -> ModelCall | None:
        """Keep that the call begins, in a transaction of its own. None where that cannot be: the
        call is made all the same, and leaves no span."""
        call = ModelCall(
            span_id=self.new_id(),
            trace_id=start.trace,
            parent_id=start.parent or start.whole,
            name=self.mask(f"chat {start.model or start.backend}"),
            task_id=start.task_id,
            attributes=self._masked(start.attributes),
            started_at=self.now(),
        )
        try:
            async with self.db.write() as tx:
                await self.repo.begin(tx, call)
        except Exception as error:  # noqa: BLE001 - work is not its telling: the call is made
            self._warn(error)
            return None
        return call

    async def end(self, tx: Transaction, call: ModelCall, ending: Ending) -> None:
        """Keep how it ended, together with its bill."""
        attributes = self._masked({**call.attributes, **ending.attributes})
        model = self.mask(ending.bill.model)
        await self.repo.end(
            tx,
            call.span_id,
            status=ending.state.value,
            name=f"chat {model}" if model else call.name,
            attributes=attributes,
            now=ending.bill.at,
        )

    async def end_alone(self, call: ModelCall, ending: Ending) -> None:
        """The same where nothing is billed."""
        try:
            async with self.db.write() as tx:
                await self.end(tx, call, ending)
        except StoreUnavailable as error:
            self._warn(error)

    def _masked(self, attributes: Mapping[str, Attribute]) -> dict[str, Attribute]:
        return {
            name: self.mask(value) if isinstance(value, str) else value
            for name, value in attributes.items()
        }

    def _warn(self, error: Exception) -> None:
        if not self._told:
            log.warning("calls of models leave no spans for now: %r", error)
            self._told = True
