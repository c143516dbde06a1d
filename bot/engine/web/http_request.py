"""Sends one HTTP request to a given address and reads a limited response."""

from __future__ import annotations

import asyncio
import ssl
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache

import httpx

from bot.engine.web.urls import FetchRefused, HostUnreachable, WebPage, WebUrl

MAX_BODY_BYTES = 5_000_000
_TIMEOUT_SECONDS = 10.0
_HEADERS = {
    "Accept": "text/html,text/plain,text/*;q=0.9,application/json;q=0.9,*/*;q=0.1",
    "Accept-Encoding": "gzip, identity",
    "User-Agent": "Shiftboss/0.1 (+fetches single pages for a person)",
}
_TEXT_TYPES = (
    "json", "xml", "javascript", "ecmascript", "yaml", "toml", "x-ndjson", "sql", "graphql",
)  # fmt: skip
_REDIRECTS = {301, 302, 303, 307, 308}


async def request_page(
    url: WebUrl, address: str, headers: Mapping[str, str], body: bytes | None
) -> WebPage:
    """GET the page, or POST `body`. Raises HostUnreachable if the connection fails, else
    FetchRefused."""
    try:
        async with _open_response(url, address, headers, body) as response:
            return await _read_response(url, response)
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise HostUnreachable from error
    except httpx.HTTPError as error:
        raise FetchRefused(f"{url.site} broke off: {type(error).__name__}") from error


@asynccontextmanager
async def _open_response(
    url: WebUrl, address: str, headers: Mapping[str, str], body: bytes | None
) -> AsyncIterator[httpx.Response]:
    """Connect to `address` with the host's name and certificate."""
    shown = f"[{address}]" if ":" in address else address
    target = f"{url.scheme}://{shown}:{url.effective_port}{url.path}"
    async with (
        httpx.AsyncClient(
            verify=await asyncio.to_thread(tls_context),
            trust_env=False,
            follow_redirects=False,
            timeout=_TIMEOUT_SECONDS,
        ) as client,
        client.stream(
            "GET" if body is None else "POST",
            target,
            content=body,
            headers={**_HEADERS, **headers, "Host": url.site},
            extensions={"sni_hostname": url.host},
        ) as response,
    ):
        yield response


@cache
def tls_context() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)


async def _read_response(url: WebUrl, response: httpx.Response) -> WebPage:
    if response.status_code in _REDIRECTS and (target := response.headers.get("location")):
        moved = url.join(target)
        if moved is None:
            raise FetchRefused(f"{url.site} redirects to what is no plain http or https URL")
        return WebPage(url=url, status=response.status_code, redirect=moved)
    kind, charset = _parse_content_type(response.headers.get("content-type", ""))
    if kind and not kind.startswith("text/") and not kind.endswith(_TEXT_TYPES):
        raise FetchRefused(f"{url.site} sends {kind[:60]}, which is no text")
    body, is_cut = await _read_body(url, response)
    if not kind and b"\0" in body:
        raise FetchRefused(f"{url.site} sends no text")
    return WebPage(
        url=url,
        status=response.status_code,
        content_type=kind or "text/plain",
        charset=charset,
        body=body,
        is_truncated=is_cut,
    )


def _parse_content_type(header: str) -> tuple[str, str]:
    kind, _, rest = header.partition(";")
    _, _, charset = rest.lower().partition("charset=")
    return kind.strip().lower(), charset.split(";")[0].strip(" \"'")[:40]


async def _read_body(url: WebUrl, response: httpx.Response) -> tuple[bytes, bool]:
    """Read up to MAX_BODY_BYTES, both compressed and decompressed."""
    coding = response.headers.get("content-encoding", "identity").strip().lower()
    if coding not in {"identity", "gzip", "x-gzip", ""}:
        raise FetchRefused(f"{url.site} packs its answer as {coding[:20]}, which was not asked for")
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 16) if coding.endswith("gzip") else None
    body, came = bytearray(), 0
    async for chunk in response.aiter_raw():
        came += len(chunk)
        room = MAX_BODY_BYTES - len(body)
        try:
            body += unpack.decompress(chunk, room + 1) if unpack else chunk[: room + 1]
        except zlib.error as error:
            raise FetchRefused(f"{url.site} sends a broken gzip") from error
        if len(body) > MAX_BODY_BYTES or came > MAX_BODY_BYTES:
            return bytes(body[:MAX_BODY_BYTES]), True
    return bytes(body), False
