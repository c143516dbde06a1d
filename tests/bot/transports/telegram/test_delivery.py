"""Letters become messages, once, whatever Telegram says in between."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.transports.telegram.transport import TelegramTransport
from cards.model import TextBlock
from storage.records.messages import MessagePlacement
from tests.bot.transports.telegram.builders import PAUSE, later, letter, text_letter
from tests.emulators.telegram.chats import MessageVersion, TelegramChat
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.errors import bad_request
from tests.emulators.telegram.faults import DropBeforeFault, RefusalFault
from tests.emulators.telegram.users import TelegramUser

LONG = "\n".join(f"line {i} {'x' * 60}" for i in range(130))


async def test_a_card_is_sent_with_its_marks_and_buttons(
    sender: TelegramTransport, chat: TelegramChat
) -> None:
    delivery = await sender.deliver(
        letter(chat, TextBlock(markdown="**bold** `List<int>`"), PAUSE, title="Task")
    )

    [message] = chat.from_bot
    assert message.text == "Task\n\nbold List<int>"
    assert message.texts_of_entity("bold") == ["Task", "bold"]
    assert message.texts_of_entity("code") == ["List<int>"]
    assert message.buttons == ["Pause"]
    assert delivery.placed.message_ids == (str(message.id),)


async def test_a_long_answer_is_several_messages_and_only_the_first_is_a_reply(
    sender: TelegramTransport, ada: TelegramUser, chat: TelegramChat
) -> None:
    asked = await ada.says(chat, "tell me")

    delivery = await sender.deliver(text_letter(chat, LONG, reply_to=str(asked.id)))

    assert "\n".join(m.text for m in chat.from_bot) == LONG
    assert [m.reply_to for m in chat.from_bot] == [asked.id, None, None]
    assert delivery.placed.message_ids == tuple(str(m.id) for m in chat.from_bot)


async def test_a_hundred_kilobytes_of_dirt_are_delivered(
    sender: TelegramTransport, chat: TelegramChat
) -> None:
    await sender.deliver(text_letter(chat, "<b>\ud83d \x00 \u202e*_`" * 8000))

    assert len(chat.from_bot) > 5


async def test_an_answer_in_a_topic_stays_in_the_topic(
    tg: TelegramEmulator, sender: TelegramTransport
) -> None:
    forum = tg.group("Team", forum=True)
    topic = tg.topic(forum, "Deploy")

    await sender.deliver(text_letter(forum, "done", thread=topic))

    assert forum.last.thread == topic


async def test_a_topic_that_is_gone_does_not_swallow_the_answer(
    tg: TelegramEmulator, sender: TelegramTransport
) -> None:
    forum = tg.group("Team", forum=True)
    topic = tg.topic(forum, "Deploy")
    tg.close_topic(forum, topic)

    delivery = await sender.deliver(text_letter(forum, "done", thread=topic))

    assert (forum.last.text, forum.last.thread) == ("done", None)
    assert "thread: gone, sent to the chat itself" in delivery.degraded


async def test_a_deleted_question_is_still_answered_at_the_first_try(
    tg: TelegramEmulator, sender: TelegramTransport, ada: TelegramUser, chat: TelegramChat
) -> None:
    asked = await ada.says(chat, "tell me")
    await ada.deletes(asked)

    await sender.deliver(text_letter(chat, "here", reply_to=str(asked.id)))

    assert (chat.last.text, chat.last.reply_to) == ("here", None)
    assert len(tg.calls_of("sendMessage")) == 1


@pytest.mark.parametrize("refusal", ["message to be replied not found", "reply message not found"])
async def test_a_refused_reply_is_sent_without_it(
    tg: TelegramEmulator,
    sender: TelegramTransport,
    ada: TelegramUser,
    chat: TelegramChat,
    refusal: str,
) -> None:
    asked = await ada.says(chat, "tell me")
    tg.inject_fault("sendMessage", RefusalFault(error=bad_request(refusal)))

    await sender.deliver(text_letter(chat, "here", reply_to=str(asked.id)))

    assert (chat.last.text, chat.last.reply_to) == ("here", None)


async def test_refused_formatting_is_sent_as_plain_text(
    tg: TelegramEmulator, sender: TelegramTransport, chat: TelegramChat
) -> None:
    tg.inject_fault(
        "sendMessage", RefusalFault(error=bad_request("can't parse entities: whatever"))
    )

    delivery = await sender.deliver(text_letter(chat, "**bold**"))

    assert (chat.last.text, chat.last.entities) == ("bold", [])
    assert "entities: refused, sent as plain text" in delivery.degraded


@pytest.mark.parametrize(
    "said",
    [
        "@ada_l said so",
        "**@ada_l**, *@ada_l*, [@ada_l](https://example.org) and (@ada_l)",
        "😀 @ada_l `@ada_l` @ada_l",
        "| a | b |\n|---|---|\n| " + "x" * 60 + " | @ada_l |",
        "https://example.org @ada_l https://localhost/@ada_l",
        "- @ada_l\n\n> @ada_l\n\n# @ada_l",
        "mail ada@example.org,@ada_l",
    ],
)
@pytest.mark.parametrize("plain", [False, True])
async def test_a_name_in_an_answer_calls_nobody_in_a_group(
    tg: TelegramEmulator, sender: TelegramTransport, said: str, *, plain: bool
) -> None:
    group = tg.group("Team")
    if plain:
        tg.inject_fault("sendMessage", RefusalFault(error=bad_request("can't parse entities: x")))

    await sender.deliver(text_letter(group, f"**so**\n\n{said}"))

    assert "ada_l" in group.last.text
    assert group.last.called == []


async def test_what_is_no_name_stays_as_it_is(
    tg: TelegramEmulator, sender: TelegramTransport
) -> None:
    group = tg.group("Team")

    await sender.deliver(
        text_letter(group, "`npm i @types/node`, ada@example.org, https://example.org/@ada/x 5 @ 2")
    )

    assert group.last.text == "npm i @types/node, ada@example.org, https://example.org/@ada/x 5 @ 2"


async def test_a_name_stays_a_link_in_private(
    sender: TelegramTransport, chat: TelegramChat
) -> None:
    await sender.deliver(text_letter(chat, "write to @BotFather"))

    assert chat.last.called == ["BotFather"]


async def test_a_refused_keyboard_does_not_swallow_the_text(
    tg: TelegramEmulator, sender: TelegramTransport, chat: TelegramChat
) -> None:
    tg.inject_fault("sendMessage", RefusalFault(error=bad_request("BUTTON_DATA_INVALID")))

    delivery = await sender.deliver(letter(chat, TextBlock(markdown="hi"), PAUSE))

    assert (chat.last.text, chat.last.buttons) == ("hi", [])
    assert "keyboard: refused" in delivery.degraded


async def test_a_group_that_became_a_supergroup_is_followed(
    tg: TelegramEmulator, sender: TelegramTransport, ada: TelegramUser
) -> None:
    group = tg.group("Team")
    first = text_letter(group, "one")
    placed = (await sender.deliver(first)).placed
    new = tg.migrate(group, ada)

    await sender.deliver(text_letter(group, "two", outbox_id=2))
    edited = await sender.deliver(later(first, placed, TextBlock(markdown="one, edited")))
    await sender.deliver(later(first, edited.placed, TextBlock(markdown="one, edited again")))
    await sender.deliver(text_letter(group, "three", outbox_id=3))

    assert [m.text for m in new.from_bot] == ["two", "one, edited again", "three"]
    assert len([c for c in tg.calls_of("sendMessage") if c.status == 400]) == 1


async def test_an_edit_after_the_move_never_touches_the_new_groups_message_of_that_number(
    tg: TelegramEmulator, sender: TelegramTransport, ada: TelegramUser
) -> None:
    group = tg.group("Team")
    first = text_letter(group, "one")
    placed = (await sender.deliver(first)).placed
    new = tg.migrate(group, ada)
    for _ in range(5):
        tg.world.post(new, tg.world.bot, MessageVersion(at=0, text="another's"))

    await sender.deliver(later(first, placed, TextBlock(markdown="two")))

    assert [m.text for m in new.from_bot] == ["another's"] * 5 + ["two"]


async def test_typing_is_shown_and_never_fails(
    tg: TelegramEmulator, sender: TelegramTransport, chat: TelegramChat
) -> None:
    record = letter(chat).chat

    await sender.show_typing(record)
    tg.inject_fault("sendChatAction", DropBeforeFault())
    await sender.show_typing(record)
    chat.block()
    await sender.show_typing(record)

    assert [action.action for action in chat.actions] == ["typing"]


# ------------------------------------------------------------------ changing what is shown


async def test_a_later_revision_edits_the_same_message(
    sender: TelegramTransport, chat: TelegramChat
) -> None:
    first = letter(chat, TextBlock(markdown="working"), PAUSE)
    placed = (await sender.deliver(first)).placed

    again = await sender.deliver(later(first, placed, TextBlock(markdown="done")))

    [message] = chat.from_bot
    assert [v.text for v in message.history] == ["working", "done"]
    assert message.buttons == []
    assert again.placed.message_ids == placed.message_ids


async def test_what_is_shown_already_is_not_sent_again(
    tg: TelegramEmulator, sender: TelegramTransport, chat: TelegramChat
) -> None:
    first = text_letter(chat, "same")
    placed = (await sender.deliver(first)).placed
    calls = len(tg.calls)

    await sender.deliver(later(first, placed, TextBlock(markdown="same")))

    assert len(tg.calls) == calls


async def test_not_modified_is_success(sender: TelegramTransport, chat: TelegramChat) -> None:
    first = text_letter(chat, "same")
    placed = (await sender.deliver(first)).placed
    forgotten = replace(placed, state={})

    again = await sender.deliver(later(first, forgotten, TextBlock(markdown="same")))

    assert again.placed == placed
    assert len(chat.from_bot) == 1


async def test_a_message_that_is_gone_is_sent_anew(
    sender: TelegramTransport, chat: TelegramChat
) -> None:
    first = text_letter(chat, "one")
    placed = (await sender.deliver(first)).placed
    chat.last.deleted = True

    again = await sender.deliver(later(first, placed, TextBlock(markdown="two")))

    assert [m.text for m in chat.from_bot] == ["two"]
    assert again.placed.message_ids == (str(chat.last.id),)


async def test_messages_are_added_and_taken_away_as_the_card_grows_and_shrinks(
    sender: TelegramTransport, chat: TelegramChat
) -> None:
    first = text_letter(chat, "short")
    placed = (await sender.deliver(first)).placed

    grown = await sender.deliver(later(first, placed, TextBlock(markdown=LONG), PAUSE))
    assert "\n".join(m.text for m in chat.from_bot) == LONG
    assert [m.buttons for m in chat.from_bot] == [[], [], ["Pause"]]

    shrunk = await sender.deliver(later(first, grown.placed, TextBlock(markdown="short again")))
    assert [m.text for m in chat.from_bot] == ["short again"]
    assert shrunk.placed.message_ids == placed.message_ids


async def test_a_copy_that_turned_up_later_is_removed(
    sender: TelegramTransport, chat: TelegramChat
) -> None:
    await sender.deliver(letter(chat, PAUSE, title="Task"))
    second = await sender.deliver(letter(chat, PAUSE, title="Task"))
    copy, kept = chat.from_bot
    ids = (*second.placed.message_ids, str(copy.id))

    edit = letter(chat, PAUSE, title="Task", placed=replace(second.placed, message_ids=ids))
    delivery = await sender.deliver(edit)

    assert [message.id for message in chat.from_bot] == [kept.id]
    assert delivery.placed == second.placed


async def test_a_state_of_another_version_still_finds_its_messages(
    sender: TelegramTransport, chat: TelegramChat
) -> None:
    first = text_letter(chat, "one")
    placed = (await sender.deliver(first)).placed
    strange = MessagePlacement(message_ids=(*placed.message_ids, "x"), state={"shown": "what?"})

    await sender.deliver(later(first, strange, TextBlock(markdown="two")))

    assert [m.text for m in chat.from_bot] == ["two"]
