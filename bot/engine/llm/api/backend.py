"""Provides Anthropic and OpenAI-compatible APIs as backends; libraries are imported at the first
run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from bot.engine.llm.api.access import ApiAccess, LearnedToolForms
from bot.engine.llm.backend import BackendDenied, BackendReadiness, BackendRun, RunRequest

if TYPE_CHECKING:
    from bot.engine.llm.api.agent_loop import ModelApiClient


class ApiBackend:
    """A model API; keeps connections open until `aclose`.

    Requests without a model use the first of `models`, or the first that the service lists."""

    accepts_tools = True

    def __init__(
        self,
        access: ApiAccess,
        models: tuple[str, ...],
        *,
        tool_forms: LearnedToolForms | None = None,
    ) -> None:
        """`tool_forms` is needed for `ToolForm.AUTO`."""
        self._access = access
        self._tool_forms = tool_forms
        self._models = models
        self._client: ModelApiClient | None = None
        self._runs = 0
        self._is_retired = False
        self._build_lock = asyncio.Lock()

    @property
    def name(self) -> str:
        return self._access.provider.value

    @property
    def models(self) -> tuple[str, ...]:
        return self._models

    @property
    def is_configured(self) -> bool:
        return self._access.is_configured

    @asynccontextmanager
    async def run(self, request: RunRequest) -> AsyncIterator[BackendRun]:
        missing = (await self.check()).problem
        if missing:
            raise BackendDenied(f"{self.name} is not configured", hint=missing)
        self._runs += 1
        try:
            engine = await self._get_client()
            async with engine.run(request) as run:
                yield run
        finally:
            self._runs -= 1
            await self._close_if_unused()

    async def check(self) -> BackendReadiness:
        return BackendReadiness(
            problem="" if self._access.is_configured else self._access.provider.missing_key_hint
        )

    async def preload(self, model: str) -> None:
        """Import what the first run of this model needs."""
        client = await self._get_client()
        await client.preload(model or next(iter(self._models), ""))

    async def retire(self) -> None:
        """Close the connections as soon as the last run ends."""
        self._is_retired = True
        await self._close_if_unused()

    async def _close_if_unused(self) -> None:
        if self._is_retired and not self._runs:
            await self.aclose()

    async def aclose(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()

    async def _get_client(self) -> ModelApiClient:
        async with self._build_lock:
            if self._client is None:
                self._client = await asyncio.to_thread(self._build_client)
        return self._client

    def _build_client(self) -> ModelApiClient:
        # The import takes seconds of CPU and 75 MiB, so it runs in a thread, after the start.
        from bot.engine.llm.api.agent_loop import ModelApiClient

        return ModelApiClient(self._access, self._tool_forms)
