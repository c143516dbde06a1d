"""Records model calls as spans."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Self

from bot.engine.tracing.span_ids import (
    answer_span_id,
    chat_trace_id,
    subagent_trace_id,
    task_trace_id,
    workflow_span_id,
)
from storage.db import Database, Transaction
from storage.errors import StoreUnavailable
from storage.records.people import ChatId
from storage.records.tasks import TaskId
from storage.records.traces import ModelCall, SpanAttribute, SpanState
from storage.records.usage import UsageRecord
from storage.traces import SpanRepo

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnding:
    """How a call ended; `error_type` is the exception's class name, never its message."""

    state: SpanState
    usage: UsageRecord
    finish_reason: str = ""
    error_type: str = ""

    @classmethod
    def of_success(cls, usage: UsageRecord, *, suspended: bool, truncated: bool) -> Self:
        """`suspended` means the run waits for people; `truncated` that the answer reached its
        length limit."""
        if suspended:
            return cls(state=SpanState.SUSPENDED, usage=usage, finish_reason="tool_calls")
        return cls(
            state=SpanState.DONE, usage=usage, finish_reason="length" if truncated else "stop"
        )

    @classmethod
    def of_failure(cls, usage: UsageRecord, error: BaseException, *, resumable: bool) -> Self:
        """`resumable` marks failures after which the run can continue."""
        failed = SpanState.FAILED if isinstance(error, Exception) else SpanState.CUT_OFF
        state = SpanState.SUSPENDED if resumable else failed
        return cls(state=state, usage=usage, error_type=type(error).__name__)

    @property
    def attributes(self) -> Mapping[str, SpanAttribute]:
        usage = self.usage
        values: dict[str, SpanAttribute] = {
            "gen_ai.usage.input_tokens": usage.input_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
            "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
            "shiftboss.requests": usage.requests,
        }
        named: dict[str, SpanAttribute] = {
            "gen_ai.response.model": usage.model,
            "gen_ai.response.finish_reasons": [self.finish_reason] if self.finish_reason else [],
            "error.type": self.error_type,
        }
        values |= {name: value for name, value in named.items() if value}
        if usage.cost_micros is not None:
            values["shiftboss.cost_micros"] = usage.cost_micros
        return values


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallStart:
    """A model call for a task, or for the chat message `turn_source`.

    `parent_span_id` is empty for calls directly under the root span."""

    task_id: TaskId | None
    chat_id: ChatId | None = None
    turn_source: str = ""
    parent_span_id: str
    purpose: str
    backend: str
    model: str
    session_id: str
    replaced_backend: str = ""

    @property
    def trace_id(self) -> str:
        if self.task_id is not None:
            return task_trace_id(self.task_id)
        return (
            chat_trace_id(self.chat_id or "", self.turn_source)
            if self.turn_source
            else subagent_trace_id(self.parent_span_id)
        )

    @property
    def root_span_id(self) -> str:
        if self.task_id is not None:
            return workflow_span_id(self.task_id)
        return answer_span_id(self.chat_id or "", self.turn_source)

    @property
    def attributes(self) -> dict[str, SpanAttribute]:
        values: dict[str, SpanAttribute] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": self.backend,
            "gen_ai.conversation.id": self.session_id,
            "shiftboss.purpose": self.purpose,
        }
        if self.model:
            values["gen_ai.request.model"] = self.model
        if self.replaced_backend:
            values["shiftboss.instead_of"] = self.replaced_backend
        return values


@dataclass(slots=True)
class SpanRecorder:
    """`redact` masks secrets; `new_id` returns 16 hexadecimal digits."""

    db: Database
    repo: SpanRepo
    redact: Callable[[str], str]
    new_id: Callable[[], str]
    now: Callable[[], datetime]
    _warned: bool = field(default=False, init=False)

    async def begin(self, start: ModelCallStart) -> ModelCall | None:
        """Record the start in its own transaction; None if that fails, which must not stop the
        call."""
        call = ModelCall(
            span_id=self.new_id(),
            trace_id=start.trace_id,
            parent_id=start.parent_span_id or start.root_span_id,
            name=self.redact(f"chat {start.model or start.backend}"),
            task_id=start.task_id,
            attributes=self._redacted(start.attributes),
            started_at=self.now(),
        )
        try:
            async with self.db.write() as tx:
                await self.repo.start_model_call(tx, call)
        except Exception as error:  # noqa: BLE001 - tracing must not stop the call
            self._warn_once(error)
            return None
        return call

    async def end(self, tx: Transaction, call: ModelCall, ending: CallEnding) -> None:
        """Record the end in the transaction that records the usage."""
        attributes = self._redacted({**call.attributes, **ending.attributes})
        model = self.redact(ending.usage.model)
        await self.repo.finish_model_call(
            tx,
            call.span_id,
            status=ending.state.value,
            name=f"chat {model}" if model else call.name,
            attributes=attributes,
            now=ending.usage.at,
        )

    async def end_unbilled(self, call: ModelCall, ending: CallEnding) -> None:
        """Record the end of a call without usage."""
        try:
            async with self.db.write() as tx:
                await self.end(tx, call, ending)
        except StoreUnavailable as error:
            self._warn_once(error)

    def _redacted(self, attributes: Mapping[str, SpanAttribute]) -> dict[str, SpanAttribute]:
        return {
            name: self.redact(value) if isinstance(value, str) else value
            for name, value in attributes.items()
        }

    def _warn_once(self, error: Exception) -> None:
        if not self._warned:
            log.warning("model calls cannot be recorded as spans for now: %r", error)
            self._warned = True
