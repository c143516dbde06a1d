"""What a message says: text and attachments out of the platform's content formats."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bot.transports.feishu.events import Mention, MessageInfo
from storage.records.messages import AttachmentKind, RemoteFile

_FILES = {"file": "file", "audio": "file", "media": "file"}
_NAMES = {"audio": "voice.opus", "media": "video.mp4", "file": "file"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    text: str
    files: tuple[RemoteFile, ...] = ()


def read_content(message: MessageInfo, bot_id: str) -> Content:
    """Never fails: what cannot be read is named by its kind."""
    try:
        loaded = json.loads(message.content)
    except ValueError:
        loaded = None
    if not isinstance(loaded, dict):
        loaded = {}
    mentions = message.mentions or []
    match message.message_type:
        case "text":
            return Content(text=_named(str(loaded.get("text") or ""), mentions, bot_id))
        case "post":
            return _post(message.message_id, loaded, mentions, bot_id)
        case "image":
            return Content(text="", files=_image(message.message_id, loaded))
        case "file" | "audio" | "media" as kind:
            return Content(text="", files=_file(message.message_id, loaded, kind))
        case other:
            return Content(text=f"[{other}]")


def _named(text: str, mentions: Iterable[Mention], bot_id: str) -> str:
    """Placeholders become names; the bot's own is dropped. `@_user_12` goes before `@_user_1`."""
    for mention in sorted(mentions, key=lambda one: -len(one.key)):
        own = mention.id.open_id == bot_id
        text = text.replace(mention.key, "" if own else f"@{mention.name}")
    return text.replace("@_all", "@all").strip()


def _image(message_id: str, loaded: dict[str, Any]) -> tuple[RemoteFile, ...]:
    key = loaded.get("image_key")
    if not isinstance(key, str) or not key:
        return ()
    reference = {"message_id": message_id, "key": key, "type": "image"}
    return (RemoteFile(kind=AttachmentKind.IMAGE, reference=reference, name="image"),)


def _file(message_id: str, loaded: dict[str, Any], kind: str) -> tuple[RemoteFile, ...]:
    key = loaded.get("file_key")
    if not isinstance(key, str) or not key:
        return ()
    reference = {"message_id": message_id, "key": key, "type": _FILES[kind]}
    name = loaded.get("file_name")
    shown = name if isinstance(name, str) and name else _NAMES[kind]
    return (RemoteFile(kind=AttachmentKind.FILE, reference=reference, name=shown),)


def _post(message_id: str, loaded: dict[str, Any], mentions: list[Mention], bot_id: str) -> Content:
    """Rich text; some clients wrap it once more, by language."""
    if "content" not in loaded:
        loaded = next((inner for inner in loaded.values() if isinstance(inner, dict)), {})
    files: list[RemoteFile] = []
    lines = [str(loaded.get("title") or "")]
    paragraphs = loaded.get("content")
    for paragraph in paragraphs if isinstance(paragraphs, list) else []:
        pieces = paragraph if isinstance(paragraph, list) else []
        lines.append("".join(_piece(piece) for piece in pieces if isinstance(piece, dict)))
        for piece in pieces:
            if isinstance(piece, dict):
                files.extend(_attached(message_id, piece))
    text = "\n".join(line for number, line in enumerate(lines) if line or number)
    return Content(text=_named(text, mentions, bot_id), files=tuple(files))


def _piece(piece: dict[str, Any]) -> str:  # noqa: PLR0911 - one answer for each tag
    text = str(piece.get("text") or "")
    match piece.get("tag"):
        case "text" | "md":
            return text
        case "a":
            href = str(piece.get("href") or "")
            return text if text == href else f"[{text}]({href})"
        case "at":
            return str(piece.get("user_id") or "")
        case "code_block":
            return f"\n```{piece.get('language') or ''}\n{text}\n```\n"
        case "hr":
            return "\n---\n"
        case "emotion":
            return f"[{piece.get('emoji_type') or ''}]"
        case _:
            return ""


def _attached(message_id: str, piece: dict[str, Any]) -> tuple[RemoteFile, ...]:
    if piece.get("tag") == "img":
        return _image(message_id, piece)
    return _file(message_id, piece, "media") if piece.get("tag") == "media" else ()
