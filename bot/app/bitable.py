"""Connects the Feishu Bitable: the client of the app, its setup and the synchronisation while a
base is in use. Without one, nothing of it is loaded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from bot.app.lifecycle import Signal
from bot.app.repositories import RepositorySet
from bot.config.channels import CHANNEL_SETTINGS, is_configured
from bot.config.settings import Settings
from bot.transports.quota import MonthlyQuota, QuotaLevel
from storage.bitable import BitableRepo
from storage.records.bitable import BitableBase, BitableReport, BitableStatus
from storage.records.people import Channel, Chat, Language, Person

if TYPE_CHECKING:
    import httpx

    from bot.sync.ports import TableChange
    from bot.transports.feishu.bitable import FeishuTableService
    from bot.transports.feishu.document_reader import FeishuDocumentReader
    from handlers.ports_setup import BitablePort

log = logging.getLogger(__name__)

_INITIAL_PAUSE = 1.0
_MAX_PAUSE = 60.0


@dataclass(kw_only=True, eq=False)
class FeishuAppClient:
    """The table service of the Feishu app in use, and its reader of linked documents, made when one
    of them is first asked for; None without an app. `changed` is called when another base or app
    may be in use."""

    settings: Callable[[], Settings]
    quota: MonthlyQuota
    changed: Signal[[]] = field(default_factory=Signal)
    _tables: FeishuTableService | None = field(default=None, init=False)
    _reader: FeishuDocumentReader | None = field(default=None, init=False)
    _http: list[httpx.AsyncClient] = field(default_factory=list, init=False)
    _app: tuple[object, ...] = field(default=(), init=False)

    def has_app(self) -> bool:
        return is_configured(Channel.FEISHU, self.settings())

    def get(self) -> FeishuTableService | None:
        self._build_for_app()
        return self._tables

    def get_reader(self) -> FeishuDocumentReader | None:
        self._build_for_app()
        return self._reader

    async def aclose(self) -> None:
        for each in self._http:
            await each.aclose()

    def _build_for_app(self) -> None:
        settings = self.settings()
        app = tuple(getattr(settings, each) for each in CHANNEL_SETTINGS[Channel.FEISHU])
        if not self.has_app():
            self._tables = self._reader = None
        elif self._tables is None or self._app != app:
            self._app = app
            self._build(settings)

    def _build(self, settings: Settings) -> None:
        import time

        from bot.transports.feishu.api import FeishuApi, build_http_client
        from bot.transports.feishu.bitable import FeishuTableService
        from bot.transports.feishu.document_reader import FeishuDocumentReader
        from bot.transports.feishu.documents import feishu_web_domain

        self._http.append(build_http_client(settings.feishu_domain))
        api = FeishuApi(
            client=self._http[-1],
            app_id=settings.feishu_app_id,
            app_secret=settings.feishu_app_secret.get_secret_value(),
            now=time.monotonic,
            on_call=self.quota.count,
        )
        web_domain = feishu_web_domain(settings.feishu_domain)
        self._tables = FeishuTableService(api, web_domain=web_domain, may_call=self._may_call)
        self._reader = FeishuDocumentReader(api=api, web_domain=web_domain, may_call=self._may_call)

    def _may_call(self) -> bool:
        return self.quota.level is not QuotaLevel.LAST


class BitableSync(Protocol):
    """The synchronisation with one base; `run` continues until it is cancelled."""

    async def start(self, stack: AsyncExitStack) -> None: ...

    async def run(self) -> None: ...

    async def drain(self) -> None: ...

    def on_table_change(self, change: TableChange) -> None: ...


@dataclass(kw_only=True, eq=False)
class BitableConnection:
    """A service that runs the synchronisation while a base is in use. `build` is called anew when
    another base or app is in use."""

    name = "bitable"

    repo: BitableRepo
    client: FeishuAppClient
    build: Callable[[FeishuTableService], BitableSync]
    sleep: Callable[[float], Awaitable[None]]
    _changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _sync: BitableSync | None = field(default=None, init=False)
    _tables: FeishuTableService | None = field(default=None, init=False)

    def notify_changed(self) -> None:
        """Look again at which base and which app are in use."""
        self._changed.set()

    def on_table_change(self, change: TableChange) -> None:
        """The platform announces a change of any base."""
        if self._sync is None or self._tables is None:
            return
        from bot.sync.ports import FieldsChanged

        if isinstance(change, FieldsChanged):
            self._tables.forget_fields(change.ref)
        self._sync.on_table_change(change)

    async def start(self, stack: AsyncExitStack) -> None:
        """Nothing to do before `run`."""

    async def run(self) -> None:
        pause = _INITIAL_PAUSE
        while True:
            self._changed.clear()
            try:
                if (tables := await self._find_tables()) is not None:
                    await self._run_sync(tables)
                await self._changed.wait()
            except Exception:
                # Error boundary: a fault of the tables must not stop the chats.
                log.exception("the synchronisation failed; restarting in %g s", pause)
                await self.sleep(pause)
                pause = min(pause * 2, _MAX_PAUSE)
            else:
                pause = _INITIAL_PAUSE

    async def drain(self) -> None:
        if self._sync is not None:
            await self._sync.drain()

    async def _find_tables(self) -> FeishuTableService | None:
        base = await self.repo.get_base()
        return self.client.get() if base is not None and base.tables else None

    async def _run_sync(self, tables: FeishuTableService) -> None:
        """Until another base or app is in use."""
        async with AsyncExitStack() as stack:
            sync = self.build(tables)
            await sync.start(stack)
            self._sync, self._tables = sync, tables
            try:
                running = asyncio.ensure_future(sync.run())
                changed = asyncio.ensure_future(self._changed.wait())
                try:
                    await asyncio.wait({running, changed}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    changed.cancel()
                    running.cancel()
                    await asyncio.gather(running, changed, return_exceptions=True)
                if running.done() and not running.cancelled():
                    running.result()
            finally:
                self._sync = self._tables = None


@dataclass(kw_only=True, eq=False)
class LazyBitableSetup:
    """Implements handlers.ports_setup.BitablePort; loads the setup when it is first used."""

    build: Callable[[], BitablePort]

    @cached_property
    def _setup(self) -> BitablePort:
        return self.build()

    async def status(self) -> BitableStatus:
        return await self._setup.status()

    async def set_up(
        self, token: str, *, by: Person, chat: Chat, language: Language
    ) -> BitableReport:
        return await self._setup.set_up(token, by=by, chat=chat, language=language)

    async def check(self) -> BitableReport:
        return await self._setup.check()

    async def repair(self) -> BitableReport:
        return await self._setup.repair()

    async def rebuild(self) -> BitableBase:
        return await self._setup.rebuild()

    async def disconnect(self) -> BitableBase | None:
        return await self._setup.disconnect()


def build_bitable_setup(
    store: RepositorySet, client: FeishuAppClient, now: Callable[[], datetime]
) -> BitablePort:
    from bot.setup.bitable_setup import BitableSetupService

    return BitableSetupService(
        repo=BitableRepo(store.db),
        people=store.people,
        chats=store.chats,
        now=now,
        language_of=store.chat_language,
        has_app=client.has_app,
        tables=client.get,
        on_change=client.changed,
    )
