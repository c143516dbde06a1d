"""The tenant access token: one request at a time, renewed early, dropped when refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bot.transports.feishu.errors import Broken, FeishuError

# The platform gives a new token only when less than thirty minutes are left of the old one.
_MARGIN = 1200.0
_MARGIN_SHARE = 0.25


class TenantToken:
    def __init__(
        self, fetch: Callable[[], Awaitable[tuple[str, float]]], now: Callable[[], float]
    ) -> None:
        self._fetch = fetch
        self._now = now
        self._lock = asyncio.Lock()
        self._token = ""
        self._renew_at = 0.0
        self._expires_at = 0.0

    async def get(self) -> str:
        """A token that should work; waiters share one request."""
        if not self._token or self._now() >= self._renew_at:
            async with self._lock:
                if not self._token or self._now() >= self._renew_at:
                    await self._renew()
        return self._token

    def drop(self, token: str) -> None:
        """This token was refused; the next `get` asks for another."""
        if token == self._token:
            self._token = ""

    async def _renew(self) -> None:
        asked = self._now()
        try:
            token, lives = await self._fetch()
        except (FeishuError, Broken):
            # The old one is good until it ends: trouble with renewing may pass before that.
            if self._token and self._now() < self._expires_at:
                return
            raise
        self._token = token
        self._expires_at = asked + lives
        self._renew_at = self._expires_at - min(_MARGIN, lives * _MARGIN_SHARE)
