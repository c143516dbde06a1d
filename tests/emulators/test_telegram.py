"""The Telegram emulator, driven by the real python-telegram-bot."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from telegram import (
    Bot,
    BotCommand,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InputMediaPhoto,
    MessageEntity,
    ReplyParameters,
    Update,
)
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    Forbidden,
    InvalidToken,
    NetworkError,
    RetryAfter,
    TimedOut,
)
from telegram.ext import Application, MessageHandler, filters

from tests.emulators.telegram.chats import Chat
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.mischief import (
    DropAfter,
    DropBefore,
    Garbage,
    Hold,
    RateLimit,
    ServerError,
    Slow,
)
from tests.emulators.telegram.people import PIXEL, User


@pytest.fixture(autouse=True)
def new_durations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask the library for durations instead of its warning about numbers."""
    monkeypatch.setenv("PTB_TIMEDELTA", "1")


@pytest.fixture
async def tg() -> AsyncIterator[TelegramEmulator]:
    async with TelegramEmulator() as emulator:
        yield emulator


@pytest.fixture
async def bot(tg: TelegramEmulator) -> AsyncIterator[Bot]:
    client = make_bot(tg)
    async with client:
        yield client


@pytest.fixture
def ada(tg: TelegramEmulator) -> User:
    return tg.user(7, "Ada")


@pytest.fixture
def chat(tg: TelegramEmulator, ada: User) -> Chat:
    return tg.private_chat(ada)


def make_bot(tg: TelegramEmulator, token: str = "") -> Bot:
    return Bot(
        token or tg.token,
        base_url=f"{tg.base_url}/bot",
        base_file_url=f"{tg.base_url}/file/bot",
    )


def keyboard(*data: str) -> InlineKeyboardMarkup:
    return InlineKeyboardMarkup(
        [[InlineKeyboardButton(f"Button {i}", callback_data=d)] for i, d in enumerate(data)]
    )


# ------------------------------------------------------------------ what is right is accepted


async def test_a_message_goes_out_with_its_entities_and_buttons(bot: Bot, chat: Chat) -> None:
    entities = [MessageEntity("bold", 3, 4)]

    sent = await bot.send_message(chat.id, "😀 bold", entities=entities, reply_markup=keyboard("a"))

    assert sent.text == "😀 bold"
    assert chat.last.id == sent.message_id
    assert chat.last.marked("bold") == ["bold"]
    assert chat.last.buttons == ["Button 0"]


async def test_an_edit_keeps_what_was_shown_before(bot: Bot, chat: Chat) -> None:
    sent = await bot.send_message(chat.id, "one", reply_markup=keyboard("a"))

    await bot.edit_message_text("two", chat.id, sent.message_id)
    await bot.edit_message_reply_markup(chat.id, sent.message_id, reply_markup=keyboard("b"))

    assert [version.text for version in chat.last.history] == ["one", "two", "two"]
    assert [len(version.keyboard) for version in chat.last.history] == [1, 0, 1]


async def test_what_people_write_arrives_once_in_order(
    tg: TelegramEmulator, bot: Bot, ada: User, chat: Chat
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
    tg: TelegramEmulator, bot: Bot, ada: User, chat: Chat
) -> None:
    polling = asyncio.create_task(bot.get_updates(timeout=30))
    await tg.wait_for_call("getUpdates")

    await ada.says(chat, "hello")

    [update] = await polling
    assert update.message
    assert update.message.text == "hello"


async def test_a_button_press_comes_back_with_its_data_and_is_answered(
    bot: Bot, ada: User, chat: Chat
) -> None:
    await bot.send_message(chat.id, "choose", reply_markup=keyboard("tok1"))
    press = ada.press(chat.last, "Button 0")

    [update] = await bot.get_updates()
    assert update.callback_query
    await bot.answer_callback_query(update.callback_query.id, "done", show_alert=True)

    answer = await press.answer()
    assert update.callback_query.data == "tok1"
    assert (answer.text, answer.alert) == ("done", True)


async def test_files_go_both_ways(bot: Bot, ada: User, chat: Chat) -> None:
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


async def test_albums_go_both_ways(bot: Bot, ada: User, chat: Chat) -> None:
    media = [InputMediaPhoto(PIXEL, caption="first"), InputMediaPhoto(PIXEL)]

    sent = await bot.send_media_group(chat.id, media)
    await ada.sends_album(chat, [PIXEL, PIXEL, PIXEL], "three")

    updates = await bot.get_updates()
    assert len({m.media_group_id for m in sent}) == 1
    assert chat.from_bot[0].text == "first"
    assert len({u.message.media_group_id for u in updates if u.message}) == 1


async def test_topics_take_messages_and_quote_their_first_one(
    tg: TelegramEmulator, bot: Bot, ada: User
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


async def test_privacy_mode_hides_what_is_not_meant_for_the_bot(
    tg: TelegramEmulator, bot: Bot, ada: User
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


async def test_edits_and_forwards_arrive_as_such(bot: Bot, ada: User, chat: Chat) -> None:
    message = await ada.says(chat, "first", forwarded=True)
    await ada.edits(message, "second")

    new, edited = await bot.get_updates()

    assert new.message
    assert new.message.forward_origin
    assert edited.edited_message
    assert edited.edited_message.text == "second"
    assert edited.edited_message.edit_date


async def test_drafts_actions_reactions_and_menus_are_seen(
    tg: TelegramEmulator, bot: Bot, ada: User, chat: Chat
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


async def test_html_and_markdown_become_entities(bot: Bot, chat: Chat) -> None:
    await bot.send_message(chat.id, "<b>a &lt; b</b> <i>x</i>", parse_mode="HTML")
    await bot.send_message(
        chat.id, "*bold* `code` [site](https://a.test) 1\\.", parse_mode="MarkdownV2"
    )

    html, markdown = chat.from_bot
    assert (html.text, html.marked("bold")) == ("a < b x", ["a < b"])
    assert markdown.text == "bold code site 1."
    assert markdown.marked("text_link") == ["site"]


async def test_the_whole_application_runs_against_it(
    tg: TelegramEmulator, ada: User, chat: Chat
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


# ------------------------------------------------------------------ what is wrong is refused


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
    bot: Bot, chat: Chat, text: str, extra: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(BadRequest) as refused:
        await bot.send_message(chat.id, text, **extra)

    assert complaint.lower() in str(refused.value).lower()
    assert chat.from_bot == []


async def test_exactly_the_limits_are_accepted(bot: Bot, chat: Chat) -> None:
    entities = [MessageEntity("bold", i, 1) for i in range(100)]

    await bot.send_message(chat.id, "😀" * 2048)
    await bot.send_message(chat.id, "x" * 4096, entities=entities)
    await bot.send_message(chat.id, "x", reply_markup=keyboard("x" * 64))
    await bot.send_photo(chat.id, PIXEL, caption="x" * 1024)

    assert len(chat.from_bot) == 4


Attempt = Callable[[Bot, Chat], Any]
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
async def test_other_bad_calls_are_refused(bot: Bot, chat: Chat, name: str) -> None:
    attempt, complaint = REFUSED[name]

    with pytest.raises(BadRequest) as refused:
        await attempt(bot, chat)

    assert complaint in str(refused.value).lower()


async def test_an_edit_that_changes_nothing_is_refused(bot: Bot, chat: Chat) -> None:
    sent = await bot.send_message(chat.id, "same")

    with pytest.raises(BadRequest, match="Message is not modified"):
        await bot.edit_message_text("same", chat.id, sent.message_id)

    assert chat.last.edits == 0


async def test_only_own_messages_can_be_edited(bot: Bot, ada: User, chat: Chat) -> None:
    message = await ada.says(chat, "mine")

    with pytest.raises(BadRequest, match="can't be edited"):
        await bot.edit_message_text("yours", chat.id, message.id)


async def test_drafts_are_for_private_chats_only(tg: TelegramEmulator, bot: Bot) -> None:
    with pytest.raises(BadRequest, match=r"(?i)textdraft_peer_invalid"):
        await bot.send_message_draft(tg.group("Team").id, 1, "x")


async def test_a_reply_in_a_plain_supergroup_has_a_thread_that_cannot_be_sent_to(
    tg: TelegramEmulator, bot: Bot, ada: User
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
    tg: TelegramEmulator, bot: Bot, chat: Chat
) -> None:
    tg.user(8, "Bob")
    chat.block()

    with pytest.raises(Forbidden, match="bot was blocked by the user"):
        await bot.send_message(chat.id, "x")
    with pytest.raises(Forbidden, match="can't initiate conversation"):
        await bot.send_message(8, "x")


async def test_a_migrated_group_names_its_new_id(tg: TelegramEmulator, bot: Bot, ada: User) -> None:
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


async def test_a_press_answered_too_late_is_refused(bot: Bot, ada: User, chat: Chat) -> None:
    await bot.send_message(chat.id, "x", reply_markup=keyboard("a"))
    press = ada.press(chat.last, "Button 0")
    [update] = await bot.get_updates()
    assert update.callback_query
    press.grow_old()

    with pytest.raises(BadRequest, match="Query is too old"):
        await bot.answer_callback_query(update.callback_query.id)


async def test_large_files_cannot_be_fetched(bot: Bot, ada: User, chat: Chat) -> None:
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
    tg: TelegramEmulator, bot: Bot, ada: User, chat: Chat
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


# ------------------------------------------------------------------ misbehaviour on demand


async def test_a_rate_limit_lasts_and_counts_who_ignores_it(
    tg: TelegramEmulator, bot: Bot, chat: Chat
) -> None:
    tg.misbehave("sendMessage", RateLimit(retry_after=60))

    for _ in range(3):
        with pytest.raises(RetryAfter):
            await bot.send_message(chat.id, "x")

    assert tg.violations == 2
    assert chat.from_bot == []


async def test_server_errors_and_garbage_are_network_errors(
    tg: TelegramEmulator, bot: Bot, chat: Chat
) -> None:
    tg.misbehave("sendMessage", ServerError(code=502))
    tg.misbehave("sendMessage", Garbage())

    for _ in range(2):
        with pytest.raises(NetworkError):
            await bot.send_message(chat.id, "x")

    assert chat.from_bot == []


async def test_a_connection_dropped_before_leaves_nothing_and_after_leaves_the_message(
    tg: TelegramEmulator, bot: Bot, chat: Chat
) -> None:
    tg.misbehave("sendMessage", DropBefore())
    tg.misbehave("sendMessage", DropAfter())

    with pytest.raises(NetworkError):
        await bot.send_message(chat.id, "before")
    with pytest.raises(NetworkError):
        await bot.send_message(chat.id, "after")

    assert [message.text for message in chat.from_bot] == ["after"]
    assert [call.status for call in tg.calls_of("sendMessage")] == [0, 0]


async def test_a_held_answer_times_out_after_taking_effect(
    tg: TelegramEmulator, bot: Bot, chat: Chat
) -> None:
    hold = Hold()
    tg.misbehave("sendMessage", hold)

    with pytest.raises(TimedOut):
        await bot.send_message(chat.id, "x", read_timeout=0.2)

    hold.release()
    assert [message.text for message in chat.from_bot] == ["x"]


async def test_a_slow_answer_arrives_in_the_end(tg: TelegramEmulator, bot: Bot, chat: Chat) -> None:
    tg.misbehave("sendMessage", Slow(seconds=0.05))

    sent = await bot.send_message(chat.id, "x")

    assert sent.text == "x"


async def test_confirmed_updates_can_come_again(
    tg: TelegramEmulator, bot: Bot, ada: User, chat: Chat
) -> None:
    await ada.says(chat, "hello")
    [first] = await bot.get_updates()
    await bot.get_updates(offset=first.update_id + 1)

    assert tg.redeliver() == 1

    again = await bot.get_updates(offset=first.update_id + 1)
    assert [update.update_id for update in again] == [first.update_id]
    assert await bot.get_updates(offset=first.update_id + 1) == ()


async def test_every_request_is_on_record(tg: TelegramEmulator, bot: Bot, chat: Chat) -> None:
    await bot.send_message(chat.id, "x", reply_markup=keyboard("a"))

    call = tg.calls[-1]
    assert (call.method, call.chat_id, call.text, call.status) == ("sendMessage", 7, "x", 200)
    assert json.loads(call.form.text("reply_markup"))["inline_keyboard"]
