"""Messages over REST: send, answer, change, take back; and who wrote what."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from bot.transports.feishu.api import FeishuApi, segment
from bot.transports.feishu.errors import Broken, FeishuError, Kind
from cards.render.feishu.size import dumps
from storage.records.people import Chat

_REMEMBERED = 2000
_BAD_PARAMETER = 230001


class Posting:
    def __init__(self, api: FeishuApi) -> None:
        self._api = api
        self._ours: OrderedDict[str, bool] = OrderedDict()
        self._last_heard: OrderedDict[str, str] = OrderedDict()

    async def send(
        self,
        chat: Chat,
        msg_type: str,
        content: Mapping[str, Any],
        *,
        uuid: str,
        reply_to: str = "",
    ) -> str:
        """Send, as an answer where that is asked for and still possible; the message's id.
        The same `uuid` sends once an hour at most."""
        body = {"msg_type": msg_type, "content": dumps(content), "uuid": _short(uuid)}
        for target in dict.fromkeys((reply_to, chat.thread)):
            if target.startswith("om_"):
                try:
                    return self._sent(await self._reply(target, body, chat))
                except FeishuError as error:
                    # Recalled, or never a message: what is to be said is said all the same.
                    if error.kind is not Kind.GONE and error.code != _BAD_PARAMETER:
                        raise
        kind = "open_id" if chat.external_id.startswith("ou_") else "chat_id"
        answer = await self._api.call(
            "POST",
            "/im/v1/messages",
            params={"receive_id_type": kind},
            body={"receive_id": chat.external_id, **body},
        )
        return self._sent(answer)

    async def _reply(self, target: str, body: dict[str, Any], chat: Chat) -> dict[str, Any]:
        path = f"/im/v1/messages/{segment(target)}/reply"
        if chat.thread:
            try:
                return await self._api.call("POST", path, body={**body, "reply_in_thread": True})
            except FeishuError as error:
                if error.kind not in (Kind.NO_TOPICS, Kind.NO_EDIT):
                    raise
        return await self._api.call("POST", path, body=body)

    def _sent(self, answer: Mapping[str, Any]) -> str:
        message_id = str((answer.get("data") or {}).get("message_id", ""))
        if not message_id:
            raise FeishuError(-1, "sent, but the answer names no message", status=502)
        self._remember(message_id, ours=True)
        return message_id

    async def patch_card(self, message_id: str, card: Mapping[str, Any]) -> None:
        path = f"/im/v1/messages/{segment(message_id)}"
        await self._api.call("PATCH", path, body={"content": dumps(card)})

    async def edit_text(self, message_id: str, text: str) -> None:
        body = {"msg_type": "text", "content": dumps({"text": text})}
        await self._api.call("PUT", f"/im/v1/messages/{segment(message_id)}", body=body)

    async def take_back(self, message_id: str) -> None:
        """Delete; that it is gone already is as good."""
        try:
            await self._api.call("DELETE", f"/im/v1/messages/{segment(message_id)}")
        except FeishuError as error:
            if error.kind is not Kind.GONE:
                raise

    async def is_ours(self, message_id: str) -> bool:
        """Whether the bot wrote it; False where the platform does not say."""
        if message_id not in self._ours:
            path = f"/im/v1/messages/{segment(message_id)}"
            try:
                answer = await self._api.call("GET", path)
            except (FeishuError, Broken):
                return False
            items = (answer.get("data") or {}).get("items") or [{}]
            sender = items[0].get("sender") or {}
            ours = sender.get("sender_type") == "app" and self._api.is_me(str(sender.get("id")))
            self._remember(message_id, ours=ours)
        return self._ours[message_id]

    async def chat_title(self, chat_id: str) -> str:
        try:
            answer = await self._api.call("GET", f"/im/v1/chats/{segment(chat_id)}")
        except (FeishuError, Broken):
            return ""
        return str((answer.get("data") or {}).get("name") or "")

    async def person_name(self, open_id: str) -> str:
        """Needs a scope of its own; without it people go by their ids."""
        path = f"/contact/v3/users/{segment(open_id)}"
        try:
            answer = await self._api.call("GET", path, params={"user_id_type": "open_id"})
        except (FeishuError, Broken):
            return ""
        return str(((answer.get("data") or {}).get("user") or {}).get("name") or "")

    def heard(self, chat_id: str, message_id: str) -> None:
        """The chat's newest message from a person, for `seen`."""
        self._last_heard[chat_id] = message_id
        self._last_heard.move_to_end(chat_id)
        if len(self._last_heard) > _REMEMBERED:
            self._last_heard.popitem(last=False)

    async def seen(self, chat_id: str) -> None:
        """A small sign on the newest message, once: there is no typing indicator."""
        message_id = self._last_heard.pop(chat_id, "")
        if message_id:
            path = f"/im/v1/messages/{segment(message_id)}/reactions"
            await self._api.call("POST", path, body={"reaction_type": {"emoji_type": "Get"}})

    def _remember(self, message_id: str, *, ours: bool) -> None:
        self._ours[message_id] = ours
        if len(self._ours) > _REMEMBERED:
            self._ours.popitem(last=False)


def _short(uuid: str) -> str:
    """Fifty characters are allowed; a digest keeps what made it different."""
    return hashlib.sha256(uuid.encode()).hexdigest()[:40]
