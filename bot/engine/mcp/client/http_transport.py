"""Connects the SDK's session to an MCP server at a URL, through a guarded HTTP client, and signs in
to it by OAuth, with tokens kept in a file."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.exceptions import OAuthFlowError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import AnyUrl, BaseModel, ValidationError

from bot.engine.llm.backend import McpServer
from bot.engine.mcp.client.server_config import McpError
from bot.engine.web import FetchRefused, WebFetcher, WebUrl, parse_url, tls_context
from storage.data_directory import write_private_file

# Connects the SDK's session to an MCP server at a URL, through a guarded HTTP client.
#
# The host name is resolved and checked once, as for fetched pages; all messages go to that
# address, and redirects are not followed because headers may contain secrets. Imports the SDK,
# so it is imported on first use.

MAX_RESPONSE_BYTES = 8_000_000
_MAX_STREAM_SECONDS = 600.0
_MAX_RESUMPTIONS = 20
"""Streams that are opened or resumed between two of our requests."""

CLOSED_MESSAGE = "Connection closed"
"""With the code CONNECTION_CLOSED it is the SDK's own error for a session that has ended. Servers
use the code alone for other things."""

_CONNECT_SECONDS = 30.0
_MAX_ERROR_CHARS = 300
_NOT_FOUND, _NOT_ALLOWED, _MOVED, _FAILED, _UNAUTHORIZED = 404, 405, 300, 400, 401
_MAX_OTHER_SITES = 4


@asynccontextmanager
async def open_http(
    url: str, headers: Mapping[str, str], fetcher: WebFetcher, auth: httpx2.Auth | None = None
) -> AsyncGenerator[tuple[Any, Any], None]:
    """Yield the streams of a session with the server at this URL. Raises McpError."""
    async with guarded_client(url, headers, fetcher, auth=auth) as (client, target):
        opened = streamable_http_client(
            target, http_client=client, max_sse_event_size=MAX_RESPONSE_BYTES
        )
        async with opened as streams:
            yield streams


@asynccontextmanager
async def guarded_client(
    url_text: str,
    headers: Mapping[str, str],
    fetcher: WebFetcher,
    *,
    auth: httpx2.Auth | None,
    shows_errors: bool = False,
) -> AsyncGenerator[tuple[httpx2.AsyncClient, str], None]:
    """Yield a client for the server at this URL, and the URL as it is sent. With `auth`, hosts that
    sign people in are reached too; `shows_errors` passes on their error responses. Raises
    McpError."""
    url = parse_url(url_text)
    if url is None:
        raise McpError("its address is no plain http or https URL")
    try:
        address, *_ = await fetcher.resolve_addresses(url)
    except FetchRefused as error:
        hint = "; SHIFTBOSS_FETCH_PRIVATE names the places of your own that may be reached"
        raise McpError(f"{error}{hint}") from error
    verify = await asyncio.to_thread(tls_context)
    transport = _GuardedTransport(
        url,
        address,
        partial(httpx2.AsyncHTTPTransport, verify=verify),
        fetcher=None if auth is None else fetcher,
        shows_errors=shows_errors,
    )
    client = httpx2.AsyncClient(
        transport=transport,
        headers=dict(headers),
        auth=auth,
        trust_env=False,
        # Reading is limited by each request's own time.
        timeout=httpx2.Timeout(_CONNECT_SECONDS, read=None),
    )
    async with client:
        yield client, f"{url.scheme}://{url.site}{url.path}"


class _GuardedTransport(httpx2.AsyncBaseTransport):
    """Sends each request to the checked address, and limits what comes back.

    A failure becomes a JSON-RPC error for its own request, so that it does not end the session."""

    def __init__(
        self,
        url: WebUrl,
        address: str,
        create: Callable[[], httpx2.AsyncHTTPTransport],
        *,
        fetcher: WebFetcher | None,
        shows_errors: bool,
    ) -> None:
        """`fetcher` checks the addresses of other hosts; without it none is reached."""
        self._url = url
        self._address = address
        self._create = create
        self._fetcher = fetcher
        self._shows_errors = shows_errors
        self._inner = create()
        self._others: dict[str, httpx2.AsyncHTTPTransport] = {}
        self._resumptions = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self._is_elsewhere(request):
            return await self._send_elsewhere(request)
        if not self._is_wanted(request):
            return httpx2.Response(_NOT_ALLOWED, request=request)
        try:
            pinned = _pinned(request, self._url, self._address)
            response = await self._inner.handle_async_request(pinned)
        except httpx2.TransportError as error:
            return _error(request, f"{self._url.site}: {type(error).__name__}")
        try:
            return await self._limited(request, response)
        except httpx2.TransportError as error:
            return _error(request, str(error) or type(error).__name__)
        except BaseException:
            await response.aclose()
            raise

    async def aclose(self) -> None:
        for each in (self._inner, *self._others.values()):
            await each.aclose()

    def _is_elsewhere(self, request: httpx2.Request) -> bool:
        """Whether it is no message for the server: with another path, or to another host."""
        here = httpx2.URL(f"{self._url.scheme}://{self._url.site}{self._url.path}")
        return request.url != here

    async def _send_elsewhere(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request of a sign-in. Each host has connections of its own, so that none is
        reached under the certificate of another."""
        url = parse_url(str(request.url))
        is_plain = url is not None and url.scheme == "http" and self._url.scheme == "https"
        if self._fetcher is None or url is None or is_plain:
            raise httpx2.ConnectError("the server names an address that is not reached")
        try:
            address, *_ = await self._fetcher.resolve_addresses(url)
        except FetchRefused as error:
            raise httpx2.ConnectError(str(error)) from error
        site = f"{url.scheme}://{url.site}"
        if site not in self._others and len(self._others) >= _MAX_OTHER_SITES:
            raise httpx2.ConnectError("the server names too many addresses")
        inner = self._others.get(site) or self._others.setdefault(site, self._create())
        response = await inner.handle_async_request(_pinned(request, url, address))
        if (problem := _problem(response)) and not _MOVED <= response.status_code < _FAILED:
            await response.aclose()
            raise httpx2.ReadError(problem)
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=_LimitedStream(response),
            request=request,
        )

    def _is_wanted(self, request: httpx2.Request) -> bool:
        """Streams, of the server's own requests or resumed, are opened so often only."""
        if request.method != "GET":
            self._resumptions = 0
            return True
        self._resumptions += 1
        return self._resumptions <= _MAX_RESUMPTIONS

    async def _limited(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        if problem := _problem(response):
            await response.aclose()
            return _error(request, problem)
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        stream = _LimitedStream(response)
        if kind == "text/event-stream" and response.status_code < _FAILED:
            return httpx2.Response(
                response.status_code, headers=response.headers, stream=stream, request=request
            )
        try:
            body = b"".join([chunk async for chunk in stream])
        finally:
            await response.aclose()
        if response.status_code == _NOT_FOUND and "mcp-session-id" in request.headers:
            return _error(request, CLOSED_MESSAGE, CONNECTION_CLOSED)
        status = response.status_code
        if status >= _FAILED and not self._shows_errors:
            if not _is_error_message(body):
                return _error(request, _describe_status(status))
            # In a run nobody can sign in, so no refusal starts that.
            status = 502
        headers = {
            name: data
            for name, data in response.headers.multi_items()
            if name.lower() not in {"content-length", "transfer-encoding"}
        }
        return httpx2.Response(status, headers=headers, content=body, request=request)


def _pinned(request: httpx2.Request, url: WebUrl, address: str) -> httpx2.Request:
    headers = httpx2.Headers(request.headers)
    headers["Host"] = url.site
    # Compressed responses could expand to any size.
    headers["Accept-Encoding"] = "identity"
    return httpx2.Request(
        request.method,
        request.url.copy_with(host=address, port=url.effective_port),
        headers=headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": url.host},
    )


class _LimitedStream(httpx2.AsyncByteStream):
    """A response's body, of limited size and time."""

    def __init__(self, response: httpx2.Response) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        self._stream = response.stream
        self._deadline = time.monotonic() + _MAX_STREAM_SECONDS

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received = 0
        async for chunk in self._stream:
            received += len(chunk)
            if received > MAX_RESPONSE_BYTES:
                raise httpx2.ReadError("the server's answer is too large")
            if time.monotonic() > self._deadline:
                raise httpx2.ReadTimeout("the server's answer does not end")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


def _problem(response: httpx2.Response) -> str:
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        return "the server packs its answers, which was not asked for"
    if _MOVED <= response.status_code < _FAILED:
        return "the server sends us elsewhere, which is not followed"
    return ""


def _describe_status(status: int) -> str:
    hint = "; an owner can sign in with /mcp login NAME" if status == _UNAUTHORIZED else ""
    return f"the server answers with HTTP {status}{hint}"


def _is_error_message(body: bytes) -> bool:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(message, dict) and isinstance(message.get("error"), dict)


def _error(request: httpx2.Request, text: str, code: int = INTERNAL_ERROR) -> httpx2.Response:
    """A response that the SDK passes on as the error of this request."""
    error = {"code": code, "message": text[:_MAX_ERROR_CHARS]}
    message = {"jsonrpc": "2.0", "id": None, "error": error}
    return httpx2.Response(502, json=message, request=request)


# Signs in to MCP servers at a URL by the SDK's OAuth client, and keeps the tokens in a file.
#
# Imports the SDK, so it is imported on first use.

_MAX_SIGN_IN_ERROR_CHARS = 200
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
        first_line = str(error).split("\n", 1)[0][:_MAX_SIGN_IN_ERROR_CHARS]
        raise McpError(first_line or type(error).__name__) from error
    if refused:
        raise McpError("the server refuses the sign-in")
