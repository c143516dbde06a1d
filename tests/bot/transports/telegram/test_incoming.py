"""People's actions on Telegram, as the rest of Shiftboss gets them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.transports.ports import FileTooLarge, PlatformUnavailable
from bot.transports.telegram.polling import TelegramPollPace
from bot.transports.telegram.transport import TelegramTransport
from storage.records.messages import AttachmentKind, IncomingChatOpen, IncomingMessage
from storage.records.people import Channel, ChatKind
from tests.bot.transports.telegram.builders import FakeSleep, text_letter
from tests.emulators.telegram.chats import TelegramChat
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.faults import DropBeforeFault
from tests.emulators.telegram.users import PIXEL, TelegramUser
from tests.fakes.inbox import FakeInbox

pytestmark = pytest.mark.usefixtures("live")


async def test_a_private_message_arrives_whole(
    intake: FakeInbox, ada: TelegramUser, chat: TelegramChat
) -> None:
    sent = await ada.says(chat, "/run write a haiku")

    got = await intake.message()

    assert (got.text, got.message_id, got.addressed, got.edited) == (
        "/run write a haiku",
        str(sent.id),
        True,
        False,
    )
    assert (got.place.channel, got.place.chat, got.place.kind) == (
        Channel.TELEGRAM,
        "7",
        ChatKind.PRIVATE,
    )
    assert (got.sender.external_id, got.sender.name, got.sender.language) == ("7", "Ada", "en")
    assert got.sent_at.timestamp() == int(sent.history[0].at)
    assert intake.keys == [f"7:{sent.id}"]


async def test_an_edit_is_marked_and_has_a_key_of_its_own(
    intake: FakeInbox, ada: TelegramUser, chat: TelegramChat
) -> None:
    sent = await ada.says(chat, "frist")
    await ada.edits(sent, "first")

    got = await intake.message(2)

    assert (got.text, got.message_id, got.edited) == ("first", str(sent.id), True)
    assert intake.keys[1] == f"7:{sent.id}:e{int(sent.history[-1].at)}"


async def test_what_cannot_be_read_is_named_by_its_kind(
    tg: TelegramEmulator, intake: FakeInbox, ada: TelegramUser, chat: TelegramChat
) -> None:
    place = {"latitude": 1.0, "longitude": 2.0}
    base = {"message_id": 900, "from": ada.as_json(), "chat": chat.as_json(), "date": 1}
    tg.world.updates.put("message", {**base, "location": place})
    tg.world.updates.put("edited_message", {**base, "edit_date": 2, "location": place})
    await ada.says(chat, "done")

    assert [(await intake.message(n)).text for n in (1, 2)] == ["[location]", "done"]


async def test_a_reply_names_what_it_answers(
    intake: FakeInbox, ada: TelegramUser, chat: TelegramChat
) -> None:
    first = await ada.says(chat, "one")
    await ada.says(chat, "two", reply_to=first)

    assert (await intake.message(2)).reply_to == str(first.id)


async def test_a_forwarded_message_is_a_message(
    intake: FakeInbox, ada: TelegramUser, chat: TelegramChat
) -> None:
    await ada.says(chat, "look at this", forwarded=True)

    assert (await intake.message()).text == "look at this"


# ------------------------------------------------------------------ who is meant in a group


async def test_in_a_group_only_the_bot_itself_is_addressed(
    tg: TelegramEmulator, intake: FakeInbox, ada: TelegramUser
) -> None:
    group = tg.group("Team")
    other = tg.user(8, "Bob")
    said = [
        ("lunch?", False),
        ("@someone_else look", False),
        ("/help", False),
        ("/help@another_bot", False),
        ("mail me at me@shiftboss_bot.example", False),
        ("@Shiftboss_Bot status", True),
        ("/status@shiftboss_bot", True),
    ]

    for text, _ in said:
        await ada.says(group, text)
    await ada.mentions(group, "do it", tg.world.bot)
    await ada.mentions(group, "do it", other.as_json())

    await intake.message(len(said) + 2)
    assert [m.addressed for m in intake.messages] == [meant for _, meant in said] + [True, False]
    assert all(m.place.kind is ChatKind.GROUP for m in intake.messages)


async def test_the_bots_own_name_is_not_part_of_the_message(
    tg: TelegramEmulator, intake: FakeInbox, ada: TelegramUser
) -> None:
    group = tg.group("Team")

    await ada.says(group, "😀 @shiftboss_bot please run it @bob")
    await ada.says(group, "/status@shiftboss_bot now")

    await intake.message(2)
    assert [m.text for m in intake.messages] == ["😀  please run it @bob", "/status now"]


async def test_a_caption_can_address_the_bot(
    tg: TelegramEmulator, intake: FakeInbox, ada: TelegramUser
) -> None:
    group = tg.group("Team")

    await ada.sends_photo(group, "@shiftboss_bot what is this?")

    got = await intake.message()
    assert (got.addressed, got.text) == (True, "what is this?")


async def test_a_reply_to_the_bot_addresses_it_and_one_to_others_does_not(
    tg: TelegramEmulator, intake: FakeInbox, ada: TelegramUser, live: TelegramTransport
) -> None:
    group = tg.group("Team", supergroup=True)
    await live.deliver(text_letter(group, "I am here"))
    mine = await ada.says(group, "hello everyone")

    await ada.says(group, "good", reply_to=group.last)
    await ada.says(group, "bad", reply_to=mine)

    await intake.message(3)
    assert [m.addressed for m in intake.messages] == [False, True, False]


async def test_a_topic_is_a_thread_and_its_first_message_is_no_reply(
    tg: TelegramEmulator, intake: FakeInbox, ada: TelegramUser
) -> None:
    forum = tg.group("Team", forum=True)
    topic = tg.topic(forum, "Deploy")  # opened by the bot itself

    await ada.says(forum, "anyone?", thread=topic)
    await ada.says(forum, "general talk")

    await intake.message(2)
    in_topic, general = intake.messages
    assert (in_topic.place.thread, in_topic.reply_to, in_topic.addressed) == (str(topic), "", False)
    assert general.place.thread == ""


async def test_a_reply_in_a_plain_supergroup_is_in_no_thread(
    tg: TelegramEmulator, intake: FakeInbox, ada: TelegramUser
) -> None:
    group = tg.group("Team", supergroup=True)
    first = await ada.says(group, "one")

    await ada.says(group, "two", reply_to=first)

    got = await intake.message(2)
    assert (got.place.thread, got.reply_to) == ("", str(first.id))


async def test_being_added_to_a_group_is_an_entry(
    tg: TelegramEmulator, intake: FakeInbox, ada: TelegramUser
) -> None:
    await ada.adds_bot(tg.group("Team"))

    await intake.wait(lambda: bool(intake.accepted))
    [entry] = intake.accepted
    assert isinstance(entry, IncomingChatOpen)
    assert (entry.place.title, entry.sender.external_id) == ("Team", "7")


# ------------------------------------------------------------------ pictures and files


async def test_a_photo_with_a_caption_can_be_fetched(
    intake: FakeInbox,
    ada: TelegramUser,
    chat: TelegramChat,
    live: TelegramTransport,
    tmp_path: Path,
) -> None:
    await ada.sends_photo(chat, "what is this?")

    got = await intake.message()
    [picture] = got.attachments
    path = await live.fetch(picture, tmp_path / "in")

    assert (got.text, picture.kind, picture.mime) == (
        "what is this?",
        AttachmentKind.IMAGE,
        "image/jpeg",
    )
    assert path.parent == tmp_path / "in"
    assert path.read_bytes() == PIXEL


async def test_a_file_keeps_its_name_but_not_a_path(
    intake: FakeInbox,
    ada: TelegramUser,
    chat: TelegramChat,
    live: TelegramTransport,
    tmp_path: Path,
) -> None:
    await ada.sends_document(chat, "../../etc/报告.txt", b"words")

    [file] = (await intake.message()).attachments
    path = await live.fetch(file, tmp_path / "in")

    assert (file.kind, file.name, file.size) == (AttachmentKind.FILE, "../../etc/报告.txt", 5)
    assert path.parent == tmp_path / "in"
    assert path.name == "报告.txt"
    assert path.read_bytes() == b"words"


async def test_a_file_beyond_the_limit_is_too_large(
    intake: FakeInbox,
    ada: TelegramUser,
    chat: TelegramChat,
    live: TelegramTransport,
    tmp_path: Path,
) -> None:
    await ada.sends_document(chat, "big.bin", bytes(20 * 1024 * 1024 + 1))
    [file] = (await intake.message()).attachments

    with pytest.raises(FileTooLarge):
        await live.fetch(file, tmp_path)


async def test_a_download_that_breaks_can_be_tried_again(
    tg: TelegramEmulator,
    intake: FakeInbox,
    ada: TelegramUser,
    live: TelegramTransport,
    tmp_path: Path,
) -> None:
    await ada.sends_document(tg.private_chat(ada), "a.txt", b"words")
    [file] = (await intake.message()).attachments
    tg.inject_fault("getFile", DropBeforeFault())

    with pytest.raises(PlatformUnavailable):
        await live.fetch(file, tmp_path)

    assert (await live.fetch(file, tmp_path)).read_bytes() == b"words"


async def test_an_album_arrives_as_one_message(
    intake: FakeInbox, ada: TelegramUser, chat: TelegramChat
) -> None:
    pieces = await ada.sends_album(chat, [PIXEL, PIXEL, PIXEL], "three of them")
    await ada.says(chat, "and words")

    await intake.message(2)
    album, words = intake.messages
    assert (len(album.attachments), album.text) == (3, "three of them")
    assert album.message_id == str(pieces[0].id)
    assert words.text == "and words"


async def test_late_pieces_of_an_album_are_waited_for(
    intake: FakeInbox, ada: TelegramUser, chat: TelegramChat, sleep: FakeSleep
) -> None:
    async def second_picture() -> None:
        await ada.sends_photo(chat, "two", album="a1")

    sleep.before[TelegramPollPace().album_gap] = second_picture
    await ada.sends_photo(chat, album="a1")
    await ada.says(chat, "after")

    await intake.message(2)
    album, after = intake.messages
    assert (len(album.attachments), album.text) == (2, "two")
    assert after.text == "after"


async def test_nothing_to_read_is_nothing_to_store(
    tg: TelegramEmulator, intake: FakeInbox, ada: TelegramUser, chat: TelegramChat
) -> None:
    tg.unknown_update(business_connection={"id": "x"})
    tg.unknown_update(message={"message_id": 1})
    tg.unknown_update(message="nonsense")
    tg.unknown_update(brand_new_kind={"a": [1, 2]})
    await ada.says(chat, "still here")

    got = await intake.message()

    assert got.text == "still here"
    assert isinstance(got, IncomingMessage)
    await tg.wait_until(lambda: not tg.unconfirmed)
