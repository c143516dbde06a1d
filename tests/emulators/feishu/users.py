"""A user's hand: writing, sending files, pressing, opening chats."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tests.emulators.feishu.callbacks import CallbackAnswer, button_action, select_action
from tests.emulators.feishu.events import post_content, user_ids
from tests.emulators.feishu.long_connection import EventPush
from tests.emulators.feishu.tenant import FeishuChat, FeishuMessage, StoredBlob

if TYPE_CHECKING:
    from tests.emulators.feishu.emulator import FeishuEmulator

BotMention = Literal["bot"]
AllMention = Literal["all"]


@dataclass(slots=True, kw_only=True, eq=False)
class FeishuUser:
    fs: FeishuEmulator
    open_id: str
    name: str

    async def says(
        self,
        chat: FeishuChat,
        text: str,
        *,
        mentions: list[FeishuUser | BotMention | AllMention] | None = None,
        reply_to: FeishuMessage | None = None,
        thread: str | None = None,
    ) -> FeishuMessage:
        """Send text. Mentions not yet in the text as `{0}`, `{1}` … stand before it."""
        people = mentions or []
        keys = [f"@_user_{number}" for number in range(1, len(people) + 1)]
        keys = ["@_all" if who == "all" else key for who, key in zip(people, keys, strict=True)]
        filled = text.format(*keys) if "{0}" in text else " ".join([*keys, text])
        noted = [
            self._mention(key, who) for key, who in zip(keys, people, strict=True) if who != "all"
        ]
        content = json.dumps({"text": filled}, ensure_ascii=False)
        return await self._send(chat, "text", content, noted, reply_to=reply_to, thread=thread)

    async def forwards(self, chat: FeishuChat, *passed_on: FeishuMessage) -> FeishuMessage:
        """Pass several messages on together. The event does not have their words."""
        content = json.dumps({"content": "Merged and Forwarded Message"})
        return await self._send(chat, "merge_forward", content, [], passed_on=passed_on)

    async def sends_image(
        self, chat: FeishuChat, data: bytes, *, reply_to: FeishuMessage | None = None
    ) -> FeishuMessage:
        key = self.fs.world.new_id("img_v3_")
        self.fs.world.images[key] = StoredBlob(data=data, name="image", kind="image/png")
        return await self._send(
            chat, "image", json.dumps({"image_key": key}), [], reply_to=reply_to
        )

    async def sends_file(
        self, chat: FeishuChat, name: str, data: bytes, *, reply_to: FeishuMessage | None = None
    ) -> FeishuMessage:
        key = self.fs.world.new_id("file_v3_")
        self.fs.world.files[key] = StoredBlob(data=data, name=name, kind="stream")
        content = json.dumps({"file_key": key, "file_name": name}, ensure_ascii=False)
        return await self._send(chat, "file", content, [], reply_to=reply_to)

    async def sends_post(
        self,
        chat: FeishuChat,
        title: str,
        paragraphs: list[list[dict[str, Any]]],
        *,
        mentions: list[FeishuUser | BotMention] | None = None,
    ) -> FeishuMessage:
        """Rich text; put `{"tag": "at", "user_id": "@_user_1"}` where a mention stands and
        `{"tag": "img", "image_key": …}` for pictures."""
        people = mentions or []
        noted = [self._mention(f"@_user_{n}", who) for n, who in enumerate(people, 1)]
        content = post_content(title, paragraphs)
        return await self._send(chat, "post", content, noted)

    async def presses(self, message: FeishuMessage, label: str, **fill: str) -> CallbackAnswer:
        """Press a button; `fill` are the values of the form that the button submits."""
        action = button_action(message, label, fill)
        return await self.fs.presses.send(message, self.open_id, action)

    async def selects(self, message: FeishuMessage, option: str) -> CallbackAnswer:
        action = select_action(message, option)
        return await self.fs.presses.send(message, self.open_id, action)

    async def forges(self, message: FeishuMessage, value: Any, **more: Any) -> CallbackAnswer:
        """A callback with a value that no card ever had."""
        action = {"tag": "button", "value": value, **more}
        return await self.fs.presses.send(message, self.open_id, action)

    async def opens_chat(self) -> FeishuChat:
        """Open the private chat with the bot: the platform tells the bot every time."""
        chat = self.fs.private_chat(self)
        self.fs.push(self.fs.events.entered(chat, self.open_id))
        return chat

    async def uses_menu(self, key: str) -> EventPush:
        return self.fs.push(self.fs.events.menu(self.open_id, self.name, key))

    async def recalls(self, message: FeishuMessage) -> EventPush:
        message.recalled = True
        self.fs.world.notify_changed()
        return self.fs.push(self.fs.events.recalled(message))

    async def reads(self, message: FeishuMessage) -> EventPush:
        return self.fs.push(self.fs.events.read(message, self.open_id))

    async def adds_bot(self, chat: FeishuChat) -> EventPush:
        chat.has_bot = True
        return self.fs.push(self.fs.events.member("added", chat, self.open_id))

    async def removes_bot(self, chat: FeishuChat) -> EventPush:
        chat.has_bot = False
        return self.fs.push(self.fs.events.member("deleted", chat, self.open_id))

    def _mention(self, key: str, who: FeishuUser | str) -> dict[str, Any]:
        is_bot = isinstance(who, str)
        open_id = self.fs.bot_id if isinstance(who, str) else who.open_id
        return {
            "key": key,
            "id": user_ids(open_id),
            "name": self.fs.bot_name if isinstance(who, str) else who.name,
            "mentioned_type": "bot" if is_bot else "user",
            "tenant_key": "emu_tenant",
        }

    async def _send(
        self,
        chat: FeishuChat,
        msg_type: str,
        content: str,
        mentions: list[dict[str, Any]],
        *,
        reply_to: FeishuMessage | None = None,
        thread: str | None = None,
        passed_on: tuple[FeishuMessage, ...] = (),
    ) -> FeishuMessage:
        world = self.fs.world
        if thread is None:
            thread = reply_to.thread_id if reply_to else None
        if thread is None and chat.topics:
            thread = world.new_id("omt_")
        message = FeishuMessage(
            message_id=world.new_id("om_"),
            chat=chat,
            sender_id=self.open_id,
            by_bot=False,
            msg_type=msg_type,
            content=content,
            created_ms=self.fs.clock.now_ms(),
            mentions=mentions,
            parent_id=reply_to.message_id if reply_to else None,
            root_id=(reply_to.root_id or reply_to.message_id) if reply_to else None,
            thread_id=thread,
            passed_on=passed_on,
        )
        world.post(message)
        if self.fs.would_deliver(message):
            message.push = self.fs.push(self.fs.events.message(message))
        return message
