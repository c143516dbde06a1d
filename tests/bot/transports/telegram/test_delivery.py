"""Letters become messages, once, whatever Telegram says in between."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from bot.transports.base import (
    Ambiguous,
    RateLimited,
    Refused,
    Unavailable,
    Unreachable,
)
from bot.transports.telegram.transport import TelegramTransport
from cards.model import Checklist, File, Image, Text
from storage.records.messages import Placed
from tests.bot.transports.telegram.fakes import (
    PAUSE,
    FakeIntake,
    FakeSleep,
    later,
    letter,
    make_transport,
    started,
    text_letter,
)
from tests.emulators.telegram.chats import Chat, Version
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.mischief import (
    DropAfter,
    DropBefore,
    Garbage,
    Hold,
    RateLimit,
    Refuse,
    ServerError,
)
from tests.emulators.telegram.people import PIXEL, User
from tests.emulators.telegram.refusals import bad_request

LONG = "\n".join(f"line {i} {'x' * 60}" for i in range(130))


# ------------------------------------------------------------------ sending


async def test_a_card_is_sent_with_its_marks_and_buttons(
    sender: TelegramTransport, chat: Chat
) -> None:
    delivery = await sender.deliver(
        letter(chat, Text(markdown="**bold** `List<int>`"), PAUSE, title="Task")
    )

    [message] = chat.from_bot
    assert message.text == "Task\n\nbold List<int>"
    assert message.marked("bold") == ["Task", "bold"]
    assert message.marked("code") == ["List<int>"]
    assert message.buttons == ["Pause"]
    assert delivery.placed.message_ids == (str(message.id),)


async def test_a_long_answer_is_several_messages_and_only_the_first_is_a_reply(
    sender: TelegramTransport, ada: User, chat: Chat
) -> None:
    asked = await ada.says(chat, "tell me")

    delivery = await sender.deliver(text_letter(chat, LONG, reply_to=str(asked.id)))

    assert "\n".join(m.text for m in chat.from_bot) == LONG
    assert [m.reply_to for m in chat.from_bot] == [asked.id, None, None]
    assert delivery.placed.message_ids == tuple(str(m.id) for m in chat.from_bot)


async def test_a_hundred_kilobytes_of_dirt_are_delivered(
    sender: TelegramTransport, chat: Chat
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


async def test_a_deleted_question_is_still_answered(
    sender: TelegramTransport, ada: User, chat: Chat
) -> None:
    asked = await ada.says(chat, "tell me")
    await ada.deletes(asked)

    await sender.deliver(text_letter(chat, "here", reply_to=str(asked.id)))

    assert (chat.last.text, chat.last.reply_to) == ("here", None)


@pytest.mark.parametrize("refusal", ["message to be replied not found", "reply message not found"])
async def test_a_refused_reply_is_sent_without_it(
    tg: TelegramEmulator, sender: TelegramTransport, ada: User, chat: Chat, refusal: str
) -> None:
    asked = await ada.says(chat, "tell me")
    tg.misbehave("sendMessage", Refuse(error=bad_request(refusal)))

    await sender.deliver(text_letter(chat, "here", reply_to=str(asked.id)))

    assert (chat.last.text, chat.last.reply_to) == ("here", None)


async def test_refused_formatting_is_sent_as_plain_text(
    tg: TelegramEmulator, sender: TelegramTransport, chat: Chat
) -> None:
    tg.misbehave("sendMessage", Refuse(error=bad_request("can't parse entities: whatever")))

    delivery = await sender.deliver(text_letter(chat, "**bold**"))

    assert (chat.last.text, chat.last.entities) == ("bold", [])
    assert "entities: refused, sent as plain text" in delivery.degraded


async def test_a_refused_keyboard_does_not_swallow_the_text(
    tg: TelegramEmulator, sender: TelegramTransport, chat: Chat
) -> None:
    tg.misbehave("sendMessage", Refuse(error=bad_request("BUTTON_DATA_INVALID")))

    delivery = await sender.deliver(letter(chat, Text(markdown="hi"), PAUSE))

    assert (chat.last.text, chat.last.buttons) == ("hi", [])
    assert "keyboard: refused" in delivery.degraded


async def test_a_group_that_became_a_supergroup_is_followed(
    tg: TelegramEmulator, sender: TelegramTransport, ada: User
) -> None:
    group = tg.group("Team")
    first = text_letter(group, "one")
    placed = (await sender.deliver(first)).placed
    new = tg.migrate(group, ada)

    await sender.deliver(text_letter(group, "two", outbox_id=2))
    edited = await sender.deliver(later(first, placed, Text(markdown="one, edited")))
    await sender.deliver(later(first, edited.placed, Text(markdown="one, edited again")))
    await sender.deliver(text_letter(group, "three", outbox_id=3))

    assert [m.text for m in new.from_bot] == ["two", "one, edited again", "three"]
    assert len([c for c in tg.calls_of("sendMessage") if c.status == 400]) == 1


async def test_an_edit_after_the_move_never_touches_the_new_groups_message_of_that_number(
    tg: TelegramEmulator, sender: TelegramTransport, ada: User
) -> None:
    group = tg.group("Team")
    first = text_letter(group, "one")
    placed = (await sender.deliver(first)).placed
    new = tg.migrate(group, ada)
    for _ in range(5):
        tg.world.post(new, tg.world.bot, Version(at=0, text="another's"))

    await sender.deliver(later(first, placed, Text(markdown="two")))

    assert [m.text for m in new.from_bot] == ["another's"] * 5 + ["two"]


async def test_typing_is_shown_and_never_fails(
    tg: TelegramEmulator, sender: TelegramTransport, chat: Chat
) -> None:
    record = letter(chat).chat

    await sender.typing(record)
    tg.misbehave("sendChatAction", DropBefore())
    await sender.typing(record)
    chat.block()
    await sender.typing(record)

    assert [action.action for action in chat.actions] == ["typing"]


# ------------------------------------------------------------------ changing what is shown


async def test_a_later_revision_edits_the_same_message(
    sender: TelegramTransport, chat: Chat
) -> None:
    first = letter(chat, Text(markdown="working"), PAUSE)
    placed = (await sender.deliver(first)).placed

    again = await sender.deliver(later(first, placed, Text(markdown="done")))

    [message] = chat.from_bot
    assert [v.text for v in message.history] == ["working", "done"]
    assert message.buttons == []
    assert again.placed.message_ids == placed.message_ids


async def test_what_is_shown_already_is_not_sent_again(
    tg: TelegramEmulator, sender: TelegramTransport, chat: Chat
) -> None:
    first = text_letter(chat, "same")
    placed = (await sender.deliver(first)).placed
    calls = len(tg.calls)

    await sender.deliver(later(first, placed, Text(markdown="same")))

    assert len(tg.calls) == calls


async def test_not_modified_is_success(sender: TelegramTransport, chat: Chat) -> None:
    first = text_letter(chat, "same")
    placed = (await sender.deliver(first)).placed
    forgotten = replace(placed, state={})

    again = await sender.deliver(later(first, forgotten, Text(markdown="same")))

    assert again.placed == placed
    assert len(chat.from_bot) == 1


async def test_a_message_that_is_gone_is_sent_anew(sender: TelegramTransport, chat: Chat) -> None:
    first = text_letter(chat, "one")
    placed = (await sender.deliver(first)).placed
    chat.last.deleted = True

    again = await sender.deliver(later(first, placed, Text(markdown="two")))

    assert [m.text for m in chat.from_bot] == ["two"]
    assert again.placed.message_ids == (str(chat.last.id),)


async def test_messages_are_added_and_taken_away_as_the_card_grows_and_shrinks(
    sender: TelegramTransport, chat: Chat
) -> None:
    first = text_letter(chat, "short")
    placed = (await sender.deliver(first)).placed

    grown = await sender.deliver(later(first, placed, Text(markdown=LONG), PAUSE))
    assert "\n".join(m.text for m in chat.from_bot) == LONG
    assert [m.buttons for m in chat.from_bot] == [[], [], ["Pause"]]

    shrunk = await sender.deliver(later(first, grown.placed, Text(markdown="short again")))
    assert [m.text for m in chat.from_bot] == ["short again"]
    assert shrunk.placed.message_ids == placed.message_ids


async def test_a_state_of_another_version_still_finds_its_messages(
    sender: TelegramTransport, chat: Chat
) -> None:
    first = text_letter(chat, "one")
    placed = (await sender.deliver(first)).placed
    strange = Placed(message_ids=(*placed.message_ids, "x"), state={"shown": "what?"})

    await sender.deliver(later(first, strange, Text(markdown="two")))

    assert [m.text for m in chat.from_bot] == ["two"]


# ------------------------------------------------------------------ files


async def test_a_picture_and_a_file_are_sent_after_the_text(
    sender: TelegramTransport, chat: Chat, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.png").write_bytes(PIXEL)
    (tmp_path / "out" / "haiku.md").write_text("old pond")

    await sender.deliver(
        letter(
            chat,
            Image(path="out/a.png", alt="a pixel"),
            File(path="out/haiku.md", name="俳句.md", size=8),
            Text(markdown="done"),
        )
    )

    text, photo, document = chat.from_bot
    assert text.text == "done"
    assert (photo.text, photo.media["photo"][0]["file_size"]) == ("a pixel", len(PIXEL))
    assert document.upload
    assert (document.upload.name, document.upload.content) == ("俳句.md", b"old pond")


async def test_files_shown_already_stay_and_others_come_and_go(
    sender: TelegramTransport, chat: Chat, tmp_path: Path
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
    files = {name: File(path=name, name=name, size=1) for name in ("a", "b", "c")}
    first = letter(chat, Text(markdown="t"), files["a"], files["b"])
    placed = (await sender.deliver(first)).placed

    await sender.deliver(later(first, placed, Text(markdown="t"), files["b"], files["c"]))

    names = [m.upload.name for m in chat.from_bot if m.upload]
    assert names == ["b", "c"]


async def test_several_pictures_are_one_album(
    sender: TelegramTransport, chat: Chat, tmp_path: Path
) -> None:
    for i in range(3):
        (tmp_path / f"{i}.png").write_bytes(PIXEL)

    delivery = await sender.deliver(
        letter(chat, *(Image(path=f"{i}.png", alt="") for i in range(3)))
    )

    assert len({m.album for m in chat.from_bot}) == 1
    assert len(delivery.placed.message_ids) == 3


async def test_a_broken_picture_is_sent_as_a_file_and_spoils_no_album(
    sender: TelegramTransport, chat: Chat, tmp_path: Path
) -> None:
    (tmp_path / "good.png").write_bytes(PIXEL)
    (tmp_path / "bad.png").write_bytes(b"no picture")

    delivery = await sender.deliver(
        letter(chat, Image(path="good.png", alt=""), Image(path="bad.png", alt="broken"))
    )

    good, bad = chat.from_bot
    assert "photo" in good.media
    assert "document" in bad.media
    assert bad.text == "broken"
    assert "image: not a picture Telegram knows, sent as a file" in delivery.degraded


async def test_a_picture_beyond_the_photo_limit_is_a_file(
    sender: TelegramTransport, chat: Chat, tmp_path: Path
) -> None:
    (tmp_path / "big.png").write_bytes(PIXEL + bytes(10 * 1024 * 1024))

    await sender.deliver(letter(chat, Image(path="big.png", alt="")))

    assert "document" in chat.last.media


@pytest.mark.parametrize("path", ["gone.txt", "../secret.txt", "/etc/hostname", ".", "empty"])
async def test_a_file_that_is_not_there_or_not_ours_is_only_named(
    sender: TelegramTransport, chat: Chat, tmp_path: Path, path: str
) -> None:
    (tmp_path / "empty").touch()
    (tmp_path.parent / "secret.txt").write_text("secret")

    await sender.deliver(letter(chat, Text(markdown="see"), File(path=path, name="x", size=1)))

    assert [m.text for m in chat.from_bot] == ["see", "📎 x: this file is no longer there."]
    assert all(m.upload is None for m in chat.from_bot)


async def test_a_file_too_large_for_telegram_is_named_in_the_chats_language(
    sender: TelegramTransport, chat: Chat, tmp_path: Path
) -> None:
    with (tmp_path / "huge.bin").open("wb") as file:
        file.truncate(50 * 1024 * 1024 + 1)

    await sender.deliver(
        letter(chat, File(path="huge.bin", name="huge.bin", size=1), language="zh")
    )

    assert chat.last.text == "📎 huge.bin 超过 50 MB，Telegram 不收这么大的文件。它在 huge.bin。"


# ------------------------------------------------------------------ troubles


async def test_a_rate_limit_says_how_long_and_is_obeyed(
    tg: TelegramEmulator, sender: TelegramTransport, chat: Chat
) -> None:
    tg.misbehave("sendMessage", RateLimit(retry_after=17))

    with pytest.raises(RateLimited) as limited:
        await sender.deliver(text_letter(chat, "x"))

    assert limited.value.retry_after == 17
    assert tg.violations == 0


async def test_a_letter_stopped_half_way_goes_on_where_it_stopped(
    tg: TelegramEmulator, sender: TelegramTransport, chat: Chat
) -> None:
    tg.world.clock = time.time
    whole = text_letter(chat, LONG)
    await sender.deliver(text_letter(chat, "warm-up", outbox_id=9))
    hold = Hold()
    hold.release()
    tg.misbehave("sendMessage", hold)
    tg.misbehave("sendMessage", ServerError(code=502))

    with pytest.raises(Unavailable):
        await sender.deliver(whole)
    delivery = await sender.deliver(whole)

    sent = chat.from_bot[1:]
    assert "\n".join(m.text for m in sent) == LONG
    assert delivery.placed.message_ids == tuple(str(m.id) for m in sent)


async def test_a_lost_answer_is_ambiguous_and_the_repetition_says_so_once(
    tg: TelegramEmulator, sender: TelegramTransport, chat: Chat
) -> None:
    whole = text_letter(chat, f"**start**\n{LONG}")
    tg.misbehave("sendMessage", DropAfter())

    with pytest.raises(Ambiguous):
        await sender.deliver(whole)
    await sender.deliver(replace(whole, repeat=True))

    doubled, repeated, *rest = chat.from_bot
    assert doubled.text.startswith("start")
    assert repeated.text.startswith("♻️ Sent again: the first try may have arrived.\n\nstart")
    assert repeated.marked("bold") == ["start"]
    assert len(rest) == 2
    assert not any("♻️" in m.text for m in rest)


async def test_a_time_out_is_ambiguous(
    tg: TelegramEmulator, intake: FakeIntake, chat: Chat, tmp_path: Path, sleep: FakeSleep
) -> None:
    hold = Hold()
    tg.misbehave("sendMessage", hold)
    impatient = make_transport(tg, intake, tmp_path, sleep, request_seconds=0.3)

    async with started(impatient) as transport:
        with pytest.raises(Ambiguous):
            await transport.deliver(text_letter(chat, "x"))

    hold.release()
    assert len(chat.from_bot) == 1


async def test_a_lost_answer_to_an_edit_is_simply_tried_again(
    tg: TelegramEmulator, sender: TelegramTransport, chat: Chat
) -> None:
    first = text_letter(chat, "one")
    placed = (await sender.deliver(first)).placed
    second = later(first, placed, Text(markdown="two"))
    tg.misbehave("editMessageText", DropAfter())

    with pytest.raises(Unavailable):
        await sender.deliver(second)
    await sender.deliver(replace(second, repeat=True))

    assert [m.text for m in chat.from_bot] == ["two"]


async def test_no_connection_and_server_errors_are_unavailable(
    tg: TelegramEmulator, sender: TelegramTransport, chat: Chat, intake: FakeIntake, tmp_path: Path
) -> None:
    for trouble in (ServerError(code=500), ServerError(code=502), Garbage()):
        tg.misbehave("sendMessage", trouble)
        with pytest.raises(Unavailable):
            await sender.deliver(text_letter(chat, "x"))

    async with TelegramEmulator() as gone:
        nowhere = gone.base_url
    lost = make_transport(tg, intake, tmp_path, FakeSleep(), base_url=nowhere)
    async with started(lost) as transport:
        with pytest.raises(Unavailable):
            await transport.deliver(text_letter(chat, "x"))

    assert chat.from_bot == []


async def test_a_wrong_token_is_unavailable_and_names_no_secret(
    tg: TelegramEmulator, sender: TelegramTransport, chat: Chat
) -> None:
    tg.revoke_token()

    with pytest.raises(Unavailable) as failed:
        await sender.deliver(text_letter(chat, "x"))

    assert tg.token not in str(failed.value)


async def test_a_blocked_or_unknown_chat_is_unreachable(
    tg: TelegramEmulator, sender: TelegramTransport, chat: Chat
) -> None:
    group = tg.group("Team")
    group.block()
    del tg.world.chats[chat.id]
    del tg.world.users[chat.id]

    for closed in (chat, group):
        with pytest.raises(Unreachable):
            await sender.deliver(text_letter(closed, "x"))


async def test_content_telegram_will_not_take_is_refused(
    tg: TelegramEmulator, sender: TelegramTransport, chat: Chat
) -> None:
    tg.misbehave("sendMessage", Refuse(error=bad_request("something new")))

    with pytest.raises(Refused, match="Something new"):
        await sender.deliver(text_letter(chat, "x"))


async def test_before_its_start_the_channel_is_unavailable(
    tg: TelegramEmulator, chat: Chat, intake: FakeIntake, tmp_path: Path
) -> None:
    transport = make_transport(tg, intake, tmp_path, FakeSleep())

    with pytest.raises(Unavailable):
        await transport.deliver(letter(chat, Checklist(items=())))
