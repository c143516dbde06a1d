"""Calls models for background work and session summaries, without showing or remembering them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from bot.engine.agent.context_window import ContextWindows
from bot.engine.agent.model_calls import ModelRequest
from bot.engine.agent.model_gateway import ModelGateway
from bot.engine.llm.backend import OFFLINE_NAME as OFFLINE
from bot.engine.llm.backend import (
    BackendDenied,
    BackendError,
    RunLimits,
    RunPurpose,
    SelectedBackend,
    WorkerMode,
)
from bot.engine.memory.conversation_archive.service import (
    chat_of_session,
    subagent_of_session,
    task_of_session,
)
from bot.engine.memory.ports import BackgroundAnswer, BackgroundQuery
from bot.engine.workers.spec import CostAccount
from storage.db import Database, Transaction
from storage.records.people import Chat, ChatId, Language
from storage.records.system import ModelChoice
from storage.records.tasks import Task, TaskId
from storage.records.workers import ModelSession
from storage.subagents import SubagentRepo

_LIMITS = RunLimits(turns=2, output_tokens=3_000, seconds=60.0)


class BackgroundModelCalls:
    """Satisfies `memory.ports.BackgroundModel`."""

    def __init__(
        self,
        gateway: ModelGateway,
        get_choice: Callable[[], ModelChoice],
        *,
        purpose: RunPurpose = RunPurpose.MEMORY,
        limits: RunLimits = _LIMITS,
    ) -> None:
        """`get_choice` returns the model currently configured for this purpose."""
        self._gateway = gateway
        self._get_choice = get_choice
        self._purpose = purpose
        self._run_limits = limits

    async def ready(self) -> bool:
        """Return False for the offline backend and for coding CLIs, which use their own tools on
        untrusted text."""
        try:
            return _is_suitable(self._select_backend())
        except BackendError:
            return False

    async def ask(self, query: BackgroundQuery) -> BackgroundAnswer:
        chosen = self._select_backend()
        if not _is_suitable(chosen):
            raise BackendDenied(f"{chosen.backend.name} takes no notes")
        session = await self._gateway.open_session(query.key, chosen)
        try:
            reply = await self._gateway.call_model(self._build_request(query), chosen, session)
        finally:
            await self._gateway.close_session(query.key)

        # The prompt contains a conversation that is already stored; don't store it twice.
        bare = replace(reply, result=replace(reply.result, new_history=()))

        async def book(tx: Transaction) -> None:
            await self._gateway.record_reply(tx, bare)

        return BackgroundAnswer(value=reply.result.value, record_usage=book)

    def _select_backend(self) -> SelectedBackend:
        choice = self._get_choice()
        return self._gateway.select_backend(choice.model, choice.backend)

    def _build_request(self, query: BackgroundQuery) -> ModelRequest:
        return ModelRequest(
            purpose=self._purpose,
            prompt=query.prompt,
            system_prompt=query.system,
            language=Language.ENGLISH,
            # Not charged to the task, which may have ended.
            account=CostAccount(person=query.person, chat=query.chat),
            facts={"text": query.prompt},
            result_type=query.answer_type,
            limits=self._run_limits,
            mode=WorkerMode.REVIEW,
        )


def _is_suitable(chosen: SelectedBackend) -> bool:
    return chosen.backend.name != OFFLINE and chosen.backend.accepts_tools


class SessionAccounts:
    """Finds the account to charge for work on a session."""

    def __init__(
        self,
        get_chat: Callable[[ChatId], Awaitable[Chat]],
        get_task: Callable[[TaskId], Awaitable[Task]],
        subagents: SubagentRepo,
    ) -> None:
        self._get_chat = get_chat
        self._get_task = get_task
        self._subagents = subagents

    async def find(self, key: str) -> CostAccount:
        """The account of the session with this key."""
        if chat_id := chat_of_session(key):
            chat = await self._get_chat(chat_id)
            return CostAccount(person=chat.person_id, chat=chat.id)
        if task_id := task_of_session(key):
            task = await self._get_task(TaskId(task_id))
            return CostAccount(person=task.created_by, chat=task.chat_id, task=task.id)
        if subagent_id := subagent_of_session(key):
            agent = await self._subagents.get(subagent_id)
            return CostAccount(person=agent.person_id, chat=agent.chat_id, task=agent.task_id)
        return CostAccount(person=None, chat=None)


_SESSION_KEY = "compact"
_OFFLINE = "offline"
_SECONDS = 60.0
_TOKEN_FACTOR = 2
"""The output limit is counted by the model's own tokenizer, which may need twice our estimate."""
_THINKING_TOKENS = 4_000
"""Extra output tokens for reasoning."""


@dataclass(slots=True, kw_only=True)
class SessionSummarizer:
    """Satisfies `memory.conversation_archive.compaction.SummaryModel`.

    `model` empty means the session's own model."""

    gateway: ModelGateway
    db: Database
    accounts: SessionAccounts
    windows: ContextWindows
    model: str

    def can_summarize(self, session: ModelSession) -> bool:
        try:
            return (
                self.gateway.select_backend(*self._backend_choice(session)).backend.name != _OFFLINE
            )
        except BackendError:
            return False

    async def write(self, session: ModelSession, system: str, prompt: str, max_tokens: int) -> str:
        chosen = self.gateway.select_backend(*self._backend_choice(session))
        own = await self.gateway.open_session(_SESSION_KEY, chosen)
        ask = ModelRequest(
            purpose=RunPurpose.COMPACT,
            prompt=prompt,
            system_prompt=system,
            language=Language.ENGLISH,
            account=await self.accounts.find(session.key),
            facts={"text": prompt},
            limits=RunLimits(
                turns=1,
                output_tokens=_THINKING_TOKENS + max_tokens * _TOKEN_FACTOR,
                seconds=_SECONDS,
            ),
        )
        reply = await self.gateway.call_model(ask, chosen, own)
        # Record only the cost; the session stays empty.
        result = replace(reply.result, new_history=())
        async with self.db.write() as tx:
            await self.gateway.record_reply(tx, replace(reply, result=result))
        return reply.result.text

    async def context_window(self, session: ModelSession) -> int:
        """The smaller context window of the session's model and the summary model in tokens; 0 if
        unknown."""
        found = [await self.windows.get_for_session(session.id, session.backend, session.model)]
        if self.model:
            with suppress(BackendError):
                chosen = self.gateway.select_backend(self.model, "")
                found.append(await self.windows.get(chosen.backend.name, chosen.model))
        return min(filter(None, found), default=0)

    def _backend_choice(self, session: ModelSession) -> tuple[str, str]:
        return (self.model, "") if self.model else (session.model, session.backend)
