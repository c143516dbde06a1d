"""What sending methods share: the target, the formatted text, the new message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.emulators.telegram.chats import Chat, Message, Version
from tests.emulators.telegram.forms import Form
from tests.emulators.telegram.html_mode import parse_html
from tests.emulators.telegram.markdown_mode import parse_markdown
from tests.emulators.telegram.markup import Keyboard, read_keyboard
from tests.emulators.telegram.refusals import bad_request
from tests.emulators.telegram.texts import Entity, check_text
from tests.emulators.telegram.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a message goes, checked."""

    chat: Chat
    thread: int | None
    reply_to: int | None


def read_target(world: World, form: Form) -> Target:
    chat = world.open_chat(form.text("chat_id"))
    return Target(chat=chat, thread=read_thread(chat, form), reply_to=_read_reply(chat, form))


def read_thread(chat: Chat, form: Form) -> int | None:
    thread = form.integer("message_thread_id")
    if not thread:
        return None
    if thread not in chat.topics:
        raise bad_request("message thread not found")
    return thread


def _read_reply(chat: Chat, form: Form) -> int | None:
    parameters = form.data("reply_parameters", "reply parameters")
    if parameters is None:
        return None
    wanted = int(parameters.get("message_id", 0))
    if chat.find(wanted) is not None:
        return wanted
    if parameters.get("allow_sending_without_reply"):
        return None
    raise bad_request("message to be replied not found")


def read_formatted(form: Form, field: str, limit: int) -> tuple[str, list[Entity]]:
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
    world: World,
    target: Target,
    text: str,
    entities: list[Entity],
    keyboard: Keyboard,
    **rest: Any,
) -> Message:
    version = Version(at=world.clock(), text=text, entities=entities, keyboard=keyboard)
    return world.post(
        target.chat, world.bot, version, thread=target.thread, reply_to=target.reply_to, **rest
    )


__all__ = ["Target", "post", "read_formatted", "read_keyboard", "read_target", "read_thread"]
