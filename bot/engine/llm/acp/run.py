"""Runs a coding CLI until it returns a result or reaches a limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, TypeAlias

from pydantic import BaseModel

from bot.engine.llm.acp import prompts
from bot.engine.llm.acp.agent_config import AcpAgentConfig, ResumeSupport
from bot.engine.llm.acp.connection import SecretRedactor
from bot.engine.llm.acp.errors import AcpFailure, failure_error, is_setup_error
from bot.engine.llm.acp.permission_requests import PermissionBroker, PermissionRequestStore
from bot.engine.llm.acp.prompts import MissingResult, history_entry
from bot.engine.llm.acp.runtime import AcpRuntime, agent_home
from bot.engine.llm.acp.session import AcpSession, open_cli
from bot.engine.llm.acp.updates import AcpCallTracker
from bot.engine.llm.acp.usage_meter import AcpUsageMeter
from bot.engine.llm.backend import (
    AgentEvent,
    BackendError,
    BackendNotReady,
    BaseRun,
    InvalidAnswer,
    LimitKind,
    RunLimitReached,
    RunNotice,
    RunPurpose,
    RunRequest,
    RunResult,
    TextDelta,
    TokenUsage,
    ToolFinished,
    ToolStarted,
    WorkerMode,
)

_QUEUE_SIZE = 256
_MAX_CHARACTERS = 2_000_000
_MAX_DENIALS = 3
_CHARS_PER_TOKEN = 16
_READ_ONLY_PURPOSES = {RunPurpose.PLAN, RunPurpose.INTENT}

_QueueItem: TypeAlias = Mapping[str, Any] | AgentEvent | None


class AcpRun(BaseRun):
    """Satisfies `llm.backend.BackendRun`.

    Updates pass through a short queue, which applies back-pressure and yields all events before the
    turn's response."""

    def __init__(self, agent: AcpAgentConfig, request: RunRequest, runtime: AcpRuntime) -> None:
        super().__init__()
        self._agent = agent
        self._request = request
        self._runtime = runtime
        self._mode = WorkerMode.PLAN if request.purpose in _READ_ONLY_PURPOSES else request.mode
        self._home = agent_home(runtime.root, agent.name, request.persona)
        self._meter = AcpUsageMeter()
        self._call_tracker = AcpCallTracker(command_in_title=agent.command_in_title)
        self._queue: asyncio.Queue[_QueueItem] = asyncio.Queue(_QUEUE_SIZE)
        self._broker = PermissionBroker(
            request,
            self._mode,
            self._call_tracker,
            approval_wait=runtime.approval_wait,
            emit=self._emit,
        )
        self._redactor = SecretRedactor(
            [each for server in request.servers for each in server.secrets]
        )
        self._listening = False
        self._texts: list[str] = []
        self._written = 0
        self._needs_paragraph_break = False
        self._used_tools = False
        self._deadline = 0.0

    @property
    def usage_so_far(self) -> TokenUsage:
        return self._meter.usage

    async def _run_events(self) -> AsyncGenerator[AgentEvent, None]:
        try:
            async with aclosing(self._run_in_slot()) as events:
                async for event in events:
                    yield event
        except BackendError as error:
            error.usage = self.usage_so_far
            if is_setup_error(error) and not self._used_tools:
                # The setup problem shows only now, and nothing has been changed yet.
                raise BackendNotReady(str(error), usage=error.usage, hint=error.hint) from None
            raise

    async def _run_in_slot(self) -> AsyncGenerator[AgentEvent, None]:
        """Limit the number of concurrent processes, which need much memory."""
        slots = self._runtime.slots
        if slots.locked():
            yield RunNotice(key="backend.cli_queue", facts={"name": self._agent.name})
        async with (
            slots,
            open_cli(
                self._agent,
                self._request,
                self._runtime,
                self._home,
                mode=self._mode,
                on_update=self._on_update,
                on_permission_request=self._broker.handle_request,
            ) as session,
            aclosing(self._session_events(session)) as events,
        ):
            async for event in events:
                yield event

    async def _session_events(self, session: AcpSession) -> AsyncGenerator[AgentEvent, None]:
        request, info = self._request, session.info
        resumes = self._agent.resume is not ResumeSupport.NONE
        if request.external_id and resumes and not info.resumed:
            yield RunNotice(key="backend.cli_afresh", facts={"name": self._agent.name})
        self._meter.start_run()
        self._deadline = _now() + self._runtime.run_seconds(request.limits)
        await asyncio.to_thread(prompts.delete_result_file, request.workspace)
        store = PermissionRequestStore(self._home.requests_folder, info.id)
        await asyncio.to_thread(store.adopt_session, request.external_id)
        decided = await self._broker.start(store)
        text = prompts.first_prompt(request, self._mode, resumed=info.resumed, decided=decided)
        denials, asked_again = 0, False
        while True:
            async with aclosing(self._prompt_events(session, text)) as events:
                async for event in events:
                    yield event
            if self._broker.suspended:
                self._store_result(None)
                return
            value, missing = await self._read_result()
            if missing is None:
                self._store_result(value)
                return
            if self._broker.denied and denials < _MAX_DENIALS:
                denied, self._broker.denied = self._broker.denied, []
                denials += 1
                text = prompts.denial_prompt(denied, wants_result=request.result is not None)
            elif request.result is not None and not asked_again:
                asked_again = True
                text = prompts.result_retry_prompt(str(missing))
            else:
                raise self._missing_result_error(missing)
            if self.usage_so_far.output_tokens > request.limits.output_tokens:
                raise RunLimitReached(
                    f"{self._agent.name} wrote more than one run may", hint=LimitKind.TOKENS.hint
                )

    async def _prompt_events(
        self, session: AcpSession, text: str
    ) -> AsyncGenerator[AgentEvent, None]:
        """Send one prompt and yield its events; collected texts are those of this turn."""
        request = self._request
        if request.gate is not None:
            expected = self._meter.context_tokens + len(text) // 2
            await request.gate(request.model or self._agent.name, expected, self.usage_so_far)
        pictures = request.pictures if not self._meter.usage.requests else ()
        blocks = await prompts.content_blocks(
            text, pictures, images_accepted=session.info.accepts_images
        )
        self._texts, self._needs_paragraph_break, self._listening = [], False, True
        self._meter.count_prompt(text)
        answer = session.prompt(blocks)
        answer.add_done_callback(lambda _: self._wake())
        try:
            async with aclosing(self._events_until(answer)) as events:
                async for event in events:
                    yield event
        finally:
            # Discard further updates.
            self._listening = False
            while not self._queue.empty():
                self._queue.get_nowait()
        if self._broker.suspended:
            await session.wait_for_replies()
        else:
            self._check_stop_reason(await answer)

    async def _events_until(
        self, answer: asyncio.Future[Mapping[str, Any]]
    ) -> AsyncGenerator[AgentEvent, None]:
        """Yield events until the response arrives or the run is suspended."""
        while not (answer.done() and self._queue.empty()):
            for event in self._events_of(await self._next_item(answer)):
                await self._track_event(event)
                yield event
            if self._broker.error is not None:
                raise self._broker.error
            if self._broker.suspended and not self._broker.pending_count:
                return

    async def _next_item(self, answer: asyncio.Future[Mapping[str, Any]]) -> _QueueItem:
        """Return the next item; None on a state change or when the turn is complete.

        The time limit is paused while people are asked."""
        while True:
            if answer.done() and self._queue.empty():
                return None
            asked = self._broker.pending_count > 0
            began = _now()
            left = None if asked else min(self._deadline - began, self._runtime.idle_timeout)
            try:
                async with asyncio.timeout(left):
                    item = await self._queue.get()
            except TimeoutError:
                raise self._timeout_error() from None
            if asked:
                self._deadline += _now() - began
            return item

    async def _on_update(self, update: Mapping[str, Any]) -> None:
        """Queue an update; outside a turn only usage counts, because the rest is replayed
        history."""
        if update.get("sessionUpdate") == "usage_update":
            self._meter.record_update(update)
        elif self._listening:
            self._meter.record_content(update)
            await self._queue.put(update)

    async def _emit(self, event: AgentEvent | None) -> None:
        if self._listening:
            await self._queue.put(event)

    def _wake(self) -> None:
        if self._queue.empty():
            self._queue.put_nowait(None)

    def _events_of(self, item: _QueueItem) -> list[AgentEvent]:
        if item is None:
            return []
        if not isinstance(item, Mapping):
            return [item]
        return [self._with_paragraph_break(event) for event in self._call_tracker.events(item)]

    def _with_paragraph_break(self, event: AgentEvent) -> AgentEvent:
        """Separate text before and after a tool call by a paragraph."""
        if isinstance(event, TextDelta) and self._needs_paragraph_break and self._texts:
            self._needs_paragraph_break = False
            return TextDelta(text=f"\n\n{event.text}")
        return event

    async def _track_event(self, event: AgentEvent) -> None:
        match event:
            case TextDelta(text=text):
                self._needs_paragraph_break = False
                self._written += len(text)
                self._texts.append(text)
                most = min(_MAX_CHARACTERS, self._request.limits.output_tokens * _CHARS_PER_TOKEN)
                if self._written > most:
                    raise failure_error(AcpFailure.FLOOD, self._agent.name, "too long an answer")
            case ToolStarted():
                self._needs_paragraph_break = self._used_tools = True
            case ToolFinished():
                await self._broker.record_outcome(event)
            case _:
                pass

    @property
    def _text(self) -> str:
        """The turn's text, redacted as a whole because a secret may span chunks."""
        return self._redactor.redact_text("".join(self._texts))

    async def _read_result(self) -> tuple[BaseModel | None, MissingResult | None]:
        """Return the result, or the reason why it is missing."""
        form, text = self._request.result, self._text
        if form is None:
            empty = not text.strip() and (self._broker.denied or not self._used_tools)
            return None, MissingResult("the answer was empty") if empty else None
        try:
            return await asyncio.to_thread(
                prompts.parse_result, text, self._request.workspace, form
            ), None
        except MissingResult as missing:
            return None, missing

    def _check_stop_reason(self, answer: Mapping[str, Any]) -> None:
        self._meter.record_turn(answer.get("usage"))
        reason = answer.get("stopReason")
        if reason == "refusal":
            raise InvalidAnswer(f"{self._agent.name} refused to answer")
        if reason == "cancelled" and not self._broker.denied and self._request.result is None:
            raise InvalidAnswer(f"{self._agent.name} gave up its turn")

    def _timeout_error(self) -> Exception:
        if _now() >= self._deadline:
            return RunLimitReached(
                f"{self._agent.name} took longer than one run may", hint=LimitKind.SECONDS.hint
            )
        return failure_error(AcpFailure.SILENT, self._agent.name)

    def _missing_result_error(self, missing: MissingResult) -> Exception:
        if self._request.result is None:
            return InvalidAnswer(f"{self._agent.name}: {missing}")
        return InvalidAnswer(
            f"{self._agent.name} returned no result: {missing}",
            hint=AcpFailure.NO_RESULT.hint,
            faults=missing.faults,
        )

    def _store_result(self, value: BaseModel | None) -> None:
        text = self._text
        shown = text if self._request.result is None else prompts.strip_result(text)
        history = history_entry(
            prompt=self._request.prompt, answer=text, system=prompts.system_hash(self._request)
        )
        self._result = RunResult(
            text=shown,
            value=value,
            model=self._request.model or self._agent.name,
            usage=self.usage_so_far,
            new_history=(history,),
            context_tokens=self._meter.context_tokens,
            suspended=tuple(self._broker.suspended),
        )


async def probe_version(agent: AcpAgentConfig, request: RunRequest, runtime: AcpRuntime) -> str:
    """Open a session and return the CLI's version. Raises BackendError."""
    home = agent_home(runtime.root, agent.name, request.persona)
    broker = PermissionBroker(
        request, WorkerMode.PLAN, AcpCallTracker(), approval_wait=0, emit=_ignore
    )
    async with open_cli(
        agent,
        request,
        runtime,
        home,
        mode=WorkerMode.PLAN,
        on_update=_ignore,
        on_permission_request=broker.handle_request,
    ) as session:
        return session.info.version


async def _ignore(_event: object) -> None:
    pass


def _now() -> float:
    return asyncio.get_running_loop().time()
