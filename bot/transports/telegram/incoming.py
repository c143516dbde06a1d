"""What arrives from Telegram as the records the rest of the program knows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from telegram import Chat, ChatMemberUpdated, Message, MessageEntity, Update, User
from telegram.constants import ChatMemberStatus, ChatType

from storage.records.messages import (
    AttachmentKind,
    EntryIn,
    MessageIn,
    Place,
    RemoteFile,
    Sender,
)
from storage.records.people import Channel, ChatKind

_KINDS = {
    ChatType.PRIVATE: ChatKind.PRIVATE,
    ChatType.GROUP: ChatKind.GROUP,
    ChatType.SUPERGROUP: ChatKind.GROUP,
}
_UNREAD = ("sticker", "venue", "location", "contact", "poll", "dice", "story", "game")
_INSIDE = {ChatMemberStatus.MEMBER, ChatMemberStatus.ADMINISTRATOR, ChatMemberStatus.RESTRICTED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Me:
    """The bot itself, to know when it is meant."""

    id: int
    username: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """Something to store. Pieces of one album share `album`."""

    incoming: MessageIn | EntryIn
    dedupe: str
    album: str = ""


def read_update(update: Update, me: Me) -> Arrived | None:
    """The message or entry in an update; None where there is nothing to act on."""
    if update.message:
        return read_message(update.message, me)
    if update.edited_message:
        return read_message(update.edited_message, me, edited=True)
    if update.my_chat_member:
        return _read_entry(update.my_chat_member, update.update_id)
    return None


def read_message(message: Message, me: Me, *, edited: bool = False) -> Arrived | None:
    place = read_place(message.chat, thread_of(message))
    attachments = tuple(_attachments(message))
    # A live location is "edited" every few seconds: those are not worth a word.
    text = message.text or message.caption or ("" if edited else _kind_of(message))
    if place is None or message.from_user is None or not (text or attachments):
        return None
    incoming = MessageIn(
        place=place,
        sender=read_sender(message.from_user),
        message_id=str(message.message_id),
        text=_without_own_name(text, message, me),
        addressed=place.kind is ChatKind.PRIVATE or is_addressed(message, me),
        sent_at=(message.edit_date if edited else None) or message.date,
        attachments=attachments,
        reply_to=_reply_to(message),
        edited=edited,
    )
    dedupe = f"{message.chat.id}:{message.message_id}"
    if edited and message.edit_date:
        dedupe += f":e{int(message.edit_date.timestamp())}"
    album = f"{message.chat.id}:{message.media_group_id}" if message.media_group_id else ""
    return Arrived(incoming=incoming, dedupe=dedupe, album="" if edited else album)


def _kind_of(message: Message) -> str:
    """What cannot be read is named by its kind."""
    return next((f"[{kind}]" for kind in _UNREAD if getattr(message, kind, None)), "")


def read_place(chat: Chat, thread: str) -> Place | None:
    kind = _KINDS.get(ChatType(chat.type)) if chat.type in set(ChatType) else None
    if kind is None:
        return None
    title = chat.title or chat.full_name or ""
    return Place(channel=Channel.TELEGRAM, chat=str(chat.id), kind=kind, thread=thread, title=title)


def read_sender(user: User) -> Sender:
    return Sender(
        external_id=str(user.id),
        name=user.full_name,
        language=user.language_code or "",
        is_bot=user.is_bot,
    )


def is_addressed(message: Message, me: Me) -> bool:
    """Whether this very bot is mentioned, commanded by name, or replied to."""
    if any(_names(entity, text, me) for entity, text in _entities(message)):
        return True
    replied = message.reply_to_message
    return bool(_reply_to(message)) and bool(
        replied and replied.from_user and replied.from_user.id == me.id
    )


def thread_of(message: Message) -> str:
    """The topic a message is in. Replies in plain supergroups have a thread id too, which
    nothing can be sent to."""
    return str(message.message_thread_id) if message.is_topic_message else ""


def _reply_to(message: Message) -> str:
    """What the person replied to. In a topic every message replies to the topic's first one."""
    replied = message.reply_to_message
    if replied is None:
        return ""
    if message.is_topic_message and replied.message_id == message.message_thread_id:
        return ""
    return str(replied.message_id)


def _entities(message: Message) -> Iterable[tuple[MessageEntity, str]]:
    if message.text:
        return message.parse_entities().items()
    return message.parse_caption_entities().items()


def _names(entity: MessageEntity, text: str, me: Me) -> bool:
    name = f"@{me.username}".lower()
    match entity.type:
        case MessageEntity.MENTION:
            return text.lower() == name
        case MessageEntity.BOT_COMMAND:
            return text.lower().endswith(name)
        case MessageEntity.TEXT_MENTION:
            return entity.user is not None and entity.user.id == me.id
        case _:
            return False


def _without_own_name(text: str, message: Message, me: Me) -> str:
    """The text without the bot's own name in it: it was the address, not the message."""
    raw = text.encode("utf-16-le", "surrogatepass")
    named = [(e, t) for e, t in _entities(message) if _names(e, t, me)]
    for entity, marked in sorted(named, key=lambda pair: pair[0].offset, reverse=True):
        kept = marked.partition("@")[0] if entity.type == MessageEntity.BOT_COMMAND else ""
        start, end = entity.offset * 2, (entity.offset + entity.length) * 2
        raw = raw[:start] + kept.encode("utf-16-le") + raw[end:]
    return raw.decode("utf-16-le", "surrogatepass").strip() if named else text


def _attachments(message: Message) -> Iterable[RemoteFile]:
    if message.photo:
        photo = message.photo[-1]
        name = f"photo_{photo.file_unique_id}.jpg"
        yield _remote(AttachmentKind.IMAGE, photo, name, "image/jpeg")
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
            yield _remote(kind, medium, name, mime)
            return  # an animation comes as a document as well


def _remote(kind: AttachmentKind, medium: object, name: str, mime: str) -> RemoteFile:
    file_id, unique = getattr(medium, "file_id", ""), getattr(medium, "file_unique_id", "")
    return RemoteFile(
        kind=kind,
        reference={"file_id": str(file_id), "unique": str(unique)},
        name=name,
        mime=mime,
        size=int(getattr(medium, "file_size", 0) or 0),
    )


def _read_entry(change: ChatMemberUpdated, update_id: int) -> Arrived | None:
    """The bot was added to a group, or unblocked in a private chat."""
    place = read_place(change.chat, "")
    entered = change.new_chat_member.status in _INSIDE
    was_inside = change.old_chat_member.status in _INSIDE
    if place is None or was_inside or not entered:
        return None
    incoming = EntryIn(place=place, sender=read_sender(change.from_user))
    return Arrived(incoming=incoming, dedupe=f"entry:{update_id}")
