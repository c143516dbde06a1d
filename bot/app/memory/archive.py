"""The archive of conversations: what a model is told of long ones, and what makes them shorter."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass

from bot.app.store import Store
from bot.config.settings import Settings
from bot.engine.agent.account import Account
from bot.engine.agent.chat.summarising import Summariser
from bot.engine.agent.context.history import History
from bot.engine.agent.desk import Desk, Reply
from bot.engine.llm.registry import Registry
from bot.engine.memory.archive.compactor import Compactor, Growth
from bot.engine.memory.archive.context import Archive
from bot.engine.memory.archive.limits import Limits
from bot.engine.memory.archive.passes import Tools
from bot.engine.memory.archive.words import Reading
from bot.transports.clock import Clock
from storage.db import Transaction
from storage.memory.archive.debts import DebtRepo
from storage.memory.archive.said import ArchiveRepo
from storage.memory.archive.summaries import SummaryRepo
from storage.records.people import ChatId
from storage.records.tasks import TaskId

_CHAT, _TASK = "chat:", "task:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Archiving:
    settings: Settings
    store: Store
    clock: Clock
    growth: Growth
    history: History

    async def keep(self, _tx: Transaction, reply: Reply) -> None:
        """See `desk.Keeper`. What was said is read again once it is stored."""
        self.growth.said(reply.session.id)

    def compactor(self, desk: Desk, models: Registry) -> Compactor:
        db = self.store.db
        said = ArchiveRepo(db)
        writer = Summariser(
            desk=desk,
            db=db,
            account_of=self._account_of,
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
        )
        return Compactor(tools, self.growth)

    async def _account_of(self, key: str) -> Account:
        if key.startswith(_CHAT):
            chat = await self.store.people.chat(ChatId(key.removeprefix(_CHAT)))
            return Account(person=chat.person_id, chat=chat.id)
        if key.startswith(_TASK):
            name = key.removeprefix(_TASK).partition(":")[0].partition("/")[0]
            task = await self.store.work.tasks.get(TaskId(name))
            return Account(person=task.created_by, chat=task.chat_id, task=task.id)
        return Account(person=None, chat=None)


def build_archive(settings: Settings, store: Store, clock: Clock, growth: Growth) -> Archiving:
    """`growth` is told of every turn."""
    archive = Archive(SummaryRepo(store.db))
    history = History(store.sessions, archive, tokens=settings.memory.context_tokens)
    return Archiving(settings=settings, store=store, clock=clock, growth=growth, history=history)


def limits_of(settings: Settings) -> Limits:
    chosen = settings.memory
    return Limits(
        context=chosen.context_tokens, share=chosen.context_share, tail=chosen.tail_messages
    )
