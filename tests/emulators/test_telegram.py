"""The Telegram emulator, driven by the real python-telegram-bot."""

from __future__ import annotations

import asyncio
import io
from typing import Any

from telegram import Bot, BotCommand, InputMediaPhoto, MessageEntity, Update
from telegram.ext import Application, MessageHandler, filters

from tests.emulators.telegram.chats import TelegramChat
from tests.emulators.telegram.client import keyboard
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.users import PIXEL, TelegramUser


async def test_a_message_is_sent_with_its_entities_and_buttons(
    bot: Bot, chat: TelegramChat
) -> None:
    entities = [MessageEntity("bold", 3, 4)]

    sent = await bot.send_message(chat.id, "😀 bold", entities=entities, reply_markup=keyboard("a"))

    assert sent.text == "😀 bold"
    assert chat.last.id == sent.message_id
    assert chat.last.texts_of_entity("bold") == ["bold"]
    assert chat.last.buttons == ["Button 0"]


async def test_an_edit_keeps_the_previous_versions(bot: Bot, chat: TelegramChat) -> None:
    sent = await bot.send_message(chat.id, "one", reply_markup=keyboard("a"))

    await bot.edit_message_text("two", chat.id, sent.message_id)
    await bot.edit_message_reply_markup(chat.id, sent.message_id, reply_markup=keyboard("b"))

    assert [version.text for version in chat.last.history] == ["one", "two", "two"]
    assert [len(version.keyboard) for version in chat.last.history] == [1, 0, 1]


async def test_updates_arrive_once_and_in_order(
    tg: TelegramEmulator, bot: Bot, ada: TelegramUser, chat: TelegramChat
) -> None:
    await ada.says(chat, "/start now")
    await ada.says(chat, "hello @shiftboss_bot")

    first = await bot.get_updates()
    again = await bot.get_updates()
    after = await bot.get_updates(offset=first[-1].update_id + 1)

    assert [u.message.text for u in first if u.message] == ["/start now", "hello @shiftboss_bot"]
    assert [u.update_id for u in again] == [u.update_id for u in first]
    assert after == ()
    assert tg.unconfirmed == []


async def test_a_long_poll_answers_when_something_arrives(
    tg: TelegramEmulator, bot: Bot, ada: TelegramUser, chat: TelegramChat
) -> None:
    polling = asyncio.create_task(bot.get_updates(timeout=30))
    await tg.wait_for_call("getUpdates")

    await ada.says(chat, "hello")

    [update] = await polling
    assert update.message
    assert update.message.text == "hello"


async def test_a_button_press_comes_back_with_its_data_and_is_answered(
    bot: Bot, ada: TelegramUser, chat: TelegramChat
) -> None:
    await bot.send_message(chat.id, "choose", reply_markup=keyboard("tok1"))
    press = ada.press(chat.last, "Button 0")

    [update] = await bot.get_updates()
    assert update.callback_query
    await bot.answer_callback_query(update.callback_query.id, "done", show_alert=True)

    answer = await press.answer()
    assert update.callback_query.data == "tok1"
    assert (answer.text, answer.alert) == ("done", True)


async def test_files_can_be_sent_and_received(
    bot: Bot, ada: TelegramUser, chat: TelegramChat
) -> None:
    await bot.send_photo(chat.id, PIXEL, caption="a pixel")
    await bot.send_document(chat.id, b"text", filename="a.txt", caption="a file")
    await ada.sends_document(chat, "in.txt", b"from Ada", "read this")
    [update] = await bot.get_updates()
    assert update.message
    assert update.message.document
    received = io.BytesIO()

    await (await bot.get_file(update.message.document)).download_to_memory(received)

    photo, document = chat.from_bot
    assert photo.upload
    assert photo.upload.content == PIXEL
    assert document.upload
    assert (document.upload.name, document.upload.content) == ("a.txt", b"text")
    assert received.getvalue() == b"from Ada"
    assert update.message.caption == "read this"


async def test_albums_can_be_sent_and_received(
    bot: Bot, ada: TelegramUser, chat: TelegramChat
) -> None:
    media = [InputMediaPhoto(PIXEL, caption="first"), InputMediaPhoto(PIXEL)]

    sent = await bot.send_media_group(chat.id, media)
    await ada.sends_album(chat, [PIXEL, PIXEL, PIXEL], "three")

    updates = await bot.get_updates()
    assert len({m.media_group_id for m in sent}) == 1
    assert chat.from_bot[0].text == "first"
    assert len({u.message.media_group_id for u in updates if u.message}) == 1


async def test_topics_take_messages_and_quote_their_first_one(
    tg: TelegramEmulator, bot: Bot, ada: TelegramUser
) -> None:
    forum = tg.group("Team", forum=True)
    thread = tg.topic(forum, "Deploy")
    await ada.says(forum, "hi", thread=thread)

    [update] = await bot.get_updates()
    sent = await bot.send_message(forum.id, "hello", message_thread_id=thread)

    assert update.message
    assert update.message.is_topic_message
    assert update.message.reply_to_message
    assert update.message.reply_to_message.forum_topic_created
    assert sent.message_thread_id == thread


async def test_privacy_mode_hides_messages_not_addressed_to_the_bot(
    tg: TelegramEmulator, bot: Bot, ada: TelegramUser
) -> None:
    group = tg.group("Team", privacy=True)
    sent = await bot.send_message(group.id, "I am here")

    await ada.says(group, "lunch?")
    await ada.says(group, "/help")
    await ada.says(group, "hello", mention=True)
    await ada.says(group, "yes", reply_to=group.find(sent.message_id))

    updates = await bot.get_updates()
    assert [u.message.text for u in updates if u.message] == [
        "/help",
        "@shiftboss_bot hello",
        "yes",
    ]


async def test_edits_and_forwards_arrive_as_such(
    bot: Bot, ada: TelegramUser, chat: TelegramChat
) -> None:
    message = await ada.says(chat, "first", forwarded=True)
    await ada.edits(message, "second")

    new, edited = await bot.get_updates()

    assert new.message
    assert new.message.forward_origin
    assert edited.edited_message
    assert edited.edited_message.text == "second"
    assert edited.edited_message.edit_date


async def test_drafts_actions_reactions_and_menus_are_recorded(
    tg: TelegramEmulator, bot: Bot, ada: TelegramUser, chat: TelegramChat
) -> None:
    message = await ada.says(chat, "hello")

    await bot.send_message_draft(chat.id, 5, "so far")
    await bot.send_chat_action(chat.id, "typing")
    await bot.set_message_reaction(chat.id, message.id, "👀")
    await bot.set_my_commands([BotCommand("help", "帮助")], language_code="zh")
    await bot.set_chat_menu_button()

    assert [(draft.draft_id, draft.text) for draft in chat.drafts] == [(5, "so far")]
    assert [action.action for action in chat.actions] == ["typing"]
    assert message.reactions == ["👀"]
    assert tg.commands("zh") == {"help": "帮助"}
    assert (await bot.get_my_commands(language_code="zh"))[0].command == "help"
    assert (await bot.get_chat(chat.id)).first_name == "Ada"


async def test_html_and_markdown_become_entities(bot: Bot, chat: TelegramChat) -> None:
    await bot.send_message(chat.id, "<b>a &lt; b</b> <i>x</i>", parse_mode="HTML")
    await bot.send_message(
        chat.id, "*bold* `code` [site](https://a.test) 1\\.", parse_mode="MarkdownV2"
    )

    html, markdown = chat.from_bot
    assert (html.text, html.texts_of_entity("bold")) == ("a < b x", ["a < b"])
    assert markdown.text == "bold code site 1."
    assert markdown.texts_of_entity("text_link") == ["site"]


async def test_python_telegram_bots_application_runs_against_the_emulator(
    tg: TelegramEmulator, ada: TelegramUser, chat: TelegramChat
) -> None:
    async def echo(update: Update, _: Any) -> None:
        assert update.message
        assert update.message.text
        await update.message.reply_text(update.message.text.upper(), do_quote=True)

    builder = Application.builder().token(tg.token)
    app = builder.base_url(f"{tg.base_url}/bot").base_file_url(f"{tg.base_url}/file/bot").build()
    app.add_handler(MessageHandler(filters.TEXT, echo))
    async with app:
        assert app.updater
        await app.start()
        await app.updater.start_polling()
        asked = await ada.says(chat, "hello")
        answer = await chat.wait_for_text("HELLO")
        await app.updater.stop()
        await app.stop()

    assert answer.reply_to == asked.id
