"""The user's hand: what people do in the emulated clients."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.emulators.telegram.chats import Chat, Message, Version
from tests.emulators.telegram.forms import Upload
from tests.emulators.telegram.media import describe
from tests.emulators.telegram.signals import PATIENCE
from tests.emulators.telegram.texts import MAX_TEXT, Entity, utf16
from tests.emulators.telegram.world import Answer, Query, World

Json = dict[str, Any]

PIXEL = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00"
    b"\x1f\x15\xc4\x89\x00\x00\x00\rIDATx\x9cc\xf8\xff\xff?\x00\x05\xfe\x02\xfe\xa75\x81\x84\x00"
    b"\x00\x00\x00IEND\xaeB`\x82"
)
_COMMAND = re.compile(r"(?<!\S)/[A-Za-z0-9_]{1,32}(?:@\w+)?")
_MENTION = re.compile(r"(?<!\w)@\w{3,32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Press:
    """A button press on its way; the client shows a spinner until it is answered."""

    query: Query
    world: World

    async def answer(self, timeout: float = PATIENCE) -> Answer:
        return await self.world.changes.until(
            lambda: self.query.answer, timeout, "an answer to the button press"
        )

    def grow_old(self) -> None:
        """Let the time to answer run out."""
        self.query.expired = True


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A person with a Telegram client."""

    id: int
    name: str
    language: str
    world: World

    def as_json(self) -> Json:
        return self.world.users[self.id]

    async def says(
        self,
        chat: Chat,
        text: str,
        *,
        reply_to: Message | None = None,
        thread: int | None = None,
        mention: bool = False,
        entities: Sequence[Entity] = (),
        forwarded: bool = False,
    ) -> Message:
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

    async def mentions(self, chat: Chat, text: str, person: Json) -> Message:
        """Mention someone without a user name: a text_mention at the start."""
        name = str(person["first_name"])
        entity = {"type": "text_mention", "offset": 0, "length": utf16(name), "user": person}
        return self._post(chat, f"{name} {text}", [entity])

    async def sends_photo(
        self, chat: Chat, caption: str = "", content: bytes = PIXEL, **rest: Any
    ) -> Message:
        upload = Upload(name="photo.jpg", content=content, mime="image/jpeg")
        return self._send_file(chat, upload, "photo", caption, **rest)

    async def sends_document(
        self,
        chat: Chat,
        name: str,
        content: bytes,
        caption: str = "",
        mime: str = "text/plain",
        **rest: Any,
    ) -> Message:
        upload = Upload(name=name, content=content, mime=mime)
        return self._send_file(chat, upload, "document", caption, **rest)

    async def sends_album(
        self, chat: Chat, photos: Sequence[bytes], caption: str = "", **rest: Any
    ) -> list[Message]:
        """Several photos at once: as many messages, one media group, one caption."""
        album = f"album{self.world.serial()}"
        uploads = [Upload(name="photo.jpg", content=c, mime="image/jpeg") for c in photos]
        return [
            self._send_file(chat, upload, "photo", caption if i == 0 else "", album=album, **rest)
            for i, upload in enumerate(uploads)
        ]

    async def edits(self, message: Message, text: str) -> None:
        message.history.append(
            Version(at=self.world.clock(), text=text, entities=find_entities(text))
        )
        self.world.updates.put("edited_message", message.as_json())

    async def adds_bot(self, chat: Chat) -> None:
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

    async def deletes(self, message: Message) -> None:
        """Bots are not told."""
        message.deleted = True
        self.world.changes.tell()

    def press(self, message: Message, label: str, data: str | None = None) -> Press:
        """Press a button without waiting; `data` forges what it carries."""
        query = Query(id=str(10**15 + self.world.serial()), at=self.world.clock())
        self.world.queries[query.id] = query
        content = {
            "id": query.id,
            "from": self.as_json(),
            "chat_instance": str(message.chat.id * 7),
            "message": message.as_json(),
            "data": message.button(label)["callback_data"] if data is None else data,
        }
        self.world.updates.put("callback_query", content)
        return Press(query=query, world=self.world)

    async def presses(
        self, message: Message, label: str, *, data: str | None = None, timeout: float = PATIENCE
    ) -> Answer:
        """Press a button and wait for the answer to the press."""
        return await self.press(message, label, data).answer(timeout)

    def _send_file(
        self, chat: Chat, upload: Upload, kind: str, caption: str, **rest: Any
    ) -> Message:
        reply_to = rest.pop("reply_to", None)
        stored = self.world.keep(upload, f"{kind}s")
        return self._post(
            chat,
            caption,
            find_entities(caption),
            media=describe(stored, kind),
            upload=upload,
            reply_to=reply_to.id if reply_to else None,
            **rest,
        )

    def _post(self, chat: Chat, text: str, entities: list[Entity], **rest: Any) -> Message:
        version = Version(at=self.world.clock(), text=text, entities=entities)
        message = self.world.post(chat, self.as_json(), version, **rest)
        if self._bot_sees(message):
            self.world.updates.put("message", message.as_json())
        return message

    def _bot_sees(self, message: Message) -> bool:
        """Privacy mode: in groups only commands, mentions and replies to the bot."""
        if message.chat.closed_with:
            return False
        if message.chat.kind == "private" or message.chat.sees_all:
            return True
        name = f"@{self.world.bot['username']}".lower()
        replied = message.chat.find(message.reply_to) if message.reply_to else None
        return (
            any(name in mark.lower() for mark in message.marked("mention"))
            or bool(message.marked("bot_command"))
            or (replied is not None and replied.from_bot)
        )


def find_entities(text: str) -> list[Entity]:
    """The commands and mentions a client marks while its user types."""
    found = [("bot_command", m) for m in _COMMAND.finditer(text)]
    found += [("mention", m) for m in _MENTION.finditer(text) if not _inside(m, found)]
    return sorted(
        (
            {"type": kind, "offset": utf16(text[: m.start()]), "length": utf16(m[0])}
            for kind, m in found
        ),
        key=lambda entity: int(entity["offset"]),
    )


def _inside(mention: re.Match[str], commands: list[tuple[str, re.Match[str]]]) -> bool:
    return any(m.start() <= mention.start() < m.end() for _, m in commands)


def _forward(origin: Json, at: float) -> Json:
    return {
        "forward_origin": {"type": "user", "date": int(at) - 60, "sender_user": origin},
    }
