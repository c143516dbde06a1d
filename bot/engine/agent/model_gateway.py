"""Calls models: selects the backend, maintains the session and records the cost."""

from __future__ import annotations

import copy
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TypeAlias

from bot.engine.agent.budget import SpendingBudget
from bot.engine.agent.context_window import ContextBudget
from bot.engine.agent.model_calls import (
    ModelCallInProgress,
    ModelReply,
    ModelRequest,
    PartialTurnStore,
    ResumedTurn,
    call_start,
    can_resume,
    is_resumable,
    kept_work,
)
from bot.engine.agent.session_history import (
    SHORTENED_NOTE,
    SessionHistory,
    count_prompt_tokens,
    count_row_tokens,
)
from bot.engine.llm.backend import (
    MAX_ANSWER_TOKENS,
    AgentEvent,
    AnswerCutByBudget,
    BackendError,
    BackendRun,
    BudgetExceeded,
    ContextTooLong,
    PartialTurn,
    RunPurpose,
    RunRequest,
    RunResult,
    SelectedBackend,
    TokenUsage,
)
from bot.engine.llm.backend_registry import BackendSelector
from bot.engine.llm.stored_messages import TimeTeller
from bot.engine.llm.tool_calls import READ_ONLY_KINDS
from bot.engine.mcp.client.elicitation import Elicitor
from bot.engine.mcp.client.server_config import ConnectedServers, McpScope
from bot.engine.mcp.client.server_pool import McpServerPool
from bot.engine.mcp.server.tool_server import KeptLoan
from bot.engine.permissions.requests import SuspendedCalls
from bot.engine.tracing.span_recorder import CallEnding, SpanRecorder
from storage.db import Database, Transaction, finish_despite_cancel, retry_until_stored
from storage.errors import ConcurrentUpdate, StoreUnavailable
from storage.memory.withheld_turns import erase_ended_conversation
from storage.records.tasks import TaskId
from storage.records.usage import UsageRecord
from storage.records.workers import ModelSession
from storage.sessions import SessionRepo
from storage.usage import UsageRepo

log = logging.getLogger(__name__)

_WORKER_PURPOSES = {RunPurpose.CHAT, RunPurpose.PLAN, RunPurpose.STEP, RunPurpose.HELPER}
_MAX_OVERFLOW_RETRIES = 4
"""Retries of one request whose history outgrew the context window during the run."""

EventListener = Callable[[AgentEvent], Awaitable[None]]


ReplyRecorder: TypeAlias = Callable[[Transaction, ModelReply], Awaitable[None]]


class ModelGateway:
    def __init__(
        self,
        *,
        db: Database,
        sessions: SessionRepo,
        usage: UsageRepo,
        backends: BackendSelector,
        now: Callable[[], datetime],
        sleep: Callable[[float], Awaitable[None]],
        new_id: Callable[[], str],
        budget: SpendingBudget,
        suspended_calls: SuspendedCalls,
        mcp_servers: McpServerPool,
        span_recorder: SpanRecorder,
        reply_recorders: Sequence[ReplyRecorder],
        history: SessionHistory,
        tell_time: TimeTeller,
    ) -> None:
        """`reply_recorders` run in the transaction that stores each reply; `tell_time` adds the
        time to prompts (`stored_messages.with_present_time`)."""
        self._db = db
        self._sessions = sessions
        self._usage = usage
        self._backends = backends
        self._now = now
        self._sleep = sleep
        self._new_id = new_id
        self._budget = budget
        self._suspended_calls = suspended_calls
        self._turns = PartialTurnStore(sessions, suspended_calls)
        self._mcp_servers = mcp_servers
        self._span_recorder = span_recorder
        self._reply_recorders = tuple(reply_recorders)
        self._history = history
        self._tell_time = tell_time

    def with_backends(self, backends: BackendSelector) -> ModelGateway:
        """The same gateway to other backends."""
        other = copy.copy(self)
        other._backends = backends  # noqa: SLF001 - our own copy
        return other

    def select_backend(
        self,
        model: str,
        backend: str,
        fallbacks: Sequence[str] = (),
        *,
        keeps_history: bool = False,
    ) -> SelectedBackend:
        return self._backends.select_backend(model, backend, fallbacks, keeps_history=keeps_history)

    async def select_next(
        self,
        error: BackendError,
        session: ModelSession,
        *,
        path: str | None = None,
        since: datetime | None = None,
        keeps_history: bool = False,
    ) -> SelectedBackend | None:
        """Return the backend that continues after a failed call; None if none can.

        After a call with side effects, only a backend that can read the conversation may continue.
        The calls considered are those of the session, limited to `path` and `since` if given."""
        failed = error.failed_backend
        if failed is None:
            return None
        keeps_history = keeps_history or await self._suspended_calls.have_side_effects(
            session.id, path=path, since=since
        )
        return self._backends.select_next(failed, error, keeps_history=keeps_history)

    async def has_called_tools(
        self, session: ModelSession, *, path: str, since: datetime | None, only_looking: bool = True
    ) -> bool:
        """Return True if the session has started a call of one of our tools there since then; of
        one that may do more than look, unless `only_looking` counts."""
        calls = self._suspended_calls.calls
        started = await calls.list_started(session.id, path=path, since=since)
        return any(only_looking or call.kind not in READ_ONLY_KINDS for call in started)

    def _can_move(self, backend: str, chosen: SelectedBackend) -> bool:
        """Return True if a conversation can continue on that backend."""
        names = {backend, chosen.backend.name}
        return len(names) == 1 or all(map(self._backends.shares_history, names))

    async def open_session(
        self, key: str, chosen: SelectedBackend, *, max_tokens: int | None = None, persona: str = ""
    ) -> ModelSession:
        """Return the open session of `key`, or start a new one.

        A session moves between model APIs, to no other backend, and with a coding CLI to no other
        persona. Sessions of more than `max_tokens` are replaced too."""
        now = self._now()
        async with self._db.write() as tx:
            session = await self._sessions.find_open(key, tx=tx)
            if (
                session is not None
                and self._can_move(session.backend, chosen)
                and _can_continue(session, max_tokens, persona)
            ):
                return await self._sessions.move(
                    tx, session, backend=chosen.backend.name, model=chosen.model
                )
            if session is not None:
                await self._suspended_calls.withdraw(tx, session.id)
            return await self._sessions.start(
                tx,
                id=self._new_id(),
                key=key,
                backend=chosen.backend.name,
                model=chosen.model,
                now=now,
                persona=persona,
            )

    async def close_session(self, key: str) -> bool:
        """Close the open session of `key` and withdraw its approval requests; False if there is
        none."""
        async with self._db.write() as tx:
            session = await self._sessions.find_open(key, tx=tx)
            if session is None:
                await erase_ended_conversation(tx, key, now=self._now())
                return False
            await self._suspended_calls.withdraw(tx, session.id)
            return await self._sessions.close(tx, key, now=self._now())

    async def end_kept_processes(self, task: TaskId) -> None:
        """End what coding CLIs keep for the task's next step."""
        await self._backends.end_idle(kept_work(task))
        await self._mcp_servers.end_loans(kept_work(task))

    async def call_model(
        self,
        request: ModelRequest,
        chosen: SelectedBackend,
        session: ModelSession,
        on_event: EventListener | None = None,
    ) -> ModelReply:
        """Run the request to completion. Raises BackendError.

        Usage is recorded even if the call fails or is cancelled. A request with a `turn_key`
        continues its turn if that was cut off; without one, on BudgetExceeded the session keeps
        the work done so far. A suspended session continues with the decisions on its calls. If
        the history is too long for the model, it is shortened and the call is retried."""
        if on_event is not None and (notice := chosen.fallback_notice):
            await on_event(notice)
        tries = 0
        while True:
            try:
                return await self._call_once(request, chosen, session, on_event)
            except ContextTooLong as error:
                tries += 1
                if tries > (_MAX_OVERFLOW_RETRIES if error.new_history else 1):
                    raise
                if error.new_history:
                    request = replace(
                        request,
                        prompt=SHORTENED_NOTE + request.prompt.removeprefix(SHORTENED_NOTE),
                        pictures=(),
                        call_answers={},
                        resume_prompt=None,
                    )

    async def _call_once(
        self,
        ask: ModelRequest,
        chosen: SelectedBackend,
        session: ModelSession,
        on_event: EventListener | None,
    ) -> ModelReply:
        ask, session = await self._refresh(ask, session)
        call = await self._prepare_call(ask, chosen, session)
        run: BackendRun | None = None
        sent = 0
        try:
            async with self._connected_servers(ask, chosen, session, on_event) as connected:
                request, sent = await self._build_request(call, connected)
                if call.resumed is not None:
                    await call.resumed.repeat_calls_in_memory(request.tools)
                async with chosen.backend.run(request) as run:
                    async for event in run.events:
                        if on_event is not None:
                            await on_event(event)
                    result = run.result
        except BackendError as error:
            log.warning("%s failed: %s", chosen.backend.name, error)
            error.failed_backend = chosen
            self._backends.record_failure(chosen, error)
            if isinstance(error, ContextTooLong):
                model = (chosen.backend.name, chosen.model)
                await self._history.record_overflow(error, session, model, sent_tokens=sent)
            await self._record_failure(call, error.usage, error)
            lost = isinstance(error, AnswerCutByBudget)
            if lost and (hit := await call.reservation.get_cap_hit()):
                raise BudgetExceeded(hit, usage=error.usage) from None
            raise
        except BaseException as error:
            # Cancelled or failed in one of our tools: record the usage anyway.
            await self._record_failure(
                call, TokenUsage() if run is None else run.usage_so_far, error
            )
            raise
        self._backends.record_success(chosen)
        return self._finish_call(call, result)

    async def _prepare_call(
        self, ask: ModelRequest, chosen: SelectedBackend, session: ModelSession
    ) -> ModelCallInProgress:
        start = call_start(ask, chosen, session)
        return ModelCallInProgress(
            id=self._new_id(),
            model_request=ask,
            chosen=chosen,
            session=session,
            reservation=self._budget.reserve(
                ask.cap_subjects,
                chosen.backend.name,
                min(ask.limits.output_tokens, MAX_ANSWER_TOKENS),
            ),
            resumed=await self._find_resumable(ask, session),
            span=await self._span_recorder.begin(start) if start else None,
        )

    def _finish_call(self, call: ModelCallInProgress, result: RunResult) -> ModelReply:
        record = call.usage_record(result.model, result.usage, self._now())
        unrecorded = call.unrecorded_usage(record, result.usage)
        call.reservation.finish(result.usage)
        return ModelReply(
            result=result,
            session=call.session,
            usage_record=record,
            unrecorded_usage=unrecorded,
            call_id=call.id if call.is_pending else "",
            reservation=call.reservation,
            resumed=bool(call.model_request.call_answers),
            span=call.span,
        )

    async def record_reply(self, tx: Transaction, reply: ModelReply) -> None:
        """Store the turn and its cost in the caller's transaction."""
        result = reply.result
        used = result.usage.input_tokens + result.usage.output_tokens
        await self._book(tx, reply.call_id, reply.unrecorded_usage)
        if reply.span is not None:
            ending = CallEnding.of_success(
                reply.usage_record, suspended=bool(result.suspended), truncated=result.truncated
            )
            await self._span_recorder.end(tx, reply.span, ending)
        await self._sessions.append_messages(
            tx,
            reply.session.id,
            result.new_history,
            tokens=result.context_tokens or used,
            now=reply.usage_record.at,
        )
        if reply.resumed or result.suspended:
            await self._suspended_calls.advance(tx, reply.session.id, result.suspended)
        for recorder in self._reply_recorders:
            await recorder(tx, reply)

    async def _book(self, tx: Transaction, call_id: str, record: UsageRecord | None) -> None:
        """`call_id` is empty if no call is pending."""
        if call_id:
            await self._usage.book_call(tx, call_id, record)
        elif record is not None:
            await self._usage.add(tx, record)

    async def _begin_call(
        self, call: ModelCallInProgress, model: str, input_tokens: int, spent: TokenUsage
    ) -> int:
        """Satisfies `llm.backend.BudgetGate`: a call that is lost with this process is counted."""
        pending = call.pending_record(model, input_tokens, spent, self._now())
        was_pending = call.is_pending
        # Even if this is cancelled, the row may be there.
        call.is_pending = True
        try:
            return await retry_until_stored(
                lambda: call.reservation.admit(pending, input_tokens, spent),
                self._sleep,
                "a model call",
            )
        except BudgetExceeded:
            call.is_pending = was_pending
            raise

    async def _record_partial_turn(self, call: ModelCallInProgress, turn: PartialTurn) -> None:
        """Store one reply of the model with its cost: it is paid for."""
        record = call.usage_record(turn.model, turn.usage, self._now())
        session_id, ask = call.session.id, call.model_request
        heard = 0 if ask.steering is None else ask.steering.delivered_count

        async def add(tx: Transaction) -> None:
            await self._usage.book_call(tx, call.id, record, must_be_pending=True)
            if turn.messages:
                await self._turns.append(
                    tx, session_id, turn, key=ask.turn_key, heard=heard, now=record.at
                )
                if ask.call_answers:
                    await self._suspended_calls.advance(tx, session_id)

        async def write() -> None:
            call.unstored = TokenUsage()
            try:
                with suppress(ConcurrentUpdate):  # an earlier try was stored after all
                    await self._db.write_together(add)
            except StoreUnavailable:
                call.unstored = turn.usage
                raise
            call.is_pending = False
            call.has_open_turn |= bool(turn.messages)
            call.heard = heard
            call.reservation.record(turn.usage)

        await retry_until_stored(
            lambda: finish_despite_cancel(write()), self._sleep, "a model's reply"
        )

    async def _find_resumable(self, ask: ModelRequest, session: ModelSession) -> ResumedTurn | None:
        """Return the cut-off turn that this request continues. Another one's turn is abandoned."""
        if not session.open_turn:
            return None
        has_news = bool(ask.resume_prompt or ask.call_answers)
        if can_resume(session, ask.turn_key) and not has_news:
            if ask.steering is not None:
                ask.steering.rewind(session.open_turn_heard)
            return await self._turns.load(session)
        async with self._db.write() as tx:
            await self._turns.abandon(tx, session.id, now=self._now())
        return None

    @asynccontextmanager
    async def _connected_servers(
        self,
        ask: ModelRequest,
        chosen: SelectedBackend,
        session: ModelSession,
        on_event: EventListener | None,
    ) -> AsyncGenerator[ConnectedServers, None]:
        """Connect the request's MCP servers. Coding CLIs start them themselves, plus our own tool
        server."""
        if not chosen.backend.accepts_tools:
            keep = KeptLoan(work=work, session=session.id) if (work := ask.kept_for) else None
            async with self._mcp_servers.resolve_and_lend(
                ask.mcp_servers, ask.tools, ask.permit, keep
            ) as connected:
                await _forward_notes(on_event, connected)
                yield connected
            return
        if ask.workspace is None or not ask.mcp_servers:
            yield ConnectedServers()
            return
        scope = McpScope.of(ask.account, ask.workspace, ask.mode, ask.persona)
        connecting = self._mcp_servers.connect(ask.mcp_servers, scope, on_event, _elicitor(ask))
        async with connecting as connected:
            await _forward_notes(on_event, connected)
            yield replace(connected, servers=ask.mcp_servers)

    async def _refresh(
        self, ask: ModelRequest, session: ModelSession
    ) -> tuple[ModelRequest, ModelSession]:
        """Reload session state that an earlier run may have changed since the caller read it, and
        tell the time."""
        session = await self._sessions.get(session.id) or session
        if ask.permit is not None:
            ask = replace(ask, permit=ask.permit.restart())
        answers = {**await self._suspended_calls.get_answers(session.id), **ask.call_answers}
        if answers and ask.resume_prompt is not None:
            ask = replace(ask, prompt=ask.resume_prompt)
        if ask.purpose in _WORKER_PURPOSES:
            ask = replace(ask, prompt=self._tell_time(ask.prompt))
        return replace(ask, call_answers=answers), session

    async def _build_request(
        self, call: ModelCallInProgress, connected: ConnectedServers
    ) -> tuple[RunRequest, int]:
        """Fit the request into the model's window; return it with its estimated tokens."""
        ask, backend, id_ = call.model_request, call.chosen.backend, call.session.id
        room, more = ContextBudget(), 0
        if backend.accepts_tools:
            more = count_prompt_tokens(
                (ask.system_prompt, ask.prompt), (*ask.tools, *connected.tools)
            )
            room = await self._history.allocate(call.session, backend.name, call.chosen.model, more)
        resumed = call.resumed
        history = await self._history.build(
            id_,
            open_calls=bool(ask.call_answers) or resumed is not None,
            max_tokens=room.history_tokens,
        )
        request = replace(
            call.run_request(history, connected),
            answer_tokens=room.answer_tokens,
            gate=partial(self._begin_call, call),
            on_reply=partial(self._record_partial_turn, call) if ask.turn_key else None,
            on_external=partial(self._store_external_id, id_),
        )
        if resumed is not None:
            turns = max(1, ask.limits.turns - resumed.reply_count)
            # The turn began with its pictures.
            request = replace(
                request,
                pictures=(),
                resumed_text=resumed.text,
                limits=replace(ask.limits, turns=turns),
            )
        return request, more + count_row_tokens(history)

    async def _store_external_id(self, session_id: str, external_id: str) -> None:
        async with self._db.write() as tx:
            await self._sessions.set_external_id(tx, session_id, external_id)

    async def _record_failure(
        self,
        call: ModelCallInProgress,
        usage: TokenUsage,
        error: BaseException,
    ) -> None:
        added = error.new_history if isinstance(error, BackendError) else ()
        usage += call.unstored
        if call.model_request.steering is not None:
            # No transcript has the contents of the failed request.
            call.model_request.steering.rewind(call.heard)
        record = call.usage_record("", usage, self._now())
        unrecorded = call.unrecorded_usage(record, usage)
        call.reservation.finish(usage)
        ending = CallEnding.of_failure(record, error, resumable=isinstance(error, BudgetExceeded))
        if usage.requests or call.is_pending or call.has_open_turn:
            spent = unrecorded if usage.requests else None
            if call.is_pending:
                self._budget.book_later(call.id, spent)
            async with self._db.write() as tx:
                await self._book(tx, call.id if call.is_pending else "", spent)
                if call.span is not None:
                    await self._span_recorder.end(tx, call.span, ending)
                if call.has_open_turn:
                    if not is_resumable(error):
                        await self._turns.abandon(tx, call.session.id, now=record.at)
                elif added:
                    tokens = usage.input_tokens + usage.output_tokens
                    await self._sessions.append_messages(
                        tx, call.session.id, added, tokens=tokens, now=record.at
                    )
                    await self._suspended_calls.advance(tx, call.session.id)
        elif call.span is not None:
            await self._span_recorder.end_unbilled(call.span, ending)


def _elicitor(ask: ModelRequest) -> Elicitor | None:
    """Sub-agents ask nobody."""
    if ask.permit is None or ask.account.chat is None or ask.purpose is RunPurpose.HELPER:
        return None
    return Elicitor(permit=ask.permit, language=ask.language)


async def _forward_notes(on_event: EventListener | None, connected: ConnectedServers) -> None:
    if on_event is not None:
        for note in connected.notes:
            await on_event(note)


def _can_continue(session: ModelSession, most_tokens: int | None, persona: str) -> bool:
    fits = most_tokens is None or session.tokens <= most_tokens or bool(session.open_turn)
    # Model APIs keep no external state, so any persona can continue the session.
    return fits and (not session.external_id or session.persona == persona)
