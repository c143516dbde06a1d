"""Everything that is not a message: identity, updates, commands, button answers."""

from __future__ import annotations

import re
from typing import Any

from tests.emulators.telegram.errors import QUERY_TOO_OLD, bad_request
from tests.emulators.telegram.request_forms import RequestForm
from tests.emulators.telegram.state import QueryAnswer, TelegramState

Json = dict[str, Any]

_COMMAND = re.compile(r"[a-z0-9_]{1,32}")
_MAX_COMMANDS = 100
_MAX_DESCRIPTION = 256
_MAX_POPUP = 200
_MENU_BUTTONS = {"commands", "web_app", "default"}


async def get_me(world: TelegramState, form: RequestForm) -> Any:
    rights = {
        "can_join_groups": True,
        "can_read_all_group_messages": False,
        "supports_inline_queries": False,
        "can_connect_to_business": False,
        "has_main_web_app": False,
    }
    return {**world.bot, **rights}


async def get_updates(world: TelegramState, form: RequestForm) -> Any:
    return await world.updates.get(
        offset=form.integer("offset"),
        limit=form.integer("limit", 100),
        timeout=form.integer("timeout"),
        allowed=form.data("allowed_updates", "allowed_updates"),
    )


async def set_webhook(world: TelegramState, form: RequestForm) -> Any:
    url = form.text("url")
    if url and not url.startswith("https://"):
        raise bad_request("bad webhook: An HTTPS URL must be provided for webhook")
    world.updates.webhook = url
    return True


async def delete_webhook(world: TelegramState, form: RequestForm) -> Any:
    world.updates.webhook = ""
    return True


async def get_webhook_info(world: TelegramState, form: RequestForm) -> Any:
    return {
        "url": world.updates.webhook,
        "has_custom_certificate": False,
        "pending_update_count": len(world.updates.unconfirmed),
    }


async def answer_callback_query(world: TelegramState, form: RequestForm) -> Any:
    query = world.queries.get(form.text("callback_query_id"))
    if query is None or query.expired or world.clock() - query.at > world.query_lifetime:
        raise bad_request(QUERY_TOO_OLD)
    if len(form.text("text")) > _MAX_POPUP:
        raise bad_request("MESSAGE_TOO_LONG")
    if query.answer is None:
        query.answer = QueryAnswer(text=form.text("text"), alert=form.flag("show_alert"))
    world.changes.notify()
    return True


async def set_my_commands(world: TelegramState, form: RequestForm) -> Any:
    commands = form.data("commands", "commands") or []
    if len(commands) > _MAX_COMMANDS:
        raise bad_request("BOT_COMMANDS_TOO_MUCH")
    for command in commands:
        _check_command(str(command.get("command", "")), str(command.get("description", "")))
    world.commands[_commands_key(form)] = commands
    world.changes.notify()
    return True


async def get_my_commands(world: TelegramState, form: RequestForm) -> Any:
    return world.commands.get(_commands_key(form), [])


async def set_chat_menu_button(world: TelegramState, form: RequestForm) -> Any:
    button = form.data("menu_button", "menu button") or {"type": "default"}
    if button.get("type") not in _MENU_BUTTONS:
        raise bad_request("can't parse menu button: Unsupported type specified")
    world.menu_button = button
    return True


async def get_chat(world: TelegramState, form: RequestForm) -> Any:
    chat = world.open_chat(form.text("chat_id"))
    return {
        **chat.as_json(),
        "accent_color_id": 0,
        "max_reaction_count": 11,
        "accepted_gift_types": {
            "unlimited_gifts": False,
            "limited_gifts": False,
            "unique_gifts": False,
            "premium_subscription": False,
            "gifts_from_channels": False,
        },
    }


_RESTRICTED = (
    *("messages", "audios", "documents", "photos", "videos", "video_notes", "voice_notes"),
    *("polls", "other_messages"),
)
_OTHER_RIGHTS = (
    *("add_web_page_previews", "change_info", "invite_users", "pin_messages", "manage_topics"),
    *("edit_tag", "react_to_messages"),
)


async def get_chat_member(world: TelegramState, form: RequestForm) -> Any:
    """Only the bot itself is asked about here."""
    chat = world.open_chat(form.text("chat_id"))
    if form.integer("user_id") != world.bot["id"]:
        raise bad_request("user not found")
    if chat.bot_is_muted:
        rights = {
            **{f"can_send_{kind}": False for kind in _RESTRICTED},
            **{f"can_{right}": False for right in _OTHER_RIGHTS},
        }
        member = {"is_member": True, "until_date": 0, **rights}
        return {"status": "restricted", "user": world.bot, **member}
    return {"status": "member", "user": world.bot}


def _check_command(name: str, description: str) -> None:
    if not _COMMAND.fullmatch(name):
        raise bad_request("BOT_COMMAND_INVALID")
    if not description.strip():
        raise bad_request("BOT_COMMAND_DESCRIPTION_INVALID")
    if len(description) > _MAX_DESCRIPTION:
        raise bad_request(f"command description length must not exceed {_MAX_DESCRIPTION}")


def _commands_key(form: RequestForm) -> tuple[str, str]:
    scope = form.data("scope", "scope") or {"type": "default"}
    return str(scope.get("type")), form.text("language_code")
