"""Fetches one web page with limits on addresses, redirects, size and time.

Host names are resolved once, all addresses are checked, and the connection uses one of them, which
prevents DNS rebinding."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from socket import SOCK_STREAM, gaierror
from types import MappingProxyType
from typing import TypeAlias

from bot.engine.web.urls import FetchRefused, HostUnreachable, WebPage, WebUrl, parse_url

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

RequestPage = Callable[[WebUrl, str, Mapping[str, str], bytes | None], Awaitable[WebPage]]
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
            raise FetchRefused(f"{url.site} took longer than {self._seconds:.0f} s") from error

    async def send(
        self, url: WebUrl, *, headers: Mapping[str, str], body: bytes | None = None
    ) -> WebPage:
        """GET the URL, or POST `body`, with headers that no redirect may carry elsewhere: none is
        followed. Raises FetchRefused."""
        try:
            async with asyncio.timeout(self._seconds):
                return await self._fetch_once(url, await self.resolve_addresses(url), headers, body)
        except TimeoutError as error:
            raise FetchRefused(f"{url.site} took longer than {self._seconds:.0f} s") from error

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
            raise FetchRefused(f"{url.host} cannot be found") from error
        allowed = self._private_hosts.allows
        if not addresses or not all(is_public(one) or allowed(url.host, one) for one in addresses):
            raise FetchRefused(f"{url.host} is not on the open internet")
        return [str(one) for one in addresses][:_MAX_ADDRESSES]

    async def _fetch_once(
        self,
        url: WebUrl,
        addresses: Sequence[str],
        headers: Mapping[str, str] = NO_HEADERS,
        body: bytes | None = None,
    ) -> WebPage:
        page_from = await asyncio.to_thread(_load_http_client)
        for address in addresses:
            with suppress(HostUnreachable):
                return await page_from(url, address, headers, body)
        raise FetchRefused(f"{url.site} does not answer")


def _load_http_client() -> RequestPage:
    # Slow to import, so loaded on first use.
    from bot.engine.web.http_request import request_page

    return request_page


def _is_same_site(one: WebUrl, other: WebUrl) -> bool:
    is_safe = other.scheme in {one.scheme, "https"}
    same = one.host.removeprefix("www.") == other.host.removeprefix("www.")
    return is_safe and same and (one.port == other.port)
