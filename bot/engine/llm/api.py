"""Model APIs as backends: Anthropic's, and OpenAI's with all that are compatible with it.

Light to import: the libraries are loaded in a thread when the first run needs them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from bot.engine.llm.base import BackendDenied, Run, RunRequest

if TYPE_CHECKING:
    from bot.engine.llm.api_engine import Engine


class Api(StrEnum):
    """Whose wire format is spoken; also the backend's name."""

    ANTHROPIC = "anthropic"
    OPENAI = "openai"

    @property
    def missing(self) -> str:
        """Catalogue key of what to do if it is not configured."""
        return f"backend.no_{self}_key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to reach an API. An empty `base_url` is the provider's own; `silence` is how many
    seconds it may say nothing in the middle of an answer."""

    api: Api
    key: str
    base_url: str = ""
    silence: float = 300.0

    @property
    def is_configured(self) -> bool:
        """A compatible service of one's own may want no key."""
        return bool(self.key or (self.api is Api.OPENAI and self.base_url))

    def __repr__(self) -> str:
        return f"Access({self.api}, {self.base_url or 'default'})"


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
    def is_configured(self) -> bool:
        return self._access.is_configured

    @asynccontextmanager
    async def run(self, request: RunRequest) -> AsyncIterator[Run]:
        missing = await self.check()
        if missing:
            raise BackendDenied(f"{self.name} is not configured", hint=missing)
        engine = await self._built()
        async with engine.run(request) as run:
            yield run

    async def check(self) -> str:
        return "" if self._access.is_configured else self._access.api.missing

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
