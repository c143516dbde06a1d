"""The engine's parts: who works, on what, and who is told."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from socket import gethostname

from bot.app.lifecycle import Service
from bot.app.services import LanguageOfTask, copies_of
from bot.app.store import Store
from bot.config.settings import Settings
from bot.engine.agent.budget import Budget, Caps, ask_for_more
from bot.engine.agent.desk import Desk
from bot.engine.agent.prices import PRICES_FILE, Prices, read_prices
from bot.engine.agent.talk import Conversations
from bot.engine.agent.tools.list_files import list_files
from bot.engine.agent.tools.read_file import read_file
from bot.engine.agent.tools.write_file import write_file
from bot.engine.dispatch.foreman import Foreman
from bot.engine.dispatch.local import LocalDispatcher
from bot.engine.dispatch.method.clippings import Clippings
from bot.engine.dispatch.method.ledger import Tools
from bot.engine.dispatch.method.notebook import Notebook
from bot.engine.dispatch.reporter import Reporter
from bot.engine.dispatch.requests import Requests
from bot.engine.dispatch.rights import Rights
from bot.engine.dispatch.timekeeper import Timekeeper
from bot.engine.llm.base import CapHit, Tool
from bot.engine.llm.registry import Registry, registry
from bot.engine.workflow.asking import Asker, risk_words
from bot.engine.workflow.boundary import AskForMore
from bot.engine.workflow.places.artifacts import Artifacts
from bot.engine.workflow.runner import Kit, TaskRunner
from bot.engine.workflow.view import TaskViews
from bot.transports.clock import Clock
from cards.courier import Courier
from handlers.language import guessed
from storage.budgets import BudgetRepo
from storage.db import Transaction
from storage.records.approvals import Approval
from storage.records.money import Scope, cap_of
from storage.records.people import Language
from storage.records.tasks import Task

_WORKER = f"{gethostname()}:{os.getpid()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    models: Registry
    talk: Conversations
    foreman: Foreman
    notebook: Notebook
    dispatcher: LocalDispatcher
    reporter: Reporter
    timekeeper: Timekeeper
    caps: Caps
    recall: Callable[[Task], Awaitable[Sequence[str]]]

    @property
    def workers(self) -> tuple[Service, ...]:
        """What has to run for tasks to go on, in the order in which it starts."""
        return self.reporter, self.dispatcher, self.timekeeper


def build_engine(settings: Settings, store: Store, courier: Courier, clock: Clock) -> Engine:
    models = _models(settings)
    caps = caps_of(settings)
    desk = Desk(
        db=store.db,
        sessions=store.sessions,
        usage=store.usage,
        backends=models,
        now=clock.now,
        new_id=lambda: secrets.token_hex(8),
        budget=_budget(settings, store, caps, clock),
    )
    language_of = LanguageOfTask(store.people, guessed, settings_language(settings))
    views = TaskViews(store.work, store.usage)
    news = asyncio.Event()
    requests = _requests(settings, store, courier, clock, news)
    reporter = Reporter(
        journal=store.work.journal,
        views=views,
        courier=courier,
        language_of=language_of,
        home=settings.home,
        zone=settings.zone,
        now=clock.now,
        asking=requests,
    )

    async def recall(task: Task) -> Sequence[str]:
        return [
            f"- {found.entry.kind}: {found.entry.text}" for found in await notebook.recall(task)
        ]

    kit = Kit(
        store=store.work,
        desk=desk,
        artifacts=Artifacts(settings.home),
        tools=_tools,
        language_of=language_of,
        chat_of=store.people.chat,
        leaves=_asker(settings, store, clock),
        ask_for_more=_ask_for_more(settings, store, clock),
        recall=recall,
        now=clock.now,
        sleep=asyncio.sleep,
        on_change=reporter.wake,
    )
    dispatcher = LocalDispatcher(
        store=store.work,
        run=TaskRunner(kit).run,
        language_of=language_of,
        slots=settings.slots,
        owner=_WORKER,
        now=clock.now,
        new_id=lambda: secrets.token_hex(4),
        on_change=reporter.wake,
        patience=timedelta(hours=settings.patience_hours),
        offer_after=timedelta(hours=settings.offer_after_hours),
        grace=settings.stop_grace_seconds,
    )
    foreman = Foreman(
        store=store.work,
        dispatcher=dispatcher,
        views=views,
        chat_of=store.people.chat,
        now=clock.now,
        new_id=store.ids.task,
    )
    notebook = Notebook(
        Tools(
            store=store.work,
            usage=store.usage,
            views=views,
            rights=Rights(store.people.chat),
            dispatcher=dispatcher,
            clippings=Clippings(settings.home),
            language_of=language_of,
            now=clock.now,
        )
    )
    return Engine(
        models=models,
        talk=_talk(settings, store, desk, clock),
        foreman=foreman,
        notebook=notebook,
        dispatcher=dispatcher,
        reporter=reporter,
        timekeeper=Timekeeper(
            approvals=store.approvals,
            requests=requests,
            now=clock.now,
            news=news,
            on_change=dispatcher.wake,
        ),
        caps=caps,
        recall=recall,
    )


def _requests(
    settings: Settings, store: Store, courier: Courier, clock: Clock, news: asyncio.Event
) -> Requests:
    spoken = settings_language(settings)
    return Requests(
        db=store.db,
        approvals=store.approvals,
        tasks=store.work.tasks,
        copies=copies_of(
            settings,
            spoken,
            people=store.people,
            chats=store.chats,
            outbox=store.outbox,
            courier=courier,
        ),
        language_of=LanguageOfTask(store.people, guessed, spoken),
        now=clock.now,
        on_asked=news.set,
    )


def _asker(settings: Settings, store: Store, clock: Clock) -> Asker:
    return Asker(
        words=risk_words(settings.risk_words),
        lifetime=timedelta(hours=settings.approval_hours),
        ids=store.ids,
        now=clock.now,
    )


def _ask_for_more(settings: Settings, store: Store, clock: Clock) -> AskForMore:
    async def ask(tx: Transaction, task: Task, hit: CapHit) -> Approval:
        now = clock.now()
        return await ask_for_more(
            tx,
            hit,
            task=task.id,
            chat_id=task.chat_id,
            title=task.title,
            ids=store.ids,
            now=now,
            expires_at=now + timedelta(hours=settings.approval_hours),
        )

    return ask


def caps_of(settings: Settings) -> Caps:
    texts = {
        Scope.TASK: settings.cap_task,
        Scope.PERSON: settings.cap_person,
        Scope.CHAT: settings.cap_chat,
        Scope.DAY: settings.cap_day,
    }
    return Caps(zone=settings.zone, of={scope: cap_of(text) for scope, text in texts.items()})


def _budget(settings: Settings, store: Store, caps: Caps, clock: Clock) -> Budget:
    return Budget(
        caps=caps,
        prices=_prices(settings),
        usage=store.usage,
        grants=BudgetRepo(store.db),
        now=clock.now,
    )


def _prices(settings: Settings) -> Prices:
    urls = {"anthropic": settings.anthropic_base_url, "openai": settings.openai_base_url}
    return read_prices(settings.home / PRICES_FILE, urls)


def settings_language(settings: Settings) -> Language | None:
    """The language everybody is spoken to in; None where each person's own is found out."""
    return None if settings.language == "auto" else Language(settings.language)


def _talk(settings: Settings, store: Store, desk: Desk, clock: Clock) -> Conversations:
    return Conversations(
        db=store.db,
        sessions=store.sessions,
        desk=desk,
        home=settings.home,
        now=clock.now,
        sleep=asyncio.sleep,
        ids=store.ids,
        patience=timedelta(hours=settings.approval_hours),
    )


def _models(settings: Settings) -> Registry:
    return registry(
        model=settings.model,
        anthropic_key=settings.anthropic_api_key.get_secret_value(),
        anthropic_base_url=settings.anthropic_base_url,
        openai_key=settings.openai_api_key.get_secret_value(),
        openai_base_url=settings.openai_base_url,
    )


def _tools(workspace: Path) -> tuple[Tool, ...]:
    return read_file(workspace), write_file(workspace), list_files(workspace)
