"""The web server with all its routes on a real store, called without a port. No task runs."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, chdir, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx

from bot.app.channels import connect_channels
from bot.app.container import Container, open_container
from bot.config.settings import Settings
from bot.transports.web.transport import WebTransport
from storage.records.messages import ChatAddress, MessageSender
from storage.records.people import Channel, ChatKind, Person, PersonRole
from tests.migrated_database import migrated_url

TOKEN = "5f2b9c7e1a8d4063bb17e9c20d5f8a64"


class DashboardWorld:
    """The local owner, an owner Olga and the members Ann and Bob, who are on Telegram."""

    def __init__(self, core: Container, web: WebTransport) -> None:
        self.core = core
        self.web = web
        self.app = web._build_access_control()
        self.people: dict[str, Person] = {}
        self.tokens: dict[str, str] = {}

    @property
    def url(self) -> str:
        return self.web.address.rstrip("/")

    async def add_person(self, name: str, role: PersonRole) -> None:
        store = self.core.repositories
        now = self.core.clock.now()
        place = ChatAddress(channel=Channel.TELEGRAM, chat=name, kind=ChatKind.PRIVATE)
        async with store.db.write() as tx:
            person = await store.people.get_or_create(
                tx, Channel.TELEGRAM, name, name=name.title(), role=role, now=now
            )
            await store.chats.get_or_create(tx, place, MessageSender(external_id=name), now)
        self.people[name] = person
        self.tokens[name] = await self.core.web_sessions.create_token(person.id, "tests")

    def program(self, name: str = "", **more: str) -> httpx.AsyncClient:
        """A program with the person's token; without a name, with the web token."""
        token = self.tokens[name] if name else TOKEN
        return self.client(authorization=f"Bearer {token}", **more)

    def client(self, **headers: str) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(self.app)
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        return httpx.AsyncClient(transport=transport, base_url=self.url, headers=named)

    async def browser(self, name: str = "") -> httpx.AsyncClient:
        """A browser in which this person, or the local owner, has signed in."""
        stranger = self.client(origin=self.url)
        if not name:
            await stranger.get("/", params={"token": TOKEN})
            return stranger
        url, _ = await self.core.web_sessions.create_link(self.people[name].id)
        signed_in = await stranger.post(url)
        assert signed_in.status_code == 303, signed_in.text
        return stranger


@contextmanager
def _own_machine(home: Path) -> Iterator[None]:
    """Neither the settings nor the skills of whoever runs the tests are read."""
    own = {"HOME": str(home), "SHIFTBOSS_HOME": str(home)}
    with patch.dict(os.environ, own), chdir(home):
        yield


@asynccontextmanager
async def dashboard_world(home: Path, **settings: Any) -> AsyncIterator[DashboardWorld]:
    migrated_url(home)
    named = {"SHIFTBOSS_HOME": home, "SHIFTBOSS_WEB_PORT": 0, "SHIFTBOSS_WEB_TOKEN": TOKEN}
    chosen = Settings.model_validate({**named, "SHIFTBOSS_MODEL": "offline", **settings})
    async with AsyncExitStack() as stack:
        stack.enter_context(_own_machine(home))
        core = await stack.enter_async_context(open_container(chosen))
        web = connect_channels(core, leads=True).web
        await web.start(stack)
        world = DashboardWorld(core, web)
        await world.add_person("olga", PersonRole.OWNER)
        await world.add_person("ann", PersonRole.MEMBER)
        await world.add_person("bob", PersonRole.MEMBER)
        yield world
