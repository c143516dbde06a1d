"""An emulated service, and backends that speak with it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bot.engine.llm.api.access import ApiProvider
from bot.engine.llm.api.backend import ApiBackend
from tests.bot.engine.llm.builders import build_backend
from tests.emulators.models.emulator import ModelEmulator


@pytest.fixture
async def models() -> AsyncIterator[ModelEmulator]:
    async with ModelEmulator() as models:
        yield models


@pytest.fixture
async def claude(models: ModelEmulator) -> AsyncIterator[ApiBackend]:
    backend = build_backend(models, ApiProvider.ANTHROPIC)
    yield backend
    await backend.aclose()


@pytest.fixture
async def gpt(models: ModelEmulator) -> AsyncIterator[ApiBackend]:
    backend = build_backend(models, ApiProvider.OPENAI)
    yield backend
    await backend.aclose()


@pytest.fixture(params=list(ApiProvider))
def api(request: pytest.FixtureRequest) -> ApiProvider:
    return ApiProvider(request.param)


@pytest.fixture
async def backend(models: ModelEmulator, api: ApiProvider) -> AsyncIterator[ApiBackend]:
    backend = build_backend(models, api)
    yield backend
    await backend.aclose()
