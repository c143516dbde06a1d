"""Exchanges JSON-RPC messages with an MCP server over HTTP.

The host name is resolved and checked once, as for fetched pages; all messages go to that address,
and redirects are not followed because headers may contain secrets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from bot.engine.mcp.client.stdio_transport import (
    GRACE_SECONDS,
    MAX_ERROR_CHARS,
    McpError,
    unwrap_response,
)
from bot.engine.web.fetcher import WebFetcher
from bot.engine.web.urls import FetchRefused, WebUrl, parse_url

if TYPE_CHECKING:
    import httpx

MAX_RESPONSE_BYTES = 8_000_000
_SESSION_HEADER = "Mcp-Session-Id"
_VERSION_HEADER = "MCP-Protocol-Version"
_REQUEST_HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    # Compressed responses could expand to any size.
    "Accept-Encoding": "identity",
}
_OK, _ACCEPTED, _NOT_FOUND, _MOVED, _FAILED = 200, 202, 404, 300, 400


class McpHttpTransport:
    """A session with one server; requests may overlap."""

    def __init__(self, client: httpx.AsyncClient, url: WebUrl, address: str, version: str) -> None:
        shown = f"[{address}]" if ":" in address else address
        self._client = client
        self._url = url
        self._target = f"{url.scheme}://{shown}:{url.effective_port}{url.path}"
        self._version = version
        self._session: dict[str, str] = {}
        self._last_id = 0

    async def request(self, method: str, params: Mapping[str, Any], *, seconds: float) -> Any:
        self._last_id += 1
        number = self._last_id
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        try:
            async with asyncio.timeout(seconds):
                return await self._exchange(message, number)
        except TimeoutError:
            raise McpError("slow", f"it gave no answer within {seconds:g} s") from None

    async def notify(self, method: str) -> None:
        async with asyncio.timeout(GRACE_SECONDS), self._post({"jsonrpc": "2.0", "method": method}):
            pass

    async def close(self) -> None:
        """Ask the server to end the session."""
        if not self._session:
            return
        import httpx

        with suppress(httpx.HTTPError, TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                await self._client.delete(
                    self._target, headers=self._headers(), extensions=self._extensions
                )

    async def _exchange(self, message: Mapping[str, Any], number: int) -> Any:
        async with self._post(message) as response:
            if session := response.headers.get(_SESSION_HEADER):
                self._session = {_SESSION_HEADER: session, _VERSION_HEADER: self._version}
            async for reply in _messages(response):
                if isinstance(reply, dict) and reply.get("id") == number and "method" not in reply:
                    return unwrap_response(reply)
        raise McpError("ended", "the server has answered nothing")

    @asynccontextmanager
    async def _post(self, message: Mapping[str, Any]) -> AsyncIterator[httpx.Response]:
        import httpx

        body = json.dumps(message, default=str).encode("utf-8", "replace")
        request = self._client.build_request(
            "POST",
            self._target,
            content=body,
            headers={**_REQUEST_HEADERS, **self._headers()},
            extensions=self._extensions,
        )
        try:
            response = await self._client.send(request, stream=True)
            try:
                _check_response(response, has_session=bool(self._session))
                yield response
            finally:
                await response.aclose()
        except httpx.HTTPError as error:
            raise McpError("ended", f"{self._url.site}: {type(error).__name__}") from error

    def _headers(self) -> dict[str, str]:
        return {"Host": self._url.site, **self._session}

    @property
    def _extensions(self) -> dict[str, Any]:
        return {"sni_hostname": self._url.host}


@asynccontextmanager
async def open_http(
    url_text: str, headers: Mapping[str, str], fetcher: WebFetcher, *, version: str
) -> AsyncGenerator[McpHttpTransport, None]:
    """Open a session with the server at this URL. Raises McpError."""
    url = parse_url(url_text)
    if url is None:
        raise McpError("url", "its address is no plain http or https URL")
    try:
        address, *_ = await fetcher.resolve_addresses(url)
    except FetchRefused as error:
        hint = "; SHIFTBOSS_FETCH_PRIVATE names the places of your own that may be reached"
        raise McpError("closed", f"{error}{hint}") from error
    # Slow to import, and only needed for servers at a URL.
    import httpx

    from bot.engine.web.http_request import tls_context

    client = httpx.AsyncClient(
        verify=await asyncio.to_thread(tls_context),
        headers=dict(headers),
        trust_env=False,
        follow_redirects=False,
        timeout=None,  # noqa: S113 - each request sets its own
    )
    async with client:
        wire = McpHttpTransport(client, url, address, version)
        try:
            yield wire
        finally:
            await wire.close()


def _check_response(response: httpx.Response, *, has_session: bool) -> None:
    status = response.status_code
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise McpError("refused", "the server packs its answers, which was not asked for")
    if status in {_OK, _ACCEPTED}:
        return
    if status == _NOT_FOUND and has_session:
        raise McpError("ended", "the server has ended the session")
    if _MOVED <= status < _FAILED:
        raise McpError("refused", "the server sends us elsewhere, which is not followed")
    raise McpError("refused", f"the server answers with HTTP {status}")


async def _messages(response: httpx.Response) -> AsyncIterator[Any]:
    """Yield the response's messages; None for malformed ones."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "text/event-stream":
        async for data in _events(response):
            yield _parse_json(data)
        return
    body = b"".join([chunk async for chunk in _limited_chunks(response)])
    reply = _parse_json(body)
    if reply is None and body:
        said = body[:MAX_ERROR_CHARS].decode("utf-8", "replace")
        raise McpError("refused", f"the server's answer is invalid: {said}")
    yield reply


async def _events(response: httpx.Response) -> AsyncIterator[bytes]:
    """Yield the data of each event."""
    rest, data = b"", list[bytes]()
    async for chunk in _limited_chunks(response):
        *lines, rest = (rest + chunk).replace(b"\r\n", b"\n").split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line.strip() and data:
                yield b"\n".join(data)
                data = []


async def _limited_chunks(response: httpx.Response) -> AsyncIterator[bytes]:
    received = 0
    async for chunk in response.aiter_raw():
        received += len(chunk)
        if received > MAX_RESPONSE_BYTES:
            raise McpError("ended", "the server sent a message that is too large")
        yield chunk


def _parse_json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
