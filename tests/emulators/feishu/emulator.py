"""The Feishu open platform in one process: what a test holds in its hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from tests.emulators.feishu.bitable import FIELDS_CHANGED, RECORDS_CHANGED, Bitable
from tests.emulators.feishu.callbacks import CardCallbacks
from tests.emulators.feishu.cardkit import CardKit
from tests.emulators.feishu.documents import (
    CONVERT_SCOPE,
    CREATE_SCOPE,
    DRIVE_SCOPE,
    FeishuDrive,
)
from tests.emulators.feishu.events import FeishuEvents
from tests.emulators.feishu.http_server import HttpRequest, HttpServer
from tests.emulators.feishu.long_connection import EventPush, LongConnection
from tests.emulators.feishu.messages import FeishuMedia, FeishuMessages
from tests.emulators.feishu.refusals import FeishuApiError, InjectedFault, RateLimits, TenantTokens
from tests.emulators.feishu.registration import AppRegistration
from tests.emulators.feishu.routes import FeishuRoutes, RecordedRequest
from tests.emulators.feishu.tenant import EmulatorClock, FeishuChat, FeishuMessage, FeishuTenant
from tests.emulators.feishu.users import FeishuUser
from tests.waiting import WAIT_SECONDS


@dataclass
class AppConfiguration:
    """What the developer console says of the app. `may_read` permits it to ask for its events."""

    scopes: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            (
                *("im:message", "im:message:send_as_bot", "im:resource", "cardkit:card:write"),
                *("bitable:app", CREATE_SCOPE, CONVERT_SCOPE, DRIVE_SCOPE),
                *("sheets:spreadsheet:readonly", "wiki:wiki:readonly"),
            ),
            1,
        )
    )
    may_read: bool = True
    event_mode: str = "websocket"
    events: list[str] = field(
        default_factory=lambda: ["im.message.receive_v1", RECORDS_CHANGED, FIELDS_CHANGED]
    )
    callback_mode: str = "websocket"
    callbacks: list[str] = field(default_factory=lambda: ["card.action.trigger"])
    version: str = "oav_1"
    version_in_review: str = ""

    def list_scopes(self, _request: HttpRequest) -> dict[str, Any]:
        return {
            "scopes": [
                {"scope_name": name, "grant_status": status, "scope_type": "tenant"}
                for name, status in self.scopes.items()
            ]
        }

    def describe(self, _request: HttpRequest) -> dict[str, Any]:
        if not self.may_read:
            raise FeishuApiError(
                99991672, "Access denied. One of the following scopes is required", status=400
            )
        event = {"subscription_type": self.event_mode, "subscribed_events": self.events}
        callback = {"callback_type": self.callback_mode, "subscribed_callbacks": self.callbacks}
        return {
            "app": {
                "app_name": "Shiftboss",
                "event": event,
                "callback": callback,
                "online_version_id": self.version,
                "unaudit_version_id": self.version_in_review,
            }
        }


class FeishuEmulator:
    """`async with FeishuEmulator("cli_x", "secret") as fs:` then point FEISHU_DOMAIN at
    `fs.domain`. Time windows of the platform pass by `fs.advance(seconds)`."""

    def __init__(
        self,
        app_id: str = "cli_emulated",
        app_secret: str = "emulated-secret",
        *,
        is_lark: bool = False,
    ) -> None:
        self.is_lark = is_lark
        self.app_id = app_id
        self.app_secret = app_secret
        self.clock = EmulatorClock()
        self.world = FeishuTenant(self.clock)
        self.bot_id = self.world.new_id("ou_", 32)
        self.bot_name = "Shiftboss"
        self.world.people[self.bot_id] = self.bot_name
        self.all_group_messages = False
        self.app = AppConfiguration()
        self.tokens = TenantTokens(self.clock)
        self.rates = RateLimits(self.clock)
        self.events = FeishuEvents(app_id, self.world, self.clock)
        self.long = LongConnection(self.clock, self.world)
        self.messages = FeishuMessages(
            self.world, self.clock, self.rates, bot_id=self.bot_id, app_id=app_id
        )
        self.media = FeishuMedia(self.world)
        self.bitable = Bitable(self)
        self.drive = FeishuDrive(self)
        self.cardkit = CardKit(self.world, self.clock, self.rates)
        self.presses = CardCallbacks(self.world, self.clock, self.events, self.long)
        self.registration = AppRegistration(fs=self)
        self.api = FeishuRoutes(self)
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

    @property
    def settings(self) -> dict[str, str]:
        """The settings of a program that uses this app."""
        return {
            "FEISHU_APP_ID": self.app_id,
            "FEISHU_APP_SECRET": self.app_secret,
            "FEISHU_DOMAIN": self.domain,
        }

    # --- people and chats -------------------------------------------------------------------

    def user(self, name: str) -> FeishuUser:
        """A person of the tenant; the same name is the same person."""
        for open_id, known in self.world.people.items():
            if known == name and open_id != self.bot_id:
                return FeishuUser(fs=self, open_id=open_id, name=name)
        open_id = self.world.new_id("ou_", 32)
        self.world.people[open_id] = name
        return FeishuUser(fs=self, open_id=open_id, name=name)

    def private_chat(self, user: FeishuUser) -> FeishuChat:
        return self.world.p2p(user.open_id)

    def group(self, title: str, *, topics: bool = False, bot_in: bool = True) -> FeishuChat:
        chat = FeishuChat(
            world=self.world,
            chat_id=self.world.new_id("oc_"),
            kind="group",
            title=title,
            topics=topics,
            has_bot=bot_in,
        )
        self.world.chats[chat.chat_id] = chat
        return chat

    def would_deliver(self, message: FeishuMessage) -> bool:
        """Without the sensitive scope the bot sees group messages only where it is mentioned."""
        if not message.chat.has_bot:
            return False
        if message.chat.kind == "p2p" or self.all_group_messages:
            return True
        named = any(mention["id"]["open_id"] == self.bot_id for mention in message.mentions)
        return named or "@_all" in message.content

    # --- events -----------------------------------------------------------------------------

    @property
    def pushes(self) -> list[EventPush]:
        return self.long.pushes

    def push(self, body: dict[str, Any]) -> EventPush:
        return self.long.push(body)

    def push_event(self, event_type: str, event: dict[str, Any] | None = None) -> EventPush:
        """Any event at all, known to the app or not."""
        return self.long.push(self.events.envelope(event_type, event or {}))

    async def wait_for_connections(self, count: int = 1, timeout: float = WAIT_SECONDS) -> None:
        """Until so many connections are open."""
        await self.wait_until(lambda: len(self.long.connections) >= count, timeout)

    async def wait_until(
        self, condition: Callable[[], bool], timeout: float = WAIT_SECONDS
    ) -> None:
        """Until `condition` holds; looked at after every change of any kind."""
        await self.world.wait_until(condition, timeout)

    def advance(self, seconds: float) -> None:
        """Let time pass for the platform only: re-pushes, tokens, rates, streaming, uuids."""
        self.clock.advance(seconds)

    # --- misbehaviour -----------------------------------------------------------------------

    def inject_fault(self, method: str, path: str, **how: Any) -> InjectedFault:
        """Order a fault for requests whose path matches the regular expression `path`."""
        fault = InjectedFault(method=method, path=path, **how)
        self.api.faults.append(fault)
        return fault

    @property
    def requests(self) -> list[RecordedRequest]:
        return self.api.requests

    def calls(self, method: str, path: str) -> list[RecordedRequest]:
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
            raise FeishuApiError(answer["code"], answer["msg"], status=200)
        return {"data": answer["data"]}

    def issue_token(self, request: HttpRequest) -> dict[str, Any]:
        body = request.json() or {}
        if body.get("app_id") != self.app_id:
            raise FeishuApiError(10003, "invalid app_id", status=200)
        if body.get("app_secret") != self.app_secret:
            raise FeishuApiError(10014, "app secret invalid", status=200)
        token, expire = self.tokens.issue()
        return {"tenant_access_token": token, "expire": expire}
