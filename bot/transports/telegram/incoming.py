"""Converts Telegram updates to incoming messages, merges albums, and answers button presses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace

import telegram
from telegram.constants import ChatMemberStatus, ChatType
from telegram.error import BadRequest, NetworkError, TelegramError

from bot.transports.ports import InboxPort, PressToast
from bot.transports.telegram.api import describe_failure
from bot.transports.telegram.messages import AskedConfirmations
from cards.catalog import TextCatalog, catalog_for
from cards.render.telegram import CONFIRM_SUFFIX
from storage.records.messages import (
    AttachmentKind,
    ChatAddress,
    IncomingChatOpen,
    IncomingMessage,
    IncomingPress,
    MessageSender,
    RemoteFile,
)
from storage.records.people import Channel, ChatKind, Language

_CHAT_KINDS = {
    ChatType.PRIVATE: ChatKind.PRIVATE,
    ChatType.GROUP: ChatKind.GROUP,
    ChatType.SUPERGROUP: ChatKind.GROUP,
}
_UNSUPPORTED_KINDS = ("sticker", "venue", "location", "contact", "poll", "dice", "story", "game")
_MEMBER_STATUSES = {
    ChatMemberStatus.MEMBER,
    ChatMemberStatus.ADMINISTRATOR,
    ChatMemberStatus.RESTRICTED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramBotIdentity:
    """The bot's own identity, to recognise mentions."""

    id: int
    username: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramArrival:
    """An incoming message. Parts of one album share `album`."""

    incoming: IncomingMessage | IncomingChatOpen
    dedupe: str
    album: str = ""


def parse_update(update: telegram.Update, identity: TelegramBotIdentity) -> TelegramArrival | None:
    """The message or chat event of an update; None if there is nothing to handle."""
    if update.message:
        return parse_message(update.message, identity)
    if update.edited_message:
        return parse_message(update.edited_message, identity, edited=True)
    if update.my_chat_member:
        return _parse_entry(update.my_chat_member, update.update_id)
    return None


def parse_message(
    message: telegram.Message, identity: TelegramBotIdentity, *, edited: bool = False
) -> TelegramArrival | None:
    place = parse_place(message.chat, get_thread(message))
    attachments = tuple(_attachments(message))
    # A live location is edited every few seconds, which is ignored.
    text = message.text or message.caption or ("" if edited else _unsupported_kind(message))
    if place is None or message.from_user is None or not (text or attachments):
        return None
    incoming = IncomingMessage(
        place=place,
        sender=parse_sender(message.from_user),
        message_id=str(message.message_id),
        text=_strip_bot_mention(text, message, identity),
        addressed=place.kind is ChatKind.PRIVATE or is_addressed(message, identity),
        sent_at=(message.edit_date if edited else None) or message.date,
        attachments=attachments,
        reply_to=_reply_to(message),
        edited=edited,
        forwarded=message.forward_origin is not None,
    )
    dedupe = f"{message.chat.id}:{message.message_id}"
    if edited and message.edit_date:
        dedupe += f":e{int(message.edit_date.timestamp())}"
    album = f"{message.chat.id}:{message.media_group_id}" if message.media_group_id else ""
    return TelegramArrival(incoming=incoming, dedupe=dedupe, album="" if edited else album)


def _unsupported_kind(message: telegram.Message) -> str:
    """Kind of an unsupported message, for its description."""
    return next((f"[{kind}]" for kind in _UNSUPPORTED_KINDS if getattr(message, kind, None)), "")


def parse_place(chat: telegram.Chat, thread: str) -> ChatAddress | None:
    kind = _CHAT_KINDS.get(ChatType(chat.type)) if chat.type in set(ChatType) else None
    if kind is None:
        return None
    title = chat.title or chat.full_name or ""
    return ChatAddress(
        channel=Channel.TELEGRAM, chat=str(chat.id), kind=kind, thread=thread, title=title
    )


_LINKED_CHANNEL_ACCOUNT = 777000
_ANONYMOUS_ACCOUNTS = {136817688, 1087968824}
"""Telegram's own, for people who write as a channel and administrators who write as the group. Many
people stand behind each of them."""


def parse_sender(user: telegram.User) -> MessageSender:
    return MessageSender(
        external_id=str(user.id),
        name=user.full_name,
        language=user.language_code or "",
        is_bot=user.is_bot or user.id in {_LINKED_CHANNEL_ACCOUNT, *_ANONYMOUS_ACCOUNTS},
        anonymous=user.id in _ANONYMOUS_ACCOUNTS,
    )


def is_addressed(message: telegram.Message, identity: TelegramBotIdentity) -> bool:
    """Whether the bot is mentioned, named in a command, or replied to."""
    if any(_mentions_bot(entity, text, identity) for entity, text in _entities(message)):
        return True
    replied = message.reply_to_message
    return bool(_reply_to(message)) and bool(
        replied and replied.from_user and replied.from_user.id == identity.id
    )


def get_thread(message: telegram.Message) -> str:
    """The topic of a message. Replies in supergroups without topics have a thread ID too, which
    cannot be sent to."""
    return str(message.message_thread_id) if message.is_topic_message else ""


def _reply_to(message: telegram.Message) -> str:
    """ID of the message replied to. In a topic, every message replies to the first one."""
    replied = message.reply_to_message
    if replied is None:
        return ""
    if message.is_topic_message and replied.message_id == message.message_thread_id:
        return ""
    return str(replied.message_id)


def _entities(message: telegram.Message) -> Iterable[tuple[telegram.MessageEntity, str]]:
    if message.text:
        return message.parse_entities().items()
    return message.parse_caption_entities().items()


def _mentions_bot(entity: telegram.MessageEntity, text: str, identity: TelegramBotIdentity) -> bool:
    name = f"@{identity.username}".lower()
    match entity.type:
        case telegram.MessageEntity.MENTION:
            return text.lower() == name
        case telegram.MessageEntity.BOT_COMMAND:
            return text.lower().endswith(name)
        case telegram.MessageEntity.TEXT_MENTION:
            return entity.user is not None and entity.user.id == identity.id
        case _:
            return False


def _strip_bot_mention(text: str, message: telegram.Message, identity: TelegramBotIdentity) -> str:
    """Remove the bot's name used as an address."""
    raw = text.encode("utf-16-le", "surrogatepass")
    named = [(e, t) for e, t in _entities(message) if _mentions_bot(e, t, identity)]
    for entity, marked in sorted(named, key=lambda pair: pair[0].offset, reverse=True):
        kept = marked.partition("@")[0] if entity.type == telegram.MessageEntity.BOT_COMMAND else ""
        start, end = entity.offset * 2, (entity.offset + entity.length) * 2
        raw = raw[:start] + kept.encode("utf-16-le") + raw[end:]
    return raw.decode("utf-16-le", "surrogatepass").strip() if named else text


def _attachments(message: telegram.Message) -> Iterable[RemoteFile]:
    if message.photo:
        photo = message.photo[-1]
        name = f"photo_{photo.file_unique_id}.jpg"
        yield _remote_file(AttachmentKind.IMAGE, photo, name, "image/jpeg")
        return
    for medium in (
        message.document,
        message.video,
        message.audio,
        message.voice,
        message.video_note,
    ):
        if medium is not None:
            mime = getattr(medium, "mime_type", None) or ""
            name = getattr(medium, "file_name", None) or f"file_{medium.file_unique_id}"
            kind = AttachmentKind.IMAGE if mime.startswith("image/") else AttachmentKind.FILE
            yield _remote_file(kind, medium, name, mime)
            return  # an animation is also sent as a document


def _remote_file(kind: AttachmentKind, medium: object, name: str, mime: str) -> RemoteFile:
    file_id, unique = getattr(medium, "file_id", ""), getattr(medium, "file_unique_id", "")
    return RemoteFile(
        kind=kind,
        reference={"file_id": str(file_id), "unique": str(unique)},
        name=name,
        mime=mime,
        size=int(getattr(medium, "file_size", 0) or 0),
    )


def _parse_entry(change: telegram.ChatMemberUpdated, update_id: int) -> TelegramArrival | None:
    """The bot was added to a group or unblocked in a private chat."""
    place = parse_place(change.chat, "")
    entered = change.new_chat_member.status in _MEMBER_STATUSES
    was_inside = change.old_chat_member.status in _MEMBER_STATUSES
    if place is None or was_inside or not entered:
        return None
    incoming = IncomingChatOpen(place=place, sender=parse_sender(change.from_user))
    return TelegramArrival(incoming=incoming, dedupe=f"entry:{update_id}")


def merge_albums(
    steps: Iterable[TelegramArrival | telegram.CallbackQuery],
) -> list[TelegramArrival | telegram.CallbackQuery]:
    """Merge album parts into one message at the place of the first, with its ID, all files and one
    caption."""
    whole: list[TelegramArrival | telegram.CallbackQuery] = []
    places: dict[str, int] = {}
    for step in steps:
        album = step.album if isinstance(step, TelegramArrival) else ""
        if album in places:
            whole[places[album]] = _merge_album_parts(whole[places[album]], step)
            continue
        if album:
            places[album] = len(whole)
        whole.append(step)
    return whole


def _merge_album_parts(
    first: TelegramArrival | telegram.CallbackQuery, more: TelegramArrival | telegram.CallbackQuery
) -> TelegramArrival | telegram.CallbackQuery:
    if not (isinstance(first, TelegramArrival) and isinstance(more, TelegramArrival)):
        return first
    one, two = first.incoming, more.incoming
    if not (isinstance(one, IncomingMessage) and isinstance(two, IncomingMessage)):
        return first
    incoming = replace(
        one,
        text=one.text or two.text,
        attachments=(*one.attachments, *two.attachments),
        addressed=one.addressed or two.addressed,
    )
    return replace(first, incoming=incoming)


_MAX_ANSWER_LENGTH = 200
_ANSWER_ATTEMPTS = 3

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramPressHandler:
    """Handles button presses. `wait_seconds` is how long polling waits for a press; slower ones
    continue in the background."""

    bot: telegram.Bot
    inbox: InboxPort
    asked: AskedConfirmations
    wait_seconds: float

    async def handle(self, query: telegram.CallbackQuery, background: asyncio.TaskGroup) -> None:
        """Handle one press and answer it in the background. Raises CancelledError only."""
        words = _presser_words(query)
        if (query.data or "").endswith(CONFIRM_SUFFIX):
            work, name = self._ask_to_confirm(query, words), "telegram confirm"
        else:
            if query.message is not None:
                self.asked.discard((query.message.chat.id, query.message.message_id))
            toast = await self._submit(query, words)
            work, name = self._answer_press(query, toast), "telegram answer"
        background.create_task(work, name=name)

    async def _submit(self, query: telegram.CallbackQuery, words: TextCatalog) -> PressToast:
        failed = PressToast(text=words("render.telegram.failed"), good=False)
        try:
            press = _parse_press(query)
            if press is None:
                return failed
            return await self.inbox.press(press, dedupe=query.id, wait_seconds=self.wait_seconds)
        except Exception:
            # Error boundary: every press must be answered, and the next one handled.
            log.exception("A button press on Telegram failed")
            return failed

    async def _ask_to_confirm(self, query: telegram.CallbackQuery, words: TextCatalog) -> None:
        """Change the button so that the next press executes it, and show a toast."""
        toast = PressToast(text=words("render.telegram.failed"), good=False)
        message = query.message
        if isinstance(message, telegram.Message) and message.reply_markup:
            label, armed = _arm_keyboard(message.reply_markup, query.data or "", words)
            toast = PressToast(text=words("render.telegram.confirm", label=label))
            # Before the edit: the card may be redrawn at any time.
            sure = words("render.telegram.sure", label=label)
            self.asked.add((message.chat.id, message.message_id), query.data or "", sure)
            try:
                await self.bot.edit_message_reply_markup(
                    message.chat.id, message.message_id, reply_markup=armed
                )
            except BadRequest as error:
                log.debug("A button could not be stored: %s", error)  # pressed twice quickly
            except TelegramError as error:
                log.warning("A button could not be stored: %s", describe_failure(error))
                toast = PressToast(text=words("render.telegram.failed"), good=False)
        await self._answer(query, toast)

    async def _answer_press(self, query: telegram.CallbackQuery, toast: PressToast) -> None:
        await self._answer(query, toast)
        if toast.is_twin and query.message is not None:
            try:
                await self.bot.delete_message(query.message.chat.id, query.message.message_id)
            except TelegramError as error:
                log.warning("A second copy of a card stays: %s", describe_failure(error))

    async def _answer(self, query: telegram.CallbackQuery, toast: PressToast) -> None:
        for _ in range(_ANSWER_ATTEMPTS):
            try:
                await self.bot.answer_callback_query(
                    query.id, toast.text[:_MAX_ANSWER_LENGTH] or None, show_alert=not toast.good
                )
            except BadRequest as error:
                log.debug("A press was acknowledged too late: %s", error)
            except NetworkError as error:
                log.debug("Acknowledging a press failed, retrying: %s", describe_failure(error))
                continue
            except TelegramError as error:
                log.warning("A press could not be acknowledged: %s", describe_failure(error))
            return


def _parse_press(query: telegram.CallbackQuery) -> IncomingPress | None:
    message = query.message
    if not query.data or message is None:
        return None
    thread = get_thread(message) if isinstance(message, telegram.Message) else ""
    place = parse_place(message.chat, thread)
    if place is None:
        return None
    token, colon, index = query.data.partition(":")
    return IncomingPress(
        place=place,
        sender=parse_sender(query.from_user),
        token=token,
        message_id=str(message.message_id),
        value=f"#{index}" if colon else "",
    )


def _arm_keyboard(
    keyboard: telegram.InlineKeyboardMarkup, data: str, words: TextCatalog
) -> tuple[str, telegram.InlineKeyboardMarkup]:
    """Label of the button with this data, and the keyboard with its confirmed version."""
    label = ""
    rows: list[list[telegram.InlineKeyboardButton]] = []
    for row in keyboard.inline_keyboard:
        rows.append([])
        for button in row:
            asked = button.callback_data == data
            label = button.text if asked else label
            if asked:
                button = telegram.InlineKeyboardButton(  # noqa: PLW2901 - the armed one
                    words("render.telegram.sure", label=label),
                    callback_data=data.removesuffix(CONFIRM_SUFFIX),
                )
            rows[-1].append(button)
    return label, telegram.InlineKeyboardMarkup(rows)


def _presser_words(query: telegram.CallbackQuery) -> TextCatalog:
    chinese = (query.from_user.language_code or "").lower().startswith("zh")
    return catalog_for(Language.CHINESE if chinese else Language.ENGLISH)
