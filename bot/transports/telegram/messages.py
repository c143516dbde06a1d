"""Sends single Telegram messages with fallbacks to plainer forms, and stores their placement."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from telegram import (
    Bot,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InputMediaDocument,
    InputMediaPhoto,
    Message,
    MessageEntity,
    ReplyParameters,
)
from telegram.error import BadRequest, ChatMigrated, TelegramError

from bot.transports.limited_dict import LimitedDict
from bot.transports.telegram.api import TelegramErrorKind, classify_bad_request
from cards.render.telegram import CONFIRM_SUFFIX, InlineKey, InlineKeyboard, MessagePart, TextPart
from cards.telegram_text import CODE_KINDS, TextMark
from storage.records.messages import MessagePlacement


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramShownMessage:
    """One message on Telegram. `kind` is `text`, `repeat` (a text that may be there twice, and says
    so) or `file`. `digest` is of its content, empty if unknown. IDs are per chat: after migration
    to a supergroup, the same ID is another message."""

    message_id: str
    chat: int
    digest: str = ""
    kind: str = "text"

    @property
    def is_text(self) -> bool:
        return self.kind in {"text", "repeat"}


def part_digest(part: MessagePart) -> str:
    """Of what a message shows, to tell whether it must be edited."""
    return hashlib.sha256(repr(part).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def to_placed(shown: Sequence[TelegramShownMessage]) -> MessagePlacement:
    return MessagePlacement(
        message_ids=tuple(one.message_id for one in shown),
        state={"shown": [[one.kind, one.digest, one.chat] for one in shown]},
    )


def parse_placed(placed: MessagePlacement | None, chat: int) -> tuple[TelegramShownMessage, ...]:
    """Parse a stored placement; of an unknown format, at least the message IDs. Messages without a
    state are texts in `chat`, whatever they show."""
    if placed is None:
        return ()
    ids = [one for one in placed.message_ids if one.isdecimal()]
    rows = placed.state.get("shown")
    if not isinstance(rows, list) or len(rows) > len(ids) or not all(map(_is_row, rows)):
        rows = []
    rows = [*rows, *[["text", "", chat]] * (len(ids) - len(rows))]
    return tuple(
        TelegramShownMessage(message_id=one, kind=str(kind), digest=str(digest), chat=int(where))
        for one, (kind, digest, where) in zip(ids, rows, strict=True)
    )


def _is_row(row: object) -> bool:
    return isinstance(row, list | tuple) and [type(cell) for cell in row] == [str, str, int]


MAX_UPLOAD_BYTES = 50 * 1024 * 1024
MAX_PHOTO_BYTES = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramUpload:
    name: str
    content: bytes = field(repr=False)

    @property
    def fits_photo(self) -> bool:
        return len(self.content) <= MAX_PHOTO_BYTES


_T = TypeVar("_T")

_DEGRADATION_NOTES = {
    TelegramErrorKind.REPLY_GONE: "reply: its target is gone",
    TelegramErrorKind.THREAD_GONE: "thread: gone, sent to the chat itself",
    TelegramErrorKind.MARKS: "entities: refused, sent as plain text",
    TelegramErrorKind.KEYBOARD: "keyboard: refused",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramTarget:
    """Destination of a message; `chat` is Telegram's ID."""

    chat: int
    thread: int | None = None
    reply_to: int | None = None

    @property
    def is_group(self) -> bool:
        return self.chat < 0

    @property
    def reply(self) -> ReplyParameters | None:
        if self.reply_to is None:
            return None
        return ReplyParameters(self.reply_to, allow_sending_without_reply=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramSendForm:
    """One form of a message to try."""

    target: TelegramTarget
    part: TextPart


CONFIRM_SECONDS = 30.0
"""How long a button that asks "Sure?" stays so over edits of its message."""


class AskedConfirmations:
    """Buttons that have changed to "Sure?", by chat and message: an edit in between, such as of a
    running task's card, keeps them so."""

    def __init__(self) -> None:
        self._asked: LimitedDict[tuple[int, int], tuple[str, str, float]] = LimitedDict(512)

    def add(self, message: tuple[int, int], data: str, label: str) -> None:
        """`data` is the button's before it asked."""
        self._asked[message] = data, label, time.monotonic() + CONFIRM_SECONDS

    def discard(self, message: tuple[int, int]) -> None:
        self._asked.pop(message, None)

    def apply(self, message: tuple[int, int], keyboard: InlineKeyboard) -> InlineKeyboard:
        data, label, until = self._asked.get(message, ("", "", 0.0))
        if time.monotonic() > until:
            return keyboard
        armed = InlineKey(label=label, data=data.removesuffix(CONFIRM_SUFFIX))
        return tuple(tuple(armed if key.data == data else key for key in row) for row in keyboard)


class TelegramSender:
    """Sends messages. Raises TelegramError only if no plainer form is left."""

    def __init__(self, bot: Bot, asked: AskedConfirmations) -> None:
        self._bot = bot
        self._asked = asked
        self._migrated_chats: dict[int, int] = {}

    def current_chat(self, chat: int) -> int:
        """The chat's current ID, after a migration."""
        return self._migrated_chats.get(chat, chat)

    async def send_text(self, target: TelegramTarget, part: TextPart, notes: list[str]) -> int:
        """Send a text; returns the message ID."""

        async def attempt(form: TelegramSendForm) -> Message:
            return await self._bot.send_message(
                form.target.chat,
                form.part.text,
                entities=_message_entities(form.part.marks),
                reply_markup=_inline_keyboard(form.part.keyboard),
                message_thread_id=form.target.thread,
                reply_parameters=form.target.reply,
            )

        return (
            await self._send_with_fallbacks(
                TelegramSendForm(target=target, part=part), attempt, notes
            )
        ).message_id

    async def edit_text(
        self, target: TelegramTarget, message_id: int, part: TextPart, notes: list[str]
    ) -> bool:
        """Edit a message; False if it is gone."""
        part = replace(part, keyboard=self._asked.apply((target.chat, message_id), part.keyboard))

        async def attempt(form: TelegramSendForm) -> Message | bool:
            return await self._bot.edit_message_text(
                form.part.text,
                form.target.chat,
                message_id,
                entities=_message_entities(form.part.marks),
                reply_markup=_inline_keyboard(form.part.keyboard),
            )

        try:
            await self._send_with_fallbacks(
                TelegramSendForm(target=target, part=part), attempt, notes, follow_migration=False
            )
        except ChatMigrated as error:
            self._migrated_chats[target.chat] = error.new_chat_id
            return False
        except BadRequest as error:
            kind = classify_bad_request(error)
            if kind is TelegramErrorKind.EDIT_GONE:
                return False
            if kind is not TelegramErrorKind.NOT_MODIFIED:
                raise
        return True

    async def send_photo(
        self, target: TelegramTarget, upload: TelegramUpload, caption: str, notes: list[str]
    ) -> int:
        """Send a picture, as a file if Telegram rejects it as a picture."""
        if not upload.fits_photo:
            notes.append("image: too large, sent as a file")
            return await self.send_document(target, upload, caption, notes)

        async def attempt(form: TelegramSendForm) -> Message:
            return await self._bot.send_photo(
                form.target.chat,
                upload.content,
                filename=upload.name,
                caption=form.part.text or None,
                message_thread_id=form.target.thread,
                reply_parameters=form.target.reply,
            )

        form = TelegramSendForm(target=target, part=TextPart(text=caption))
        try:
            return (await self._send_with_fallbacks(form, attempt, notes)).message_id
        except BadRequest as error:
            if classify_bad_request(error) is not TelegramErrorKind.PICTURE:
                raise
        notes.append("image: not a picture Telegram knows, sent as a file")
        return await self.send_document(target, upload, caption, notes)

    async def send_document(
        self, target: TelegramTarget, upload: TelegramUpload, caption: str, notes: list[str]
    ) -> int:
        async def attempt(form: TelegramSendForm) -> Message:
            return await self._bot.send_document(
                form.target.chat,
                upload.content,
                filename=upload.name,
                caption=form.part.text or None,
                message_thread_id=form.target.thread,
                reply_parameters=form.target.reply,
                disable_content_type_detection=True,
            )

        form = TelegramSendForm(target=target, part=TextPart(text=caption))
        return (await self._send_with_fallbacks(form, attempt, notes)).message_id

    async def send_album(
        self,
        target: TelegramTarget,
        uploads: Sequence[tuple[TelegramUpload, str]],
        notes: list[str],
        *,
        photos: bool,
    ) -> list[int]:
        """Send 2 to 10 pictures, or 2 to 10 files, with their captions as an album, all or none."""

        async def attempt(form: TelegramSendForm) -> tuple[Message, ...]:
            return await self._bot.send_media_group(
                form.target.chat,
                [
                    _album_item(upload, _without_calls(form.target, caption) or None, photos)
                    for upload, caption in uploads
                ],
                message_thread_id=form.target.thread,
                reply_parameters=form.target.reply,
            )

        form = TelegramSendForm(target=target, part=TextPart(text=""))
        return [sent.message_id for sent in await self._send_with_fallbacks(form, attempt, notes)]

    async def delete_message(self, target: TelegramTarget, message_id: int) -> None:
        """Delete a message unless it is gone or too old."""
        try:
            await self._bot.delete_message(self.current_chat(target.chat), message_id)
        except (BadRequest, ChatMigrated):
            return

    async def send_action(self, target: TelegramTarget, action: str) -> None:
        await self._bot.send_chat_action(
            self.current_chat(target.chat), action, message_thread_id=target.thread
        )

    async def send_draft(self, target: TelegramTarget, draft_id: int, part: TextPart) -> None:
        await self._bot.send_message_draft(
            self.current_chat(target.chat),
            draft_id,
            part.text,
            entities=_message_entities(part.marks),
        )

    async def _send_with_fallbacks(
        self,
        form: TelegramSendForm,
        attempt: Callable[[TelegramSendForm], Awaitable[_T]],
        notes: list[str],
        *,
        follow_migration: bool = True,
    ) -> _T:
        """Try without each refused feature in turn. With `follow_migration`, retry in the
        supergroup that replaced the group."""
        form = replace(form, target=replace(form.target, chat=self.current_chat(form.target.chat)))
        while True:
            try:
                return await attempt(replace(form, part=_calling_nobody(form.target, form.part)))
            except TelegramError as error:
                milder = self._plainer_form(form, error, notes, follow_migration=follow_migration)
                if milder is None:
                    raise
                form = milder

    def _plainer_form(
        self,
        form: TelegramSendForm,
        error: TelegramError,
        notes: list[str],
        *,
        follow_migration: bool,
    ) -> TelegramSendForm | None:
        if isinstance(error, ChatMigrated) and follow_migration:
            return self._follow_migration(form, error.new_chat_id)
        if not isinstance(error, BadRequest):
            return None
        kind = classify_bad_request(error)
        milder = _drop_refused_part(form, kind)
        if milder == form:
            return None
        notes.append(_DEGRADATION_NOTES[kind])
        return milder

    def _follow_migration(self, form: TelegramSendForm, chat: int) -> TelegramSendForm | None:
        """After migration to a supergroup, chat and message IDs are new."""
        if form.target.chat == chat:
            return None
        self._migrated_chats[form.target.chat] = chat
        return replace(form, target=TelegramTarget(chat=chat))


# Telegram takes `@name` for a call unless it is in code, or within a URL.
_CALL = re.compile(
    r"(?P<url>https?://(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,}(?::\d{1,5})?/[\w.~%@/-]*)"
    r"|(?<![A-Za-z0-9_])@(?=[A-Za-z0-9_])",
    re.ASCII,
)
_NO_CALL = "\uff20"
"""A full-width @: as long as the other, so that marks keep their places."""


def _calling_nobody(target: TelegramTarget, part: TextPart) -> TextPart:
    """In a group, `@name` of whoever wrote it (mostly a model) must not call people."""
    if "@" not in part.text:
        return part
    raw = part.text.encode("utf-16-le", "surrogatepass")
    pieces: list[str] = []
    at = 0
    for mark in sorted(part.marks, key=lambda each: each.offset):
        if mark.kind in CODE_KINDS and mark.offset * 2 >= at:
            pieces += (
                _decoded(raw[at : mark.offset * 2]),
                _decoded(raw[mark.offset * 2 : mark.end * 2]),
            )
            at = mark.end * 2
    pieces.append(_decoded(raw[at:]))
    pieces[::2] = [_without_calls(target, piece) for piece in pieces[::2]]
    return replace(part, text="".join(pieces))


def _decoded(raw: bytes) -> str:
    return raw.decode("utf-16-le", "surrogatepass")


def _without_calls(target: TelegramTarget, text: str) -> str:
    return _CALL.sub(lambda found: found["url"] or _NO_CALL, text) if target.is_group else text


def _drop_refused_part(form: TelegramSendForm, kind: TelegramErrorKind) -> TelegramSendForm:
    match kind:
        case TelegramErrorKind.REPLY_GONE:
            return replace(form, target=replace(form.target, reply_to=None))
        case TelegramErrorKind.THREAD_GONE:
            return replace(form, target=TelegramTarget(chat=form.target.chat))
        case TelegramErrorKind.MARKS:
            return replace(form, part=replace(form.part, marks=()))
        case TelegramErrorKind.KEYBOARD:
            return replace(form, part=replace(form.part, keyboard=()))
        case _:
            return form


def _message_entities(marks: Sequence[TextMark]) -> list[MessageEntity] | None:
    return [
        MessageEntity(
            mark.kind,
            mark.offset,
            mark.length,
            url=mark.url or None,
            language=mark.language or None,
        )
        for mark in marks
    ] or None


def _album_item(
    upload: TelegramUpload, caption: str | None, photo: bool
) -> InputMediaPhoto | InputMediaDocument:
    if photo:
        return InputMediaPhoto(upload.content, caption)
    return InputMediaDocument(
        upload.content, caption, disable_content_type_detection=True, filename=upload.name
    )


def _inline_keyboard(keyboard: InlineKeyboard) -> InlineKeyboardMarkup | None:
    if not keyboard:
        return None
    return InlineKeyboardMarkup(
        [
            [InlineKeyboardButton(key.label, callback_data=key.data) for key in row]
            for row in keyboard
        ]
    )
