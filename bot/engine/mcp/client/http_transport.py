"""Connects the SDK's session to an MCP server at a URL, through a guarded HTTP client.

The host name is resolved and checked once, as for fetched pages; all messages go to that address,
and redirects are not followed because headers may contain secrets. Imports the SDK, so it is
imported on first use."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR

from bot.engine.mcp.client.server_config import McpError
from bot.engine.web.fetcher import WebFetcher, tls_context
from bot.engine.web.urls import FetchRefused, WebUrl, parse_url

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
