"""A model that asks before every call whether the call may be paid. Heavy to import."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    RetryPromptPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext
from pydantic_ai.usage import RequestUsage

from bot.engine.llm import api_history
from bot.engine.llm.base import MAX_ANSWER, BudgetReached, CutShort, Gate, Usage
from bot.engine.llm.loop.sizes import HEARD, input_tokens, parts_tokens, standing

log = logging.getLogger(__name__)

CUT = "length"
"""Why an answer ended that reached the most tokens it was allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Allowed:
    """What a call may do; `spent` is what the run had used before it, `reads` how much it will
    read, from above."""

    settings: ModelSettings
    spent: Usage
    reads: int
    lowered: bool


class MeteredModel(WrapperModel):
    """Asks `gate` before each call and lets it write no more than the answer allows. `spent` is
    what the run has used so far, `prompt` and the results of the calls `answered` what it began
    with. `whole` says that half an answer is
    none: where the gate's answer is what cut it off, that is CutShort."""

    def __init__(
        self,
        wrapped: Model,
        gate: Gate,
        *,
        spent: Callable[[], Usage],
        prompt: Sequence[UserContent],
        whole: bool,
        answered: Collection[str] = (),
    ) -> None:
        super().__init__(wrapped)
        self._gate = gate
        self._spent = spent
        self._prompt = prompt
        self._answered = answered
        self._whole = whole
        self._broken: tuple[_Allowed, int] | None = None
        self._asked_last: tuple[Sequence[ModelMessage], str] = ((), "")

    @property
    def added(self) -> tuple[Any, ...]:
        """What the run had added to its session before its last call."""
        return self._added(*self._asked_last)

    def with_broken(self, reported: Usage) -> Usage:
        """What the run has used where the service has `reported` this. An answer that broke off
        has read all that it was told and written all that came, whatever the service had time
        to say: what it did not say is added as an estimate, from above."""
        if self._broken is None:
            return reported
        allowed, written = self._broken
        before = allowed.spent
        read = max(0, before.input_tokens + allowed.reads - reported.input_tokens)
        wrote = max(0, before.output_tokens + written - reported.output_tokens)
        if reported.input_tokens > before.input_tokens:
            read = 0  # it has told how much it read
        return replace(
            reported,
            requests=max(reported.requests, before.requests + 1),
            input_tokens=reported.input_tokens + read,
            output_tokens=reported.output_tokens + wrote,
            guessed_input=read,
            guessed_output=wrote,
        )

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        allowed = await self._allowed(messages, model_settings, model_request_parameters, "")
        response = await self.wrapped.request(messages, allowed.settings, model_request_parameters)
        heard = standing(messages, model_request_parameters)
        response = replace(response, metadata={**(response.metadata or {}), HEARD: heard})
        self._check(response, allowed, messages, "")
        return response

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        run_id = (run_context.run_id if run_context else None) or ""
        allowed = await self._allowed(messages, model_settings, model_request_parameters, run_id)
        async with self.wrapped.request_stream(
            messages, allowed.settings, model_request_parameters, run_context
        ) as stream:
            stream.metadata = {
                **(stream.metadata or {}),
                HEARD: standing(messages, model_request_parameters),
            }
            try:
                yield stream
            finally:
                self._note_broken(stream.get(), allowed)
            self._check(stream.get(), allowed, messages, run_id)

    async def _allowed(
        self,
        messages: Sequence[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
        run_id: str,
    ) -> _Allowed:
        """The settings with the tokens that may be written lowered to what is allowed."""
        spent = self._spent()
        self._asked_last = (messages, run_id)
        reads = input_tokens(messages, parameters, self.model_name)
        try:
            most = await self._gate(self.model_name, reads, spent)
        except BudgetReached as reached:
            added = self._added(messages, run_id)
            raise BudgetReached(reached.hit, usage=spent, new_history=added) from None
        lowered = ModelSettings(**settings) if settings else ModelSettings()
        wanted = lowered.get("max_tokens") or MAX_ANSWER
        lowered["max_tokens"] = min(most, wanted)
        return _Allowed(settings=lowered, spent=spent, reads=reads, lowered=most < wanted)

    def _note_broken(self, response: ModelResponse, allowed: _Allowed) -> None:
        """The service will bill what it had no time to report."""
        if response.state == "complete":
            return
        self._broken = (allowed, parts_tokens(response.parts))
        log.warning("an answer of %s broke off: what it cost is an estimate", self.model_name)

    def _check(
        self,
        response: ModelResponse,
        allowed: _Allowed,
        messages: Sequence[ModelMessage],
        run_id: str,
    ) -> None:
        """Half a text can be gone on with; half a form or half a call of a tool is nothing."""
        if response.finish_reason != CUT or not allowed.lowered:
            return
        if self._whole or response.tool_calls:
            raise CutShort(
                "the answer was cut off at what a cap still allows",
                usage=_with(allowed.spent, response.usage),
                new_history=self._added(messages, run_id),
            )

    def _added(self, messages: Sequence[ModelMessage], run_id: str) -> tuple[Any, ...]:
        """What the run has added to its session: nothing before the first answer. On the wire
        what was asked may have grown together with what the history ended in, so it is told
        anew."""
        for at, message in enumerate(messages):
            if isinstance(message, ModelResponse) and run_id and message.run_id == run_id:
                asked = ModelRequest(parts=self._asked(messages[:at]))
                return api_history.dump([asked, *messages[at:]])
        return ()

    def _asked(self, before: Sequence[ModelMessage]) -> list[ModelRequestPart]:
        """What the run began with."""
        last = before[-1] if before else None
        parts: list[ModelRequestPart] = [
            part
            for part in (last.parts if isinstance(last, ModelRequest) else ())
            if isinstance(part, ToolReturnPart | RetryPromptPart)
            and part.tool_call_id in self._answered
        ]
        if self._prompt:
            parts.append(UserPromptPart(content=list(self._prompt)))
        return parts


def _with(spent: Usage, call: RequestUsage) -> Usage:
    return replace(
        spent,
        requests=spent.requests + 1,
        input_tokens=spent.input_tokens + call.input_tokens,
        output_tokens=spent.output_tokens + call.output_tokens,
        cache_read_tokens=spent.cache_read_tokens + call.cache_read_tokens,
        cache_write_tokens=spent.cache_write_tokens + call.cache_write_tokens,
    )
