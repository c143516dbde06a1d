"""An emulated service, and backends that speak with it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bot.engine.llm.access import Api
from bot.engine.llm.api import ApiBackend
from tests.bot.engine.llm.world import (
    backend_of,
)
from tests.emulators.models.emulator import Models


@pytest.fixture
async def models() -> AsyncIterator[Models]:
    async with Models() as models:
        yield models


@pytest.fixture
async def claude(models: Models) -> AsyncIterator[ApiBackend]:
    backend = backend_of(models, Api.ANTHROPIC)
    yield backend
    await backend.aclose()


@pytest.fixture
async def gpt(models: Models) -> AsyncIterator[ApiBackend]:
    backend = backend_of(models, Api.OPENAI)
    yield backend
    await backend.aclose()


@pytest.fixture(params=list(Api))
def api(request: pytest.FixtureRequest) -> Api:
    return Api(request.param)


@pytest.fixture
async def backend(models: Models, api: Api) -> AsyncIterator[ApiBackend]:
    backend = backend_of(models, api)
    yield backend
    await backend.aclose()
