"""editMessageText, editMessageCaption, editMessageReplyMarkup, deleteMessage, reactions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.emulators.telegram.chats import Message, Version
from tests.emulators.telegram.forms import Form
from tests.emulators.telegram.markup import read_keyboard
from tests.emulators.telegram.methods.common import read_formatted
from tests.emulators.telegram.refusals import NOT_MODIFIED, bad_request
from tests.emulators.telegram.texts import MAX_CAPTION, MAX_TEXT, is_empty
from tests.emulators.telegram.world import World

_EMOJI = frozenset(
    "👍👎❤🔥🥰👏😁🤔🤯😱🤬😢🎉🤩🤮💩🙏👌🕊🤡🥱🥴😍🐳🌚🌭💯🤣⚡🍌🏆💔🤨😐🍓🍾💋🖕😈😴😭🤓👻👀🎃🙈😇😨🤝✍🤗🫡🎅🎄☃💅🤪🗿🆒💘🙉🦄😘💊🙊😎👾🤷😡"
)


async def edit_message_text(world: World, form: Form) -> Any:
    text, entities = read_formatted(form, "text", MAX_TEXT)
    if is_empty(text):
        raise bad_request("message text is empty")
    keyboard = read_keyboard(form)
    message = _editable(world, form)
    if message.media:
        raise bad_request("there is no text in the message to edit")
    return _show(
        world,
        message,
        Version(at=world.clock(), text=text, entities=entities, keyboard=keyboard),
    )


async def edit_message_caption(world: World, form: Form) -> Any:
    caption, entities = read_formatted(form, "caption", MAX_CAPTION)
    keyboard = read_keyboard(form)
    message = _editable(world, form)
    if not message.media:
        raise bad_request("there is no caption in the message to edit")
    return _show(
        world,
        message,
        Version(at=world.clock(), text=caption, entities=entities, keyboard=keyboard),
    )


async def edit_message_reply_markup(world: World, form: Form) -> Any:
    keyboard = read_keyboard(form)
    message = _editable(world, form)
    return _show(world, message, replace(message.history[-1], at=world.clock(), keyboard=keyboard))


async def delete_message(world: World, form: Form) -> Any:
    chat = world.open_chat(form.text("chat_id"))
    message = chat.find(form.integer("message_id"))
    if message is None:
        raise bad_request("message to delete not found")
    if not message.from_bot and chat.kind != "private" and not chat.sees_all:
        raise bad_request("message can't be deleted")
    message.deleted = True
    world.changes.tell()
    return True


async def set_message_reaction(world: World, form: Form) -> Any:
    chat = world.open_chat(form.text("chat_id"))
    message = chat.find(form.integer("message_id"))
    if message is None:
        raise bad_request("message to react not found")
    wanted = form.data("reaction", "reaction") or []
    emoji = [str(reaction.get("emoji", "")).rstrip("\ufe0f") for reaction in wanted]
    if len(emoji) > 1 or any(symbol not in _EMOJI for symbol in emoji):
        raise bad_request("REACTION_INVALID")
    message.reactions = emoji
    world.changes.tell()
    return True


def _editable(world: World, form: Form) -> Message:
    chat = world.open_chat(form.text("chat_id"))
    message = chat.find(form.integer("message_id"))
    if message is None:
        raise bad_request("message to edit not found")
    if not message.from_bot:
        raise bad_request("message can't be edited")
    return message


def _show(world: World, message: Message, version: Version) -> Any:
    if message.history[-1].shows_same(version):
        raise bad_request(NOT_MODIFIED)
    message.history.append(version)
    world.changes.tell()
    return message.as_json()
