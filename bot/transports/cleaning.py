"""What comes in is made fit to store, show and log, whatever it was."""

from __future__ import annotations

import re
from dataclasses import replace

from cards.words import words_for
from handlers.language import guessed, hinted
from storage.records.messages import (
    EntryIn,
    Incoming,
    MessageIn,
    Place,
    PressIn,
    RemoteFile,
    Sender,
)
from storage.records.people import Language

MOST_CHARACTERS = 200_000
_MOST_IN_A_FIELD = 20_000
_MOST_FIELDS = 50
_MOST_IN_A_NAME = 200
_MOST_IN_AN_ID = 128

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Marks that reverse what stands around them: harmless in prose, a disguise in a name.
_OVERRIDES = re.compile(r"[\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def cleaned(incoming: Incoming) -> Incoming:
    place, sender = _place(incoming.place), _sender(incoming.sender)
    match incoming:
        case EntryIn():
            return replace(incoming, place=place, sender=sender)
        case PressIn():
            fields = list(incoming.form.items())[:_MOST_FIELDS]
            return replace(
                incoming,
                place=place,
                sender=sender,
                token=_identifier(incoming.token),
                value=clean_text(incoming.value)[:_MOST_IN_A_FIELD],
                form={
                    _identifier(name): clean_text(value)[:_MOST_IN_A_FIELD]
                    for name, value in fields
                },
            )
        case MessageIn():
            said = replace(
                incoming,
                place=place,
                sender=sender,
                text=clean_text(incoming.text),
                attachments=tuple(_file(each) for each in incoming.attachments),
            )
            return fitting(said)


def clean_text(text: str) -> str:
    """Without lone surrogates and control characters; line ends are `\\n`."""
    # Halves of one character become it again; a half alone becomes a replacement mark.
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _CONTROLS.sub("", whole.replace("\r\n", "\n").replace("\r", "\n"))


def clean_name(text: str) -> str:
    """One line that reads in the order it is written."""
    return " ".join(_OVERRIDES.sub("", clean_text(text)).split())[:_MOST_IN_A_NAME]


def language_of(incoming: Incoming) -> Language | None:
    """What the writer's own words, or else the platform, tell of their language."""
    text = incoming.text if isinstance(incoming, MessageIn) else ""
    return guessed(text) or hinted(incoming.sender.language)


def fitting(said: MessageIn) -> MessageIn:
    """No longer than a text may be, with a word where it was cut."""
    if len(said.text) <= MOST_CHARACTERS:
        return said
    words = words_for(language_of(said) or Language.ENGLISH)
    cut = words("mail.cut", limit=MOST_CHARACTERS)
    return replace(said, text=f"{said.text[:MOST_CHARACTERS]}\n{cut}")


def _place(place: Place) -> Place:
    return replace(
        place,
        chat=_identifier(place.chat),
        thread=_identifier(place.thread),
        title=clean_name(place.title),
    )


def _sender(sender: Sender) -> Sender:
    return replace(
        sender,
        external_id=_identifier(sender.external_id),
        name=clean_name(sender.name),
        language=_identifier(sender.language),
    )


def _file(file: RemoteFile) -> RemoteFile:
    # Only the last part of a path, and nothing that means a folder.
    name = clean_name(file.name).replace("\\", "/").rpartition("/")[2].strip(". ")
    return replace(file, name=name, mime=clean_name(file.mime))


def _identifier(text: str) -> str:
    return clean_text(text)[:_MOST_IN_AN_ID]
