"""Signs in to MCP servers at a URL by the SDK's OAuth client, and keeps the tokens in a file.

Imports the SDK, so it is imported on first use."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.exceptions import OAuthFlowError
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import AnyUrl, BaseModel, ValidationError

from bot.engine.llm.backend import McpServer
from bot.engine.mcp.client.http_transport import guarded_client
from bot.engine.mcp.client.server_config import McpError
from bot.engine.web.fetcher import WebFetcher
from storage.data_directory import write_private_file

_MAX_ERROR_CHARS = 200
_REFUSED = (401, 403)


_Model = TypeVar("_Model", bound=BaseModel)


class TokenFile:
    """One server's tokens and client; satisfies the SDK's `TokenStorage`. What was stored for
    another URL counts as absent."""

    def __init__(self, path: Path, url: str, remember_secret: Callable[[str], None]) -> None:
        """`remember_secret` is called with each token. Blocking."""
        self._remember_secret = remember_secret
        self._path = path
        self._url = url
        self._stored: dict[str, Any] = {}
        self.provider: OAuthClientProvider | None = None
        try:
            stored = json.loads(path.read_bytes())
            if isinstance(stored, dict) and stored.get("url") == url:
                self._stored = stored
        except (OSError, ValueError):
            pass
        self._remember_tokens()

    @property
    def has_tokens(self) -> bool:
        return bool(self._stored.get("tokens"))

    def create_provider(
        self,
        redirect_uri: str = "http://127.0.0.1/",
        show: Callable[[str], Awaitable[None]] | None = None,
        wait_for_code: Callable[[], Awaitable[AuthorizationCodeResult]] | None = None,
    ) -> OAuthClientProvider:
        """Without `show` nobody is asked: it only uses and refreshes the tokens."""
        provider = OAuthClientProvider(
            server_url=self._url,
            client_metadata=OAuthClientMetadata(
                client_name="Shiftboss", redirect_uris=[AnyUrl(redirect_uri)]
            ),
            storage=self,
            redirect_handler=show,
            callback_handler=wait_for_code,
        )
        # The SDK restores neither, and without them could not refresh after a restart.
        provider.context.token_expiry_time = self._stored.get("expires_at")
        provider.context.oauth_metadata = _parse(OAuthMetadata, self._stored.get("metadata"))
        self.provider = provider
        return provider

    async def get_tokens(self) -> OAuthToken | None:
        return _parse(OAuthToken, self._stored.get("tokens"))

    async def set_tokens(self, tokens: OAuthToken) -> None:
        assert self.provider is not None
        known = self.provider.context
        metadata = known.oauth_metadata
        self._stored |= {
            "tokens": tokens.model_dump(mode="json"),
            "expires_at": known.token_expiry_time,
            "metadata": None if metadata is None else metadata.model_dump(mode="json"),
        }
        self._remember_tokens()
        await self._save()

    def _remember_tokens(self) -> None:
        tokens = _parse(OAuthToken, self._stored.get("tokens"))
        for each in (tokens.access_token, tokens.refresh_token) if tokens else ():
            if each:
                self._remember_secret(each)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return _parse(OAuthClientInformationFull, self._stored.get("client"))

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._stored["client"] = client_info.model_dump(mode="json")
        await self._save()

    async def _save(self) -> None:
        body = json.dumps({**self._stored, "url": self._url}).encode()

        def write() -> None:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private_file(self._path, body)

        await asyncio.to_thread(write)


def _parse(kind: type[_Model], stored: object) -> _Model | None:
    try:
        return None if stored is None else kind.model_validate(stored)
    except ValidationError:
        return None


async def sign_in(server: McpServer, provider: OAuthClientProvider, fetcher: WebFetcher) -> None:
    """Greet the server, which asks for a sign-in. Raises McpError."""
    greeting = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": LATEST_HANDSHAKE_VERSION,
            "capabilities": {},
            "clientInfo": {"name": "shiftboss", "version": "1"},
        },
    }
    headers = {**server.headers, "Accept": "application/json, text/event-stream"}
    try:
        opened = guarded_client(server.url, headers, fetcher, auth=provider, shows_errors=True)
        async with (
            opened as (client, target),
            client.stream("POST", target, json=greeting) as response,
        ):
            refused = response.status_code in _REFUSED
    except (OAuthFlowError, httpx2.HTTPError, ValidationError, ValueError) as error:
        first_line = str(error).split("\n", 1)[0][:_MAX_ERROR_CHARS]
        raise McpError(first_line or type(error).__name__) from error
    if refused:
        raise McpError("the server refuses the sign-in")
