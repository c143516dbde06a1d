"""One page from the web, guarded: where to, how far, how much, how long.

The name is resolved once, every address it has is checked, and the connection goes to one of
these: a name that answers otherwise a moment later is not asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from socket import SOCK_STREAM, gaierror

from bot.engine.agent.web.addresses import Private, address_of, is_open
from bot.engine.agent.web.pages import FetchRefused, NoAnswer, Page
from bot.engine.agent.web.urls import Url, url_of

MOST_REDIRECTS = 5
SECONDS = 30.0
_MOST_ADDRESSES = 4
_PRIVILEGED = 1024

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


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
            page = await self._once(url, await self.addresses(url))
            if page.moved is None:
                return page
            if not _is_same_site(url, page.moved):
                # Looked at before it is even named: nobody is to be led to a closed place.
                await self.addresses(page.moved)
                return page
            url = page.moved
        raise FetchRefused(f"more than {MOST_REDIRECTS} redirects")

    async def addresses(self, url: Url) -> Sequence[str]:
        """Where it may be reached, all of them checked; at least one. Raises FetchRefused."""
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
        page_from = await asyncio.to_thread(_loaded)
        for address in addresses:
            with suppress(NoAnswer):
                return await page_from(url, address)
        raise FetchRefused(f"{url.site} does not answer")


def _loaded() -> Callable[[Url, str], Awaitable[Page]]:
    # The HTTP client is heavy, and wanted only by who fetches.
    from bot.engine.agent.web.wire import page_from

    return page_from


def _is_same_site(one: Url, other: Url) -> bool:
    is_safe = other.scheme in {one.scheme, "https"}
    same = one.host.removeprefix("www.") == other.host.removeprefix("www.")
    return is_safe and same and (one.port == other.port)
