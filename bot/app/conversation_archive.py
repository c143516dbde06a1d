"""Builds the conversation archive: history search for workers and people, and compaction of long
sessions."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from bot.app.repositories import RepositorySet
from bot.config.settings import Settings
from bot.engine.agent.background_calls import SessionAccounts, SessionSummarizer
from bot.engine.agent.context_window import ContextWindows
from bot.engine.agent.memory_hooks import WorkerHistory
from bot.engine.agent.model_calls import ModelReply
from bot.engine.agent.model_gateway import ModelGateway
from bot.engine.agent.pricing import published_context_window
from bot.engine.agent.session_history import SessionHistory
from bot.engine.llm.backend_registry import BackendRegistry
from bot.engine.memory.conversation_archive.compaction import (
    ArchiveCompactor,
    CompactionDeps,
    SessionGrowth,
)
from bot.engine.memory.conversation_archive.compaction_plan import CompactionLimits
from bot.engine.memory.conversation_archive.search import ArchiveSearch
from bot.engine.memory.conversation_archive.search_text import ArchiveIndexer
from bot.engine.memory.conversation_archive.service import (
    ArchiveContext,
    ConversationHistory,
    SessionCarryover,
)
from bot.engine.tasks.access import TaskAccess
from bot.transports.ports import Clock
from storage.db import Transaction
from storage.memory.cells import CompactionJobRepo
from storage.memory.conversation_archive import ArchiveRepo, SummaryRepo
from storage.records.tasks import TaskId
from storage.subagents import SubagentRepo
from storage.tasks import TaskVisibility


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationArchive:
    settings: Settings
    store: RepositorySet
    clock: Clock
    growth: SessionGrowth
    history: SessionHistory
    windows: ContextWindows

    async def notify_growth(self, _tx: Transaction, reply: ModelReply) -> None:
        """Hook of the model gateway after a turn; the compactor reads it once it is stored."""
        self.growth.notify(reply.session.id)

    def build_compactor(self, gateway: ModelGateway, models: BackendRegistry) -> ArchiveCompactor:
        store, chosen = self.store, self.settings.memory
        archive = ArchiveRepo(store.db)
        deps = CompactionDeps(
            db=store.db,
            sessions=store.sessions,
            archive=archive,
            summaries=SummaryRepo(store.db),
            debts=CompactionJobRepo(store.db),
            indexer=ArchiveIndexer(store.db, archive),
            model=SessionSummarizer(
                gateway=gateway,
                db=store.db,
                accounts=build_session_accounts(store),
                windows=self.windows,
                model=chosen.summary_model,
            ),
            keeps_history=lambda backend: not models.has_own_tools(backend),
            now=self.clock.now,
            new_id=lambda: f"sum_{secrets.token_hex(8)}",
            sleep=asyncio.sleep,
            zone=self.settings.zone,
            limits=CompactionLimits(
                context_tokens=chosen.context_tokens,
                threshold_share=chosen.context_share,
                tail_messages=chosen.tail_messages,
            ),
        )
        return ArchiveCompactor(deps, self.growth)


def build_conversation_archive(
    settings: Settings,
    store: RepositorySet,
    clock: Clock,
    worker_history: WorkerHistory,
    base_urls: Mapping[str, str],
) -> ConversationArchive:
    """`base_urls` are those of the model APIs."""
    growth = worker_history.history.growth
    chosen = settings.memory

    async def published(backend: str, model: str) -> int:
        # Only for model APIs: coding CLIs manage their own sessions.
        if backend not in base_urls:
            return 0
        return await asyncio.to_thread(published_context_window, backend, model, base_urls[backend])

    windows = ContextWindows(
        configured=chosen.windows, published=published, store=store.key_values, now=clock.now
    )
    history = SessionHistory(
        store.sessions,
        ArchiveContext(SummaryRepo(store.db)),
        max_tokens=chosen.context_tokens,
        windows=windows,
        on_too_long=growth.notify,
    )
    return ConversationArchive(
        settings=settings,
        store=store,
        clock=clock,
        growth=growth,
        history=history,
        windows=windows,
    )


def build_session_accounts(store: RepositorySet) -> SessionAccounts:
    return SessionAccounts(store.people.get_chat, store.work.tasks.get, SubagentRepo(store.db))


def build_worker_history(settings: Settings, store: RepositorySet) -> WorkerHistory:
    archive, summaries = ArchiveRepo(store.db), SummaryRepo(store.db)
    indexer, access = ArchiveIndexer(store.db, archive), TaskAccess(store.people.get_chat)

    async def task_visibility(task: TaskId) -> TaskVisibility:
        return await access.visibility_of(await store.work.tasks.get(task))

    history = ConversationHistory(
        search=ArchiveSearch(archive, summaries, indexer),
        carryover=SessionCarryover(archive, summaries, indexer, settings.zone),
        growth=SessionGrowth(),
        get_chat=store.people.get_chat,
        zone=settings.zone,
    )
    return WorkerHistory(history=history, task_visibility=task_visibility)
