"""Shared by sending methods: the target, the formatted text, the new message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.emulators.telegram.chats import MessageVersion, TelegramChat, TelegramMessage
from tests.emulators.telegram.errors import bad_request
from tests.emulators.telegram.parse_modes import parse_html, parse_markdown
from tests.emulators.telegram.request_forms import InlineKeyboard, RequestForm
from tests.emulators.telegram.state import TelegramState
from tests.emulators.telegram.texts import TextEntity, check_text


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTarget:
    """Where a message goes, checked."""

    chat: TelegramChat
    thread: int | None
    reply_to: int | None


def read_target(world: TelegramState, form: RequestForm) -> MessageTarget:
    chat = world.open_chat(form.text("chat_id"))
    return MessageTarget(
        chat=chat, thread=read_thread(chat, form), reply_to=_read_reply(chat, form)
    )


def read_thread(chat: TelegramChat, form: RequestForm) -> int | None:
    thread = form.integer("message_thread_id")
    if not thread:
        return None
    if thread not in chat.topics:
        raise bad_request("message thread not found")
    return thread


def _read_reply(chat: TelegramChat, form: RequestForm) -> int | None:
    parameters = form.data("reply_parameters", "reply parameters")
    if parameters is None:
        return None
    wanted = int(parameters.get("message_id", 0))
    if chat.find(wanted) is not None:
        return wanted
    if parameters.get("allow_sending_without_reply"):
        return None
    raise bad_request("message to be replied not found")


def read_formatted(form: RequestForm, field: str, limit: int) -> tuple[str, list[TextEntity]]:
    """Text or caption after its entities were parsed and checked."""
    text = form.text(field)
    mode = form.text("parse_mode").lower()
    given = form.data("caption_entities" if field == "caption" else "entities", "entities") or []
    if not isinstance(given, list):
        raise bad_request("can't parse entities: expected an Array")
    if mode == "html":
        text, given = parse_html(text)
    elif mode == "markdownv2":
        text, given = parse_markdown(text)
    elif mode:
        raise bad_request("unsupported parse_mode")
    return check_text(text, given, limit)


def post(
    world: TelegramState,
    target: MessageTarget,
    text: str,
    entities: list[TextEntity],
    keyboard: InlineKeyboard,
    **rest: Any,
) -> TelegramMessage:
    version = MessageVersion(at=world.clock(), text=text, entities=entities, keyboard=keyboard)
    return world.post(
        target.chat, world.bot, version, thread=target.thread, reply_to=target.reply_to, **rest
    )
