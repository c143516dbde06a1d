"""Sanitises incoming messages for storing, displaying and logging."""

from __future__ import annotations

import re
from dataclasses import replace

from cards.catalog import catalog_for
from handlers.language import guess_language
from storage.records.messages import (
    ChatAddress,
    Incoming,
    IncomingChatOpen,
    IncomingMessage,
    IncomingPress,
    MessageSender,
    RemoteFile,
)
from storage.records.people import Language

MAX_CHARACTERS = 200_000
_MAX_FIELD_LENGTH = 20_000
_MAX_FIELDS = 50
_MAX_NAME_LENGTH = 200
_MAX_ID_LENGTH = 128

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Bidirectional controls: harmless in prose, but they can disguise a name.
_DIRECTION_OVERRIDES = re.compile(r"[\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def sanitize_incoming(incoming: Incoming) -> Incoming:
    place, sender = _sanitize_place(incoming.place), _sanitize_sender(incoming.sender)
    match incoming:
        case IncomingChatOpen():
            return replace(incoming, place=place, sender=sender)
        case IncomingPress():
            fields = list(incoming.form.items())[:_MAX_FIELDS]
            return replace(
                incoming,
                place=place,
                sender=sender,
                token=_sanitize_id(incoming.token),
                value=sanitize_text(incoming.value)[:_MAX_FIELD_LENGTH],
                form={
                    _sanitize_id(name): sanitize_text(value)[:_MAX_FIELD_LENGTH]
                    for name, value in fields
                },
            )
        case IncomingMessage():
            said = replace(
                incoming,
                place=place,
                sender=sender,
                text=sanitize_text(incoming.text),
                attachments=tuple(_sanitize_file(each) for each in incoming.attachments),
            )
            return truncate_text(said)


def sanitize_text(text: str) -> str:
    r"""Remove lone surrogates and control characters; line ends become `\n`."""
    # Paired surrogates become one character; a lone one becomes a replacement mark.
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _CONTROLS.sub("", whole.replace("\r\n", "\n").replace("\r", "\n"))


def sanitize_name(text: str) -> str:
    """One line without bidirectional controls."""
    return " ".join(_DIRECTION_OVERRIDES.sub("", sanitize_text(text)).split())[:_MAX_NAME_LENGTH]


def detect_language(incoming: Incoming) -> Language | None:
    """Language of the text, or otherwise the platform's setting."""
    text = incoming.text if isinstance(incoming, IncomingMessage) else ""
    return guess_language(text) or Language.from_tag(incoming.sender.language)


def truncate_text(message: IncomingMessage) -> IncomingMessage:
    """Cut the text to the maximum length, with a note."""
    if len(message.text) <= MAX_CHARACTERS:
        return message
    words = catalog_for(detect_language(message) or Language.ENGLISH)
    cut = words("mail.cut", limit=MAX_CHARACTERS)
    return replace(message, text=f"{message.text[:MAX_CHARACTERS]}\n{cut}")


def _sanitize_place(place: ChatAddress) -> ChatAddress:
    return replace(
        place,
        chat=_sanitize_id(place.chat),
        thread=_sanitize_id(place.thread),
        title=sanitize_name(place.title),
    )


def _sanitize_sender(sender: MessageSender) -> MessageSender:
    return replace(
        sender,
        external_id=_sanitize_id(sender.external_id),
        name=sanitize_name(sender.name),
        language=_sanitize_id(sender.language),
    )


def _sanitize_file(file: RemoteFile) -> RemoteFile:
    # The last path component only, never one that names a folder.
    name = sanitize_name(file.name).replace("\\", "/").rpartition("/")[2].strip(". ")
    return replace(file, name=name, mime=sanitize_name(file.mime))


def _sanitize_id(text: str) -> str:
    return sanitize_text(text)[:_MAX_ID_LENGTH]
