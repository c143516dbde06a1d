"""editMessageText, editMessageCaption, editMessageReplyMarkup, deleteMessage, reactions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.emulators.telegram.chats import ChatAction, MessageDraft, MessageVersion, TelegramMessage
from tests.emulators.telegram.errors import NOT_MODIFIED, bad_request
from tests.emulators.telegram.methods.parameters import (
    post,
    read_formatted,
    read_target,
    read_thread,
)
from tests.emulators.telegram.request_forms import RequestForm, read_keyboard
from tests.emulators.telegram.state import TelegramState
from tests.emulators.telegram.texts import MAX_CAPTION, MAX_TEXT, is_empty

_ACTIONS = frozenset(
    {
        *("typing", "upload_photo", "record_video", "upload_video", "record_voice"),
        *("upload_voice", "upload_document", "choose_sticker", "find_location"),
        *("record_video_note", "upload_video_note"),
    }
)


async def send_message(world: TelegramState, form: RequestForm) -> Any:
    text, entities = read_formatted(form, "text", MAX_TEXT)
    if is_empty(text):
        raise bad_request("message text is empty")
    keyboard = read_keyboard(form)
    return post(world, read_target(world, form), text, entities, keyboard).as_json()


async def send_message_draft(world: TelegramState, form: RequestForm) -> Any:
    """A preview in a private chat; it never becomes a message by itself."""
    text, entities = read_formatted(form, "text", MAX_TEXT)
    chat = world.open_chat(form.text("chat_id"))
    if chat.kind != "private":
        raise bad_request("TEXTDRAFT_PEER_INVALID")
    read_thread(chat, form)
    draft_id = form.integer("draft_id")
    if draft_id == 0:
        raise bad_request("TEXTDRAFT_ID_INVALID")
    draft = MessageDraft(at=world.clock(), draft_id=draft_id, text=text, entities=entities)
    chat.drafts.append(draft)
    world.changes.notify()
    return True


async def send_chat_action(world: TelegramState, form: RequestForm) -> Any:
    chat = world.open_chat(form.text("chat_id"))
    if form.text("action") not in _ACTIONS:
        raise bad_request("wrong parameter action in request")
    thread = read_thread(chat, form)
    chat.actions.append(ChatAction(at=world.clock(), action=form.text("action"), thread=thread))
    world.changes.notify()
    return True


_EMOJI = frozenset(
    "👍👎❤🔥🥰👏😁🤔🤯😱🤬😢🎉🤩🤮💩🙏👌🕊🤡🥱🥴😍🐳🌚🌭💯🤣⚡🍌🏆💔🤨😐🍓🍾💋🖕😈😴😭🤓👻👀🎃🙈😇😨🤝✍🤗🫡🎅🎄☃💅🤪🗿🆒💘🙉🦄😘💊🙊😎👾🤷😡"
)


async def edit_message_text(world: TelegramState, form: RequestForm) -> Any:
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
        MessageVersion(at=world.clock(), text=text, entities=entities, keyboard=keyboard),
    )


async def edit_message_caption(world: TelegramState, form: RequestForm) -> Any:
    caption, entities = read_formatted(form, "caption", MAX_CAPTION)
    keyboard = read_keyboard(form)
    message = _editable(world, form)
    if not message.media:
        raise bad_request("there is no caption in the message to edit")
    return _show(
        world,
        message,
        MessageVersion(at=world.clock(), text=caption, entities=entities, keyboard=keyboard),
    )


async def edit_message_reply_markup(world: TelegramState, form: RequestForm) -> Any:
    keyboard = read_keyboard(form)
    message = _editable(world, form)
    return _show(world, message, replace(message.history[-1], at=world.clock(), keyboard=keyboard))


async def delete_message(world: TelegramState, form: RequestForm) -> Any:
    chat = world.open_chat(form.text("chat_id"))
    message = chat.find(form.integer("message_id"))
    if message is None:
        raise bad_request("message to delete not found")
    if not message.from_bot and chat.kind != "private" and not chat.bot_sees_all:
        raise bad_request("message can't be deleted")
    message.deleted = True
    world.changes.notify()
    return True


async def set_message_reaction(world: TelegramState, form: RequestForm) -> Any:
    chat = world.open_chat(form.text("chat_id"))
    message = chat.find(form.integer("message_id"))
    if message is None:
        raise bad_request("message to react not found")
    wanted = form.data("reaction", "reaction") or []
    emoji = [str(reaction.get("emoji", "")).rstrip("\ufe0f") for reaction in wanted]
    if len(emoji) > 1 or any(symbol not in _EMOJI for symbol in emoji):
        raise bad_request("REACTION_INVALID")
    message.reactions = emoji
    world.changes.notify()
    return True


def _editable(world: TelegramState, form: RequestForm) -> TelegramMessage:
    chat = world.open_chat(form.text("chat_id"))
    message = chat.find(form.integer("message_id"))
    if message is None:
        raise bad_request("message to edit not found")
    if not message.from_bot:
        raise bad_request("message can't be edited")
    return message


def _show(world: TelegramState, message: TelegramMessage, version: MessageVersion) -> Any:
    if message.history[-1].shows_same(version):
        raise bad_request(NOT_MODIFIED)
    message.history.append(version)
    world.changes.notify()
    return message.as_json()
