"""The Telegram Bot API on a loopback port, for tests.

async with TelegramEmulator() as tg:
    ada = tg.user(7, "Ada")
    chat = tg.private_chat(ada)
    await ada.says(chat, "hello")
    answer = await chat.wait_for_text("hello")
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from tests.emulators.telegram.chats import MessageVersion, TelegramChat
from tests.emulators.telegram.faults import TelegramFault
from tests.emulators.telegram.server import QuietServer, listen, make_server
from tests.emulators.telegram.state import RecordedCall, TelegramState
from tests.emulators.telegram.users import TelegramUser
from tests.waiting import WAIT_SECONDS

Json = dict[str, Any]

TOKEN = "123456:emulated-token-not-a-secret"


class TelegramEmulator:
    """One bot's view of Telegram. All state dies with the context."""

    def __init__(
        self,
        *,
        token: str = TOKEN,
        username: str = "shiftboss_bot",
        clock: Callable[[], float] = time.time,
    ) -> None:
        bot = {"id": 123456, "is_bot": True, "first_name": "Shiftboss", "username": username}
        self.world = TelegramState(token=token, clock=clock, bot=bot)
        self._socket: socket.socket | None = None
        self._server: QuietServer | None = None
        self._serving: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._socket = listen()
        self._server = make_server(self.world)
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        while not self._server.started:
            await asyncio.sleep(0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server
        assert self._serving
        assert self._socket
        self.world.updates.closed = True
        self.world.changes.notify()
        self._server.should_exit = True
        await self._serving
        self._socket.close()

    @property
    def token(self) -> str:
        return self.world.token

    @property
    def base_url(self) -> str:
        """The host root, as in TELEGRAM_BASE_URL."""
        assert self._socket
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    @property
    def settings(self) -> dict[str, str]:
        """The settings of a program that uses this bot."""
        return {"TELEGRAM_BOT_TOKEN": self.token, "TELEGRAM_BASE_URL": self.base_url}

    @property
    def bot_name(self) -> str:
        return str(self.world.bot["username"])

    @property
    def calls(self) -> list[RecordedCall]:
        """Every request so far, in order."""
        return self.world.calls

    def calls_of(self, method: str) -> list[RecordedCall]:
        return [call for call in self.world.calls if call.method == method]

    @property
    def violations(self) -> int:
        """Calls made to a chat while it was under a flood ban."""
        return self.world.bans.violations

    def enforce_limits(self) -> None:
        """From now on refuse what goes beyond the service's limits."""
        self.world.flood.enforced = True

    @property
    def refused_by_limits(self) -> int:
        return self.world.flood.refused

    def user(self, user_id: int, name: str, language: str = "en") -> TelegramUser:
        """A person; without a private chat the bot cannot write to them."""
        self.world.users[user_id] = {
            "id": user_id,
            "is_bot": False,
            "first_name": name,
            "username": f"user{user_id}",
            "language_code": language,
        }
        return TelegramUser(id=user_id, name=name, language=language, world=self.world)

    def private_chat(self, user: TelegramUser) -> TelegramChat:
        known = self.world.chats.get(user.id)
        return known or self._add_chat(user.id, "private", user.name)

    def group(
        self,
        title: str,
        *,
        forum: bool = False,
        supergroup: bool = False,
        privacy: bool = False,
    ) -> TelegramChat:
        """A group with the bot in it. With `privacy` the bot sees only what is meant for it."""
        serial = self.world.next_id()
        big = forum or supergroup
        chat = self._add_chat(-1_000_000_000_000 - serial if big else -serial,
                              "supergroup" if big else "group", title)  # fmt: skip
        chat.forum = forum
        chat.bot_sees_all = not privacy
        return chat

    def topic(self, chat: TelegramChat, name: str, by: TelegramUser | None = None) -> int:
        """Open a topic in a forum (by the bot itself unless `by` is given); its thread id."""
        sender = by.as_json() if by else self.world.bot
        opened = self.world.post(
            chat,
            sender,
            MessageVersion(at=self.world.clock(), text=""),
            extra={"forum_topic_created": {"name": name, "icon_color": 7322096}},
        )
        chat.topics[opened.id] = name
        return opened.id

    def close_topic(self, chat: TelegramChat, thread: int) -> None:
        """Delete a topic with its messages."""
        del chat.topics[thread]
        for message in chat.messages:
            if thread in {message.thread, message.id}:
                message.deleted = True

    def migrate(self, group: TelegramChat, by: TelegramUser) -> TelegramChat:
        """Turn a group into a supergroup: a new chat id, and a notice in both."""
        new = self.group(group.title, supergroup=True, privacy=not group.bot_sees_all)
        for chat, extra in (
            (group, {"migrate_to_chat_id": new.id}),
            (new, {"migrate_from_chat_id": group.id}),
        ):
            version = MessageVersion(at=self.world.clock(), text="")
            notice = self.world.post(chat, by.as_json(), version, extra=extra)
            self.world.updates.put("message", notice.as_json())
        group.migrated_to = new.id
        return new

    def unknown_update(self, **content: Any) -> int:
        """An update of a kind this client may not know."""
        return self.world.updates.put_raw(content)

    def inject_fault(self, method: str, mischief: TelegramFault, times: int = 1) -> None:
        """Spoil the next `times` calls of a method (`*`: of any but getUpdates)."""
        self.world.fault_plans.add(method, mischief, times)

    def revoke_token(self) -> None:
        """From now on every call is Unauthorized, the running long poll included."""
        self.world.token_valid = False
        self.world.updates.closed = True
        self.world.changes.notify()

    def restore_token(self) -> None:
        self.world.token_valid = True
        self.world.updates.closed = False

    def redeliver(self, count: int | None = None) -> int:
        """Send confirmed updates again; how many."""
        return self.world.updates.redeliver(count)

    @property
    def unconfirmed(self) -> list[Json]:
        """Updates the client has not acknowledged."""
        return self.world.updates.unconfirmed

    def commands(self, language: str = "", scope: str = "default") -> dict[str, str]:
        """The command menu as set, name to description."""
        stored = self.world.commands.get((scope, language), [])
        return {entry["command"]: entry["description"] for entry in stored}

    async def wait_for_call(
        self,
        method: str,
        accept: Callable[[RecordedCall], bool] = lambda _: True,
        timeout: float = WAIT_SECONDS,
    ) -> RecordedCall:
        def look() -> RecordedCall | None:
            return next((call for call in self.calls_of(method) if accept(call)), None)

        return await self.world.changes.until(look, timeout, f"a call of {method}")

    async def wait_until(
        self, holds: Callable[[], bool], timeout: float = WAIT_SECONDS, what: str = ""
    ) -> None:
        await self.world.changes.until(lambda: holds() or None, timeout, what)

    def _add_chat(self, chat_id: int, kind: str, title: str) -> TelegramChat:
        chat = TelegramChat(id=chat_id, kind=kind, title=title, changes=self.world.changes)
        self.world.chats[chat_id] = chat
        return chat
