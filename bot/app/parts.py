"""Makes each part of the engine from what all of them share."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from socket import gethostname
from typing import TypeAlias

from bot.app.memory.archive import Archiving, model_urls
from bot.app.services import LanguageOfTask, copies_of
from bot.app.store import Store
from bot.app.workers.leave import build_talks
from bot.app.workers.talking import Talking, build_eyes
from bot.app.workers.traces import build_recorder
from bot.config.settings import Settings
from bot.engine.agent.budget import Budget, Caps
from bot.engine.agent.chat.resets import Resets
from bot.engine.agent.desk import Desk, Keeper
from bot.engine.agent.leave.pending import Pending
from bot.engine.agent.leave.talks import GoesOn, Stops, Talks
from bot.engine.agent.mcp.servers import McpServers
from bot.engine.agent.prices import PRICES_FILE, Prices, read_prices
from bot.engine.agent.talk import Conversations
from bot.engine.agent.workbench import Workbench
from bot.engine.dispatch.foreman import Foreman
from bot.engine.dispatch.local import LocalDispatcher
from bot.engine.dispatch.method.clippings import Clippings
from bot.engine.dispatch.method.ledger import Tools
from bot.engine.dispatch.method.notebook import Notebook
from bot.engine.dispatch.requests import Requests
from bot.engine.dispatch.rights import Rights
from bot.engine.dispatch.telling.line import Line
from bot.engine.dispatch.telling.reporter import Reporter
from bot.engine.dispatch.timekeeper import Timekeeper
from bot.engine.llm.registry import Registry
from bot.engine.skills.library import Library
from bot.engine.skills.newcomers import Newcomers
from bot.engine.workflow.asking import Asker, MoneyAsker, risk_words
from bot.engine.workflow.places.artifacts import Artifacts
from bot.engine.workflow.progress import Progress
from bot.engine.workflow.runner import TaskRunner
from bot.engine.workflow.running.kit import MOST_CONTEXT, Kit
from bot.engine.workflow.shown.view import TaskViews
from bot.transports.clock import Clock
from bot.transports.courier import OutboxCourier
from handlers.language import guessed
from storage.budgets import BudgetRepo
from storage.records.money import Scope, cap_of
from storage.records.people import Language, Role
from storage.records.tasks import Task

Recall: TypeAlias = Callable[[Task], Awaitable[Sequence[str]]]
"""Finds what earlier tasks have left that may help, a line each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Makes each part of the engine from what all of them share."""

    settings: Settings
    store: Store
    courier: OutboxCourier
    clock: Clock
    bench: Workbench
    progress: Progress

    @property
    def language_of(self) -> LanguageOfTask:
        return LanguageOfTask(self.store.people, guessed, settings_language(self.settings))

    @property
    def views(self) -> TaskViews:
        return TaskViews(self.store.work, self.store.usage, self.progress, now=self.clock.now)

    @property
    def artifacts(self) -> Artifacts:
        return Artifacts(self.settings.home)

    @property
    def lifetime(self) -> timedelta:
        """How long a request for a decision stays open."""
        return timedelta(hours=self.settings.approval_hours)

    def desk(
        self,
        models: Registry,
        caps: Caps,
        servers: McpServers,
        archive: Archiving,
        *keepers: Keeper,
    ) -> Desk:
        store = self.store
        return Desk(
            db=store.db,
            sessions=store.sessions,
            usage=store.usage,
            backends=models,
            servers=servers,
            now=self.clock.now,
            new_id=lambda: secrets.token_hex(8),
            budget=Budget(
                caps=caps,
                prices=_prices(self.settings),
                usage=store.usage,
                grants=BudgetRepo(store.db),
                now=self.clock.now,
            ),
            pending=Pending(store.calls, self.clock.now),
            spans=build_recorder(self.settings, store, self.clock),
            keepers=(archive.keep, *keepers),
            history=archive.history,
        )

    def requests(self, news: asyncio.Event) -> Requests:
        store = self.store
        return Requests(
            db=store.db,
            approvals=store.approvals,
            tasks=store.work.tasks,
            copies=copies_of(
                self.settings,
                settings_language(self.settings),
                people=store.people,
                chats=store.chats,
                outbox=store.outbox,
                courier=self.courier,
            ),
            language_of=self.language_of,
            now=self.clock.now,
            on_asked=news.set,
        )

    def reporter(self, requests: Requests) -> Reporter:
        return Reporter(
            journal=self.store.work.journal,
            views=self.views,
            courier=self.courier,
            language_of=self.language_of,
            home=self.settings.home,
            zone=self.settings.zone,
            now=self.clock.now,
            line=Line(queue=self.store.work.queue, marks=self.store.marks),
            asking=requests,
        )

    def kit(self, desk: Desk, recall: Recall, on_change: Callable[[], None]) -> Kit:
        return Kit(
            store=self.store.work,
            desk=desk,
            artifacts=self.artifacts,
            bench=self.bench,
            language_of=self.language_of,
            chat_of=self.store.people.chat,
            leaves=leaves_of(self.settings, self.store, self.clock),
            ask_for_more=MoneyAsker(lifetime=self.lifetime, ids=self.store.ids, now=self.clock.now),
            recall=recall,
            now=self.clock.now,
            sleep=asyncio.sleep,
            on_change=on_change,
            zone=self.settings.zone,
            progress=self.progress,
            asker=self.store.asker,
            show_pictures=build_eyes(self.settings, self.store, desk).add,
            # What a model is told of it is shorter; this also counts what stands beside that.
            most_context=max(MOST_CONTEXT, self.settings.memory.context_tokens * 6 // 5),
        )

    def dispatcher(self, runner: TaskRunner, on_change: Callable[[], None]) -> LocalDispatcher:
        return LocalDispatcher(
            store=self.store.work,
            run=runner.run,
            language_of=self.language_of,
            slots=self.settings.slots,
            owner=f"{gethostname()}:{os.getpid()}",
            now=self.clock.now,
            new_id=lambda: secrets.token_hex(4),
            on_change=on_change,
            patience=timedelta(hours=self.settings.patience_hours),
            offer_after=timedelta(hours=self.settings.offer_after_hours),
            grace=self.settings.stop_grace_seconds,
            look_again=runner.look_again,
        )

    def timekeeper(
        self, requests: Requests, news: asyncio.Event, on_decided: Callable[[], None]
    ) -> Timekeeper:
        return Timekeeper(
            approvals=self.store.approvals,
            requests=requests,
            now=self.clock.now,
            news=news,
            on_change=on_decided,
        )

    def talks(self, talk: GoesOn, requests: Requests, stopped: asyncio.Event) -> Talks:
        return build_talks(
            self.store,
            self.clock,
            talk=talk,
            courier=self.courier,
            requests=requests,
            stopped=stopped,
            language=settings_language(self.settings),
        )

    def newcomers(self, library: Library) -> Newcomers:
        return Newcomers(
            library=library,
            marks=self.store.marks,
            owners=partial(self.store.chats.private, Role.OWNER),
            people=self.store.people,
            courier=self.courier,
            language=settings_language(self.settings),
            sleep=asyncio.sleep,
        )

    def foreman(self, dispatcher: LocalDispatcher) -> Foreman:
        return Foreman(
            store=self.store.work,
            dispatcher=dispatcher,
            views=self.views,
            chat_of=self.store.people.chat,
            now=self.clock.now,
            new_id=self.store.ids.task,
        )

    def notebook(self, dispatcher: LocalDispatcher) -> Notebook:
        return Notebook(
            Tools(
                store=self.store.work,
                usage=self.store.usage,
                views=self.views,
                rights=Rights(self.store.people.chat),
                dispatcher=dispatcher,
                clippings=Clippings(self.settings.home),
                language_of=self.language_of,
                drop=self.artifacts.drop,
                now=self.clock.now,
            )
        )

    def talk(self, desk: Desk, talking: Talking, stops: Stops) -> Conversations:
        return Conversations(
            db=self.store.db,
            sessions=self.store.sessions,
            desk=desk,
            home=self.settings.home,
            bench=self.bench,
            now=self.clock.now,
            sleep=asyncio.sleep,
            ids=self.store.ids,
            patience=self.lifetime,
            turns=talking.turns,
            auto=talking.auto,
            eyes=talking.eyes,
            stops=stops,
            resets=_resets(self.settings),
        )


def _resets(settings: Settings) -> Resets:
    chosen = settings.memory
    return Resets(
        idle=timedelta(minutes=chosen.session_idle_minutes),
        turns=chosen.session_turns,
        tokens=chosen.session_tokens,
    )


def leaves_of(settings: Settings, store: Store, clock: Clock) -> Asker:
    """Who says which steps people are asked about."""
    return Asker(
        words=risk_words(settings.risk_words),
        lifetime=timedelta(hours=settings.approval_hours),
        ids=store.ids,
        now=clock.now,
    )


def caps_of(settings: Settings) -> Caps:
    texts = {
        Scope.TASK: settings.cap_task,
        Scope.PERSON: settings.cap_person,
        Scope.CHAT: settings.cap_chat,
        Scope.DAY: settings.cap_day,
    }
    return Caps(zone=settings.zone, of={scope: cap_of(text) for scope, text in texts.items()})


def _prices(settings: Settings) -> Prices:
    return read_prices(settings.home / PRICES_FILE, model_urls(settings))


def settings_language(settings: Settings) -> Language | None:
    """The language everybody is spoken to in; None where each person's own is found out."""
    return None if settings.language == "auto" else Language(settings.language)
