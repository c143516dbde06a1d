"""One message at a time: what Telegram refuses is tried again in a plainer form."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from telegram import (
    Bot,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InputMediaPhoto,
    Message,
    MessageEntity,
    ReplyParameters,
)
from telegram.error import BadRequest, ChatMigrated, TelegramError

from bot.transports.telegram.errors import Trouble, trouble
from bot.transports.telegram.files import Upload
from cards.render.telegram import Keyboard, TextPart
from cards.rich_text import Mark

T = TypeVar("T")

_NOTES = {
    Trouble.REPLY_GONE: "reply: its target is gone",
    Trouble.THREAD_GONE: "thread: gone, sent to the chat itself",
    Trouble.MARKS: "entities: refused, sent as plain text",
    Trouble.KEYBOARD: "keyboard: refused",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a message goes. `chat` is Telegram's number."""

    chat: int
    thread: int | None = None
    reply_to: int | None = None

    @property
    def reply(self) -> ReplyParameters | None:
        if self.reply_to is None:
            return None
        return ReplyParameters(self.reply_to, allow_sending_without_reply=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One way to send something."""

    target: Target
    part: TextPart


class Sender:
    """Raises TelegramError only where no plainer form is left."""

    def __init__(self, bot: Bot) -> None:
        self._bot = bot
        self._moved: dict[int, int] = {}

    def there(self, chat: int) -> int:
        """The number a chat has by now."""
        return self._moved.get(chat, chat)

    async def text(self, target: Target, part: TextPart, notes: list[str]) -> int:
        """Send a text; the new message's id."""

        async def attempt(form: Form) -> Message:
            return await self._bot.send_message(
                form.target.chat,
                form.part.text,
                entities=_entities(form.part.marks),
                reply_markup=_markup(form.part.keyboard),
                message_thread_id=form.target.thread,
                reply_parameters=form.target.reply,
            )

        return (await self._plainer(Form(target=target, part=part), attempt, notes)).message_id

    async def edit(self, target: Target, message_id: int, part: TextPart, notes: list[str]) -> bool:
        """Show something else in a message; False if the message is gone."""

        async def attempt(form: Form) -> Message | bool:
            return await self._bot.edit_message_text(
                form.part.text,
                form.target.chat,
                message_id,
                entities=_entities(form.part.marks),
                reply_markup=_markup(form.part.keyboard),
            )

        try:
            await self._plainer(Form(target=target, part=part), attempt, notes, follow=False)
        except ChatMigrated as error:
            self._moved[target.chat] = error.new_chat_id
            return False
        except BadRequest as error:
            kind = trouble(error)
            if kind is Trouble.EDIT_GONE:
                return False
            if kind is not Trouble.NOT_MODIFIED:
                raise
        return True

    async def photo(self, target: Target, upload: Upload, caption: str, notes: list[str]) -> int:
        """Send a picture, or as a file what Telegram does not take for a picture."""
        if not upload.fits_photo:
            notes.append("image: too large, sent as a file")
            return await self.document(target, upload, caption, notes)

        async def attempt(form: Form) -> Message:
            return await self._bot.send_photo(
                form.target.chat,
                upload.content,
                filename=upload.name,
                caption=form.part.text or None,
                message_thread_id=form.target.thread,
                reply_parameters=form.target.reply,
            )

        form = Form(target=target, part=TextPart(text=caption))
        try:
            return (await self._plainer(form, attempt, notes)).message_id
        except BadRequest as error:
            if trouble(error) is not Trouble.PICTURE:
                raise
        notes.append("image: not a picture Telegram knows, sent as a file")
        return await self.document(target, upload, caption, notes)

    async def document(self, target: Target, upload: Upload, caption: str, notes: list[str]) -> int:
        async def attempt(form: Form) -> Message:
            return await self._bot.send_document(
                form.target.chat,
                upload.content,
                filename=upload.name,
                caption=form.part.text or None,
                message_thread_id=form.target.thread,
                reply_parameters=form.target.reply,
                disable_content_type_detection=True,
            )

        form = Form(target=target, part=TextPart(text=caption))
        return (await self._plainer(form, attempt, notes)).message_id

    async def album(
        self, target: Target, photos: Sequence[tuple[Upload, str]], notes: list[str]
    ) -> list[int]:
        """Send 2 to 10 pictures as one; all of them arrive or none."""

        async def attempt(form: Form) -> tuple[Message, ...]:
            return await self._bot.send_media_group(
                form.target.chat,
                [InputMediaPhoto(up.content, caption or None) for up, caption in photos],
                message_thread_id=form.target.thread,
                reply_parameters=form.target.reply,
            )

        form = Form(target=target, part=TextPart(text=""))
        return [sent.message_id for sent in await self._plainer(form, attempt, notes)]

    async def delete(self, target: Target, message_id: int) -> None:
        """Take a message away, if it can be: it may be gone, or too old to delete."""
        try:
            await self._bot.delete_message(self.there(target.chat), message_id)
        except (BadRequest, ChatMigrated):
            return

    async def action(self, target: Target, action: str) -> None:
        await self._bot.send_chat_action(
            self.there(target.chat), action, message_thread_id=target.thread
        )

    async def draft(self, target: Target, draft_id: int, part: TextPart) -> None:
        await self._bot.send_message_draft(
            self.there(target.chat), draft_id, part.text, entities=_entities(part.marks)
        )

    async def _plainer(
        self,
        form: Form,
        attempt: Callable[[Form], Awaitable[T]],
        notes: list[str],
        *,
        follow: bool = True,
    ) -> T:
        """Try, and after each refusal try without what was refused. With `follow`, a group that
        has moved is followed."""
        form = replace(form, target=replace(form.target, chat=self.there(form.target.chat)))
        while True:
            try:
                return await attempt(form)
            except TelegramError as error:
                milder = self._milder(form, error, notes, follow=follow)
                if milder is None:
                    raise
                form = milder

    def _milder(
        self, form: Form, error: TelegramError, notes: list[str], *, follow: bool
    ) -> Form | None:
        if isinstance(error, ChatMigrated) and follow:
            return self._follow(form, error.new_chat_id)
        if not isinstance(error, BadRequest):
            return None
        kind = trouble(error)
        milder = _without(form, kind)
        if milder == form:
            return None
        notes.append(_NOTES[kind])
        return milder

    def _follow(self, form: Form, chat: int) -> Form | None:
        """The group became a supergroup: it has a new number, and messages there new ids."""
        if form.target.chat == chat:
            return None
        self._moved[form.target.chat] = chat
        return replace(form, target=Target(chat=chat))


def _without(form: Form, kind: Trouble) -> Form:
    match kind:
        case Trouble.REPLY_GONE:
            return replace(form, target=replace(form.target, reply_to=None))
        case Trouble.THREAD_GONE:
            return replace(form, target=Target(chat=form.target.chat))
        case Trouble.MARKS:
            return replace(form, part=replace(form.part, marks=()))
        case Trouble.KEYBOARD:
            return replace(form, part=replace(form.part, keyboard=()))
        case _:
            return form


def _entities(marks: Sequence[Mark]) -> list[MessageEntity] | None:
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


def _markup(keyboard: Keyboard) -> InlineKeyboardMarkup | None:
    if not keyboard:
        return None
    return InlineKeyboardMarkup(
        [
            [InlineKeyboardButton(key.label, callback_data=key.data) for key in row]
            for row in keyboard
        ]
    )
