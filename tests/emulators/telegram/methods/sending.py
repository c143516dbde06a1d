"""sendMessage, sendMessageDraft, sendChatAction."""

from __future__ import annotations

from typing import Any

from tests.emulators.telegram.chats import ChatAction, Draft
from tests.emulators.telegram.forms import Form
from tests.emulators.telegram.markup import read_keyboard
from tests.emulators.telegram.methods.common import (
    post,
    read_formatted,
    read_target,
    read_thread,
)
from tests.emulators.telegram.refusals import bad_request
from tests.emulators.telegram.texts import MAX_TEXT, is_empty
from tests.emulators.telegram.world import World

_ACTIONS = frozenset(
    {
        *("typing", "upload_photo", "record_video", "upload_video", "record_voice"),
        *("upload_voice", "upload_document", "choose_sticker", "find_location"),
        *("record_video_note", "upload_video_note"),
    }
)


async def send_message(world: World, form: Form) -> Any:
    text, entities = read_formatted(form, "text", MAX_TEXT)
    if is_empty(text):
        raise bad_request("message text is empty")
    keyboard = read_keyboard(form)
    return post(world, read_target(world, form), text, entities, keyboard).as_json()


async def send_message_draft(world: World, form: Form) -> Any:
    """A preview in a private chat; it never becomes a message by itself."""
    text, entities = read_formatted(form, "text", MAX_TEXT)
    chat = world.open_chat(form.text("chat_id"))
    if chat.kind != "private":
        raise bad_request("TEXTDRAFT_PEER_INVALID")
    read_thread(chat, form)
    draft_id = form.integer("draft_id")
    if draft_id == 0:
        raise bad_request("TEXTDRAFT_ID_INVALID")
    draft = Draft(at=world.clock(), draft_id=draft_id, text=text, entities=entities)
    chat.drafts.append(draft)
    world.changes.tell()
    return True


async def send_chat_action(world: World, form: Form) -> Any:
    chat = world.open_chat(form.text("chat_id"))
    if form.text("action") not in _ACTIONS:
        raise bad_request("wrong parameter action in request")
    thread = read_thread(chat, form)
    chat.actions.append(ChatAction(at=world.clock(), action=form.text("action"), thread=thread))
    world.changes.tell()
    return True
