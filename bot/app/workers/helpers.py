"""Helpers: how workers send them off, and who runs them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from functools import partial

from bot.app.services import LanguageOfTask
from bot.app.store import Store
from bot.config.settings import Settings
from bot.engine.agent.desk import Desk
from bot.engine.agent.helpers.errand import HelperKit
from bot.engine.agent.helpers.service import HelperService
from bot.engine.agent.helpers.spawning import Spawning
from bot.engine.agent.leave.bell import Bell
from bot.engine.agent.personas.library import PersonaLibrary
from bot.engine.agent.personas.persona import Persona
from bot.engine.agent.tools.sessions_spawn import sessions_spawn
from bot.engine.agent.workbench import Job, Workbench
from bot.engine.dispatch.helped import Helped
from bot.engine.llm.base import Mode, Tool
from bot.engine.workflow.places.artifacts import Artifacts
from bot.transports.clock import Clock
from storage.records.messages import InboxRow
from storage.records.people import Language


class Helping:
    """`tools` is for the workbench, which the helpers themselves need: `serve` comes later, and
    `post` once there is somebody who takes what arrives."""

    def __init__(
        self, settings: Settings, store: Store, clock: Clock, personas: PersonaLibrary
    ) -> None:
        self._settings = settings
        self._store = store
        self._clock = clock
        self._service: HelperService | None = None
        self.post: list[Callable[[InboxRow], None]] = []
        self._spawning = Spawning(
            db=store.db,
            repo=store.work.helpers,
            personas=personas.known,
            new_id=partial(store.ids, 6),
            now=clock.now,
            on_accepted=self._accepted,
        )

    def tools(self, job: Job, _persona: Persona) -> Sequence[Tool]:
        """Who only looks sends nobody off."""
        if not self._settings.helpers or job.mode is not Mode.EXECUTE:
            return ()
        return (sessions_spawn(partial(self._spawning.spawn, job)),)

    def serve(
        self,
        desk: Desk,
        bench: Workbench,
        language_of: LanguageOfTask,
        on_change: Callable[[], None],
    ) -> HelperService:
        store, clock, language = self._store, self._clock, self._settings.language
        parents = Helped(
            store=store.work,
            people=store.people,
            inbox=store.inbox,
            home=self._settings.home,
            workspace_of=Artifacts(self._settings.home).workspace,
            language_of=language_of,
            fixed=None if language == "auto" else Language(language),
            now=clock.now,
            on_change=on_change,
            post=self.post,
        )
        kit = HelperKit(
            db=store.db,
            repo=store.work.helpers,
            calls=store.calls,
            desk=desk,
            bench=bench,
            parents=parents,
            # Where no new ones are sent off, those accepted before still come to their end.
            slots=asyncio.Semaphore(max(1, self._settings.helpers)),
            ended=Bell(),
            closing=asyncio.Event(),
            now=clock.now,
            sleep=asyncio.sleep,
        )
        self._service = HelperService(
            kit,
            new_incident=lambda: secrets.token_hex(4),
            grace=self._settings.stop_grace_seconds,
        )
        return self._service

    def look(self) -> None:
        """Something has changed about tasks."""
        if self._service is not None:
            self._service.look()

    def _accepted(self) -> None:
        if self._service is not None:
            self._service.wake()
