"""Which function answers which method."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from tests.emulators.telegram.forms import Form
from tests.emulators.telegram.methods import editing, files, sending, service
from tests.emulators.telegram.world import World

Method: TypeAlias = Callable[[World, Form], Awaitable[Any]]

# Telegram takes method names in any case.
METHODS: dict[str, Method] = {
    name.lower(): method
    for name, method in (
        ("getMe", service.get_me),
        ("getUpdates", service.get_updates),
        ("setWebhook", service.set_webhook),
        ("deleteWebhook", service.delete_webhook),
        ("getWebhookInfo", service.get_webhook_info),
        ("sendMessage", sending.send_message),
        ("sendMessageDraft", sending.send_message_draft),
        ("sendChatAction", sending.send_chat_action),
        ("editMessageText", editing.edit_message_text),
        ("editMessageCaption", editing.edit_message_caption),
        ("editMessageReplyMarkup", editing.edit_message_reply_markup),
        ("deleteMessage", editing.delete_message),
        ("setMessageReaction", editing.set_message_reaction),
        ("sendPhoto", files.send_photo),
        ("sendDocument", files.send_document),
        ("sendMediaGroup", files.send_media_group),
        ("getFile", files.get_file),
        ("answerCallbackQuery", service.answer_callback_query),
        ("setMyCommands", service.set_my_commands),
        ("getMyCommands", service.get_my_commands),
        ("setChatMenuButton", service.set_chat_menu_button),
        ("getChat", service.get_chat),
    )
}
