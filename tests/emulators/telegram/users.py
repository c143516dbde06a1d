"""The user's hand: what people do in the emulated clients."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.emulators.telegram.chats import MessageVersion, TelegramChat, TelegramMessage
from tests.emulators.telegram.media import describe
from tests.emulators.telegram.request_forms import UploadedFile
from tests.emulators.telegram.state import CallbackQuery, QueryAnswer, TelegramState
from tests.emulators.telegram.texts import MAX_TEXT, TextEntity, utf16_length
from tests.waiting import WAIT_SECONDS

Json = dict[str, Any]

PIXEL = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00"
    b"\x1f\x15\xc4\x89\x00\x00\x00\rIDATx\x9cc\xf8\xff\xff?\x00\x05\xfe\x02\xfe\xa75\x81\x84\x00"
    b"\x00\x00\x00IEND\xaeB`\x82"
)
_COMMAND = re.compile(r"(?<!\S)/[A-Za-z0-9_]{1,32}(?:@\w+)?")
_MENTION = re.compile(r"(?<!\w)@\w{3,32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ButtonPress:
    """A button press on its way; the client shows a spinner until it is answered."""

    query: CallbackQuery
    world: TelegramState
    chat: TelegramChat
    seen: frozenset[int]
    """The ids of the bot's messages when the button was pressed."""

    async def answer(self, timeout: float = WAIT_SECONDS) -> QueryAnswer:
        return await self.world.changes.until(
            lambda: self.query.answer, timeout, "an answer to the button press"
        )

    def expire(self) -> None:
        """Let the time to answer run out."""
        self.query.expired = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramUser:
    """A person with a Telegram client."""

    id: int
    name: str
    language: str
    world: TelegramState

    def as_json(self) -> Json:
        return self.world.users[self.id]

    async def says(
        self,
        chat: TelegramChat,
        text: str,
        *,
        reply_to: TelegramMessage | None = None,
        thread: int | None = None,
        mention: bool = False,
        entities: Sequence[TextEntity] = (),
        forwarded: bool = False,
    ) -> TelegramMessage:
        """Write a message; the client cuts what is too long. Returns the first piece."""
        full = f"@{self.world.bot['username']} {text}" if mention else text
        pieces = [full[i : i + MAX_TEXT] for i in range(0, len(full), MAX_TEXT)]
        posted = [
            self._post(
                chat,
                piece,
                [*find_entities(piece), *entities],
                reply_to=reply_to.id if reply_to else None,
                thread=thread,
                extra=_forward(self.as_json(), self.world.clock()) if forwarded else {},
            )
            for piece in pieces
        ]
        return posted[0]

    async def mentions(self, chat: TelegramChat, text: str, person: Json) -> TelegramMessage:
        """Mention someone without a user name: a text_mention at the start."""
        name = str(person["first_name"])
        entity = {"type": "text_mention", "offset": 0, "length": utf16_length(name), "user": person}
        return self._post(chat, f"{name} {text}", [entity])

    async def sends_photo(
        self, chat: TelegramChat, caption: str = "", content: bytes = PIXEL, **rest: Any
    ) -> TelegramMessage:
        upload = UploadedFile(name="photo.jpg", content=content, mime="image/jpeg")
        return self._send_file(chat, upload, "photo", caption, **rest)

    async def sends_document(
        self,
        chat: TelegramChat,
        name: str,
        content: bytes,
        caption: str = "",
        mime: str = "text/plain",
        **rest: Any,
    ) -> TelegramMessage:
        upload = UploadedFile(name=name, content=content, mime=mime)
        return self._send_file(chat, upload, "document", caption, **rest)

    async def sends_album(
        self, chat: TelegramChat, photos: Sequence[bytes], caption: str = "", **rest: Any
    ) -> list[TelegramMessage]:
        """Several photos at once: as many messages, one media group, one caption."""
        album = f"album{self.world.next_id()}"
        uploads = [UploadedFile(name="photo.jpg", content=c, mime="image/jpeg") for c in photos]
        return [
            self._send_file(chat, upload, "photo", caption if i == 0 else "", album=album, **rest)
            for i, upload in enumerate(uploads)
        ]

    async def edits(self, message: TelegramMessage, text: str) -> None:
        message.history.append(
            MessageVersion(at=self.world.clock(), text=text, entities=find_entities(text))
        )
        self.world.updates.put("edited_message", message.as_json())

    async def adds_bot(self, chat: TelegramChat) -> None:
        """Add the bot to a group, or unblock it in the private chat."""
        chat.unblock()
        bot = self.world.bot
        content = {
            "chat": chat.as_json(),
            "from": self.as_json(),
            "date": int(self.world.clock()),
            "old_chat_member": {"user": bot, "status": "left"},
            "new_chat_member": {"user": bot, "status": "member"},
        }
        self.world.updates.put("my_chat_member", content)

    async def deletes(self, message: TelegramMessage) -> None:
        """Bots are not told."""
        message.deleted = True
        self.world.changes.notify()

    def press(self, message: TelegramMessage, label: str, data: str | None = None) -> ButtonPress:
        """Press a button without waiting; `data` forges what it carries."""
        query = CallbackQuery(id=str(10**15 + self.world.next_id()), at=self.world.clock())
        self.world.queries[query.id] = query
        content = {
            "id": query.id,
            "from": self.as_json(),
            "chat_instance": str(message.chat.id * 7),
            "message": message.as_json(),
            "data": message.button(label)["callback_data"] if data is None else data,
        }
        seen = frozenset(each.id for each in message.chat.from_bot)
        self.world.updates.put("callback_query", content)
        return ButtonPress(query=query, world=self.world, chat=message.chat, seen=seen)

    async def presses(
        self,
        message: TelegramMessage,
        label: str,
        *,
        data: str | None = None,
        timeout: float = WAIT_SECONDS,
    ) -> QueryAnswer:
        """Press a button and wait for the answer to the press."""
        return await self.press(message, label, data).answer(timeout)

    def _send_file(
        self, chat: TelegramChat, upload: UploadedFile, kind: str, caption: str, **rest: Any
    ) -> TelegramMessage:
        reply_to = rest.pop("reply_to", None)
        stored = self.world.store_file(upload, f"{kind}s")
        return self._post(
            chat,
            caption,
            find_entities(caption),
            media=describe(stored, kind),
            upload=upload,
            reply_to=reply_to.id if reply_to else None,
            **rest,
        )

    def _post(
        self, chat: TelegramChat, text: str, entities: list[TextEntity], **rest: Any
    ) -> TelegramMessage:
        version = MessageVersion(at=self.world.clock(), text=text, entities=entities)
        message = self.world.post(chat, self.as_json(), version, **rest)
        if self._bot_sees(message):
            self.world.updates.put("message", message.as_json())
        return message

    def _bot_sees(self, message: TelegramMessage) -> bool:
        """Privacy mode: in groups only commands, mentions and replies to the bot."""
        if message.chat.closed_reason:
            return False
        if message.chat.kind == "private" or message.chat.bot_sees_all:
            return True
        name = f"@{self.world.bot['username']}".lower()
        replied = message.chat.find(message.reply_to) if message.reply_to else None
        return (
            any(name in mark.lower() for mark in message.texts_of_entity("mention"))
            or bool(message.texts_of_entity("bot_command"))
            or (replied is not None and replied.from_bot)
        )


def find_entities(text: str) -> list[TextEntity]:
    """The commands and mentions a client marks while its user types."""
    found = [("bot_command", m) for m in _COMMAND.finditer(text)]
    found += [("mention", m) for m in _MENTION.finditer(text) if not _is_inside_command(m, found)]
    return sorted(
        (
            {"type": kind, "offset": utf16_length(text[: m.start()]), "length": utf16_length(m[0])}
            for kind, m in found
        ),
        key=lambda entity: int(entity["offset"]),
    )


def _is_inside_command(mention: re.Match[str], commands: list[tuple[str, re.Match[str]]]) -> bool:
    return any(m.start() <= mention.start() < m.end() for _, m in commands)


def _forward(origin: Json, at: float) -> Json:
    return {
        "forward_origin": {"type": "user", "date": int(at) - 60, "sender_user": origin},
    }
