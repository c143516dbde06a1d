"""Model APIs as backends: Anthropic's, and OpenAI's with all that are compatible with it.

Light to import: the libraries are loaded in a thread when the first run needs them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from bot.engine.llm.access import Access
from bot.engine.llm.base import BackendDenied, Caps, Health, Run, RunRequest

if TYPE_CHECKING:
    from bot.engine.llm.api_engine import Engine


class ApiBackend:
    """Close it at the end: it keeps connections open between runs. A request without a model
    gets the first known by name, or else the first that the service lists."""

    def __init__(self, access: Access, models: tuple[str, ...]) -> None:
        self._access = access
        self._models = models
        self._engine: Engine | None = None
        self._building = asyncio.Lock()

    @property
    def name(self) -> str:
        return self._access.api.value

    @property
    def models(self) -> tuple[str, ...]:
        return self._models

    @property
    def caps(self) -> Caps:
        return Caps()

    @property
    def is_configured(self) -> bool:
        return self._access.is_configured

    @asynccontextmanager
    async def run(self, request: RunRequest) -> AsyncIterator[Run]:
        missing = (await self.check()).problem
        if missing:
            raise BackendDenied(f"{self.name} is not configured", hint=missing)
        engine = await self._built()
        async with engine.run(request) as run:
            yield run

    async def check(self) -> Health:
        return Health(problem="" if self._access.is_configured else self._access.api.missing)

    async def aclose(self) -> None:
        if self._engine is not None:
            await self._engine.aclose()
            self._engine = None

    async def _built(self) -> Engine:
        async with self._building:
            if self._engine is None:
                self._engine = await asyncio.to_thread(_build, self._access)
        return self._engine


def _build(access: Access) -> Engine:
    # Seconds of CPU and 75 MiB: only for those who really use a model, and not on the loop.
    from bot.engine.llm.api_engine import Engine

    return Engine(access)
