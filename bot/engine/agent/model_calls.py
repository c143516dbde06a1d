"""The records of a model call: its request, the call while it runs, and its reply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from bot.engine.agent.budget import BudgetReservation, to_micros
from bot.engine.agent.partial_turns import ResumedTurn
from bot.engine.llm.backend import (
    ImageInput,
    McpServer,
    RunLimits,
    RunPurpose,
    RunRequest,
    RunResult,
    SelectedBackend,
    SteeringQueue,
    TokenUsage,
    WorkerMode,
)
from bot.engine.llm.tool_calls import AgentTool, CallAuthorizer, CallDecision
from bot.engine.mcp.client.server_config import ConnectedServers
from bot.engine.tracing.span_recorder import ModelCallStart
from bot.engine.workers.spec import CostAccount
from storage.records.people import Language
from storage.records.traces import ModelCall
from storage.records.usage import BudgetScope, PendingModelCall, UsageRecord
from storage.records.workers import ModelSession


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
    `unrecorded_usage` what of it is not in the store yet. `resumed` means that the run started
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
            servers=connected.servers,
            persona=self.session.persona,
            external_id=self.session.external_id,
        )

    def unrecorded_usage(self, record: UsageRecord, usage: TokenUsage) -> UsageRecord | None:
        """Return what of the run's usage is not in the store yet; None if all is."""
        rest = usage - self.reservation.recorded
        used = rest.requests or rest.input_tokens or rest.output_tokens
        if self.reservation.recorded.requests and not used:
            return None
        return self.usage_record(record.model, rest, record.at)

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
