"""Gateways, conversations and worker contexts for tests: everything required, little of it real."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from bot.engine.agent.budget import SpendingBudget, SpendingCaps
from bot.engine.agent.context_window import ContextWindows
from bot.engine.agent.conversation.chat_files import ImageCaptioner
from bot.engine.agent.conversation.model_choice import AutoModelChoice
from bot.engine.agent.conversation.service import ConversationService
from bot.engine.agent.conversation.turn_taking import (
    ConversationExpiry,
    ToolCallSuspension,
    TurnQueue,
)
from bot.engine.agent.model_gateway import ModelGateway
from bot.engine.agent.pricing import PriceTable
from bot.engine.agent.session_history import SessionHistory
from bot.engine.agent.worker_context import WorkerContextBuilder
from bot.engine.llm.backend import McpServer
from bot.engine.llm.backend_registry import BackendSelector
from bot.engine.llm.tool_calls import CallAuthorizer, CallDecision, CallVerdict, ToolCall
from bot.engine.mcp.client.server_pool import McpServerPool
from bot.engine.memory.conversation_archive.service import ArchiveContext
from bot.engine.permissions.requests import ApprovalRequester, SuspendedCalls
from bot.engine.sandbox.process_runner import CommandHomes
from bot.engine.sandbox.spec import Sandbox
from bot.engine.tools.shell_exec import CommandShell
from bot.engine.tracing.span_recorder import ModelCallStart, SpanRecorder
from bot.engine.web import WebFetcher
from bot.engine.workers.personas import BUILT_IN_PERSONAS, PRAGMATIST_PERSONA, Persona
from bot.engine.workers.spec import WorkerSpec
from storage.db import Database
from storage.ids import IdGenerator
from storage.memory.conversation_archive import SummaryRepo
from storage.records.tasks import TaskId
from storage.records.traces import ModelCall
from storage.sessions import SessionRepo
from storage.tools import ToolCallRepo
from storage.traces import SpanRepo
from storage.usage import BudgetRepo, UsageRepo

APPROVAL_LIFETIME = timedelta(days=7)


class MemoryWindowStore:
    """Learned windows for one test."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    async def get(self, name: str) -> Any:
        return self.values.get(name)

    async def put(self, name: str, value: Any) -> None:
        self.values[name] = value


async def unpublished(_backend: str, _model: str) -> int:
    return 0


async def usual_cap(_task: TaskId) -> str:
    """No task has a cap of its own."""
    return ""


def make_windows(**changes: Any) -> ContextWindows:
    given: dict[str, Any] = {
        "configured": {},
        "published": unpublished,
        "store": MemoryWindowStore(),
        "now": lambda: datetime.now(UTC),
    }
    return ContextWindows(**(given | changes))


class NoSpans(SpanRecorder):
    async def begin(self, start: ModelCallStart) -> ModelCall | None:
        return None


class DefaultPersona:
    """Whoever is asked for, it is the pragmatist who works."""

    async def get(self, name: str) -> Persona:
        return PRAGMATIST_PERSONA

    async def get_all(self) -> Mapping[str, Persona]:
        return BUILT_IN_PERSONAS


class AllowAll:
    """Allows every call and records nothing."""

    def create_authorizer(self, spec: WorkerSpec, persona: Persona) -> CallAuthorizer:
        return self

    async def __call__(self, call: ToolCall, *, wait_seconds: float = 0.0) -> CallDecision:
        return CallDecision(verdict=CallVerdict.ALLOW)

    async def record_outcome(
        self, call_id: str, *, succeeded: bool, outcome: str, size: int = 0
    ) -> None:
        pass

    def restart(self) -> AllowAll:
        return self


ALLOW_ALL = AllowAll()


async def no_sandbox() -> Sandbox:
    raise AssertionError("no command is run")


def make_server_pool() -> McpServerPool:
    shell = CommandShell(
        sandbox=no_sandbox, homes=CommandHomes(Path("/nonexistent")), env=lambda _: {}
    )
    return McpServerPool(shell, str, WebFetcher(), data_dir=Path("/nonexistent"), variables={})


def make_history(db: Database, **changes: Any) -> SessionHistory:
    given: dict[str, Any] = {
        "max_tokens": 100_000,
        "windows": make_windows(),
        "on_too_long": lambda _session: None,
    }
    archive = ArchiveContext(SummaryRepo(db))
    return SessionHistory(SessionRepo(db), archive, **(given | changes))


def make_gateway(
    db: Database,
    backends: BackendSelector,
    now: Callable[[], datetime],
    new_id: Callable[[], str],
    **changes: Any,
) -> ModelGateway:
    usage = UsageRepo(db)
    given: dict[str, Any] = {
        "db": db,
        "sessions": SessionRepo(db),
        "usage": usage,
        "backends": backends,
        "now": now,
        "sleep": asyncio.sleep,
        "new_id": new_id,
        "budget": SpendingBudget(
            db=db,
            holder="here",
            caps=SpendingCaps(zone=ZoneInfo("UTC"), by_scope={}),
            prices=PriceTable(),
            usage=usage,
            grants=BudgetRepo(db),
            task_cap=usual_cap,
            now=now,
        ),
        "suspended_calls": SuspendedCalls(ToolCallRepo(db), now),
        "mcp_servers": make_server_pool(),
        "span_recorder": NoSpans(db=db, repo=SpanRepo(db), redact=str, new_id=new_id, now=now),
        "reply_recorders": (),
        "history": make_history(db),
        "tell_time": str,
    }
    return ModelGateway(**(given | changes))


async def no_servers() -> tuple[McpServer, ...]:
    return ()


def make_context_builder(**changes: Any) -> WorkerContextBuilder:
    given: dict[str, Any] = {
        "personas": DefaultPersona(),
        "tool_factories": (),
        "system_blocks": (),
        "authorizer_factory": ALLOW_ALL,
        "mask": str,
        "prompt_blocks": (),
        "shared_servers": no_servers,
    }
    return WorkerContextBuilder(**(given | changes))


def make_conversation(
    *,
    db: Database,
    gateway: ModelGateway,
    now: Callable[[], datetime],
    sleep: Callable[[float], Awaitable[None]],
    **changes: Any,
) -> ConversationService:
    ids, calls = IdGenerator(), ToolCallRepo(db)
    requester = ApprovalRequester(calls=calls, lifetime=APPROVAL_LIFETIME, ids=ids, now=now)
    given: dict[str, Any] = {
        "db": db,
        "sessions": SessionRepo(db),
        "gateway": gateway,
        "now": now,
        "sleep": sleep,
        "ids": ids,
        "approval_lifetime": APPROVAL_LIFETIME,
        "turn_queue": TurnQueue("cut"),
        "auto_choice": AutoModelChoice(
            models_by_size={}, default_backend=str, enabled_by_default=False
        ),
        "captioner": ImageCaptioner(
            gateway=gateway, db=db, ids=ids, model=str, text_only_models=()
        ),
        "suspension": ToolCallSuspension(calls=calls, requester=requester, wake=lambda: None),
        "expiry": ConversationExpiry(),
    }
    return ConversationService(**(given | changes))
