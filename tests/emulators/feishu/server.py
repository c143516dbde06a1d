"""The Feishu open platform in one process: what a test holds in its hand."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from tests.emulators.feishu.api import Api, Recorded
from tests.emulators.feishu.cardkit import CardKit
from tests.emulators.feishu.clock import Clock
from tests.emulators.feishu.events import Events
from tests.emulators.feishu.faults import ApiError, Fault
from tests.emulators.feishu.gates import Rates, Tokens
from tests.emulators.feishu.longconn import LongConnection, Push
from tests.emulators.feishu.media import Media
from tests.emulators.feishu.messages import Messages
from tests.emulators.feishu.people import User
from tests.emulators.feishu.presses import Presses
from tests.emulators.feishu.wire import HttpRequest, HttpServer
from tests.emulators.feishu.world import WAIT, Chat, Message, World


class FeishuEmulator:
    """`async with FeishuEmulator("cli_x", "secret") as fs:` then point FEISHU_DOMAIN at
    `fs.domain`. Time windows of the platform pass by `fs.advance(seconds)`."""

    def __init__(self, app_id: str = "cli_emulated", app_secret: str = "emulated-secret") -> None:
        self.app_id = app_id
        self.app_secret = app_secret
        self.clock = Clock()
        self.world = World(self.clock)
        self.bot_id = self.world.new_id("ou_", 32)
        self.bot_name = "Shiftboss"
        self.world.people[self.bot_id] = self.bot_name
        self.all_group_messages = False
        self.tokens = Tokens(self.clock)
        self.rates = Rates(self.clock)
        self.events = Events(app_id, self.world, self.clock)
        self.long = LongConnection(self.clock, self.world)
        self.messages = Messages(
            self.world, self.clock, self.rates, bot_id=self.bot_id, app_id=app_id
        )
        self.media = Media(self.world)
        self.cardkit = CardKit(self.world, self.clock, self.rates)
        self.presses = Presses(self.world, self.clock, self.events, self.long)
        self.api = Api(self)
        self._http = HttpServer(self.api.handle)

    async def __aenter__(self) -> Self:
        await self._http.start()
        await self.long.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.long.close()
        await self._http.close()

    @property
    def domain(self) -> str:
        return f"http://127.0.0.1:{self._http.port}"

    # --- people and chats -------------------------------------------------------------------

    def user(self, name: str) -> User:
        """A person of the tenant; the same name is the same person."""
        for open_id, known in self.world.people.items():
            if known == name and open_id != self.bot_id:
                return User(fs=self, open_id=open_id, name=name)
        open_id = self.world.new_id("ou_", 32)
        self.world.people[open_id] = name
        return User(fs=self, open_id=open_id, name=name)

    def p2p(self, user: User) -> Chat:
        return self.world.p2p(user.open_id)

    def group(self, title: str, *, topics: bool = False, bot_in: bool = True) -> Chat:
        chat = Chat(
            world=self.world,
            chat_id=self.world.new_id("oc_"),
            kind="group",
            title=title,
            topics=topics,
            bot_in=bot_in,
        )
        self.world.chats[chat.chat_id] = chat
        return chat

    def would_deliver(self, message: Message) -> bool:
        """Without the sensitive scope the bot sees group messages only where it is mentioned."""
        if not message.chat.bot_in:
            return False
        if message.chat.kind == "p2p" or self.all_group_messages:
            return True
        named = any(mention["id"]["open_id"] == self.bot_id for mention in message.mentions)
        return named or "@_all" in message.content

    # --- events -----------------------------------------------------------------------------

    @property
    def pushes(self) -> list[Push]:
        return self.long.pushes

    def push(self, body: dict[str, Any]) -> Push:
        return self.long.push(body)

    def push_event(self, event_type: str, event: dict[str, Any] | None = None) -> Push:
        """Any event at all, known to the app or not."""
        return self.long.push(self.events.envelope(event_type, event or {}))

    async def connected(self, count: int = 1, timeout: float = WAIT) -> None:
        """Until so many connections are open."""
        await self.until(lambda: len(self.long.connections) >= count, timeout)

    async def until(self, condition: Callable[[], bool], timeout: float = WAIT) -> None:
        """Until `condition` holds; looked at after every change of any kind."""
        await self.world.until(condition, timeout)

    def advance(self, seconds: float) -> None:
        """Let time pass for the platform only: re-pushes, tokens, rates, streaming, uuids."""
        self.clock.advance(seconds)

    # --- misbehaviour -----------------------------------------------------------------------

    def misbehave(self, method: str, path: str, **how: Any) -> Fault:
        """Order a fault for requests whose path matches the regular expression `path`."""
        fault = Fault(method=method, path=path, **how)
        self.api.faults.append(fault)
        return fault

    @property
    def requests(self) -> list[Recorded]:
        return self.api.requests

    def calls(self, method: str, path: str) -> list[Recorded]:
        """Recorded requests of this method whose path ends so."""
        return [r for r in self.requests if r.method == method and r.path.endswith(path)]

    # --- routes without a home of their own -------------------------------------------------

    @property
    def bot(self) -> dict[str, Any]:
        return {
            "activate_status": 2,
            "app_name": self.bot_name,
            "avatar_url": "",
            "ip_white_list": [],
            "open_id": self.bot_id,
        }

    def discovery(self, request: HttpRequest) -> dict[str, Any]:
        body = request.json() or {}
        known = body.get("AppID") == self.app_id and body.get("AppSecret") == self.app_secret
        answer = self.long.discover(authorized=known)
        if answer["code"]:
            raise ApiError(answer["code"], answer["msg"], status=200)
        return {"data": answer["data"]}

    def issue_token(self, request: HttpRequest) -> dict[str, Any]:
        body = request.json() or {}
        if body.get("app_id") != self.app_id:
            raise ApiError(10003, "invalid app_id", status=200)
        if body.get("app_secret") != self.app_secret:
            raise ApiError(10014, "app secret invalid", status=200)
        token, expire = self.tokens.issue()
        return {"tenant_access_token": token, "expire": expire}
