"""Guarded web access: which URLs may be fetched, one page with limits on addresses, redirects, size
and time, and search with the service that the operator has set up."""

from __future__ import annotations

import asyncio
import html
import ipaddress
import json
import re
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from socket import SOCK_STREAM, gaierror
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote, urlencode, urljoin, urlsplit

from bot.config.tls import tls_context

# --- URLs that may be fetched

MAX_URL_CHARS = 2_000
_DEFAULT_PORTS = {"http": 80, "https": 443}
# Reserved and unreserved characters, and the percent sign of quoted ones.
_UNQUOTED = "%/?:@!$&'()*+,;=-._~[]|"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebUrl:
    """`host` is lower-case ASCII without a trailing dot; `port` is None for the default port.

    `path` starts with a slash and includes the query."""

    scheme: str
    host: str
    port: int | None
    path: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.site}{self.path}"

    @property
    def site(self) -> str:
        """The host, with the port unless it is the default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"

    @property
    def effective_port(self) -> int:
        return self.port or _DEFAULT_PORTS[self.scheme]

    def join(self, target: str) -> WebUrl | None:
        """Resolve a redirect or link; None if it is not fetchable."""
        try:
            return parse_url(urljoin(str(self), target.strip()))
        except ValueError:
            return None


def parse_url(text: str) -> WebUrl | None:
    """Return None unless it is a plain http or https URL.

    URLs with user names or ambiguous characters are rejected."""
    if (
        len(text) > MAX_URL_CHARS
        or not text.isprintable()
        or any(one in text for one in ' \\"<>`{}^')
    ):
        return None
    try:
        parts = urlsplit(text)
        port = parts.port
        host = (parts.hostname or "").rstrip(".")
        name = host if host.isascii() else host.encode("idna").decode()
    except (ValueError, UnicodeError):
        return None
    if (
        parts.scheme not in _DEFAULT_PORTS
        or not name
        or "@" in parts.netloc
        or "%" in name
        or port == 0
    ):
        return None
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    return WebUrl(
        scheme=parts.scheme,
        host=name.lower(),
        port=None if port == _DEFAULT_PORTS[parts.scheme] else port,
        path=quote(path or "/", safe=_UNQUOTED)
        if path.startswith("/")
        else f"/{quote(path, _UNQUOTED)}",
    )


_OK = 200


class FetchRefused(Exception):
    """The page was not fetched; the message is one sentence for the model. For people the frequent
    ones have a text under `workflow.call`, named `key`, about `site`."""

    def __init__(self, text: str, *, key: str = "", site: str = "") -> None:
        super().__init__(text)
        self.key = key
        self.site = site


class HostUnreachable(Exception):
    """No connection to this address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebPage:
    """A fetched page; `redirect` is a target on another host, which was not followed. `headers` are
    some of the answer's, by lower-case names."""

    url: WebUrl
    status: int
    content_type: str = ""
    charset: str = ""
    body: bytes = b""
    is_truncated: bool = False
    redirect: WebUrl | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_ok(self) -> bool:
        return self.status == _OK


# --- fetching one page
# Host names are resolved once, all addresses are checked, and the connection uses one of them,
# which prevents DNS rebinding.

if TYPE_CHECKING:
    import httpx

IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

# Some count as global in `ipaddress`, but may lead to hosts that are not.
_BLOCKED_IPV4 = tuple(
    map(
        ipaddress.IPv4Network,
        ("0.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "192.0.0.0/24", "192.88.99.0/24",
         "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4"),
    )
)  # fmt: skip
_GLOBAL_IPV6 = ipaddress.IPv6Network("2000::/3")
# Teredo, documentation, benchmarking and 6to4: they embed other addresses or are unused.
_BLOCKED_IPV6 = tuple(
    map(
        ipaddress.IPv6Network,
        ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),
    )
)
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
_KEPT_HEADERS = (
    "content-type", "content-length", "date", "etag", "last-modified", "location", "link",
    "retry-after", "x-request-id", "x-ratelimit-remaining",
)  # fmt: skip
_MAX_HEADER = 500
_REDIRECTS = {301, 302, 303, 307, 308}


async def request_page(
    url: WebUrl, address: str, headers: Mapping[str, str], body: bytes | None, method: str = ""
) -> WebPage:
    """Send the request; without a `method` GET the page, or POST `body`. Raises HostUnreachable if
    the connection fails, else FetchRefused."""
    # Slow to import, so loaded on first use, here and below.
    import httpx

    try:
        method = method or ("GET" if body is None else "POST")
        async with _open_response(url, address, headers, body, method) as response:
            return await _read_response(url, response)
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise HostUnreachable from error
    except httpx.HTTPError as error:
        raise FetchRefused(f"{url.site} broke off: {type(error).__name__}") from error


@asynccontextmanager
async def _open_response(
    url: WebUrl, address: str, headers: Mapping[str, str], body: bytes | None, method: str
) -> AsyncIterator[httpx.Response]:
    """Connect to `address` with the host's name and certificate."""
    import httpx

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
            method,
            target,
            content=body,
            headers={**_HEADERS, **headers, "Host": url.site},
            extensions={"sni_hostname": url.host},
        ) as response,
    ):
        yield response


async def _read_response(url: WebUrl, response: httpx.Response) -> WebPage:
    if response.status_code in _REDIRECTS and (target := response.headers.get("location")):
        moved = url.join(target)
        if moved is None:
            raise FetchRefused(f"{url.site} redirects to what is no plain http or https URL")
        return WebPage(
            url=url, status=response.status_code, redirect=moved, headers=_kept_headers(response)
        )
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
        headers=_kept_headers(response),
    )


def _kept_headers(response: httpx.Response) -> Mapping[str, str]:
    found = {name: response.headers.get(name) for name in _KEPT_HEADERS}
    return {name: value[:_MAX_HEADER] for name, value in found.items() if value is not None}


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


class PrivateHostError(ValueError):
    """Not a host name, address or network."""


def parse_address(text: str) -> IpAddress:
    """Parse an address without its zone. Raises ValueError."""
    return ipaddress.ip_address(text.partition("%")[0])


def is_public(address: IpAddress) -> bool:
    """Return True for addresses on the public internet that embed no other address."""
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global and not any(address in network for network in _BLOCKED_IPV4)
    return address in _GLOBAL_IPV6 and not any(address in network for network in _BLOCKED_IPV6)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateHosts:
    """Private hosts and networks that may be fetched."""

    hosts: frozenset[str] = frozenset()
    networks: tuple[IpNetwork, ...] = ()

    def allows(self, host: str, address: IpAddress) -> bool:
        if host in self.hosts:
            return True
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return mapped is None and any(address in network for network in self.networks)


def parse_private_hosts(entries: Sequence[str]) -> PrivateHosts:
    """Parse host names, addresses and networks. Raises PrivateHostError."""
    hosts: set[str] = set()
    networks: list[IpNetwork] = []
    for entry in filter(None, map(str.strip, entries)):
        try:
            networks.append(ipaddress.ip_network(entry))
        except ValueError as error:
            if "/" in entry or ":" in entry or not entry.isprintable() or " " in entry:
                raise PrivateHostError(f"{entry!r} is no host, address or network") from error
            hosts.add(entry.lower().rstrip("."))
    return PrivateHosts(hosts=frozenset(hosts), networks=tuple(networks))


MAX_REDIRECTS = 5
TIMEOUT_SECONDS = 30.0
_MAX_ADDRESSES = 4
_FIRST_UNPRIVILEGED_PORT = 1024

NO_HEADERS: Mapping[str, str] = MappingProxyType({})

RequestPage = Callable[[WebUrl, str, Mapping[str, str], bytes | None, str], Awaitable[WebPage]]
HostResolver = Callable[[str, int], Awaitable[Sequence[str]]]


async def resolve_host(host: str, port: int) -> Sequence[str]:
    """Return all addresses of a host from the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=SOCK_STREAM)
    return list(dict.fromkeys(str(one[4][0]) for one in found))


class WebFetcher:
    def __init__(
        self,
        *,
        private_hosts: PrivateHosts | None = None,
        resolve: HostResolver = resolve_host,
        seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._private_hosts = private_hosts or PrivateHosts()
        self._resolve = resolve
        self._seconds = seconds

    async def fetch(self, url_text: str) -> WebPage:
        """Fetch a page, following redirects within the same site only, because only that was
        authorized.

        Raises FetchRefused."""
        url = parse_url(url_text)
        if url is None:
            raise FetchRefused("not a plain http or https URL")
        try:
            async with asyncio.timeout(self._seconds):
                return await self._follow(url)
        except TimeoutError as error:
            text = f"{url.site} took longer than {self._seconds:.0f} s"
            raise FetchRefused(text, key="slow", site=url.site) from error

    async def send(
        self,
        url: WebUrl,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        method: str = "",
    ) -> WebPage:
        """Send a request; without a `method` GET the URL, or POST `body`. Its headers must be
        carried nowhere else: no redirect is followed. Raises FetchRefused."""
        try:
            async with asyncio.timeout(self._seconds):
                addresses = await self.resolve_addresses(url)
                return await self._fetch_once(url, addresses, headers, body, method)
        except TimeoutError as error:
            text = f"{url.site} took longer than {self._seconds:.0f} s"
            raise FetchRefused(text, key="slow", site=url.site) from error

    async def _follow(self, url: WebUrl) -> WebPage:
        for _ in range(MAX_REDIRECTS + 1):
            page = await self._fetch_once(url, await self.resolve_addresses(url))
            if page.redirect is None:
                return page
            if not _is_same_site(url, page.redirect):
                # Checked before the target is reported, so that it can't be a private address.
                await self.resolve_addresses(page.redirect)
                return page
            url = page.redirect
        raise FetchRefused(f"more than {MAX_REDIRECTS} redirects")

    async def resolve_addresses(self, url: WebUrl) -> Sequence[str]:
        """Return at least one address after checking all. Raises FetchRefused."""
        if url.effective_port < _FIRST_UNPRIVILEGED_PORT and url.effective_port not in {80, 443}:
            raise FetchRefused(f"port {url.effective_port} is not for web pages")
        try:
            found = await self._resolve(url.host, url.effective_port)
            addresses = [parse_address(each) for each in found]
        except (gaierror, UnicodeError, ValueError) as error:
            text = f"{url.host} cannot be found"
            raise FetchRefused(text, key="not_found", site=url.host) from error
        allowed = self._private_hosts.allows
        if not addresses or not all(is_public(one) or allowed(url.host, one) for one in addresses):
            text = f"{url.host} is not on the open internet"
            raise FetchRefused(text, key="not_public", site=url.host)
        return [str(one) for one in addresses][:_MAX_ADDRESSES]

    async def _fetch_once(
        self,
        url: WebUrl,
        addresses: Sequence[str],
        headers: Mapping[str, str] = NO_HEADERS,
        body: bytes | None = None,
        method: str = "",
    ) -> WebPage:
        page_from = await asyncio.to_thread(_load_http_client)
        for address in addresses:
            with suppress(HostUnreachable):
                return await page_from(url, address, headers, body, method)
        raise FetchRefused(f"{url.site} does not answer", key="no_answer", site=url.site)


def _load_http_client() -> RequestPage:
    # Slow to import, so loaded on first use.

    return request_page


def _is_same_site(one: WebUrl, other: WebUrl) -> bool:
    is_safe = other.scheme in {one.scheme, "https"}
    same = one.host.removeprefix("www.") == other.host.removeprefix("www.")
    return is_safe and same and (one.port == other.port)


# --- search

MAX_RESULTS = 10
_MAX_QUERY_CHARS = 400
_MAX_QUERY_WORDS = 50
_MAX_TITLE = 200
_MAX_SNIPPET = 500
_TOO_MANY_REQUESTS = 429
_PLAN_LIMITS = {432, 433}
_REFUSALS = {400, 401, 403, 422}
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")


class SearchProvider(StrEnum):
    """The services; their answers are JSON."""

    SEARXNG = "searxng"
    BRAVE = "brave"
    TAVILY = "tavily"

    @property
    def results_path(self) -> tuple[str, ...]:
        return ("web", "results") if self is SearchProvider.BRAVE else ("results",)

    @property
    def snippet_field(self) -> str:
        return "description" if self is SearchProvider.BRAVE else "content"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """One line of plain text each."""

    title: str
    url: str
    snippet: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSearch:
    """One provider at `base`, the address without the path of its API. SearXNG has no `key`."""

    provider: SearchProvider
    base: WebUrl
    fetcher: WebFetcher
    key: str = ""

    async def search(self, query: str, count: int) -> tuple[SearchResult, ...]:
        """Return at most `count` results; a long query is cut. Raises FetchRefused."""
        words = " ".join(query.split()[:_MAX_QUERY_WORDS])[:_MAX_QUERY_CHARS].strip()
        text = words.encode("utf-8", "replace").decode()
        if not text:
            raise FetchRefused("the query is empty")
        page = await self._ask(text, count)
        self._check_status(page)
        # Large answers take a while.
        return await asyncio.to_thread(self._read, page, count)

    async def _ask(self, query: str, count: int) -> WebPage:
        headers = {"Accept": "application/json"}
        match self.provider:
            case SearchProvider.SEARXNG:
                url = self._url("/search", q=query, format="json")
                return await self.fetcher.send(url, headers=headers)
            case SearchProvider.BRAVE:
                url = self._url("/res/v1/web/search", q=query, count=str(count))
                headers["X-Subscription-Token"] = self.key
                return await self.fetcher.send(url, headers=headers)
            case SearchProvider.TAVILY:
                headers |= {
                    "Authorization": f"Bearer {self.key}",
                    "Content-Type": "application/json",
                }
                body = json.dumps({"query": query, "max_results": count}).encode()
                return await self.fetcher.send(self._url("/search"), headers=headers, body=body)

    def _url(self, path: str, **query: str) -> WebUrl:
        asked = f"?{urlencode(query)}" if query else ""
        return replace(self.base, path=self.base.path.rstrip("/") + path + asked)

    def _check_status(self, page: WebPage) -> None:
        name = self.provider.value
        if page.status == _TOO_MANY_REQUESTS or page.status in _PLAN_LIMITS:
            raise FetchRefused(f"{name} allows no more searches now; try again later")
        if page.status in _REFUSALS:
            # SearXNG answers in JSON only if its settings.yml lists that format.
            what = "format json" if self.provider is SearchProvider.SEARXNG else "key"
            raise FetchRefused(
                f"{name} refused the search (status {page.status}): check its {what}"
            )
        if not page.is_ok:
            raise FetchRefused(f"{name} answered with status {page.status}")
        if page.is_truncated:
            raise FetchRefused(f"{name} sent too large an answer")

    def _read(self, page: WebPage, count: int) -> tuple[SearchResult, ...]:
        try:
            found: Any = json.loads(page.body)
        except (ValueError, RecursionError) as error:
            raise FetchRefused(f"{self.provider.value} sent no JSON") from error
        for name in self.provider.results_path:
            found = found.get(name) if isinstance(found, Mapping) else None
        if found is not None and not isinstance(found, list):
            raise FetchRefused(f"{self.provider.value} sent no list of results")
        results = self._results(found or [])
        return tuple(each for each, _ in zip(results, range(count), strict=False))

    def _results(self, found: list[Any]) -> Iterator[SearchResult]:
        for each in found:
            url = parse_url(str(each.get("url"))) if isinstance(each, Mapping) else None
            if url is not None:
                yield SearchResult(
                    title=_plain_line(each.get("title"), _MAX_TITLE),
                    url=str(url),
                    snippet=_plain_line(each.get(self.provider.snippet_field), _MAX_SNIPPET),
                )


def _plain_line(text: object, most: int) -> str:
    """Without the tags that mark matches, and without invisible characters."""
    if not isinstance(text, str):
        return ""
    plain = html.unescape(_TAG.sub("", text[: most * 10]))
    seen = "".join(one if one.isprintable() else " " * one.isspace() for one in plain)
    return " ".join(seen.split())[:most]
