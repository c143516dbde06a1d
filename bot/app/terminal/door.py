"""The way in for commands typed beside a program that works the queue without a chat."""

from __future__ import annotations

from contextlib import AsyncExitStack

from bot.app.build import Core, web_chat
from bot.app.lifecycle import Service
from bot.app.terminal.address import note_address
from bot.app.terminal.opening import home_writable
from bot.app.web import Overheard
from bot.config.settings import Settings
from bot.transports.intake import Intake
from bot.transports.web.transport import WebTransport

_ANY_PORT = 0


class Door:
    """Noted where commands look for a running program, as soon as it is open."""

    name = "door"

    def __init__(self, settings: Settings, web: WebTransport) -> None:
        self._settings = settings
        self._web = web

    async def start(self, stack: AsyncExitStack) -> None:
        await self._web.start(stack)
        with home_writable(self._settings):
            note_address(self._settings, self._web.address.rstrip("/"))

    async def run(self) -> None:
        await self._web.run()


def door(settings: Settings, core: Core) -> tuple[Service, ...]:
    """On this machine only, and on a port nobody else wants: no page is announced there. What
    people have said elsewhere waits for the next `shiftboss run`, and so does what is told them."""
    router = Overheard(core.router)
    intake = Intake(
        db=core.store.db,
        chats=core.store.chats,
        inbox=core.store.inbox,
        outbox=core.store.outbox,
        actions=core.store.actions,
        courier=core.courier,
        delivery=core.delivery,
        router=router,
        transports=core.transports,
        home=settings.home,
        clock=core.clock,
        alerts=core.alerts,
        takes_up=False,
    )
    here = settings.model_copy(update={"web_host": "127.0.0.1", "web_port": _ANY_PORT})
    return intake, Door(settings, web_chat(here, core, intake, router))
