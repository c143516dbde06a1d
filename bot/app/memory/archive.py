"""The archive of conversations: what a model is told of long ones, and what makes them shorter."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from bot.app.store import Store
from bot.config.settings import Settings
from bot.engine.agent.account import Account
from bot.engine.agent.chat.summarising import Summariser
from bot.engine.agent.context.history import History
from bot.engine.agent.context.windows import Windows
from bot.engine.agent.desk import Desk, Reply
from bot.engine.agent.prices import published_window
from bot.engine.llm.base import BackendError
from bot.engine.llm.registry import Registry
from bot.engine.memory.archive.compactor import Compactor, Growth
from bot.engine.memory.archive.context import Archive
from bot.engine.memory.archive.limits import Limits
from bot.engine.memory.archive.passes import Tools
from bot.engine.memory.archive.words import Reading
from bot.transports.clock import Clock
from storage.agents.helpers import HelperRepo
from storage.db import Transaction
from storage.marks import Marks
from storage.memory.archive.debts import DebtRepo
from storage.memory.archive.said import ArchiveRepo
from storage.memory.archive.summaries import SummaryRepo
from storage.records.people import ChatId
from storage.records.tasks import TaskId
from storage.sessions import Session

_CHAT, _TASK, _HELPER = "chat:", "task:", "helper:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Archiving:
    settings: Settings
    store: Store
    clock: Clock
    growth: Growth
    history: History
    windows: Windows

    async def keep(self, _tx: Transaction, reply: Reply) -> None:
        """See `desk.Keeper`. What was said is read again once it is stored."""
        self.growth.said(reply.session.id)

    def compactor(self, desk: Desk, models: Registry) -> Compactor:
        db = self.store.db
        said = ArchiveRepo(db)
        writer = Summariser(
            desk=desk,
            db=db,
            account_of=self.account_of,
            model=self.settings.memory.summary_model,
        )
        tools = Tools(
            db=db,
            sessions=self.store.sessions,
            said=said,
            summaries=SummaryRepo(db),
            debts=DebtRepo(db),
            reading=Reading(db, said),
            writer=writer,
            keeps=lambda backend: not models.brings_tools(backend),
            now=self.clock.now,
            new_id=lambda: f"sum_{secrets.token_hex(8)}",
            sleep=asyncio.sleep,
            zone=self.settings.zone,
            limits=limits_of(self.settings),
            window=partial(self._window, desk),
        )
        return Compactor(tools, self.growth)

    async def _window(self, desk: Desk, session: Session) -> int:
        """Of whoever works in it, and of whoever writes its summaries, the smaller one."""
        found = [await self.windows.of_session(session.id, session.backend, session.model)]
        if self.settings.memory.summary_model:
            with suppress(BackendError):
                chosen = desk.choose(self.settings.memory.summary_model, "")
                found.append(await self.windows.of(chosen.backend.name, chosen.model))
        return min(filter(None, found), default=0)

    async def account_of(self, key: str) -> Account:
        if key.startswith(_CHAT):
            chat = await self.store.people.chat(ChatId(key.removeprefix(_CHAT)))
            return Account(person=chat.person_id, chat=chat.id)
        if key.startswith(_TASK):
            name = key.removeprefix(_TASK).partition(":")[0].partition("/")[0]
            task = await self.store.work.tasks.get(TaskId(name))
            return Account(person=task.created_by, chat=task.chat_id, task=task.id)
        if key.startswith(_HELPER):
            helper = await HelperRepo(self.store.db).get(key.removeprefix(_HELPER))
            return Account(person=helper.person_id, chat=helper.chat_id, task=helper.task_id)
        return Account(person=None, chat=None)


def build_archive(settings: Settings, store: Store, clock: Clock, growth: Growth) -> Archiving:
    """`growth` is told of every turn."""
    chosen, urls = settings.memory, model_urls(settings)

    async def published(backend: str, model: str) -> int:
        # Only theirs: a coding CLI keeps its sessions itself.
        if backend not in urls:
            return 0
        return await asyncio.to_thread(published_window, backend, model, urls[backend])

    windows = Windows(own=chosen.windows, published=published, notes=Marks(store.db), now=clock.now)
    history = History(
        store.sessions,
        Archive(SummaryRepo(store.db)),
        tokens=chosen.context_tokens,
        windows=windows,
        grown=growth.said,
    )
    return Archiving(
        settings=settings,
        store=store,
        clock=clock,
        growth=growth,
        history=history,
        windows=windows,
    )


def limits_of(settings: Settings) -> Limits:
    chosen = settings.memory
    return Limits(
        context=chosen.context_tokens, share=chosen.context_share, tail=chosen.tail_messages
    )


def model_urls(settings: Settings) -> dict[str, str]:
    """Where each model API is served; empty where its own maker serves it."""
    return {"anthropic": settings.anthropic_base_url, "openai": settings.openai_base_url}
