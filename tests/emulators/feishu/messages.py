"""im/v1: messages, reactions and chats."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from tests.emulators.feishu.card_validator import KnownReferences, check_card
from tests.emulators.feishu.http_server import HttpRequest, HttpResponse
from tests.emulators.feishu.refusals import CardRefused, FeishuApiError, RateLimits
from tests.emulators.feishu.tenant import (
    CardEntity,
    EmulatorClock,
    FeishuChat,
    FeishuMessage,
    FeishuTenant,
    StoredBlob,
)

MAX_TEXT = 150 * 1024
MAX_RICH = 30 * 1024
UUID_HOURS = 3600.0
EDITS = 20
DAYS_14 = 14 * 86400.0
MSG_TYPES = {"text", "post", "image", "file", "audio", "media", "sticker", "interactive"}
EMOJI = {"OK", "THUMBSUP", "DONE", "Typing", "OnIt", "OneSecond", "Get", "EYES", "THINKING"}


class FeishuMessages:
    def __init__(
        self,
        world: FeishuTenant,
        clock: EmulatorClock,
        rates: RateLimits,
        *,
        bot_id: str,
        app_id: str,
    ) -> None:
        self._app_id = app_id
        self._world = world
        self._clock = clock
        self._rates = rates
        self._bot_id = bot_id
        self._sent: dict[str, tuple[float, FeishuMessage]] = {}
        self.edit_window_closed = False

    # --- send -----------------------------------------------------------------------------

    def create(self, request: HttpRequest) -> dict[str, Any]:
        body = _object(request)
        chat = self._receiver(request.query.get("receive_id_type", ""), body.get("receive_id"))
        return self._send(chat, body, parent=None)

    def reply(self, request: HttpRequest, message_id: str) -> dict[str, Any]:
        body = _object(request)
        parent = self.find(message_id)
        if parent.recalled:
            raise FeishuApiError(230011, "The message was withdrawn.")
        if body.get("reply_in_thread") and not parent.chat.topics and not parent.thread_id:
            raise FeishuApiError(230071, "This group chat does not support reply in thread")
        return self._send(parent.chat, body, parent=parent)

    def _receiver(self, kind: str, receiver: Any) -> FeishuChat:
        world = self._world
        if kind == "chat_id":
            if receiver not in world.chats:
                raise FeishuApiError(230034, "The receive_id is invalid")
            return world.chats[receiver]
        if kind == "open_id":
            if receiver not in world.people:
                raise FeishuApiError(230034, "The receive_id is invalid")
            return world.p2p(receiver)
        raise FeishuApiError(
            230001, "Your request contains an invalid request parameter: receive_id_type"
        )

    def _send(
        self, chat: FeishuChat, body: dict[str, Any], parent: FeishuMessage | None
    ) -> dict[str, Any]:
        uuid = body.get("uuid") or None
        if uuid is not None and (not isinstance(uuid, str) or len(uuid) > 50):
            raise FeishuApiError(99992402, "field validation failed: uuid is longer than 50")
        self._check_allowed(chat)
        if uuid is not None and uuid in self._sent:
            at, sent = self._sent[uuid]
            if self._clock.now() - at < UUID_HOURS:
                return self.describe(sent)
        self._rates.chat(chat.chat_id)
        content, entity = self._content(str(body.get("msg_type")), body.get("content"))
        message = FeishuMessage(
            message_id=self._world.new_id("om_"),
            chat=chat,
            sender_id=self._bot_id,
            by_bot=True,
            msg_type=str(body["msg_type"]),
            content=content,
            created_ms=self._clock.now_ms(),
            entity=entity,
            uuid=uuid,
            parent_id=parent.message_id if parent else None,
            root_id=(parent.root_id or parent.message_id) if parent else None,
            thread_id=self._thread(chat, parent, body),
        )
        if entity is not None:
            entity.message_id = message.message_id
        if uuid is not None:
            self._sent[uuid] = (self._clock.now(), message)
        self._world.post(message)
        return self.describe(message)

    def _thread(
        self, chat: FeishuChat, parent: FeishuMessage | None, body: dict[str, Any]
    ) -> str | None:
        if parent is not None and parent.thread_id:
            return parent.thread_id
        if chat.topics or (parent is not None and body.get("reply_in_thread")):
            return self._world.new_id("omt_")
        return None

    def _check_allowed(self, chat: FeishuChat) -> None:
        if chat.dissolved:
            raise FeishuApiError(
                232009, "Your request specifies a chat which has already been dissolved."
            )
        if not chat.has_bot:
            raise FeishuApiError(230002, "The bot can not be outside the group.")
        if chat.peer_id in self._world.out_of_scope:
            raise FeishuApiError(230013, "Bot has NO availability to this user.")
        if chat.peer_id in self._world.muted_bot:
            raise FeishuApiError(230053, "The user has stopped the bot from sending messages.")

    # --- content --------------------------------------------------------------------------

    def _content(self, msg_type: str, raw: Any) -> tuple[str, CardEntity | None]:
        if msg_type not in MSG_TYPES:
            raise FeishuApiError(
                230001, "Your request contains an invalid request parameter: msg_type"
            )
        if not isinstance(raw, str):
            raise FeishuApiError(230001, "content is not a string in json format")
        limit = MAX_TEXT if msg_type == "text" else MAX_RICH
        if len(raw.encode()) > limit:
            raise FeishuApiError(230025, "The length of the message content reaches its limit.")
        try:
            loaded = json.loads(raw)
        except ValueError:
            raise FeishuApiError(230001, "content is not a string in json format") from None
        if not isinstance(loaded, dict):
            raise FeishuApiError(230001, "content is not an object")
        if msg_type == "interactive":
            return raw, self._card(loaded)
        self._plain(msg_type, loaded)
        return raw, None

    def _plain(self, msg_type: str, loaded: dict[str, Any]) -> None:
        world = self._world
        match msg_type:
            case "text":
                if not isinstance(loaded.get("text"), str) or not loaded["text"].strip():
                    raise FeishuApiError(230001, "text content is empty")
            case "image":
                if loaded.get("image_key") not in world.images:
                    raise FeishuApiError(230055, "The image key is invalid")
            case "file" | "audio" | "media":
                if loaded.get("file_key") not in world.files:
                    raise FeishuApiError(230055, "The file key is invalid")
            case _:
                pass

    def _card(self, loaded: dict[str, Any]) -> CardEntity | None:
        if loaded.get("type") == "card":
            card_id = loaded.get("data", {}).get("card_id")
            entity = self._world.entities.get(card_id)
            if entity is None:
                raise _card_error(CardRefused(11310, "cardid is invalid"))
            if entity.message_id is not None:
                raise _card_error(CardRefused(11310, "card is locked: it was sent before"))
            return entity
        self.check_card(loaded)
        return None

    def check_card(self, loaded: Any) -> None:
        """Raise the message API's refusal unless the card is good."""
        if isinstance(loaded, dict) and "schema" not in loaded and "elements" in loaded:
            return  # schema 1.0 ignores what it does not know
        try:
            check_card(loaded, KnownReferences(self._world.images, self._world.people))
        except CardRefused as refusal:
            raise _card_error(refusal) from None

    # --- change ---------------------------------------------------------------------------

    def patch(self, request: HttpRequest, message_id: str) -> dict[str, Any]:
        message = self._own(message_id)
        if message.msg_type != "interactive":
            raise FeishuApiError(230001, "This message is not a card")
        if self._clock.now_ms() - message.created_ms > DAYS_14 * 1000:
            raise FeishuApiError(230031, "The message is sent more than 14 days ago")
        self._rates.message(message_id)
        raw = _object(request).get("content")
        content, entity = self._content("interactive", raw)
        if entity is not None or message.entity is not None:
            raise _card_error(CardRefused(200830, "card entities are updated through CardKit"))
        if ("schema" in json.loads(content)) != ("schema" in message.card):
            raise _card_error(CardRefused(200830, "card schema version may not change"))
        self._replace(message, content)
        return {}

    def put(self, request: HttpRequest, message_id: str) -> dict[str, Any]:
        message = self._own(message_id)
        body = _object(request)
        if message.msg_type not in ("text", "post") or body.get("msg_type") != message.msg_type:
            raise FeishuApiError(230054, "This operation is not supported for this message type")
        if self.edit_window_closed:
            raise FeishuApiError(230075, "The message is beyond the editable time range.")
        if message.edits >= EDITS:
            raise FeishuApiError(
                230072, "The message has reached the number of times it can be edited."
            )
        self._rates.message(message_id)
        content, _ = self._content(message.msg_type, body.get("content"))
        message.edits += 1
        self._replace(message, content)
        return self.describe(message)

    def delete(self, message_id: str) -> dict[str, Any]:
        message = self._own(message_id)
        message.recalled = True
        self._world.notify_changed()
        return {}

    def _replace(self, message: FeishuMessage, content: str) -> None:
        message.history.append(message.content)
        message.content = content
        self._world.notify_changed()

    def _own(self, message_id: str) -> FeishuMessage:
        message = self.find(message_id)
        if not message.by_bot:
            raise FeishuApiError(230035, "No permission to operate on this message")
        if message.recalled:
            raise FeishuApiError(230011, "The message was withdrawn.")
        self._check_allowed(message.chat)
        return message

    # --- read -----------------------------------------------------------------------------

    def get(self, message_id: str) -> dict[str, Any]:
        message = self.find(message_id)
        if message.recalled:
            raise FeishuApiError(230110, "The message has been deleted.")
        passed_on = [
            {**self.describe(each), "upper_message_id": message_id} for each in message.passed_on
        ]
        return {"items": [self.describe(message), *passed_on]}

    def react(self, request: HttpRequest, message_id: str) -> dict[str, Any]:
        message = self.find(message_id)
        if message.recalled:
            raise FeishuApiError(231003, "The message is withdrawn")
        emoji = (_object(request).get("reaction_type") or {}).get("emoji_type")
        if emoji not in EMOJI:
            raise FeishuApiError(231001, "reaction type is invalid.")
        reaction = {"reaction_id": self._world.new_id("react_"), "emoji_type": emoji}
        message.reactions.append(reaction)
        self._world.notify_changed()
        return {**reaction, "reaction_type": {"emoji_type": emoji}}

    def unreact(self, message_id: str, reaction_id: str) -> dict[str, Any]:
        message = self.find(message_id)
        if not any(item["reaction_id"] == reaction_id for item in message.reactions):
            raise FeishuApiError(231007, "reaction does not exist")
        message.reactions = [r for r in message.reactions if r["reaction_id"] != reaction_id]
        self._world.notify_changed()
        return {"reaction_id": reaction_id}

    def chat(self, chat_id: str) -> dict[str, Any]:
        chat = self._world.chats.get(chat_id)
        if chat is None:
            raise FeishuApiError(232006, "Your request specifies a chat_id which does not exist")
        self._check_allowed(chat)
        mode = "topic" if chat.topics else chat.kind
        return {"name": chat.title, "chat_mode": mode, "chat_type": "private", "avatar": ""}

    def _sender(self, message: FeishuMessage) -> dict[str, str]:
        if message.by_bot:
            return {"id": self._app_id, "id_type": "app_id", "sender_type": "app"}
        return {"id": message.sender_id, "id_type": "open_id", "sender_type": "user"}

    def person(self, open_id: str) -> dict[str, Any]:
        if open_id not in self._world.people:
            raise FeishuApiError(
                99992351, "The request you send is not a valid {open_id} or not exists"
            )
        return {"user": {"open_id": open_id, "name": self._world.people[open_id]}}

    def find(self, message_id: str) -> FeishuMessage:
        message = self._world.messages.get(message_id)
        if message is None:
            raise FeishuApiError(
                230001, "Your request contains an invalid request parameter: message_id"
            )
        return message

    def describe(self, message: FeishuMessage) -> dict[str, Any]:
        found = {
            "message_id": message.message_id,
            "root_id": message.root_id,
            "parent_id": message.parent_id,
            "thread_id": message.thread_id,
            "msg_type": message.msg_type,
            "create_time": str(message.created_ms),
            "update_time": str(message.created_ms),
            "deleted": message.recalled,
            "updated": bool(message.history),
            "chat_id": message.chat.chat_id,
            "sender": self._sender(message),
            "body": {"content": message.content},
        }
        return {key: value for key, value in found.items() if value is not None}


def _card_error(refusal: CardRefused) -> FeishuApiError:
    if refusal.err_code == 200860:
        return FeishuApiError(
            230025, f"The length of the message content reaches its limit. {refusal}"
        )
    return FeishuApiError(230099, f"Failed to create card content, ext={refusal}")


def _object(request: HttpRequest) -> dict[str, Any]:
    body = request.json()
    if not isinstance(body, dict):
        raise FeishuApiError(9499, "Bad Request: invalid json body")
    return body


MAX_IMAGE = 10 * 1024 * 1024
MAX_FILE = 30 * 1024 * 1024
MAX_RESOURCE = 100 * 1024 * 1024
FILE_TYPES = {"opus", "mp4", "pdf", "doc", "xls", "ppt", "stream"}
_MAGIC = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}


class FeishuMedia:
    def __init__(self, world: FeishuTenant) -> None:
        self._world = world
        self.uploaded_keys: set[str] = set()

    def upload_image(self, request: HttpRequest) -> dict[str, str]:
        form = request.form()
        kind = form["image_type"].data.decode() if "image_type" in form else ""
        if kind not in ("message", "avatar") or "image" not in form:
            raise FeishuApiError(234001, "Invalid request param.")
        data = form["image"].data
        _check_size(data, MAX_IMAGE)
        mime = next((mime for magic, mime in _MAGIC.items() if data.startswith(magic)), None)
        if mime is None:
            raise FeishuApiError(234011, "Can't recognize the image format.")
        key = self._world.new_id("img_v3_")
        self._world.images[key] = StoredBlob(data=data, name="image", kind=mime)
        self.uploaded_keys.add(key)
        return {"image_key": key}

    def upload_file(self, request: HttpRequest) -> dict[str, str]:
        form = request.form()
        kind = form["file_type"].data.decode() if "file_type" in form else ""
        if kind not in FILE_TYPES or "file" not in form or "file_name" not in form:
            raise FeishuApiError(234001, "Invalid request param.")
        data = form["file"].data
        _check_size(data, MAX_FILE)
        key = self._world.new_id("file_v3_")
        name = form["file_name"].data.decode("utf-8", "replace")
        self._world.files[key] = StoredBlob(data=data, name=name, kind=kind)
        self.uploaded_keys.add(key)
        return {"file_key": key}

    def image(self, key: str) -> HttpResponse:
        if key not in self.uploaded_keys:
            raise FeishuApiError(
                234009, "The image can only be downloaded by the app that uploaded it"
            )
        return _download(self._world.images[key])

    def resource(self, message_id: str, key: str, kind: str) -> HttpResponse:
        message = self._world.messages.get(message_id)
        if kind not in ("image", "file"):
            raise FeishuApiError(234001, "Invalid request param.")
        if message is None or message.recalled or key not in message.content:
            raise FeishuApiError(234003, "File not in msg.")
        if message.msg_type == "interactive":
            raise FeishuApiError(234043, "Unsupported message type.")
        blob = (self._world.images if kind == "image" else self._world.files).get(key)
        if blob is None:
            raise FeishuApiError(234003, "File not in msg.")
        if len(blob.data) > MAX_RESOURCE:
            raise FeishuApiError(234037, "Downloaded file size exceeds limit.")
        return _download(blob)


def _check_size(data: bytes, limit: int) -> None:
    if not data:
        raise FeishuApiError(234010, "File's size can't be 0.")
    if len(data) > limit:
        raise FeishuApiError(234006, "The file size exceed the max value.")


def _download(blob: StoredBlob) -> HttpResponse:
    return HttpResponse(
        body=blob.data,
        headers={
            "content-type": blob.kind if "/" in blob.kind else "application/octet-stream",
            "content-disposition": f"attachment; filename*=UTF-8''{quote(blob.name)}",
        },
    )
