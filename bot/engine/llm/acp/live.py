"""A CLI alive with a session open, from its start to its sure end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.engine.llm.acp.failures import Failed, failure, of_death, of_refusal
from bot.engine.llm.acp.house import House
from bot.engine.llm.acp.link import Ended, Link, Refused
from bot.engine.llm.acp.machine.homes import Home, furnish, program
from bot.engine.llm.acp.machine.process import CliProcess
from bot.engine.llm.acp.said.hiding import Hiding
from bot.engine.llm.acp.session import Opened, open_session
from bot.engine.llm.acp.table import Agent
from bot.engine.llm.acp.wire import LINE, Message, Wire
from bot.engine.llm.base import Mode, RunRequest

_ANSWERED = 5.0
"""Seconds that an answer of ours may take to be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ears:
    """Who hears what a CLI says on its own."""

    update: Callable[[Message], Awaitable[None]]
    wish: Callable[[Message], Awaitable[Mapping[str, Any]]]


class Live:
    def __init__(
        self, agent: Agent, process: CliProcess, wire: Wire, hiding: Hiding, farewell: float
    ) -> None:
        self._agent = agent
        self._process = process
        self._wire = wire
        self._farewell = farewell
        self._link = Link(wire, hiding)
        self._turn: asyncio.Task[Mapping[str, Any]] | None = None
        self.session = Opened(id="", gone_on=False)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def open(self, request: RunRequest, mode: Mode, cwd: Path, house: House) -> None:
        self.session = await open_session(
            self._link, self._agent, request, mode=mode, cwd=str(cwd), env=house.around
        )

    def prompt(self, blocks: list[dict[str, Any]]) -> asyncio.Task[Mapping[str, Any]]:
        """Begin a turn; the task is its answer, or raises Refused or Ended."""
        params = {"sessionId": self.session.id, "prompt": blocks}
        self._turn = asyncio.create_task(self._link.ask("session/prompt", params))
        return self._turn

    async def settled(self) -> None:
        """What was asked for is answered on the wire."""
        await self._wire.settled(_ANSWERED)

    async def why(self, ended: Ended) -> tuple[Failed, str]:
        """What it died of, by what it said last; that is known after its end."""
        if ended.failed is None:
            await self._process.stop()
        return ended.failed or of_death(self._process.last_words), self._process.last_words

    async def stop(self) -> None:
        """A turn under way is cancelled in the protocol's way first: so the session stays whole."""
        if self._turn is not None and not self._turn.done():
            await self._wire.give_up()
            await self._link.tell("session/cancel", {"sessionId": self.session.id})
            await asyncio.wait({self._turn}, timeout=self._farewell)
            self._turn.cancel()
        if self._turn is not None:
            await asyncio.gather(self._turn, return_exceptions=True)
        await self._link.aclose()
        await self._process.stop()

    def kill(self) -> None:
        self._process.kill()


@asynccontextmanager
async def live(
    agent: Agent, request: RunRequest, house: House, home: Home, *, mode: Mode, ears: Ears
) -> AsyncIterator[Live]:
    """Raises BackendError, also for what goes wrong within the context."""
    hiding = Hiding([secret for server in request.servers for secret in server.secrets])
    process = await _start(agent, request, house, home, mode=mode, hiding=hiding)
    wire = Wire(
        process.reader,
        process.writer,
        on_update=lambda update: ears.update(hiding.told(update)),
        on_wish=lambda wish: ears.wish(hiding.told(wish)),
    )
    alive = Live(agent, process, wire, hiding, house.farewell)
    try:
        await alive.open(request, mode, _folder(request, home), house)
        yield alive
    except Refused as refused:
        failed = of_refusal(refused.code, str(refused), refused.data)
        raise failure(failed, agent.name, str(refused)) from None
    except Ended as ended:
        failed, said = await alive.why(ended)
        raise failure(failed, agent.name, said) from None
    finally:
        await _ended(alive, house)


async def _ended(alive: Live, house: House) -> None:
    """Whoever is cancelled a second time meanwhile does not wait: nor does the CLI."""
    ending = asyncio.create_task(alive.stop())
    house.endings.add(ending)
    ending.add_done_callback(house.endings.discard)
    try:
        await asyncio.shield(ending)
    except asyncio.CancelledError:
        alive.kill()
        raise


async def _start(
    agent: Agent, request: RunRequest, house: House, home: Home, *, mode: Mode, hiding: Hiding
) -> CliProcess:
    await asyncio.to_thread(furnish, home, agent)
    folder = _folder(request, home)
    # A chat that has made nothing yet has none.
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    found = await asyncio.to_thread(program, agent, home, house.around, request.model)
    launch = await house.launch(
        found.argv,
        workspace=folder,
        home=home.path,
        env=found.env,
        readable=(*found.readable, *(at for each in request.servers for at in each.places)),
        writable=mode is Mode.EXECUTE,
    )
    mark = await house.mark()
    try:
        return await CliProcess.start(
            launch, log=home.log, mark=mark, line=LINE, secrets=hiding.secrets
        )
    except OSError as error:
        raise failure(Failed.MISSING, agent.name, error.strerror or "") from None


def _folder(request: RunRequest, home: Home) -> Path:
    """Always the same for the same session: it is bound to it."""
    return request.workspace or home.scratch
