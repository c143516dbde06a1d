"""The web chat transport, with uvicorn embedded in the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import resource
import secrets
import socket
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from urllib.parse import quote

from pydantic import BaseModel, Field, ValidationError
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import (
    FileResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import Server

from bot.transports.front_signals import FrontSignal, FrontSignals
from bot.transports.ports import (
    CommandMenu,
    DeliveryResult,
    FileTooLarge,
    InboxPort,
    OutboundMessage,
)
from bot.transports.web.access import (
    AllowedHosts,
    LoginThrottle,
    WebAccessControl,
    get_browser_address,
    get_session_id,
    has_bearer_token,
    is_loopback,
    redirect_with_cookie,
)
from bot.transports.web.access_token import load_or_create_token
from bot.transports.web.files import MAX_FILE_BYTES, EmptyUpload, WebFileStore
from bot.transports.web.frames import MAX_TEXT, PartialAnswer, card_element_id, render_fragment
from bot.transports.web.hooks import read_body
from bot.transports.web.other_fronts import dump_partial
from bot.transports.web.page_connections import PageConnectionHandler, WebTabs
from bot.transports.web.pages import WebPages
from bot.transports.web.ports import (
    LOCAL_PLACE,
    LOCAL_SENDER,
    CannotListen,
    OpenWithoutToken,
    PortInUse,
    ShownCard,
    WebAlertReader,
    WebHistoryReader,
    WebSayHandler,
)
from bot.transports.web.sessions import SIGN_IN_PATH, WebSessionService
from cards.catalog import TextCatalog, catalog_for
from cards.render import text
from storage.errors import NotFound, StoreUnavailable
from storage.records.messages import IncomingMessage, MessagePlacement, RemoteFile
from storage.records.people import Channel, Chat, Language, WebKeyKind
from storage.shared_files import FileShareError, OneFolder, SharedFiles

_SHUTDOWN_SECONDS = 2
_MAX_FRAME_BYTES = 4 * 1024 * 1024


def open_listening_socket(host: str, port: int) -> socket.socket:
    """Open a listening socket; connections wait until the server runs. Raises PortInUse or
    CannotListen."""
    name = "127.0.0.1" if host == "localhost" else host
    sock = socket.socket(socket.AF_INET6 if ":" in name else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((name, port))
        sock.listen(128)
    except OSError as problem:
        sock.close()
        if problem.errno == errno.EADDRINUSE:
            raise PortInUse(host=host, port=port) from problem
        reason = problem.strerror or str(problem)
        raise CannotListen(host=host, port=port, reason=reason) from problem
    sock.setblocking(False)
    return sock


class BoundedConnection(H11Protocol):
    """A connection of a server that keeps so many at most, so that whoever reaches the port cannot
    use up the file descriptors. The one that has waited longest for its next request makes room for
    a new one, and none waits for longer than `request_seconds`."""

    limit = max(1, min(256, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4))
    request_seconds = 20.0

    _timer: asyncio.TimerHandle | None = None
    _waits_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_request()
        if len(self.connections) > self.limit:
            own = (each for each in self.connections if isinstance(each, BoundedConnection))
            waiting = (each for each in own if each._is_waiting)  # noqa: SLF001 - of this class
            min(waiting, key=lambda each: each._waits_since)._end()  # noqa: SLF001 - of this class

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        # Before the next request, which may have come already.
        self._expect_request()
        super().on_response_complete()

    @property
    def _is_waiting(self) -> bool:
        # There is no cycle before the first request.
        return getattr(self.cycle, "response_complete", True)

    def _expect_request(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._waits_since = self.loop.time()
        self._timer = self.loop.call_later(self.request_seconds, self._end_if_waiting)

    def _end_if_waiting(self) -> None:
        # A socket of a page has another protocol by now.
        if self._is_waiting and self.transport.get_protocol() is self:
            self._end()

    def _end(self) -> None:
        self.connections.discard(self)
        self.transport.abort()


class EmbeddedServer(Server):
    """Serves until `stop` is set. uvicorn's own loop would intercept SIGTERM and poll ten times a
    second."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(
            Config(
                app,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                http=BoundedConnection,
                # The default implementation depends on deprecated parts of `websockets`.
                ws="websockets-sansio",
                ws_max_size=_MAX_FRAME_BYTES,
                timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
            )
        )
        self.stop = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.stop.wait()


async def serve_app(
    app: ASGIApp, sock: socket.socket, *, on_stop: Callable[[], None] = lambda: None
) -> None:
    """Serve until cancelled, then call `on_stop` and close all connections and the socket."""
    server = EmbeddedServer(app)
    serving = asyncio.create_task(server.serve(sockets=[sock]), name="web-server")
    try:
        await asyncio.shield(serving)
    finally:
        on_stop()
        server.stop.set()
        await serving


_log = logging.getLogger(__name__)


def _utc_now() -> datetime:
    return datetime.now(UTC)


def _new_id() -> str:
    return secrets.token_hex(12)


@dataclass(kw_only=True, eq=False)
class WebTransport:
    """An empty `token` is replaced at the start by one stored in `home`, on loopback addresses
    only. `routes` are additional pages behind the same access control. `language` None follows the
    browser. `public_url` is the address for other devices, empty for none. `stopping` ends
    requests of `routes` that last. `on_guessing` tells
    owners that somebody at this address guesses the token; `on_language` is told the language of
    each page of the chat. `signals` reach the fronts of the same store, whose cookies have the
    same name: `cookie`, or one for the port if that is empty. `leases` are what this process
    alone does of those that share the store."""

    channel = Channel.WEB

    host: str
    port: int
    token: str = field(repr=False)
    home: Path
    inbox: InboxPort
    menu: CommandMenu
    history: WebHistoryReader
    say_handler: WebSayHandler
    alerts: WebAlertReader
    sessions: WebSessionService
    on_guessing: Callable[[str], Coroutine[object, object, None]]
    on_language: Callable[[Language], Awaitable[None]]
    signals: FrontSignals
    shared_files: SharedFiles = field(default_factory=OneFolder)
    cookie: str = ""
    leases: Callable[[], Sequence[str]] | None = None
    routes: Sequence[BaseRoute] = ()
    public_url: str = ""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    language: Language | None = None
    now: Callable[[], datetime] = _utc_now
    new_id: Callable[[], str] = _new_id
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        self._hosts = AllowedHosts(self.host, public_url=self.public_url)
        self._files = WebFileStore(self.home, self.shared_files)
        self.tabs = WebTabs()
        self.sessions.on_end = self._close_sessions
        self.throttle = LoginThrottle(
            now=self.now,
            on_guessing=self._report_guessing,
            on_failure=partial(self.signals.tell, FrontSignal.WRONG_TOKEN),
        )
        self._background: set[asyncio.Task[None]] = set()
        self._sock: socket.socket | None = None
        self._connection_handler = PageConnectionHandler(
            inbox=self.inbox,
            history=self.history,
            alerts=self.alerts,
            tabs=self.tabs,
            files=self._files,
            sessions=self.sessions,
            default_language=self.language,
            on_language=self.on_language,
            now=self.now,
            sleep=self.sleep,
            spawn=self.spawn,
        )

    @property
    def address(self) -> str:
        """URL for the browser, without the token. Available after the start."""
        return get_browser_address(self.host, self.port)

    @property
    def login_url(self) -> str:
        """URL with the token, printed by `shiftboss run`. Must not be logged where others can read
        it."""
        return f"{self.address}?token={self.token}"

    async def start(self, stack: AsyncExitStack) -> None:
        """Open the port. Raises WebStartError."""
        if not self.token and not is_loopback(self.host):
            raise OpenWithoutToken(host=self.host)
        await asyncio.to_thread(WebPages.preload)
        self.token = self.token or await asyncio.to_thread(load_or_create_token, self.home)
        self._sock = open_listening_socket(self.host, self.port)
        self.port = int(self._sock.getsockname()[1])
        stack.push_async_callback(self._close)
        if not self.public_url:
            # The port is known only now.
            self.sessions.address = self.address
        await self.sessions.use_token(self.token)

    async def run(self) -> None:
        """Serve until cancelled. Can be called again after a failure."""
        sock, self._sock = self._sock or open_listening_socket(self.host, self.port), None
        self.stopping.clear()
        await serve_app(self._build_access_control(), sock, on_stop=self.stopping.set)
        raise RuntimeError("the web server ended by itself")

    async def deliver(self, message: OutboundMessage) -> DeliveryResult:
        """Push to all open pages. Succeeds without any, since pages load the history when they
        connect."""
        shown = ShownCard(
            outbox_id=message.outbox_id,
            revision=message.revision,
            card=message.card,
            at=self.now(),
            reply_to=message.reply_to,
        )
        words = catalog_for(message.language)
        rendered = await asyncio.to_thread(render_fragment, message.card, words)
        self.tabs.show(shown)
        placed = MessagePlacement(message_ids=(card_element_id(message.outbox_id),))
        return DeliveryResult(placed=placed, degraded=rendered.degraded)

    async def stream(self, message: OutboundMessage, markdown: str) -> None:
        unfinished = PartialAnswer(
            outbox_id=message.outbox_id,
            revision=message.revision,
            markdown=markdown,
            at=self.now(),
        )
        self.tabs.show_partial(unfinished)
        self._tell_partial(unfinished)

    def tell_partials(self) -> None:
        """Tell the other fronts again what is being written here."""
        for each in self.tabs.partials:
            self._tell_partial(each)

    def _tell_partial(self, told: PartialAnswer) -> None:
        self.signals.tell(FrontSignal.PARTIAL_ANSWER, dump_partial(told), about=str(told.outbox_id))

    async def show_typing(self, chat: Chat) -> None:
        self.tabs.show_working()
        self.signals.tell(FrontSignal.WORKING, about="chat")

    async def fetch(self, file: RemoteFile, into: Path) -> Path:
        return await self._files.fetch(file, into)

    @property
    def _cookie(self) -> str:
        # Cookies are shared by all ports of a host, so the name includes the port.
        return self.cookie or f"shiftboss_{self.port}"

    def refresh_alerts(self) -> None:
        """Push the current channel problems to all pages; call it when they change."""
        self.tabs.push_to_all("alerts", self._connection_handler.alerts_frame)

    def _build_access_control(self) -> WebAccessControl:
        pages = WebPages(self.menu, self.language, leases=self.leases)
        return WebAccessControl(
            self._build_app(pages),
            token=self.token,
            cookie=self._cookie,
            sessions=self.sessions,
            hosts=self._hosts,
            deny_response=pages.deny_response,
            throttle=self.throttle,
        )

    def _build_app(self, pages: WebPages) -> Starlette:
        api = WebHttpApi(
            files=self._files,
            say_handler=self.say_handler,
            sessions=self.sessions,
            tabs=self.tabs,
            token=self.token,
            cookie=self._cookie,
            pages=pages,
            now=self.now,
            new_id=self.new_id,
        )
        own = [
            Route("/", pages.chat),
            Route("/healthz", pages.health),
            Route("/static/{name}", pages.static),
            Route("/files/{path:path}", api.file),
            Route("/upload", api.upload, methods=["POST"]),
            Route("/api/say", api.say, methods=["POST"]),
            Route("/sign-out", api.sign_out, methods=["POST"]),
            Route(f"{SIGN_IN_PATH}/{{secret}}", api.show_link),
            Route(f"{SIGN_IN_PATH}/{{secret}}", api.use_link, methods=["POST"]),
            WebSocketRoute("/ws", self._connection_handler.serve_socket),
        ]
        return Starlette(
            routes=[*own, *self.routes],
            exception_handlers={
                404: pages.not_found,
                500: pages.server_error,
                StoreUnavailable: pages.store_unavailable,
            },
        )

    def _close_sessions(self, ended: Collection[str]) -> None:
        self.tabs.close_sessions(ended)
        if ended:
            self.signals.tell(FrontSignal.SESSIONS_ENDED, list(ended))

    def _report_guessing(self, address: str) -> None:
        _log.warning("somebody guesses the token of the web chat, last from %s", address[:60])
        self.spawn(self.on_guessing(address))

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="web-press")
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _close(self) -> None:
        if self._sock is not None:
            self._sock.close()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)


_MEGABYTE = 1024 * 1024
_MAX_PAGE = 20
_FILE_HEADERS = {
    # Files may come from a model: they are sandboxed and cannot run scripts.
    "content-security-policy": "default-src 'none'; sandbox",
    "cache-control": "private, no-cache",
}


_MAX_SAY_BYTES = 12 * MAX_TEXT + 1_000
"""A character may be written as two escapes of six bytes."""


class _SayBody(BaseModel):
    """Without `buttons`, card texts omit button placeholders; `quiet` keeps message and answer out
    of the web chat."""

    text: str = Field(min_length=1, max_length=MAX_TEXT)
    id: str = Field(default="", pattern=r"^[A-Za-z0-9-]{8,64}$|^$")
    buttons: bool = True
    quiet: bool = False


@dataclass(kw_only=True, eq=False)
class WebHttpApi:
    files: WebFileStore
    say_handler: WebSayHandler
    sessions: WebSessionService
    tabs: WebTabs
    token: str = field(repr=False)
    cookie: str
    pages: WebPages
    now: Callable[[], datetime]
    new_id: Callable[[], str]

    async def file(self, request: Request) -> Response:
        found = await self.files.find(request.path_params["path"])
        if found is None:
            return PlainTextResponse(self.pages.words(request)("web.no_such_file"), status_code=404)
        how = "inline" if found.inline else "attachment"
        name = quote(found.path.name.encode("utf-8", "replace"), safe="")
        headers = {**_FILE_HEADERS, "content-disposition": f"{how}; filename*=utf-8''{name}"}
        return FileResponse(found.path, media_type=found.mime, headers=headers)

    async def upload(self, request: Request) -> Response:
        words, name = self.pages.words(request), request.query_params.get("name", "")
        if int(request.headers.get("content-length") or 0) > MAX_FILE_BYTES:
            return _too_large_response(words, name)
        try:
            kept = await self.files.save_upload(self.new_id(), name, request.stream())
        except FileTooLarge:
            return _too_large_response(words, name)
        except EmptyUpload:
            problem = words("web.empty_file", name=name[:80])
            return JSONResponse({"error": problem}, status_code=400)
        except ClientDisconnect:
            return Response(status_code=499)
        except (OSError, FileShareError) as error:
            _log.warning("an upload cannot be kept: %s", error)
            problem = words("web.upload_failed", name=name[:80])
            return JSONResponse({"error": problem}, status_code=507)
        upload_id = kept.reference["path"].split("/")[-2]
        facts = {"id": upload_id, "name": kept.name, "size": kept.size, "kind": kept.kind}
        return JSONResponse(facts, status_code=201)

    async def sign_out(self, request: Request) -> Response:
        """End the session of this browser; a program with the token has none."""
        await self.sessions.end(get_session_id(request))
        return RedirectResponse("/", status_code=303, headers={"cache-control": "no-store"})

    async def show_link(self, request: Request) -> Response:
        """Looking at a link does not use it up: chat platforms fetch the links that they show."""
        link = await self.sessions.find_link(request.path_params["secret"])
        return await self.pages.link_page(request, link, status=200 if link else 410)

    async def use_link(self, request: Request) -> Response:
        """Sign in, or show the new token, once. A cookie that came along is never taken over."""
        link = await self.sessions.find_link(request.path_params["secret"])
        try:
            if link is None:
                return await self.pages.link_page(request, None, status=410)
            if link.kind is WebKeyKind.NEW_TOKEN:
                token = await self.sessions.create_token(link.person_id, link.name, link=link.id)
                if request.headers.get("accept", "") == "application/json":
                    return JSONResponse({"name": link.name, "token": token}, status_code=201)
                return await self.pages.link_page(request, link, token=token)
            agent = request.headers.get("user-agent", "")
            replaced = request.cookies.get(self.cookie, "")
            cookie = await self.sessions.sign_in(link, agent, replaced=replaced)
        except NotFound:
            return await self.pages.link_page(request, None, status=410)
        page = request.query_params.get("to", "")
        is_page = page.isascii() and page.isalpha() and len(page) <= _MAX_PAGE
        where = f"/dashboard/{page}" if is_page else "/dashboard"
        return redirect_with_cookie(request, where, self.cookie, cookie)

    async def say(self, request: Request) -> Response:
        """Requires the token; a cookie is not sufficient."""
        words = self.pages.words(request)
        if not has_bearer_token(request, self.token):
            return JSONResponse({"error": words("web.needs_token")}, status_code=401)
        body = await read_body(request, _MAX_SAY_BYTES)
        if body is None:
            return JSONResponse({"error": "wrong: text"}, 413, {"Connection": "close"})
        try:
            said = _SayBody.model_validate_json(body)
        except ValidationError as problem:
            places = sorted({".".join(map(str, error["loc"])) for error in problem.errors()})
            return JSONResponse({"error": f"wrong: {', '.join(places)}"}, status_code=422)
        wished = request.headers.get("accept-language", "").partition(",")[0].partition(";")[0]
        message = IncomingMessage(
            place=LOCAL_PLACE,
            sender=replace(LOCAL_SENDER, language=wished.strip()),
            message_id=said.id or self.new_id(),
            text=said.text,
            addressed=True,
            sent_at=self.now(),
            quiet=said.quiet,
        )
        if not said.quiet:
            self.tabs.show_user_message(message)
        spoken = await self.say_handler.say(message, dedupe=message.message_id)
        shown = [
            {"title": card.title, "text": text.render(card, include_controls=said.buttons).text}
            for card in spoken.cards
        ]
        answer = {"id": message.message_id, "good": spoken.good, "cards": shown}
        return JSONResponse({**answer, "data": spoken.data})


def _too_large_response(words: TextCatalog, name: str) -> Response:
    problem = words("web.too_large", name=name[:80], limit=MAX_FILE_BYTES // _MEGABYTE)
    return JSONResponse({"error": problem}, status_code=413)
