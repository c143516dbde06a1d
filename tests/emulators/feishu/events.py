"""Event bodies in schema 2.0, as the long connection carries them."""

from __future__ import annotations

import json
from typing import Any

from tests.emulators.feishu.tenant import EmulatorClock, FeishuChat, FeishuMessage, FeishuTenant

TENANT = "emu_tenant"


class FeishuEvents:
    def __init__(self, app_id: str, world: FeishuTenant, clock: EmulatorClock) -> None:
        self._app_id = app_id
        self._world = world
        self._clock = clock

    def envelope(self, event_type: str, event: dict[str, Any]) -> dict[str, Any]:
        """Times are milliseconds, except microseconds for card actions: so the platform does."""
        factor = 1000 if event_type == "card.action.trigger" else 1
        return {
            "schema": "2.0",
            "header": {
                "event_id": self._world.new_id("ev", 30),
                "event_type": event_type,
                "create_time": str(self._clock.now_ms() * factor),
                "token": "",
                "app_id": self._app_id,
                "tenant_key": TENANT,
            },
            "event": event,
        }

    def message(self, message: FeishuMessage) -> dict[str, Any]:
        described = {
            "message_id": message.message_id,
            "root_id": message.root_id,
            "parent_id": message.parent_id,
            "thread_id": message.thread_id,
            "create_time": str(message.created_ms),
            "update_time": str(message.created_ms),
            "chat_id": message.chat.chat_id,
            "chat_type": message.chat.kind,
            "message_type": message.msg_type,
            "content": message.content,
            "mentions": message.mentions or None,
        }
        event = {
            "sender": {
                "sender_id": user_ids(message.sender_id),
                "sender_type": "user",
                "tenant_key": TENANT,
            },
            "message": {key: value for key, value in described.items() if value is not None},
        }
        return self.envelope("im.message.receive_v1", event)

    def entered(self, chat: FeishuChat, open_id: str) -> dict[str, Any]:
        event = {
            "chat_id": chat.chat_id,
            "operator_id": user_ids(open_id),
            "last_message_id": "",
            "last_message_create_time": "",
        }
        return self.envelope("im.chat.access_event.bot_p2p_chat_entered_v1", event)

    def member(self, kind: str, chat: FeishuChat, open_id: str) -> dict[str, Any]:
        event = {
            "chat_id": chat.chat_id,
            "operator_id": user_ids(open_id),
            "external": False,
            "operator_tenant_key": TENANT,
            "name": chat.title,
            "i18n_names": {},
        }
        return self.envelope(f"im.chat.member.bot.{kind}_v1", event)

    def menu(self, open_id: str, name: str, key: str) -> dict[str, Any]:
        event = {
            "operator": {"operator_name": name, "operator_id": user_ids(open_id)},
            "event_key": key,
            "timestamp": int(self._clock.now()),
        }
        return self.envelope("application.bot.menu_v6", event)

    def recalled(self, message: FeishuMessage) -> dict[str, Any]:
        event = {
            "message_id": message.message_id,
            "chat_id": message.chat.chat_id,
            "recall_time": str(self._clock.now_ms()),
            "recall_type": "message_owner",
        }
        return self.envelope("im.message.recalled_v1", event)

    def read(self, message: FeishuMessage, open_id: str) -> dict[str, Any]:
        reader = {"reader_id": user_ids(open_id), "read_time": str(self._clock.now_ms())}
        event = {"reader": reader, "message_id_list": [message.message_id]}
        return self.envelope("im.message.message_read_v1", event)

    def action(
        self, message: FeishuMessage, open_id: str, token: str, action: dict[str, Any]
    ) -> dict[str, Any]:
        event = {
            "operator": {"tenant_key": TENANT, **user_ids(open_id)},
            "token": token,
            "action": {"timezone": "Asia/Shanghai", **action},
            "host": "im_message",
            "context": {
                "open_message_id": message.message_id,
                "open_chat_id": message.chat.chat_id,
            },
        }
        return self.envelope("card.action.trigger", event)


def user_ids(open_id: str) -> dict[str, str]:
    return {
        "open_id": open_id,
        "union_id": open_id.replace("ou_", "on_", 1),
        "user_id": open_id.replace("ou_", "u", 1),
    }


def post_content(title: str, paragraphs: list[list[dict[str, Any]]]) -> str:
    """A rich text message as a person's client sends it."""
    return json.dumps({"title": title, "content": paragraphs}, ensure_ascii=False)
