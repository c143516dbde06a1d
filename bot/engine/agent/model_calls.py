"""The records of a model call: its request, the call while it runs, its reply, and the turn that is
stored reply by reply, so that one that was cut off continues."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from bot.engine.agent.budget import BudgetReservation, to_micros
from bot.engine.llm import stored_messages
from bot.engine.llm.backend import (
    AnswerCutByBudget,
    BackendDenied,
    BackendUnavailable,
    BudgetExceeded,
    ImageInput,
    McpServer,
    PartialTurn,
    RunLimits,
    RunPurpose,
    RunRequest,
    RunResult,
    SelectedBackend,
    SteeringQueue,
    TokenUsage,
    WorkerMode,
)
from bot.engine.llm.backend_registry import is_about_account
from bot.engine.llm.stored_messages import MessageRow
from bot.engine.llm.tool_calls import (
    AgentTool,
    CallAuthorizer,
    CallDecision,
    WorkChecks,
    find_argument_error,
)
from bot.engine.mcp.client.server_config import ConnectedServers
from bot.engine.permissions.requests import SuspendedCalls
from bot.engine.tracing.span_recorder import ModelCallStart
from bot.engine.workers.spec import CostAccount
from storage.db import Transaction
from storage.records.people import Language
from storage.records.tasks import TaskId
from storage.records.traces import ModelCall
from storage.records.usage import BudgetScope, PendingModelCall, UsageRecord
from storage.records.workers import ModelSession
from storage.sessions import SessionRepo

# --- the turn that grows
# The transcript grows with each reply of the model; the results of its calls are in `tool_calls`
# until the next reply arrives with them. A session whose process died ends in a reply: its calls
# are made again under their IDs, and `permissions.service` answers those that were made.


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


def kept_work(task: TaskId) -> str:
    """Return the name of the work that a coding CLI may keep its process for."""
    return f"task {task}"


def open_turn_id(turn_key: str) -> str:
    """Return what a session's `open_turn` is while it holds a part of the request's turn."""
    return hashlib.sha256(turn_key.encode("utf-8", "surrogatepass")).hexdigest()


# --- the call


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """A model call. `facts` are the prompt's inputs as data; `parent_span` is the ID of the
    enclosing span.

    `turn_key` identifies the request across restarts: each reply of the model is stored when it
    arrives, and a turn that was cut off continues from there when the same request is made again.
    Without it the turn is stored when it is complete."""

    purpose: RunPurpose
    prompt: str
    system_prompt: str
    language: Language
    account: CostAccount
    facts: Mapping[str, Any]
    workspace: Path | None = None
    pictures: tuple[ImageInput, ...] = ()
    tools: tuple[AgentTool, ...] = ()
    result_type: type[BaseModel] | None = None
    limits: RunLimits = field(default_factory=RunLimits)
    mode: WorkerMode = WorkerMode.EXECUTE
    persona: str = ""
    permit: CallAuthorizer | None = None
    call_answers: Mapping[str, CallDecision] = field(default_factory=dict)
    mcp_servers: tuple[McpServer, ...] = ()
    resume_prompt: str | None = None
    """Replaces `prompt` if the session was suspended during this same request."""
    parent_span: str = ""
    turn_key: str = ""
    steering: SteeringQueue | None = None
    checks: WorkChecks | None = None

    @property
    def kept_for(self) -> str:
        """The work whose next step may use the same process; empty if there is none."""
        task = self.account.task if self.purpose is RunPurpose.STEP else None
        return "" if task is None else kept_work(task)

    @property
    def cap_subjects(self) -> Mapping[BudgetScope, str]:
        """Whose caps the call counts against. Some purposes have a cap of their own."""
        subjects = self.account.cap_subjects
        purposes = {each.value: each for each in BudgetScope if each.covers_purpose}
        own = purposes.get(self.purpose.value)
        return subjects if own is None else {**subjects, own: ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """The result of a call; not stored until `record_reply`. `usage_record` covers the whole run,
    `unrecorded_usage` what of it is not in the store yet. `call_id` is empty if no call of it is
    pending. `resumed` means that the run started
    with answers to suspended calls."""

    result: RunResult
    session: ModelSession
    usage_record: UsageRecord
    unrecorded_usage: UsageRecord | None
    call_id: str
    reservation: BudgetReservation
    resumed: bool
    span: ModelCall | None


@dataclass(slots=True, kw_only=True)
class ModelCallInProgress:
    """A call with its backend, session and reservation. `is_pending` while a reply is awaited;
    `has_open_turn` once a part of its turn is stored. The stored transcript contains the first
    `heard` messages of people. `unstored` is the usage of a reply that has arrived and that the
    store has refused so far."""

    id: str
    model_request: ModelRequest
    chosen: SelectedBackend
    session: ModelSession
    reservation: BudgetReservation
    resumed: ResumedTurn | None
    span: ModelCall | None
    is_pending: bool = False
    has_open_turn: bool = False
    heard: int = 0
    unstored: TokenUsage = field(default_factory=TokenUsage)

    def __post_init__(self) -> None:
        self.has_open_turn = self.resumed is not None
        steering = self.model_request.steering
        self.heard = 0 if steering is None else steering.delivered_count

    def run_request(self, history: Sequence[Any], connected: ConnectedServers) -> RunRequest:
        ask = self.model_request
        return RunRequest(
            purpose=ask.purpose,
            prompt=ask.prompt,
            system=ask.system_prompt,
            model=self.chosen.model,
            language=ask.language,
            workspace=ask.workspace,
            pictures=ask.pictures,
            history=history,
            tools=(*ask.tools, *connected.tools),
            result=ask.result_type,
            limits=ask.limits,
            facts=ask.facts,
            mode=ask.mode,
            permit=ask.permit,
            answers=ask.call_answers,
            steering=ask.steering,
            checks=ask.checks,
            servers=connected.servers,
            kept_for=ask.kept_for,
            persona=self.session.persona,
            external_id=self.session.external_id,
        )

    def unrecorded_usage(self, record: UsageRecord, usage: TokenUsage) -> UsageRecord | None:
        """Return what of the run's usage is not in the store yet; None if all is, or if an earlier
        run had got the answer already."""
        rest = usage - self.reservation.recorded
        used = rest.requests or rest.input_tokens or rest.output_tokens
        if not used and (self.reservation.recorded.requests or self._needed_no_call):
            return None
        return self.usage_record(record.model, rest, record.at)

    @property
    def _needed_no_call(self) -> bool:
        """The turn that this run continues had its answer already."""
        return self.resumed is not None and not self.is_pending

    def pending_record(
        self, model: str, input_tokens: int, spent: TokenUsage, at: datetime
    ) -> PendingModelCall:
        """Build the record of a call that is about to be sent, after `spent` in this run."""
        account, so_far = self.model_request.account, spent - self.reservation.recorded
        guess = TokenUsage(input_tokens=input_tokens, estimated_input=input_tokens)
        cost = self.reservation.cost(so_far + guess, model)
        return PendingModelCall(
            id=self.id,
            at=at,
            purpose=self.model_request.purpose.value,
            backend=self.chosen.backend.name,
            model=model,
            person_id=account.person,
            chat_id=account.chat,
            task_id=account.task,
            requests=so_far.requests + 1,
            input_tokens=so_far.input_tokens + input_tokens,
            output_tokens=so_far.output_tokens,
            cost_micros=to_micros(cost),
        )

    def usage_record(self, model: str, usage: TokenUsage, at: datetime) -> UsageRecord:
        """Build the usage record; `model` is the name in the response, empty for failed calls."""
        asked = self.chosen.model or self.reservation.model
        return self.model_request.account.usage_record(
            usage,
            to_micros(self.reservation.cost(usage, asked or model)),
            at=at,
            purpose=self.model_request.purpose,
            backend_and_model=(self.chosen.backend.name, model or asked),
        )


def call_start(
    ask: ModelRequest, chosen: SelectedBackend, session: ModelSession
) -> ModelCallStart | None:
    """Return the start of the call's span; None if the call belongs to no trace."""
    account = ask.account
    if account.task is None and not account.turn and not ask.parent_span:
        return None
    return ModelCallStart(
        task_id=account.task,
        chat_id=account.chat,
        turn_source=account.turn,
        parent_span_id=ask.parent_span,
        purpose=ask.purpose,
        backend=chosen.backend.name,
        model=chosen.model,
        session_id=session.id,
        replaced_backend=chosen.instead_of,
    )
