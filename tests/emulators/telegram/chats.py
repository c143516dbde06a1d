"""Chats and the messages in them, as a test looks at them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.emulators.telegram.request_forms import InlineKeyboard, UploadedFile
from tests.emulators.telegram.texts import TextEntity, utf16_slice
from tests.waiting import WAIT_SECONDS, ChangeSignal

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageVersion:
    """A message's content from `at` until the next edit."""

    at: float
    text: str
    entities: list[TextEntity] = field(default_factory=list)
    keyboard: InlineKeyboard = field(default_factory=list)

    def shows_same(self, other: MessageVersion) -> bool:
        mine = (self.text, self.entities, self.keyboard)
        return mine == (other.text, other.entities, other.keyboard)


@dataclass(slots=True, kw_only=True, eq=False)
class TelegramMessage:
    """One message; `history` keeps every version it has shown."""

    chat: TelegramChat = field(repr=False)
    id: int
    sender: Json
    history: list[MessageVersion]
    media: Json = field(default_factory=dict)
    upload: UploadedFile | None = None
    reply_to: int | None = None
    thread: int | None = None
    album: str | None = None
    extra: Json = field(default_factory=dict)
    reactions: list[str] = field(default_factory=list)
    deleted: bool = False

    @property
    def text(self) -> str:
        """The text now, or the caption of a medium."""
        return self.history[-1].text

    @property
    def entities(self) -> list[TextEntity]:
        return self.history[-1].entities

    @property
    def keyboard(self) -> InlineKeyboard:
        return self.history[-1].keyboard

    @property
    def buttons(self) -> list[str]:
        return [button["text"] for row in self.keyboard for button in row]

    @property
    def from_bot(self) -> bool:
        return bool(self.sender["is_bot"])

    @property
    def edits(self) -> int:
        return len(self.history) - 1

    def texts_of_entity(self, kind: str) -> list[str]:
        """The pieces of the text that carry an entity of this type."""
        return [
            utf16_slice(self.text, e["offset"], e["offset"] + e["length"])
            for e in self.entities
            if e["type"] == kind
        ]

    @property
    def called(self) -> list[str]:
        """The names that Telegram takes for calls of people: outside code and URLs."""
        raw = self.text.encode("utf-16-le")
        for entity in self.entities:
            if entity["type"] in {"code", "pre"}:
                start, end = entity["offset"] * 2, (entity["offset"] + entity["length"]) * 2
                raw = raw[:start] + " ".encode("utf-16-le") * entity["length"] + raw[end:]
        text = re.sub(r"https?://[\w-]+\.[\w.-]+/\S*", "", raw.decode("utf-16-le"))
        return re.findall(r"(?<!\w)@(\w{3,32})", text)

    def button(self, label: str) -> Json:
        """The newest button with this label; old versions count: old clients still show them."""
        for version in reversed(self.history):
            for row in version.keyboard:
                for button in row:
                    if button["text"] == label:
                        return button
        raise LookupError(f"no button {label!r} on {self!r}; it has {self.buttons}")

    def as_json(self, *, quoted: bool = False) -> Json:
        """The message as updates and answers carry it; a quoted one quotes nothing itself."""
        shown = self.history[-1]
        answer: Json = {
            "message_id": self.id,
            "from": self.sender,
            "chat": self.chat.as_json(),
            "date": int(self.history[0].at),
            **self.media,
            **self.extra,
        }
        name, entities = ("caption", "caption_entities") if self.media else ("text", "entities")
        if shown.text:
            answer[name] = shown.text
        if shown.entities:
            answer[entities] = shown.entities
        if self.edits:
            answer["edit_date"] = int(shown.at)
        if self.album:
            answer["media_group_id"] = self.album
        if shown.keyboard:
            answer["reply_markup"] = {"inline_keyboard": shown.keyboard}
        if not quoted:
            answer |= self._context()
        return answer

    def _context(self) -> Json:
        """Thread and reply fields, with the two oddities clients trip over.

        In a topic every message replies to the topic's first one; in a plain supergroup a reply
        has a thread id which cannot be sent back.
        """
        context: Json = {}
        quoted = self.reply_to
        if self.thread is not None:
            context |= {"message_thread_id": self.thread, "is_topic_message": True}
            quoted = quoted or self.thread
        elif quoted is not None and self.chat.kind == "supergroup":
            context["message_thread_id"] = quoted
        target = self.chat.find(quoted) if quoted else None
        if target is not None:
            context["reply_to_message"] = target.as_json(quoted=True)
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageDraft:
    at: float
    draft_id: int
    text: str
    entities: list[TextEntity]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAction:
    at: float
    action: str
    thread: int | None


@dataclass(slots=True, kw_only=True, eq=False)
class TelegramChat:
    """A private chat, group or supergroup."""

    id: int
    kind: str
    title: str
    changes: ChangeSignal = field(repr=False)
    language: str = ""
    forum: bool = False
    bot_sees_all: bool = True
    topics: dict[int, str] = field(default_factory=dict)
    all_messages: list[TelegramMessage] = field(default_factory=list, repr=False)
    drafts: list[MessageDraft] = field(default_factory=list, repr=False)
    actions: list[ChatAction] = field(default_factory=list, repr=False)
    closed_reason: str = ""
    bot_is_muted: bool = False
    migrated_to: int | None = None

    @property
    def messages(self) -> list[TelegramMessage]:
        """The chat's current messages, oldest first."""
        return [message for message in self.all_messages if not message.deleted]

    @property
    def from_bot(self) -> list[TelegramMessage]:
        return [message for message in self.messages if message.from_bot]

    @property
    def last(self) -> TelegramMessage:
        """The newest message of the bot."""
        return self.from_bot[-1]

    def find(self, message_id: int) -> TelegramMessage | None:
        return next((m for m in self.messages if m.id == message_id), None)

    def block(self) -> None:
        """From now on the bot is refused here, as if blocked or thrown out."""
        self.closed_reason = (
            "bot was blocked by the user"
            if self.kind == "private"
            else f"bot was kicked from the {self.kind} chat"
        )

    def unblock(self) -> None:
        self.closed_reason = ""

    async def wait_for(
        self, accept: Callable[[TelegramMessage], bool], timeout: float = WAIT_SECONDS
    ) -> TelegramMessage:
        """The oldest message of the bot that satisfies `accept` as it is shown now."""

        def look() -> TelegramMessage | None:
            return next((m for m in self.from_bot if accept(m)), None)

        try:
            return await self.changes.until(look, timeout)
        except TimeoutError:
            shown = "\n".join(f"  {m.id}: {m.text!r} {m.buttons}" for m in self.from_bot[-5:])
            raise TimeoutError(f"no such message in {timeout} s; the bot wrote:\n{shown}") from None

    async def wait_for_text(self, part: str, timeout: float = WAIT_SECONDS) -> TelegramMessage:
        return await self.wait_for(lambda message: part in message.text, timeout)

    async def wait_until(self, holds: Callable[[], bool], timeout: float = WAIT_SECONDS) -> None:
        """Wait for anything about this chat: drafts, actions, deletions."""
        await self.changes.until_true(holds, timeout)

    def as_json(self) -> Json:
        if self.kind == "private":
            return {"id": self.id, "type": "private", "first_name": self.title}
        answer: Json = {"id": self.id, "type": self.kind, "title": self.title}
        return answer | ({"is_forum": True} if self.forum else {})
