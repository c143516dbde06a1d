"""Coding CLIs as backends. Light to import: the protocol's library is loaded with the first run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from bot.engine.llm.acp.failures import is_unfit, of_health
from bot.engine.llm.acp.house import House
from bot.engine.llm.acp.machine import health
from bot.engine.llm.acp.machine.refusals import Refusals
from bot.engine.llm.acp.table import Agent, Resume
from bot.engine.llm.base import (
    BackendError,
    CannotWork,
    Caps,
    Health,
    Purpose,
    Run,
    RunRequest,
)

if TYPE_CHECKING:
    from bot.engine.llm.acp.run import AcpRun


class AcpBackend:
    """One CLI. `agent` is asked for at each use: people may change it meanwhile."""

    models: tuple[str, ...] = ()

    def __init__(self, agent: Callable[[], Agent], house: House) -> None:
        self._agent = agent
        self._house = house
        self._refusals = Refusals(house.root, house.clock)

    @property
    def name(self) -> str:
        return self._agent().name

    @property
    def caps(self) -> Caps:
        resumes = self._agent().resume is not Resume.NONE
        return Caps(durable=False, tools=False, resume=resumes, money=False)

    @asynccontextmanager
    async def run(self, request: RunRequest) -> AsyncIterator[Run]:
        found = await self.check()
        if found.problem:
            raise of_health(found, self.name)
        make = await asyncio.to_thread(_run)
        run = make(self._agent(), request, self._house)
        try:
            yield run
        except CannotWork as refused:
            self._refusals.keep(refused.hint, self._agent())
            raise
        finally:
            await run.aclose()

    @property
    def refused(self) -> str:
        """What it lacked when it was last asked to work, though nothing of that can be seen from
        outside: a catalogue key, for some minutes, or until somebody logs in or tries it out."""
        return self._refusals.now(self._agent())

    async def check(self) -> Health:
        return await asyncio.to_thread(self._look, ask=True)

    async def known(self) -> Health:
        """As `check`, and what it refused when it was asked lately."""
        found = await self.check()
        if found.problem or not self.refused:
            return found
        return health.after_refusal(found, self.refused, self._agent(), self._house.root)

    def seen(self) -> Health:
        """As far as it can be told without running anything."""
        return self._look(ask=False)

    async def try_out(self) -> Health:
        """Start it, open a session and end it: what no look from outside can tell. Nothing is
        asked of a model."""
        found = await self.check()
        if found.problem:
            return found
        agent, house = self._agent(), self._house
        from bot.engine.llm.acp.run import version_of  # heavy, as `_run` says

        request = RunRequest(purpose=Purpose.CHAT, prompt="", system="", model="", language="en")
        try:
            async with house.slots:
                version = await version_of(agent, request, house)
        except BackendError as error:
            if is_unfit(error):
                self._refusals.keep(error.hint, agent)
            return health.after_refusal(found, error.hint, agent, house.root)
        self._refusals.forget()
        return replace(found, version=version)

    def _look(self, *, ask: bool) -> Health:
        house = self._house
        node = house.nodes.ask if ask else house.nodes.known
        return health.look(self._agent(), house.root, house.around, node)


def _run() -> Callable[[Agent, RunRequest, House], AcpRun]:
    # A second of CPU, for those who really use a CLI, and not on the loop.
    from bot.engine.llm.acp.run import AcpRun

    return AcpRun
