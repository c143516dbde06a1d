"""The local web chat as one of the platforms."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

from starlette.applications import Starlette
from starlette.routing import BaseRoute, Route, WebSocketRoute

from bot.transports.base import Delivery, Intake, Letter, Menu
from bot.transports.web.api import Api
from bot.transports.web.conversation import Conversation
from bot.transports.web.errors import OpenWithoutToken
from bot.transports.web.files import FileStore
from bot.transports.web.frames import Partial, card_id, fragment
from bot.transports.web.gate import Gate
from bot.transports.web.hosts import HostRule, address, is_loopback
from bot.transports.web.pages import Pages
from bot.transports.web.ports import Alerts, CardShown, History, Speaker
from bot.transports.web.server import listen, serve
from bot.transports.web.tabs import Tabs
from bot.transports.web.token import own_token
from cards.words import words_for
from storage.records.messages import Placed, RemoteFile
from storage.records.people import Channel, Chat, Language

_log = logging.getLogger(__name__)


def _utc_now() -> datetime:
    return datetime.now(UTC)


def _new_id() -> str:
    return secrets.token_hex(12)


class WebTransport:
    """`token` empty means: make one and keep it in `home`, allowed on loopback only. `routes`
    are further pages, behind the same access rule. `language` None follows the browser."""

    channel = Channel.WEB

    def __init__(
        self,
        *,
        host: str,
        port: int,
        token: str,
        home: Path,
        intake: Intake,
        menu: Menu,
        history: History,
        speaker: Speaker | None = None,
        alerts: Alerts | None = None,
        routes: Sequence[BaseRoute] = (),
        allowed_hosts: Sequence[str] = (),
        language: Language | None = None,
        now: Callable[[], datetime] = _utc_now,
        new_id: Callable[[], str] = _new_id,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._host = host
        self._port = port
        self._token = token
        self._home = home
        self._menu = menu
        self._speaker = speaker
        self._alerts = alerts
        self._routes = tuple(routes)
        self._hosts = HostRule(host, allowed_hosts)
        self._language = language
        self._now = now
        self._new_id = new_id
        self._files = FileStore(home)
        self._tabs = Tabs()
        self._background: set[asyncio.Task[None]] = set()
        self._sock: socket.socket | None = None
        self._conversation = Conversation(
            intake=intake,
            history=history,
            alerts=alerts,
            tabs=self._tabs,
            files=self._files,
            usual=language,
            now=now,
            sleep=sleep,
            spawn=self._spawn,
        )

    @property
    def token(self) -> str:
        """Known once started."""
        return self._token

    @property
    def address(self) -> str:
        """What to open in a browser, without the token. Known once started."""
        return address(self._host, self._port)

    @property
    def invitation(self) -> str:
        """What `shiftboss run` prints: the address with the token in it. Keep it out of logs
        that others read."""
        return f"{self.address}?token={self._token}"

    async def start(self, stack: AsyncExitStack) -> None:
        """Take the port. Raises a WebStartError where that cannot be."""
        if not self._token and not is_loopback(self._host):
            raise OpenWithoutToken(host=self._host)
        await asyncio.to_thread(Pages.prepare)
        self._token = self._token or await asyncio.to_thread(own_token, self._home)
        self._sock = listen(self._host, self._port)
        self._port = int(self._sock.getsockname()[1])
        stack.push_async_callback(self._close)

    async def run(self) -> None:
        """Serve until cancelled. May be run again after a failure."""
        sock, self._sock = self._sock or listen(self._host, self._port), None
        await serve(self._gate(), sock)
        raise RuntimeError("the web server ended by itself")

    async def deliver(self, letter: Letter) -> Delivery:
        """Push to every open page. Shown even where none is open: pages get what is in the
        history when they connect."""
        shown = CardShown(
            outbox_id=letter.outbox_id,
            revision=letter.revision,
            card=letter.card,
            at=self._now(),
            reply_to=letter.reply_to,
        )
        words = words_for(letter.language)
        rendered = await asyncio.to_thread(fragment, letter.card, words)
        self._tabs.show(shown)
        placed = Placed(message_ids=(card_id(letter.outbox_id),))
        return Delivery(placed=placed, degraded=rendered.degraded)

    async def stream(self, letter: Letter, markdown: str) -> None:
        self._tabs.show_partial(
            Partial(
                outbox_id=letter.outbox_id,
                revision=letter.revision,
                markdown=markdown,
                at=self._now(),
            )
        )

    async def typing(self, chat: Chat) -> None:
        self._tabs.working()

    async def fetch(self, file: RemoteFile, into: Path) -> Path:
        return await self._files.fetch(file, into)

    def refresh_alerts(self) -> None:
        """Show every page what is wrong with a channel now. To be called when that changes."""
        alerts = self._alerts
        if alerts is not None:
            self._tabs.refresh(
                "alerts", lambda words: {"type": "alerts", "lines": list(alerts.lines(words))}
            )

    def _gate(self) -> Gate:
        pages = Pages(self._menu, self._language)
        return Gate(
            self._app(pages),
            token=self._token,
            # Cookies do not tell ports apart: two programs on one machine must not either.
            cookie=f"shiftboss_{self._port}",
            hosts=self._hosts,
            deny=pages.deny,
        )

    def _app(self, pages: Pages) -> Starlette:
        api = Api(
            files=self._files,
            speaker=self._speaker,
            tabs=self._tabs,
            token=self._token,
            words=pages.words,
            now=self._now,
            new_id=self._new_id,
        )
        own = [
            Route("/", pages.chat),
            Route("/healthz", pages.health),
            Route("/static/{name}", pages.static),
            Route("/files/{path:path}", api.file),
            Route("/upload", api.upload, methods=["POST"]),
            Route("/api/say", api.say, methods=["POST"]),
            WebSocketRoute("/ws", self._conversation.socket),
        ]
        return Starlette(
            routes=[*own, *self._routes], exception_handlers={404: pages.missing, 500: pages.broken}
        )

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="web-press")
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _close(self) -> None:
        if self._sock is not None:
            self._sock.close()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
