"""Parses Feishu events and message content."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from cards.render.feishu.elements import SUBMIT_PREFIX
from storage.records.messages import AttachmentKind, RemoteFile
from storage.records.people import Chat, ChatKind


class _LenientModel(BaseModel):
    """Ignores unknown fields and treats null as absent."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)


class FeishuIds(_LenientModel):
    open_id: str = ""


class FeishuEventHeader(_LenientModel):
    event_id: str = ""
    event_type: str = ""


class FeishuEnvelope(_LenientModel):
    header: FeishuEventHeader
    event: dict[str, Any] = Field(default_factory=dict)


class FeishuMention(_LenientModel):
    key: str
    id: FeishuIds = FeishuIds()
    name: str = ""


class FeishuSenderInfo(_LenientModel):
    sender_id: FeishuIds | None = None
    sender_type: str = ""


class FeishuMessageInfo(_LenientModel):
    message_id: str
    chat_id: str
    chat_type: str = "p2p"
    message_type: str
    content: str = "{}"
    create_time: str = "0"
    root_id: str | None = None
    parent_id: str | None = None
    thread_id: str | None = None
    mentions: list[FeishuMention] | None = None


class FeishuMessageEvent(_LenientModel):
    sender: FeishuSenderInfo
    message: FeishuMessageInfo


class FeishuAction(_LenientModel):
    value: Any = None
    name: str = ""
    tag: str = ""
    option: str | None = None
    options: list[str] | None = None
    input_value: str | None = None
    checked: bool | None = None
    form_value: dict[str, Any] | None = None


class FeishuActionContext(_LenientModel):
    open_message_id: str = ""
    open_chat_id: str = ""


class FeishuRecallEvent(_LenientModel):
    message_id: str
    chat_id: str = ""
    recall_type: str = ""


class FeishuActionEvent(_LenientModel):
    operator: FeishuIds
    token: str
    action: FeishuAction
    context: FeishuActionContext = FeishuActionContext()


class FeishuChatEnteredEvent(_LenientModel):
    chat_id: str
    operator_id: FeishuIds = FeishuIds()


class FeishuBotAddedEvent(_LenientModel):
    chat_id: str
    operator_id: FeishuIds = FeishuIds()
    name: str = ""


class _MenuOperator(_LenientModel):
    operator_id: FeishuIds = FeishuIds()
    operator_name: str = ""


class FeishuMenuEvent(_LenientModel):
    operator: _MenuOperator
    event_key: str


MESSAGE_RECEIVED = "im.message.receive_v1"
MESSAGE_RECALLED = "im.message.recalled_v1"
CARD_ACTION = "card.action.trigger"
CHAT_ENTERED = "im.chat.access_event.bot_p2p_chat_entered_v1"
BOT_ADDED = "im.chat.member.bot.added_v1"
BOT_MENU = "application.bot.menu_v6"
TABLE_RECORDS_CHANGED = "drive.file.bitable_record_changed_v1"
TABLE_FIELDS_CHANGED = "drive.file.bitable_field_changed_v1"

_DEFAULT_NAMES = {"image": "image", "audio": "voice.opus", "media": "video.mp4", "file": "file"}
_FORWARD_MARK = re.compile(r"\W*(?:fwd?|forwarded(?: message)?|转发|轉發)\s*[:：\n]", re.IGNORECASE)
_PIECE_FILES = {"img": "image", "media": "media"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FeishuContent:
    """The content of a message. `is_forward` marks several messages that were passed on together,
    whose words must be fetched.
    """

    text: str
    files: tuple[RemoteFile, ...] = ()
    is_forward: bool = False


def parse_content(message: FeishuMessageInfo, bot_id: str) -> FeishuContent:
    """The content of a message. Never raises; unreadable content is described by its kind."""
    try:
        loaded = json.loads(message.content)
    except (ValueError, RecursionError):
        loaded = None
    if not isinstance(loaded, dict):
        loaded = {}
    mentions = message.mentions or []
    match message.message_type:
        case "text":
            return FeishuContent(
                text=_replace_mentions(str(loaded.get("text") or ""), mentions, bot_id)
            )
        case "post":
            return _parse_post(message.message_id, loaded, mentions, bot_id)
        case "image" | "file" | "audio" | "media" as kind:
            return FeishuContent(text="", files=_parse_file(message.message_id, loaded, kind))
        case "merge_forward":
            return FeishuContent(text="[merge_forward]", is_forward=True)
        case other:
            return FeishuContent(text=f"[{other}]")


def is_marked_as_forwarded(text: str) -> bool:
    """Whether the sender marked the words as somebody else's. For a single forwarded message the
    platform sends no more than for one's own.
    """
    return _FORWARD_MARK.match(text) is not None


def parse_forwarded(items: Any, bot_id: str) -> str:
    """The words of messages that were passed on together, one per line and in order; messages
    without words are left out. `items` is the platform's answer about the message that contains
    them.
    """
    lines: list[str] = []
    for item in items if isinstance(items, list) else []:
        if not isinstance(item, dict) or not item.get("upper_message_id"):
            continue
        body = item.get("body")
        inner = FeishuMessageInfo(
            message_id=str(item.get("message_id")),
            chat_id=str(item.get("chat_id")),
            message_type=str(item.get("msg_type")),
            content=str(body.get("content") if isinstance(body, dict) else ""),
        )
        lines.append(parse_content(inner, bot_id).text.strip())
    return "\n".join(line for line in lines if line)[:_MAX_FORWARDED]


def _replace_mentions(text: str, mentions: Iterable[FeishuMention], bot_id: str) -> str:
    """Replace placeholders by names and remove the bot's own. In one pass, so that no name passes
    for a placeholder, and longest first: `@_user_12` before `@_user_1`."""
    names = {one.key: "" if one.id.open_id == bot_id else f"@{one.name}" for one in mentions}
    names = {"@_all": "@all", **{key: name for key, name in names.items() if key}}
    keys = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    return re.sub(keys, lambda found: names[found[0]], text).strip()


def _parse_file(message_id: str, loaded: dict[str, Any], kind: str) -> tuple[RemoteFile, ...]:
    resource = AttachmentKind.IMAGE if kind == "image" else AttachmentKind.FILE
    key = loaded.get(f"{resource.value}_key")
    if not isinstance(key, str) or not key:
        return ()
    reference = {"message_id": message_id, "key": key, "type": resource.value}
    name = loaded.get("file_name") if resource is AttachmentKind.FILE else ""
    shown = name if isinstance(name, str) and name else _DEFAULT_NAMES[kind]
    return (RemoteFile(kind=resource, reference=reference, name=shown),)


def _parse_post(
    message_id: str, loaded: dict[str, Any], mentions: list[FeishuMention], bot_id: str
) -> FeishuContent:
    """Parse rich text, which some clients nest under a language key."""
    if "content" not in loaded:
        loaded = next((inner for inner in loaded.values() if isinstance(inner, dict)), {})
    files: list[RemoteFile] = []
    lines = [str(loaded.get("title") or "")]
    paragraphs = loaded.get("content")
    for paragraph in paragraphs if isinstance(paragraphs, list) else []:
        pieces = paragraph if isinstance(paragraph, list) else []
        lines.append("".join(_piece_text(piece) for piece in pieces if isinstance(piece, dict)))
        for piece in pieces:
            if isinstance(piece, dict) and (kind := _PIECE_FILES.get(str(piece.get("tag")))):
                files.extend(_parse_file(message_id, piece, kind))
    text = "\n".join(line for number, line in enumerate(lines) if line or number)
    return FeishuContent(text=_replace_mentions(text, mentions, bot_id), files=tuple(files))


def _piece_text(piece: dict[str, Any]) -> str:  # noqa: PLR0911 - one answer for each tag
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


_MAX_FORWARDED = 20_000
"""Characters of messages that were passed on together."""
_MAX_TOKEN_LENGTH = 64


def build_button_context(chat: Chat) -> dict[str, str]:
    mark = {"k": "p" if chat.kind is ChatKind.PRIVATE else "g"}
    return {**mark, "h": chat.thread} if chat.thread else mark


def get_token(value: Any, name: str = "") -> str:
    """The token, or enough of an invalid value for the refusal. `name` is the button's, used if a
    form sends no value."""
    found = value.get("t", "") if isinstance(value, dict) else ""
    if not found and name.startswith(SUBMIT_PREFIX):
        found = name.removeprefix(SUBMIT_PREFIX).partition("~")[0]
    return found[:_MAX_TOKEN_LENGTH] if isinstance(found, str) else ""


def get_chat_kind(value: Any) -> ChatKind:
    private = isinstance(value, dict) and value.get("k") == "p"
    return ChatKind.PRIVATE if private else ChatKind.GROUP


def get_thread(value: Any) -> str:
    found = value.get("h", "") if isinstance(value, dict) else ""
    return found if isinstance(found, str) else ""
