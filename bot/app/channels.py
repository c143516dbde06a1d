"""Builds the channels (inbox, web chat, chat platforms, the local API of shell commands, the HTTP
endpoint of the MCP server) and the services that look after the store."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from bot.app.backup_source import backup_source
from bot.app.bitable import BitableConnection, BitableSync
from bot.app.container import Container, register_owners
from bot.app.lifecycle import AppService
from bot.app.preflight import report_unwritable_home
from bot.app.running_program import save_address
from bot.config.channels import CHANNEL_SETTINGS, is_configured
from bot.config.logs import read_newest_lines
from bot.config.settings import Settings
from bot.engine.mcp.client.server_pool import McpServerPool
from bot.engine.mcp.client.sign_in import CALLBACK_PATH, CLIENT_PATH
from bot.engine.mcp.server import protocol
from bot.engine.mcp.server.memory_access import ForbiddenScope
from bot.engine.mcp.server.memory_server import McpMemoryServer
from bot.engine.tasks.processes import FRONT_SERVICE
from bot.engine.upkeep import BackupScheduler, RestoreNotice
from bot.setup.live_channels import LiveChannels
from bot.transports.front_signals import FrontSignal
from bot.transports.inbox import InboxService
from bot.transports.ports import Transport
from bot.transports.quota import MonthlyQuota, QuotaLevel
from bot.transports.supervisor import ChannelSupervisor
from bot.transports.web.access import VISITOR, get_bearer_token, has_bearer_token
from bot.transports.web.chat_service import WebChatHistory, WebChatSender
from bot.transports.web.files import FILES_FOLDER, WebFileStore
from bot.transports.web.hooks import hook_route
from bot.transports.web.other_fronts import OtherFrontsPages
from bot.transports.web.pages import WebPages, negotiate_language
from bot.transports.web.ports import LOCAL_PLACE
from bot.transports.web.transport import WebTransport
from cards import formats
from cards.catalog import catalog_for
from cards.model import CardTone, notice_card
from handlers.command_table import platform_menu
from handlers.language import CardLanguageResolver
from storage.bitable import BitableRepo
from storage.errors import StorageError
from storage.records.messages import DeliveryUrgency, InboxId, OutboxId
from storage.records.people import Channel, Chat, PersonRole, WebVisitor
from storage.records.workers import SignInFailed
from storage.store_identity import read_marker

if TYPE_CHECKING:
    from bot.sync.ports import TableChange
    from bot.transports.feishu.bitable import FeishuTableService

log = logging.getLogger(__name__)


_MAX_ADDRESS = 60
_COOKIE_MARK = 8
_READING = frozenset({"GET", "HEAD", "OPTIONS"})

MCP_PATH = "/mcp"
_ANY_PORT = 0
_UNAUTHORIZED = 401


@dataclass(frozen=True, slots=True, kw_only=True)
class Channels:
    """The web chat and the services of a process that has channels, in start order: `serving` ones
    run in each, `leading` ones in the process that leads. `lead` opens what only that one has,
    before its services start in a process that serves already."""

    web: WebTransport
    leading: tuple[AppService, ...]
    serving: tuple[AppService, ...]
    lead: Callable[[], Awaitable[None]]


def connect_channels(core: Container, *, leads: bool) -> Channels:
    """Add the web chat and all configured platforms. A process that does not lead has no Telegram,
    which one process at a time may poll."""
    inbox, polls = _build_inbox(core, resume_unfinished=True), leads
    inbox.leads = leads
    web = _build_web(core.settings, core, inbox)
    core.engine.on_report.connect(inbox.enqueue)
    core.alerts.on_change = web.refresh_alerts
    core.transports[Channel.WEB] = web
    bitable = _build_bitable_connection(core, inbox)

    def build(channel: Channel, settings: Settings) -> Transport | None:
        if channel is Channel.TELEGRAM and not polls:
            return None
        return _build_transport(
            channel,
            settings,
            inbox=inbox,
            quota=core.quota,
            on_table_change=partial(_pass_on_table_change, core, inbox, bitable),
        )

    for channel in CHANNEL_SETTINGS:
        if (transport := build(channel, core.settings)) is not None:
            core.transports[channel] = transport
    supervisor = ChannelSupervisor(
        transports=core.transports, outbox_sender=core.outbox_sender, alerts=core.alerts
    )
    core.reloader.channels = live = LiveChannels(
        in_force=core.settings,
        supervisor=supervisor,
        build=build,
        register_owners=partial(register_owners, core.repositories, core.clock),
        quota=core.quota,
        on_applied=core.bitable.changed,
    )

    async def lead() -> None:
        # What arrives is stored until the inbox starts, and then taken up.
        nonlocal polls
        polls = True
        if (transport := build(Channel.TELEGRAM, live.in_force)) is not None:
            await supervisor.add(transport)

    _hear_other_processes(core, inbox, web, bitable)
    return Channels(
        web=web,
        leading=(
            core.outbox_sender,
            core.autonomy.self_check,
            *core.engine.services,
            *_build_upkeep(core),
            inbox,
            bitable,
        ),
        serving=(core.reloader, core.signals, *core.home_keepers, supervisor),
        lead=lead,
    )


def _hear_other_processes(
    core: Container, inbox: InboxService, web: WebTransport, bitable: BitableConnection
) -> None:
    """Pass changes by other processes to listeners in this process, and to open pages."""
    signals = core.signals
    pages = OtherFrontsPages(
        tabs=web.tabs,
        history=web.history,
        spawn=web.spawn,
        inbox=core.repositories.inbox,
        outbox=core.repositories.outbox,
        sessions=core.web_sessions,
        want_partials=lambda: signals.tell(FrontSignal.PARTIALS_WANTED, about="answers"),
        delivers_here=lambda: inbox.leads,
    )

    def on_change(table: str, about: str) -> None:
        if not about.isdecimal():
            return
        if table == "inbox":
            inbox.notify_stored(InboxId(int(about)))
            pages.notify_received(InboxId(int(about)))
        elif table == "outbox":
            pages.notify_sent(OutboxId(int(about)))

    def on_gap() -> None:
        inbox.notify_stored(None)
        pages.notify_gap()

    def on_partials_wanted(_data: object) -> None:
        if inbox.leads:
            web.tell_partials()

    def on_written(_data: object) -> None:
        core.engine.on_unknown_change()
        core.engine.schedule.triggers.notify_changed()
        core.bitable.changed()

    core.on_store_change.connect(on_change)
    core.on_store_gap.connect(on_gap)
    signals.connect(FrontSignal.PARTIAL_ANSWER, pages.show_partial)
    signals.connect(FrontSignal.PARTIALS_WANTED, on_partials_wanted)
    signals.connect(FrontSignal.WORKING, lambda _: web.tabs.show_working())
    signals.connect(FrontSignal.SESSIONS_ENDED, web.tabs.close_sessions)
    signals.connect(
        FrontSignal.WRONG_TOKEN, lambda address: web.throttle.note_failure(str(address))
    )
    signals.connect(FrontSignal.TABLE_CHANGED, partial(_hear_table_change, bitable))
    signals.connect(FrontSignal.WRITTEN, on_written)


def _pass_on_table_change(
    core: Container, inbox: InboxService, bitable: BitableConnection, change: TableChange
) -> None:
    """Only the process that leads synchronises tables."""
    if inbox.leads:
        bitable.on_table_change(change)
    else:
        from bot.sync.ports import dump_table_change

        core.signals.tell(FrontSignal.TABLE_CHANGED, dump_table_change(change))


def _hear_table_change(bitable: BitableConnection, data: Any) -> None:
    from bot.sync.ports import load_table_change

    bitable.on_table_change(load_table_change(data))


def _build_bitable_connection(core: Container, inbox: InboxService) -> BitableConnection:
    connection = BitableConnection(
        repo=BitableRepo(core.repositories.db),
        client=core.bitable,
        build=partial(_build_sync, core, inbox),
        sleep=core.clock.sleep,
    )
    core.bitable.changed.connect(connection.notify_changed)
    return connection


def _build_sync(core: Container, inbox: InboxService, tables: FeishuTableService) -> BitableSync:
    from bot.app.bitable_sync import build_sync

    return build_sync(core, inbox, tables)


def _build_transport(
    channel: Channel,
    settings: Settings,
    inbox: InboxService,
    quota: MonthlyQuota,
    on_table_change: Callable[[TableChange], None],
) -> Transport | None:
    """None if the platform is not configured. Platform libraries are large, so each is loaded only
    if it is."""
    if not is_configured(channel, settings):
        return None
    if channel is Channel.TELEGRAM:
        from bot.transports.telegram.transport import TelegramTransport

        return TelegramTransport(
            token=settings.telegram_bot_token.get_secret_value(),
            base_url=settings.telegram_base_url,
            inbox=inbox,
            home=settings.home,
            menu=platform_menu,
        )
    from bot.transports.feishu.transport import FeishuTransport

    return FeishuTransport(
        app_id=settings.feishu_app_id,
        app_secret=settings.feishu_app_secret.get_secret_value(),
        domain=settings.feishu_domain,
        inbox=inbox,
        home=settings.home,
        on_call=quota.count,
        may_publish=lambda: quota.level is not QuotaLevel.LAST,
        on_table_change=on_table_change,
    )


class LocalApi:
    """HTTP API for shell commands while the queue runs without channels. Saves its address once it
    is open."""

    name = "local API"

    def __init__(self, settings: Settings, web: WebTransport) -> None:
        self._settings = settings
        self._web = web

    async def start(self, stack: AsyncExitStack) -> None:
        await self._web.start(stack)
        with report_unwritable_home(self._settings):
            save_address(self._settings, self._web.address.rstrip("/"))

    async def run(self) -> None:
        await self._web.run()


def build_local_api(core: Container) -> tuple[AppService, ...]:
    """Listens on this machine only, on a free port. Messages of other channels, and notifications,
    wait for the next `shiftboss run`."""
    inbox = _build_inbox(core, resume_unfinished=False)
    here = core.settings.model_copy(update={"web_host": "127.0.0.1", "web_port": _ANY_PORT})
    return inbox, core.reloader, LocalApi(core.settings, _build_web(here, core, inbox))


def _build_inbox(core: Container, *, resume_unfinished: bool) -> InboxService:
    store = core.repositories
    return InboxService(
        db=store.db,
        chats=store.chats,
        inbox=store.inbox,
        outbox=store.outbox,
        actions=store.actions,
        courier=core.courier,
        held=core.held,
        outbox_sender=core.outbox_sender,
        router=core.router,
        transports=core.transports,
        home=core.settings.home,
        clock=core.clock,
        alerts=core.alerts,
        resume_unfinished=resume_unfinished,
        files=core.files,
        retention=lambda: timedelta(days=core.autonomy.retention.keep.inbox_days),
    )


def _build_web(settings: Settings, core: Container, inbox: InboxService) -> WebTransport:
    """`settings` may differ from the container's in host and port."""
    store, endpoint = core.repositories, McpHttpEndpoint(core.memory_server)
    stopping = asyncio.Event()
    web = WebTransport(
        host=settings.web_host,
        port=settings.web_port,
        token=settings.web_token.get_secret_value(),
        home=settings.home,
        inbox=inbox,
        menu=platform_menu,
        history=WebChatHistory(store.db, store.chats),
        say_handler=WebChatSender(inbox),
        alerts=core.alerts,
        sessions=core.web_sessions,
        routes=(
            endpoint.route,
            hook_route(core.engine.schedule.triggers.receive),
            *_sign_in_routes(core.engine.workers.mcp_servers),
            *build_dashboard_routes(core, stopping),
        ),
        public_url=settings.web_url,
        stopping=stopping,
        language=settings.fixed_language,
        on_guessing=partial(_tell_owners_of_guessing, core),
        on_language=partial(store.chats.set_client_language, LOCAL_PLACE),
        signals=core.signals,
        now=core.clock.now,
        shared_files=core.files,
        cookie=_shared_cookie(core),
        leases=None if store.db.dialect == "sqlite" else lambda: [FRONT_SERVICE] * inbox.leads,
    )
    endpoint.get_key = lambda: web.token
    return web


def _shared_cookie(core: Container) -> str:
    """Fronts of one store take one another's cookies, also on different ports."""
    marker = read_marker(core.settings.home)
    if core.repositories.db.dialect == "sqlite" or marker is None:
        return ""
    return f"shiftboss_{marker.id[:_COOKIE_MARK]}"


async def _tell_owners_of_guessing(core: Container, address: str) -> None:
    """Notify owners of failed logins, once an hour: the key makes it the same message."""
    store, fallback = core.repositories, core.settings.fixed_language
    for chat in await store.people.private_chats(PersonRole.OWNER):
        text = notice_card("", "", tone=CardTone.WARN)
        words = catalog_for(await CardLanguageResolver(store.people, fallback)(chat, text))
        shown = formats.code_text(address, _MAX_ADDRESS)
        await core.courier.send(
            chat.id,
            notice_card("", words("web.guessing", address=shown), tone=CardTone.WARN),
            key=f"guessing:{core.clock.now():%Y%m%d%H}:{chat.id}",
            urgency=DeliveryUrgency.NOTICE,
        )


def _build_upkeep(core: Container) -> tuple[AppService, ...]:
    store, settings = core.repositories, core.settings
    owners = store.owner_cards(core.courier)
    notice = RestoreNotice(
        db=store.db,
        chats=store.chats,
        key_values=store.key_values,
        owners=owners,
        zone=settings.zone,
        offer=core.held.offer,
    )
    backups = BackupScheduler(
        source=backup_source(settings, masker=core.engine.workers.redactor),
        folder=settings.backup_folder,
        hours=settings.backup_hours,
        keep=settings.backup_keep,
        key_values=store.key_values,
        owners=owners,
        now=core.clock.now,
        sleep=core.clock.sleep,
    )
    return notice, backups, core.autonomy.retention


class _HttpRefusal(Exception):
    def __init__(self, status: int, text: str, code: int = protocol.INVALID_REQUEST) -> None:
        self.status = status
        self.code = code
        super().__init__(text)


def _sign_in_routes(servers: McpServerPool) -> tuple[Route, Route]:
    """The page on which a sign-in to an MCP server ends, where whoever comes knows the secret in
    its address, and the description of our client, which holds no secret."""

    async def finish(request: Request) -> Response:
        try:
            server = await servers.finish_sign_in(f"?{request.url.query}")
        except SignInFailed as error:
            return PlainTextResponse(f"⚠️ {error}", status_code=400)
        return PlainTextResponse(f"✅ {server}: signed in, close this page. 已登录，可以关闭本页。")

    async def describe(_request: Request) -> Response:
        described = servers.client_description
        if described is None:
            return PlainTextResponse("not found", status_code=404)
        return JSONResponse(dict(described))

    return Route(CALLBACK_PATH, finish), Route(CLIENT_PATH, describe)


class McpHttpEndpoint:
    """Stateless: each posted message is answered as JSON. `get_key` is called for each request,
    since the token is known only after the web chat has started."""

    def __init__(self, serving: McpMemoryServer) -> None:
        self._server = serving
        self.get_key: Callable[[], str] = str

    @property
    def route(self) -> Route:
        return Route(MCP_PATH, self.post, methods=["POST"])

    async def post(self, request: Request) -> Response:
        """Requires the token; a cookie is not sufficient, so web pages have no access."""
        try:
            told = await self._answer(request)
        except ClientDisconnect:
            return Response(status_code=499)
        except _HttpRefusal as refused:
            headers = {"www-authenticate": "Bearer"} if refused.status == _UNAUTHORIZED else {}
            said = protocol.error_message(None, refused.code, str(refused))
            return JSONResponse(said, status_code=refused.status, headers=headers)
        return Response(status_code=202) if told is protocol.NO_ANSWER else JSONResponse(told)

    async def _answer(self, request: Request) -> Any:
        key = self.get_key()
        if not key or not has_bearer_token(request, key):
            raise _HttpRefusal(_UNAUTHORIZED, "the token is missing: Authorization: Bearer …")
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise _HttpRefusal(415, "send application/json")
        try:
            message = protocol.parse_message(await _read_body(request))
        except ValueError as error:
            raise _HttpRefusal(400, "this is no JSON", protocol.PARSE_ERROR) from error
        if message is protocol.NO_ANSWER:
            raise _HttpRefusal(400, "this is no JSON", protocol.PARSE_ERROR)
        try:
            return await self._server.answer(message, request.query_params.getlist("scope"))
        except ForbiddenScope as wrong:
            raise _HttpRefusal(422, str(wrong), protocol.INVALID_PARAMS) from wrong
        except StorageError as error:
            log.warning("an external agent got no answer: %s", error)
            text = "memory cannot be read or written now"
            raise _HttpRefusal(503, text, protocol.INTERNAL_ERROR) from error


async def _read_body(request: Request) -> bytes:
    found = bytearray()
    async for chunk in request.stream():
        found += chunk
        if len(found) > protocol.MAX_MESSAGE_BYTES:
            raise _HttpRefusal(413, f"no more than {protocol.MAX_MESSAGE_BYTES} bytes a message")
    return bytes(found)


def build_dashboard_routes(core: Container, stopping: asyncio.Event) -> Sequence[BaseRoute]:
    """`stopping` is set before the server waits for open requests."""
    app = _LazyDashboard(core, stopping)
    # Routes, not mounts: with these, the application sees whole paths.
    paths = ("/dashboard", "/dashboard/{rest:path}", "/api/v1/{rest:path}", "/metrics")
    return [Route(path, app) for path in paths]


async def _read_log(home: Path, limit: int) -> Sequence[str]:
    return await asyncio.to_thread(read_newest_lines, home, limit)


async def _first_time(core: Container, source: str) -> datetime:
    store = core.repositories.key_values
    return await store.first_time("api_calls", source, now=core.clock.now())


async def _find_file(files: WebFileStore, path: str) -> Path | None:
    inside = path.removeprefix(f"{FILES_FOLDER}/")
    found = await files.find(inside) if inside != path else None
    return found.path if found else None


class _LazyDashboard:
    """The dashboard, the HTTP API and the metrics, loaded with the first request to them: who uses
    none of them pays for none."""

    def __init__(self, core: Container, stopping: asyncio.Event) -> None:
        self._core = core
        self._stopping = stopping
        self._loading: asyncio.Future[ASGIApp] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._loading is None:
            self._loading = asyncio.ensure_future(asyncio.to_thread(self._load))
        try:
            # Shielded: it is for all requests, and this one may be cancelled.
            app = await asyncio.shield(self._loading)
        except Exception:
            # The next request tries again: there may have been no memory or file descriptor left.
            self._loading = None
            raise
        await app(scope, receive, send)
        if scope["type"] == "http" and scope["method"] not in _READING:
            # What was changed here may have to wake the process that leads.
            self._core.signals.tell(FrontSignal.WRITTEN, about="dashboard")

    def _load(self) -> ASGIApp:
        from bot.dashboard.app import build_app
        from bot.dashboard.request import DashboardDeps

        core, settings = self._core, self._core.settings
        return build_app(
            DashboardDeps(
                services=core.services,
                now=core.clock.now,
                zone=settings.zone,
                negotiate=negotiate_language,
                get_chat=partial(_get_chat, core),
                fixed_language=settings.fixed_language,
                version=WebPages.version(),
                new_incident=lambda: secrets.token_hex(4),
                is_welcome=partial(_is_welcome, core),
                stopping=self._stopping,
                read_log=partial(_read_log, settings.home),
                find_file=partial(_find_file, WebFileStore(settings.home, core.files)),
                first_time=partial(_first_time, core),
            )
        )


async def _is_welcome(core: Container, request: Request) -> bool:
    return await core.web_sessions.is_welcome(request.scope[VISITOR], get_bearer_token(request))


async def _get_chat(core: Container, visitor: WebVisitor) -> Chat:
    if visitor.is_local:
        return await core.get_local_chat()
    return await core.repositories.chats.get_private(visitor.person.id)
