"""Sign-ins of owners to MCP servers at a URL, which run until the code of the page has come."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from bot.engine.llm.backend import McpServer
from bot.engine.mcp.client.server_config import CLIENT_NAME, McpError
from bot.engine.redaction import MASK
from bot.engine.web import WebFetcher, parse_url
from cards.courier import OwnerCardSender
from cards.views.tools import mcp_rights_card
from storage.errors import StorageError
from storage.records.workers import SignOut

if TYPE_CHECKING:
    import httpx2
    from mcp.shared.auth import AuthorizationCodeResult

    from bot.engine.mcp.client.http_transport import TokenFile

log = logging.getLogger(__name__)

CALLBACK_PATH = "/mcp/callback"
CLIENT_PATH = "/mcp/client.json"
_OWN_HOSTS = {"localhost", "127.0.0.1", "::1"}
_MAX_PENDING = 4
_LINK_SECONDS = 60.0
_ANSWER_SECONDS = 60.0


@dataclass(eq=False)
class _PendingSignIn:
    link: asyncio.Future[str]
    code: asyncio.Future[dict[str, str]]
    task: asyncio.Task[None] | None = None

    @property
    def state(self) -> str:
        query = parse_qs(urlsplit(self.link.result()).query) if self.link.done() else {}
        return query.get("state", [""])[0]


MissingScopeListener = Callable[[str, str, str], Awaitable[None]]
"""Called with a server's name, the rights that calls were refused for, and the name of the sign-in
that lacks them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingScopeNotifier:
    """Satisfies `MissingScopeListener`: sends the owners a card with a button that signs in with
    these rights too, once a day for each sign-in, because a server can want any number."""

    owners: OwnerCardSender
    now: Callable[[], datetime]

    async def __call__(self, server: str, scope: str, sign_in: str) -> None:
        key = f"mcp-rights:{server}:{sign_in}:{self.now().date()}"
        try:
            await self.owners.notify(key, partial(mcp_rights_card, server, scope))
        except StorageError as error:
            log.warning("the owners are not told of missing rights at %s: %s", server, error)


@dataclass(frozen=True, slots=True, kw_only=True)
class McpSignIns:
    """Tokens are in files of `folder`, readable by its owner only. A sign-in is given up after
    `patience` seconds, and with the process. `client_id` is the address where authorization
    servers can read `client_description`; without it they are asked to register us."""

    fetcher: WebFetcher
    folder: Path
    redirect_uri: str
    on_missing_scope: MissingScopeListener
    client_id: str = ""
    patience: float = 900.0
    _pending: dict[str, _PendingSignIn] = field(default_factory=dict)
    _secrets: set[str] = field(default_factory=set)

    @property
    def client_description(self) -> Mapping[str, Any]:
        """The Client ID Metadata Document."""
        return {
            "client_id": self.client_id,
            "client_name": CLIENT_NAME,
            "redirect_uris": [self.redirect_uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        }

    def token_path(self, server: str) -> Path:
        return self.folder / f"{server}.json"

    async def create_auth(self, server: McpServer) -> httpx2.Auth | None:
        """The part that sends and refreshes the token for this server; None if nobody has signed
        in, or its headers have an authorization of their own."""
        if "authorization" in {each.lower() for each in server.headers}:
            return None
        file = await asyncio.to_thread(self._load, server)
        return file.create_provider() if file.has_tokens else None

    def mask(self, text: str) -> str:
        for secret in tuple(self._secrets):
            text = text.replace(secret, MASK)
        return text

    def _load(self, server: McpServer) -> TokenFile:
        # Slow to import, and only needed where a server at a URL is used.
        from bot.engine.mcp.client.http_transport import TokenFile

        on_missing_scope = partial(self.on_missing_scope, server.name)
        path = self.token_path(server.name)
        return TokenFile(path, server, self._secrets.add, on_missing_scope)

    async def start(self, server: McpServer) -> str:
        """Return the page where the person signs in; an earlier sign-in to this server is given
        up. Raises McpError."""
        self.cancel(server.name)
        if len(self._pending) >= _MAX_PENDING:
            raise McpError("too many sign-ins are open")
        loop = asyncio.get_running_loop()
        pending = _PendingSignIn(loop.create_future(), loop.create_future())
        self._pending[server.name] = pending
        pending.task = asyncio.create_task(self._run(server, pending), name="mcp sign-in")
        done, _ = await asyncio.wait(
            (pending.link, pending.task),
            timeout=_LINK_SECONDS,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if pending.link in done:
            return pending.link.result()
        self._forget(server.name, pending)
        if pending.task in done:
            pending.task.result()
            raise McpError("it asks for no sign-in")
        raise McpError("it did not answer in time")

    async def finish(self, pasted: str) -> str:
        """Take the code, or the address with it, that the page gave; return the server's name.
        Raises McpError."""
        found = {key: each[0] for key, each in parse_qs(urlsplit(pasted.strip()).query).items()}
        names = [name for name, each in self._pending.items() if each.link.done()]
        # Only a person in the chat sends a bare code: the callback page always has a query.
        if "?" not in pasted and len(names) == 1:
            found = {"code": pasted.strip(), "state": self._pending[names[0]].state}
        name = next(
            (each for each in names if self._pending[each].state == found.get("state", "")), ""
        )
        if not name or not found.get("state"):
            raise McpError("no sign-in waits for this")
        pending = self._pending[name]
        assert pending.task is not None
        if not pending.code.done():
            pending.code.set_result(found)
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await asyncio.shield(pending.task)
        except TimeoutError as error:
            raise McpError("it did not answer in time") from error
        finally:
            self._forget(name, pending)
        return name

    def cancel(self, server: str) -> None:
        if (pending := self._pending.get(server)) is not None:
            self._forget(server, pending)

    async def sign_out(self, name: str, server: McpServer | None) -> SignOut:
        """Withdraw the tokens at the authorization server, if that can be asked, and delete them.
        `server` is the one of this name that is configured now."""
        self.cancel(name)
        is_revoked = False
        if server is not None:
            from bot.engine.mcp.client import http_transport

            file = await asyncio.to_thread(self._load, server)
            is_revoked = file.has_tokens and await http_transport.revoke(server, file, self.fetcher)
        try:
            await asyncio.to_thread(self.token_path(name).unlink)
        except FileNotFoundError:
            return SignOut.WAS_OUT
        return SignOut.REVOKED if is_revoked else SignOut.OUT

    async def aclose(self) -> None:
        tasks = [each.task for each in self._pending.values() if each.task is not None]
        for name in tuple(self._pending):
            self.cancel(name)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget(self, server: str, pending: _PendingSignIn) -> None:
        if self._pending.get(server) is pending:
            del self._pending[server]
        if pending.task is not None:
            pending.task.cancel()

    async def _run(self, server: McpServer, pending: _PendingSignIn) -> None:
        from mcp.shared.auth import AuthorizationCodeResult

        from bot.engine.mcp.client import http_transport

        async def show(link: str) -> None:
            url = parse_url(link)
            if url is None or (url.scheme != "https" and url.host not in _OWN_HOSTS):
                raise ValueError("its page for signing in is not safe to open")
            await file.settle_client()
            pending.link.set_result(str(url))

        async def wait_for_code() -> AuthorizationCodeResult:
            found = await pending.code
            if "code" not in found:
                raise ValueError(f"the sign-in was refused: {found.get('error', '')[:100]}")
            return AuthorizationCodeResult(**found)

        file = await asyncio.to_thread(self._load, server)
        provider = file.create_provider(self.redirect_uri, self.client_id, show, wait_for_code)
        async with asyncio.timeout(self.patience):
            await http_transport.sign_in(server, provider, self.fetcher, file.scope_to_ask)
