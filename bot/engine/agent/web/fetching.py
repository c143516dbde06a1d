"""One page from the web, guarded: where to, how far, how much, how long.

The name is resolved once, every address it has is checked, and the connection goes to one of
these: a name that answers otherwise a moment later is not asked again.
"""

from __future__ import annotations

import asyncio
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from socket import SOCK_STREAM, gaierror

import httpx

from bot.engine.agent.web.addresses import Private, address_of, is_open
from bot.engine.agent.web.urls import Url, url_of

MOST_BYTES = 5_000_000
MOST_REDIRECTS = 5
SECONDS = 30.0
_PATIENCE = 10.0
_MOST_ADDRESSES = 4
_PRIVILEGED = 1024
_HEADERS = {
    "Accept": "text/html,text/plain,text/*;q=0.9,application/json;q=0.9,*/*;q=0.1",
    "Accept-Encoding": "gzip, identity",
    "User-Agent": "Shiftboss/0.1 (+fetches single pages for a person)",
}
_TEXTS = ("json", "xml", "javascript", "ecmascript", "yaml", "toml", "x-ndjson", "sql", "graphql")
_REDIRECTS = {301, 302, 303, 307, 308}
_OK = 200

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class FetchRefused(Exception):
    """It was not fetched; the text says why in one sentence, for the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """`moved` is where the page says it is now, on another host: it was not followed there."""

    url: Url
    status: int
    kind: str = ""
    charset: str = ""
    body: bytes = b""
    is_cut: bool = False
    moved: Url | None = None


async def resolve(host: str, port: int) -> Sequence[str]:
    """All addresses of a host, as the system finds them."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=SOCK_STREAM)
    return list(dict.fromkeys(str(one[4][0]) for one in found))


class Fetcher:
    def __init__(
        self,
        *,
        private: Private | None = None,
        resolve: Resolve = resolve,
        seconds: float = SECONDS,
    ) -> None:
        """`private` are the places allowed although they are not on the open internet."""
        self._private = private or Private()
        self._resolve = resolve
        self._seconds = seconds

    async def fetch(self, text: str) -> Page:
        """Follows redirects within the same site only: leave was given for that one. Raises
        FetchRefused."""
        url = url_of(text)
        if url is None:
            raise FetchRefused("not a plain http or https URL")
        try:
            async with asyncio.timeout(self._seconds):
                return await self._follow(url)
        except TimeoutError as error:
            raise FetchRefused(f"{url.site} took longer than {self._seconds:.0f} s") from error

    async def _follow(self, url: Url) -> Page:
        for _ in range(MOST_REDIRECTS + 1):
            page = await self._once(url, await self._addresses(url))
            if page.moved is None:
                return page
            if not _is_same_site(url, page.moved):
                # Looked at before it is even named: nobody is to be led to a closed place.
                await self._addresses(page.moved)
                return page
            url = page.moved
        raise FetchRefused(f"more than {MOST_REDIRECTS} redirects")

    async def _addresses(self, url: Url) -> Sequence[str]:
        if url.real_port < _PRIVILEGED and url.real_port not in {80, 443}:
            raise FetchRefused(f"port {url.real_port} is not for web pages")
        try:
            found = await self._resolve(url.host, url.real_port)
            addresses = [address_of(each) for each in found]
        except (gaierror, UnicodeError, ValueError) as error:
            raise FetchRefused(f"{url.host} cannot be found") from error
        closed = [one for one in addresses if not self._may_reach(url, str(one))]
        if closed or not addresses:
            raise FetchRefused(f"{url.host} is not on the open internet")
        return [str(one) for one in addresses][:_MOST_ADDRESSES]

    def _may_reach(self, url: Url, address: str) -> bool:
        known = address_of(address)
        return is_open(known) or self._private.allows(url.host, known)

    async def _once(self, url: Url, addresses: Sequence[str]) -> Page:
        problem: Exception | None = None
        for address in addresses:
            try:
                async with _answer(url, address) as response:
                    return await _page(url, response)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                problem = error
            except httpx.HTTPError as error:
                raise FetchRefused(f"{url.site} broke off: {type(error).__name__}") from error
        raise FetchRefused(f"{url.site} does not answer") from problem


@asynccontextmanager
async def _answer(url: Url, address: str) -> AsyncIterator[httpx.Response]:
    """From exactly this address, in the name of the host."""
    shown = f"[{address}]" if ":" in address else address
    target = f"{url.scheme}://{shown}:{url.real_port}{url.path}"
    async with (
        httpx.AsyncClient(
            verify=await asyncio.to_thread(_trust),
            trust_env=False,
            follow_redirects=False,
            timeout=_PATIENCE,
        ) as client,
        client.stream(
            "GET",
            target,
            headers={**_HEADERS, "Host": url.site},
            extensions={"sni_hostname": url.host},
        ) as response,
    ):
        yield response


@cache
def _trust() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)


async def _page(url: Url, response: httpx.Response) -> Page:
    if response.status_code in _REDIRECTS and (target := response.headers.get("location")):
        moved = url.joined(target)
        if moved is None:
            raise FetchRefused(f"{url.site} redirects to what is no plain http or https URL")
        return Page(url=url, status=response.status_code, moved=moved)
    kind, charset = _kind(response.headers.get("content-type", ""))
    if kind and not kind.startswith("text/") and not kind.endswith(_TEXTS):
        raise FetchRefused(f"{url.site} sends {kind[:60]}, which is no text")
    body, is_cut = await _body(url, response)
    if not kind and b"\0" in body:
        raise FetchRefused(f"{url.site} sends no text")
    return Page(
        url=url,
        status=response.status_code,
        kind=kind or "text/plain",
        charset=charset,
        body=body,
        is_cut=is_cut,
    )


def _kind(header: str) -> tuple[str, str]:
    kind, _, rest = header.partition(";")
    _, _, charset = rest.lower().partition("charset=")
    return kind.strip().lower(), charset.split(";")[0].strip(" \"'")[:40]


async def _body(url: Url, response: httpx.Response) -> tuple[bytes, bool]:
    """As much as is allowed, unpacked: neither what comes nor what it unpacks to is longer."""
    coding = response.headers.get("content-encoding", "identity").strip().lower()
    if coding not in {"identity", "gzip", "x-gzip", ""}:
        raise FetchRefused(f"{url.site} packs its answer as {coding[:20]}, which was not asked for")
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 16) if coding.endswith("gzip") else None
    body, came = bytearray(), 0
    async for chunk in response.aiter_raw():
        came += len(chunk)
        room = MOST_BYTES - len(body)
        try:
            body += unpack.decompress(chunk, room + 1) if unpack else chunk[: room + 1]
        except zlib.error as error:
            raise FetchRefused(f"{url.site} sends a broken gzip") from error
        if len(body) > MOST_BYTES or came > MOST_BYTES:
            return bytes(body[:MOST_BYTES]), True
    return bytes(body), False


def _is_same_site(one: Url, other: Url) -> bool:
    is_safe = other.scheme in {one.scheme, "https"}
    same = one.host.removeprefix("www.") == other.host.removeprefix("www.")
    return is_safe and same and (one.port == other.port)


def is_good(page: Page) -> bool:
    return page.status == _OK
