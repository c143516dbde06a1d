"""The Telegram emulator refuses what Telegram refuses, in its words."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from typing import Any

import pytest
from telegram import Bot, InputMediaPhoto, MessageEntity, ReplyParameters
from telegram.error import BadRequest, ChatMigrated, Conflict, Forbidden, InvalidToken

from tests.emulators.telegram.chats import TelegramChat
from tests.emulators.telegram.client import keyboard, make_bot
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.users import PIXEL, TelegramUser


@pytest.mark.parametrize(
    ("text", "extra", "complaint"),
    [
        ("", {}, "Message text is empty"),
        (" \n\u200b", {}, "Message text is empty"),
        ("x" * 4097, {}, "Message is too long"),
        ("😀" * 2049, {}, "Message is too long"),
        ("abc", {"entities": [MessageEntity("bold", 3, 1)]}, "begins after the end"),
        ("abc", {"entities": [MessageEntity("bold", 1, 3)]}, "ends after the end"),
        ("😀b", {"entities": [MessageEntity("bold", 1, 1)]}, "in a middle of a UTF-16"),
        (
            "abcdef",
            {"entities": [MessageEntity("bold", 0, 4), MessageEntity("italic", 2, 4)]},
            "ends after the end",
        ),
        ("ab", {"entities": [MessageEntity("sparkle", 0, 1)]}, "Unsupported type"),
        ("ab", {"entities": [MessageEntity("bold", 0, 1)] * 101}, "ENTITIES_TOO_LONG"),
        ("ab", {"entities": [MessageEntity("text_link", 0, 1, url="./a")]}, "Wrong HTTP URL"),
        ("ab", {"reply_markup": keyboard("x" * 65)}, "Button_data_invalid"),
        ("ab", {"reply_markup": keyboard("字" * 22)}, "Button_data_invalid"),
        ("ab", {"reply_markup": keyboard(*["x"] * 101)}, "reply markup is too long"),
        ("ab", {"message_thread_id": 5}, "message thread not found"),
        ("ab", {"reply_parameters": ReplyParameters(999)}, "message to be replied not found"),
        ("<p>no</p>", {"parse_mode": "HTML"}, 'Unsupported start tag "p"'),
        ("<b>no", {"parse_mode": "HTML"}, "Can't find end tag"),
        ("a < b", {"parse_mode": "HTML"}, "Unclosed start tag"),
        ("<b><i>x</b></i>", {"parse_mode": "HTML"}, "Unmatched end tag"),
        ("x</b>", {"parse_mode": "HTML"}, "Unexpected end tag"),
        ("1. no", {"parse_mode": "MarkdownV2"}, "Character '.' is reserved"),
        ("*no", {"parse_mode": "MarkdownV2"}, "Can't find end of Bold"),
        ("x", {"parse_mode": "wiki"}, "unsupported parse_mode"),
    ],
)
async def test_a_bad_message_is_refused_in_telegrams_words(
    bot: Bot, chat: TelegramChat, text: str, extra: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(BadRequest) as refused:
        await bot.send_message(chat.id, text, **extra)

    assert complaint.lower() in str(refused.value).lower()
    assert chat.from_bot == []


async def test_exactly_the_limits_are_accepted(bot: Bot, chat: TelegramChat) -> None:
    entities = [MessageEntity("bold", i, 1) for i in range(100)]

    await bot.send_message(chat.id, "😀" * 2048)
    await bot.send_message(chat.id, "x" * 4096, entities=entities)
    await bot.send_message(chat.id, "x", reply_markup=keyboard("x" * 64))
    await bot.send_photo(chat.id, PIXEL, caption="x" * 1024)

    assert len(chat.from_bot) == 4


Attempt = Callable[[Bot, TelegramChat], Any]
REFUSED: dict[str, tuple[Attempt, str]] = {
    "an edit of nothing": (
        lambda bot, chat: bot.edit_message_text("x", chat.id, 999),
        "message to edit not found",
    ),
    "a deletion of nothing": (
        lambda bot, chat: bot.delete_message(chat.id, 999),
        "message to delete not found",
    ),
    "an unknown chat": (lambda bot, chat: bot.send_message(4242, "x"), "chat not found"),
    "a long caption": (
        lambda bot, chat: bot.send_photo(chat.id, PIXEL, caption="x" * 1025),
        "message caption is too long",
    ),
    "a photo that is none": (
        lambda bot, chat: bot.send_photo(chat.id, b"words"),
        "image_process_failed",
    ),
    "a huge photo": (
        lambda bot, chat: bot.send_photo(chat.id, PIXEL + bytes(10 * 1024 * 1024)),
        "too big for a photo",
    ),
    "an empty file": (
        lambda bot, chat: bot.send_document(chat.id, io.BytesIO(b""), filename="a"),
        "file must be non-empty",
    ),
    "an album of one": (
        lambda bot, chat: bot.send_media_group(chat.id, [InputMediaPhoto(PIXEL)]),
        "wrong number of items",
    ),
    "a draft without id": (
        lambda bot, chat: bot.send_message_draft(chat.id, 0, "x"),
        "textdraft_id_invalid",
    ),
    "a strange action": (
        lambda bot, chat: bot.send_chat_action(chat.id, "dancing"),
        "wrong parameter action",
    ),
    "a strange reaction": (
        lambda bot, chat: bot.set_message_reaction(chat.id, 1, "🪑"),
        "not found",
    ),
    "a command in Chinese": (
        lambda bot, chat: bot.set_my_commands([("帮助", "help")]),
        "bot_command_invalid",
    ),
    "a command without help": (
        lambda bot, chat: bot.set_my_commands([("help", " ")]),
        "bot_command_description_invalid",
    ),
    "a long command description": (
        lambda bot, chat: bot.set_my_commands([("help", "x" * 257)]),
        "must not exceed 256",
    ),
    "too many commands": (
        lambda bot, chat: bot.set_my_commands([(f"c{i}", "x") for i in range(101)]),
        "bot_commands_too_much",
    ),
    "a strange query": (
        lambda bot, chat: bot.answer_callback_query("1"),
        "query is too old",
    ),
    "an unknown file": (lambda bot, chat: bot.get_file("nope"), "wrong file_id"),
    "a plain webhook": (lambda bot, chat: bot.set_webhook("http://a.test"), "https url"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_other_bad_calls_are_refused(bot: Bot, chat: TelegramChat, name: str) -> None:
    attempt, complaint = REFUSED[name]

    with pytest.raises(BadRequest) as refused:
        await attempt(bot, chat)

    assert complaint in str(refused.value).lower()


async def test_an_edit_that_changes_nothing_is_refused(bot: Bot, chat: TelegramChat) -> None:
    sent = await bot.send_message(chat.id, "same")

    with pytest.raises(BadRequest, match="Message is not modified"):
        await bot.edit_message_text("same", chat.id, sent.message_id)

    assert chat.last.edits == 0


async def test_only_own_messages_can_be_edited(
    bot: Bot, ada: TelegramUser, chat: TelegramChat
) -> None:
    message = await ada.says(chat, "mine")

    with pytest.raises(BadRequest, match="can't be edited"):
        await bot.edit_message_text("yours", chat.id, message.id)


async def test_drafts_are_for_private_chats_only(tg: TelegramEmulator, bot: Bot) -> None:
    with pytest.raises(BadRequest, match=r"(?i)textdraft_peer_invalid"):
        await bot.send_message_draft(tg.group("Team").id, 1, "x")


async def test_a_reply_in_a_plain_supergroup_has_a_thread_that_cannot_be_sent_to(
    tg: TelegramEmulator, bot: Bot, ada: TelegramUser
) -> None:
    group = tg.group("Team", supergroup=True)
    first = await ada.says(group, "one")
    await ada.says(group, "two", reply_to=first)
    _, update = await bot.get_updates()
    assert update.message
    assert update.message.message_thread_id == first.id
    assert not update.message.is_topic_message

    with pytest.raises(BadRequest, match="Message thread not found"):
        await bot.send_message(group.id, "x", message_thread_id=update.message.message_thread_id)


async def test_a_blocked_bot_and_a_stranger_are_forbidden(
    tg: TelegramEmulator, bot: Bot, chat: TelegramChat
) -> None:
    tg.user(8, "Bob")
    chat.block()

    with pytest.raises(Forbidden, match="bot was blocked by the user"):
        await bot.send_message(chat.id, "x")
    with pytest.raises(Forbidden, match="can't initiate conversation"):
        await bot.send_message(8, "x")


async def test_a_migrated_group_names_its_new_id(
    tg: TelegramEmulator, bot: Bot, ada: TelegramUser
) -> None:
    group = tg.group("Team")
    new = tg.migrate(group, ada)

    with pytest.raises(ChatMigrated) as moved:
        await bot.send_message(group.id, "x")

    old_notice, new_notice = await bot.get_updates()
    assert moved.value.new_chat_id == new.id
    assert old_notice.message
    assert old_notice.message.migrate_to_chat_id == new.id
    assert new_notice.message
    assert new_notice.message.migrate_from_chat_id == group.id


async def test_a_press_answered_too_late_is_refused(
    bot: Bot, ada: TelegramUser, chat: TelegramChat
) -> None:
    await bot.send_message(chat.id, "x", reply_markup=keyboard("a"))
    press = ada.press(chat.last, "Button 0")
    [update] = await bot.get_updates()
    assert update.callback_query
    press.expire()

    with pytest.raises(BadRequest, match="Query is too old"):
        await bot.answer_callback_query(update.callback_query.id)


async def test_large_files_cannot_be_fetched(
    bot: Bot, ada: TelegramUser, chat: TelegramChat
) -> None:
    await ada.sends_document(chat, "big.bin", bytes(20 * 1024 * 1024 + 1))
    [update] = await bot.get_updates()
    assert update.message
    assert update.message.document

    with pytest.raises(BadRequest, match="File is too big"):
        await bot.get_file(update.message.document.file_id)


async def test_wrong_tokens_are_unauthorized(tg: TelegramEmulator, bot: Bot) -> None:
    for token in ("123456:wrong", "nonsense"):
        with pytest.raises(InvalidToken):
            async with make_bot(tg, token):
                pass

    tg.revoke_token()

    with pytest.raises(InvalidToken):
        await bot.get_me()


async def test_the_older_of_two_pollers_gets_a_conflict(
    tg: TelegramEmulator, bot: Bot, ada: TelegramUser, chat: TelegramChat
) -> None:
    async with make_bot(tg) as other:
        older = asyncio.create_task(bot.get_updates(timeout=30))
        await tg.wait_for_call("getUpdates")
        newer = asyncio.create_task(other.get_updates(timeout=30))

        with pytest.raises(Conflict, match="terminated by other getUpdates"):
            await older

        await ada.says(chat, "hello")
        assert len(await newer) == 1


async def test_polling_is_refused_while_a_webhook_is_set(bot: Bot) -> None:
    await bot.set_webhook("https://bot.example.org/hook")

    with pytest.raises(Conflict, match="webhook is active"):
        await bot.get_updates()

    await bot.delete_webhook()
    assert await bot.get_updates() == ()
