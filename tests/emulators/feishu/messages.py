"""im/v1: messages, reactions and chats."""

from __future__ import annotations

import json
from typing import Any

from tests.emulators.feishu.cards.check import Known, check_card
from tests.emulators.feishu.clock import Clock
from tests.emulators.feishu.faults import ApiError, CardRefused
from tests.emulators.feishu.gates import Rates
from tests.emulators.feishu.wire import HttpRequest
from tests.emulators.feishu.world import Chat, Entity, Message, World

MAX_TEXT = 150 * 1024
MAX_RICH = 30 * 1024
UUID_HOURS = 3600.0
EDITS = 20
DAYS_14 = 14 * 86400.0
MSG_TYPES = {"text", "post", "image", "file", "audio", "media", "sticker", "interactive"}
EMOJI = {"OK", "THUMBSUP", "DONE", "Typing", "OnIt", "OneSecond", "Get", "EYES", "THINKING"}


class Messages:
    def __init__(
        self, world: World, clock: Clock, rates: Rates, *, bot_id: str, app_id: str
    ) -> None:
        self._app_id = app_id
        self._world = world
        self._clock = clock
        self._rates = rates
        self._bot_id = bot_id
        self._sent: dict[str, tuple[float, Message]] = {}
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
            raise ApiError(230011, "The message was withdrawn.")
        if body.get("reply_in_thread") and not parent.chat.topics and not parent.thread_id:
            raise ApiError(230071, "This group chat does not support reply in thread")
        return self._send(parent.chat, body, parent=parent)

    def _receiver(self, kind: str, receiver: Any) -> Chat:
        world = self._world
        if kind == "chat_id":
            if receiver not in world.chats:
                raise ApiError(230034, "The receive_id is invalid")
            return world.chats[receiver]
        if kind == "open_id":
            if receiver not in world.people:
                raise ApiError(230034, "The receive_id is invalid")
            return world.p2p(receiver)
        raise ApiError(
            230001, "Your request contains an invalid request parameter: receive_id_type"
        )

    def _send(self, chat: Chat, body: dict[str, Any], parent: Message | None) -> dict[str, Any]:
        uuid = body.get("uuid") or None
        if uuid is not None and (not isinstance(uuid, str) or len(uuid) > 50):
            raise ApiError(99992402, "field validation failed: uuid is longer than 50")
        self._check_allowed(chat)
        if uuid is not None and uuid in self._sent:
            at, sent = self._sent[uuid]
            if self._clock.now() - at < UUID_HOURS:
                return self.describe(sent)
        self._rates.chat(chat.chat_id)
        content, entity = self._content(str(body.get("msg_type")), body.get("content"))
        message = Message(
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

    def _thread(self, chat: Chat, parent: Message | None, body: dict[str, Any]) -> str | None:
        if parent is not None and parent.thread_id:
            return parent.thread_id
        if chat.topics or (parent is not None and body.get("reply_in_thread")):
            return self._world.new_id("omt_")
        return None

    def _check_allowed(self, chat: Chat) -> None:
        if chat.gone:
            raise ApiError(
                232009, "Your request specifies a chat which has already been dissolved."
            )
        if not chat.bot_in:
            raise ApiError(230002, "The bot can not be outside the group.")
        if chat.peer_id in self._world.out_of_scope:
            raise ApiError(230013, "Bot has NO availability to this user.")
        if chat.peer_id in self._world.muted_bot:
            raise ApiError(230053, "The user has stopped the bot from sending messages.")

    # --- content --------------------------------------------------------------------------

    def _content(self, msg_type: str, raw: Any) -> tuple[str, Entity | None]:
        if msg_type not in MSG_TYPES:
            raise ApiError(230001, "Your request contains an invalid request parameter: msg_type")
        if not isinstance(raw, str):
            raise ApiError(230001, "content is not a string in json format")
        limit = MAX_TEXT if msg_type == "text" else MAX_RICH
        if len(raw.encode()) > limit:
            raise ApiError(230025, "The length of the message content reaches its limit.")
        try:
            loaded = json.loads(raw)
        except ValueError:
            raise ApiError(230001, "content is not a string in json format") from None
        if not isinstance(loaded, dict):
            raise ApiError(230001, "content is not an object")
        if msg_type == "interactive":
            return raw, self._card(loaded)
        self._plain(msg_type, loaded)
        return raw, None

    def _plain(self, msg_type: str, loaded: dict[str, Any]) -> None:
        world = self._world
        match msg_type:
            case "text":
                if not isinstance(loaded.get("text"), str) or not loaded["text"].strip():
                    raise ApiError(230001, "text content is empty")
            case "image":
                if loaded.get("image_key") not in world.images:
                    raise ApiError(230055, "The image key is invalid")
            case "file" | "audio" | "media":
                if loaded.get("file_key") not in world.files:
                    raise ApiError(230055, "The file key is invalid")
            case _:
                pass

    def _card(self, loaded: dict[str, Any]) -> Entity | None:
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
            check_card(loaded, Known(self._world.images, self._world.people))
        except CardRefused as refusal:
            raise _card_error(refusal) from None

    # --- change ---------------------------------------------------------------------------

    def patch(self, request: HttpRequest, message_id: str) -> dict[str, Any]:
        message = self._own(message_id)
        if message.msg_type != "interactive":
            raise ApiError(230001, "This message is not a card")
        if self._clock.now_ms() - message.created_ms > DAYS_14 * 1000:
            raise ApiError(230031, "The message is sent more than 14 days ago")
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
            raise ApiError(230054, "This operation is not supported for this message type")
        if self.edit_window_closed:
            raise ApiError(230075, "The message is beyond the editable time range.")
        if message.edits >= EDITS:
            raise ApiError(230072, "The message has reached the number of times it can be edited.")
        self._rates.message(message_id)
        content, _ = self._content(message.msg_type, body.get("content"))
        message.edits += 1
        self._replace(message, content)
        return self.describe(message)

    def delete(self, message_id: str) -> dict[str, Any]:
        message = self._own(message_id)
        message.recalled = True
        self._world.ring()
        return {}

    def _replace(self, message: Message, content: str) -> None:
        message.history.append(message.content)
        message.content = content
        self._world.ring()

    def _own(self, message_id: str) -> Message:
        message = self.find(message_id)
        if not message.by_bot:
            raise ApiError(230035, "No permission to operate on this message")
        if message.recalled:
            raise ApiError(230011, "The message was withdrawn.")
        self._check_allowed(message.chat)
        return message

    # --- read -----------------------------------------------------------------------------

    def get(self, message_id: str) -> dict[str, Any]:
        message = self.find(message_id)
        if message.recalled:
            raise ApiError(230110, "The message has been deleted.")
        return {"items": [self.describe(message)]}

    def react(self, request: HttpRequest, message_id: str) -> dict[str, Any]:
        message = self.find(message_id)
        if message.recalled:
            raise ApiError(231003, "The message is withdrawn")
        emoji = (_object(request).get("reaction_type") or {}).get("emoji_type")
        if emoji not in EMOJI:
            raise ApiError(231001, "reaction type is invalid.")
        reaction = {"reaction_id": self._world.new_id("react_"), "emoji_type": emoji}
        message.reactions.append(reaction)
        self._world.ring()
        return {**reaction, "reaction_type": {"emoji_type": emoji}}

    def unreact(self, message_id: str, reaction_id: str) -> dict[str, Any]:
        message = self.find(message_id)
        if not any(item["reaction_id"] == reaction_id for item in message.reactions):
            raise ApiError(231007, "reaction does not exist")
        message.reactions = [r for r in message.reactions if r["reaction_id"] != reaction_id]
        self._world.ring()
        return {"reaction_id": reaction_id}

    def chat(self, chat_id: str) -> dict[str, Any]:
        chat = self._world.chats.get(chat_id)
        if chat is None:
            raise ApiError(232006, "Your request specifies a chat_id which does not exist")
        self._check_allowed(chat)
        mode = "topic" if chat.topics else chat.kind
        return {"name": chat.title, "chat_mode": mode, "chat_type": "private", "avatar": ""}

    def _sender(self, message: Message) -> dict[str, str]:
        if message.by_bot:
            return {"id": self._app_id, "id_type": "app_id", "sender_type": "app"}
        return {"id": message.sender_id, "id_type": "open_id", "sender_type": "user"}

    def person(self, open_id: str) -> dict[str, Any]:
        if open_id not in self._world.people:
            raise ApiError(99992351, "The request you send is not a valid {open_id} or not exists")
        return {"user": {"open_id": open_id, "name": self._world.people[open_id]}}

    def find(self, message_id: str) -> Message:
        message = self._world.messages.get(message_id)
        if message is None:
            raise ApiError(230001, "Your request contains an invalid request parameter: message_id")
        return message

    def describe(self, message: Message) -> dict[str, Any]:
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


def _card_error(refusal: CardRefused) -> ApiError:
    if refusal.err_code == 200860:
        return ApiError(230025, f"The length of the message content reaches its limit. {refusal}")
    return ApiError(230099, f"Failed to create card content, ext={refusal}")


def _object(request: HttpRequest) -> dict[str, Any]:
    body = request.json()
    if not isinstance(body, dict):
        raise ApiError(9499, "Bad Request: invalid json body")
    return body
