"""Tells those who wait live that somebody has decided something."""

from __future__ import annotations

import asyncio


class Bell:
    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        """To be called after the commit: whoever wakes looks at the store."""
        self._event.set()
        self._event = asyncio.Event()

    def next(self) -> asyncio.Event:
        """Set by the next ring. Taken before the store is looked at, no ring is missed."""
        return self._event
