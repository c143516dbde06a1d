"""JSON-RPC with a server at a URL, as the Model Context Protocol has it over HTTP: each message is
posted, and answered as JSON or as a stream of events.

The name is resolved once and checked as for a page that is fetched; every message goes to the
address that was found, and no redirect is followed, for headers may hold secrets.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from bot.engine.agent.mcp.wire import COMPLAINT, GRACE, McpFailed, answer_in
from bot.engine.agent.web.fetching import Fetcher
from bot.engine.agent.web.pages import FetchRefused
from bot.engine.agent.web.urls import Url, url_of

if TYPE_CHECKING:
    import httpx

MOST_BYTES = 8_000_000
_SESSION = "Mcp-Session-Id"
_VERSION = "MCP-Protocol-Version"
_SENT = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    # What is packed may unpack to anything.
    "Accept-Encoding": "identity",
}
_OK, _ACCEPTED, _NOT_FOUND, _MOVED, _FAILED = 200, 202, 404, 300, 400


class HttpWire:
    """One session with one server. Requests may overlap."""

    def __init__(self, client: httpx.AsyncClient, url: Url, address: str, version: str) -> None:
        shown = f"[{address}]" if ":" in address else address
        self._client = client
        self._url = url
        self._target = f"{url.scheme}://{shown}:{url.real_port}{url.path}"
        self._version = version
        self._session: dict[str, str] = {}
        self._last = 0

    async def request(self, method: str, params: Mapping[str, Any], *, seconds: float) -> Any:
        self._last += 1
        number = self._last
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        try:
            async with asyncio.timeout(seconds):
                return await self._asked(message, number)
        except TimeoutError:
            raise McpFailed("slow", f"it gave no answer within {seconds:g} s") from None

    async def notify(self, method: str) -> None:
        async with asyncio.timeout(GRACE), self._posted({"jsonrpc": "2.0", "method": method}):
            pass

    async def end(self) -> None:
        """Let the server forget the session, if it will."""
        if not self._session:
            return
        import httpx

        with suppress(httpx.HTTPError, TimeoutError):
            async with asyncio.timeout(GRACE):
                await self._client.delete(
                    self._target, headers=self._headers(), extensions=self._extensions
                )

    async def _asked(self, message: Mapping[str, Any], number: int) -> Any:
        async with self._posted(message) as response:
            if session := response.headers.get(_SESSION):
                self._session = {_SESSION: session, _VERSION: self._version}
            async for told in _messages(response):
                if isinstance(told, dict) and told.get("id") == number and "method" not in told:
                    return answer_in(told)
        raise McpFailed("ended", "the server has answered nothing")

    @asynccontextmanager
    async def _posted(self, message: Mapping[str, Any]) -> AsyncIterator[httpx.Response]:
        import httpx

        body = json.dumps(message, default=str).encode("utf-8", "replace")
        request = self._client.build_request(
            "POST",
            self._target,
            content=body,
            headers={**_SENT, **self._headers()},
            extensions=self._extensions,
        )
        try:
            response = await self._client.send(request, stream=True)
            try:
                _check(response, has_session=bool(self._session))
                yield response
            finally:
                await response.aclose()
        except httpx.HTTPError as error:
            raise McpFailed("ended", f"{self._url.site}: {type(error).__name__}") from error

    def _headers(self) -> dict[str, str]:
        return {"Host": self._url.site, **self._session}

    @property
    def _extensions(self) -> dict[str, Any]:
        return {"sni_hostname": self._url.host}


@asynccontextmanager
async def reached(
    text: str, headers: Mapping[str, str], fetcher: Fetcher, *, version: str
) -> AsyncGenerator[HttpWire, None]:
    """A session with the server at this URL. Raises McpFailed."""
    url = url_of(text)
    if url is None:
        raise McpFailed("url", "its address is no plain http or https URL")
    try:
        address, *_ = await fetcher.addresses(url)
    except FetchRefused as error:
        hint = "; SHIFTBOSS_FETCH_PRIVATE names the places of your own that may be reached"
        raise McpFailed("closed", f"{error}{hint}") from error
    # The HTTP client is heavy, and wanted only by who has such servers.
    import httpx

    from bot.engine.agent.web.wire import trust

    client = httpx.AsyncClient(
        verify=await asyncio.to_thread(trust),
        headers=dict(headers),
        trust_env=False,
        follow_redirects=False,
        timeout=None,  # noqa: S113 - each request has its own
    )
    async with client:
        wire = HttpWire(client, url, address, version)
        try:
            yield wire
        finally:
            await wire.end()


def _check(response: httpx.Response, *, has_session: bool) -> None:
    status = response.status_code
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise McpFailed("refused", "the server packs its answers, which was not asked for")
    if status in {_OK, _ACCEPTED}:
        return
    if status == _NOT_FOUND and has_session:
        raise McpFailed("ended", "the server has ended the session")
    if _MOVED <= status < _FAILED:
        raise McpFailed("refused", "the server sends us elsewhere, which is not followed")
    raise McpFailed("refused", f"the server answers with HTTP {status}")


async def _messages(response: httpx.Response) -> AsyncIterator[Any]:
    """What it says, message by message; what is none is passed over."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "text/event-stream":
        async for data in _events(response):
            yield _parsed(data)
        return
    body = b"".join([chunk async for chunk in _capped(response)])
    told = _parsed(body)
    if told is None and body:
        said = body[:COMPLAINT].decode("utf-8", "replace")
        raise McpFailed("refused", f"the server's answer makes no sense: {said}")
    yield told


async def _events(response: httpx.Response) -> AsyncIterator[bytes]:
    """The data of each event."""
    rest, data = b"", list[bytes]()
    async for chunk in _capped(response):
        *lines, rest = (rest + chunk).replace(b"\r\n", b"\n").split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line.strip() and data:
                yield b"\n".join(data)
                data = []


async def _capped(response: httpx.Response) -> AsyncIterator[bytes]:
    came = 0
    async for chunk in response.aiter_raw():
        came += len(chunk)
        if came > MOST_BYTES:
            raise McpFailed("ended", "the server said more at once than can be taken in")
        yield chunk


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
