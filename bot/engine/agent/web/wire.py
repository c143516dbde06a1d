"""One request to exactly one address, in the name of its host, and no more of the answer than
is allowed."""

from __future__ import annotations

import asyncio
import ssl
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache

import httpx

from bot.engine.agent.web.pages import FetchRefused, NoAnswer, Page
from bot.engine.agent.web.urls import Url

MOST_BYTES = 5_000_000
_PATIENCE = 10.0
_HEADERS = {
    "Accept": "text/html,text/plain,text/*;q=0.9,application/json;q=0.9,*/*;q=0.1",
    "Accept-Encoding": "gzip, identity",
    "User-Agent": "Shiftboss/0.1 (+fetches single pages for a person)",
}
_TEXTS = ("json", "xml", "javascript", "ecmascript", "yaml", "toml", "x-ndjson", "sql", "graphql")
_REDIRECTS = {301, 302, 303, 307, 308}


async def page_from(url: Url, address: str) -> Page:
    """Raises NoAnswer where nobody listens, else FetchRefused."""
    try:
        async with _answer(url, address) as response:
            return await _page(url, response)
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise NoAnswer from error
    except httpx.HTTPError as error:
        raise FetchRefused(f"{url.site} broke off: {type(error).__name__}") from error


@asynccontextmanager
async def _answer(url: Url, address: str) -> AsyncIterator[httpx.Response]:
    """From exactly this address, in the name of the host."""
    shown = f"[{address}]" if ":" in address else address
    target = f"{url.scheme}://{shown}:{url.real_port}{url.path}"
    async with (
        httpx.AsyncClient(
            verify=await asyncio.to_thread(trust),
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
def trust() -> ssl.SSLContext:
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
