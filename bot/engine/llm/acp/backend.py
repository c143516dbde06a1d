"""Coding CLIs as backends. Light to import: the protocol's library is loaded with the first run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from bot.engine.llm.acp.house import House
from bot.engine.llm.acp.machine import health
from bot.engine.llm.acp.table import Agent, Resume
from bot.engine.llm.base import Caps, Health, Run, RunRequest

if TYPE_CHECKING:
    from bot.engine.llm.acp.run import AcpRun


class AcpBackend:
    """One CLI. `agent` is asked for at each use: people may change it meanwhile."""

    models: tuple[str, ...] = ()

    def __init__(self, agent: Callable[[], Agent], house: House) -> None:
        self._agent = agent
        self._house = house

    @property
    def name(self) -> str:
        return self._agent().name

    @property
    def caps(self) -> Caps:
        resumes = self._agent().resume is not Resume.NONE
        return Caps(durable=False, tools=False, resume=resumes, money=False)

    @asynccontextmanager
    async def run(self, request: RunRequest) -> AsyncIterator[Run]:
        make = await asyncio.to_thread(_loaded)
        run = make(self._agent(), request, self._house)
        try:
            yield run
        finally:
            await run.aclose()

    async def check(self) -> Health:
        return await asyncio.to_thread(
            health.look, self._agent(), self._house.root, self._house.around
        )


def _loaded() -> Callable[[Agent, RunRequest, House], AcpRun]:
    # A second of CPU, for those who really use a CLI, and not on the loop.
    from bot.engine.llm.acp.run import AcpRun

    return AcpRun
