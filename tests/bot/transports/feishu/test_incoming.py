"""Messages and presses reach the inbox once, in order, before they are acknowledged."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from cards.actions import ChooseModel, SubmitTaskForm
from cards.model import Card, FormBlock, FormField, SelectBlock, SelectOption
from storage.records.messages import AttachmentKind, IncomingChatOpen
from storage.records.people import ChatKind
from tests.bot.transports.feishu.builders import TOKEN, FeishuHarness, plain, task
from tests.emulators.feishu.callbacks import CallbackFailed
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.feishu.refusals import scope_missing
from tests.emulators.feishu.tenant import FeishuMessage


async def card_on_show(desk: FeishuHarness, *, thread: str = "") -> FeishuMessage:
    chat = desk.fs.private_chat(desk.fs.user("Anna"))
    await desk.post(chat, task(10), thread=thread)
    return await chat.wait_for(lambda message: message.buttons)


async def test_a_private_message_is_stored_and_acknowledged(desk: FeishuHarness) -> None:
    anna = desk.fs.user("Anna")

    sent = await anna.says(desk.fs.private_chat(anna), "  hello  ")
    got = await desk.inbox.message()

    assert (got.text, got.message_id, got.addressed) == ("hello", sent.message_id, True)
    assert got.place.kind is ChatKind.PRIVATE
    assert (got.sender.external_id, got.sender.name) == (anna.open_id, "Anna")
    assert abs(got.sent_at.timestamp() * 1000 - sent.created_ms) < 1
    assert sent.push is not None
    assert (await sent.push.acked)["code"] == 200


async def test_names_and_titles_that_cannot_be_had_hold_up_nothing(
    desk: FeishuHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.transports.feishu.incoming._LOOKUP_TIMEOUT", 0.02)
    fs = desk.fs
    held = asyncio.Event()
    fs.inject_fault("GET", "/im/v1/chats/", gate=held, times=9)
    fs.inject_fault("GET", "/contact/v3/users/", error=scope_missing("contact:user.base:readonly"))

    await fs.user("Anna").says(fs.group("team"), "hi", mentions=["bot"])
    got = await desk.inbox.message()
    held.set()

    assert (got.place.title, got.sender.name, got.addressed) == ("", "", True)
    assert [key for key, _ in desk.inbox.alerts if key] == []


async def test_the_same_message_pushed_again_is_handled_once(desk: FeishuHarness) -> None:
    anna = desk.fs.user("Anna")
    sent = await anna.says(desk.fs.private_chat(anna), "hello")
    await desk.inbox.message()
    assert sent.push is not None

    again = desk.fs.long.redeliver(sent.push)
    await again.acked

    assert len(desk.inbox.accepted) == 1


async def test_what_could_not_be_stored_is_pushed_again(desk: FeishuHarness) -> None:
    desk.inbox.failures = 1
    anna = desk.fs.user("Anna")

    sent = await anna.says(desk.fs.private_chat(anna), "hello")
    push = sent.push
    assert push is not None
    await desk.fs.wait_until(lambda: push.waiting)
    desk.fs.advance(15)
    await push.acked

    assert push.codes == [500, 200]
    assert len(desk.inbox.accepted) == 1
    assert [key for key, _ in desk.inbox.alerts] == ["", "store", ""]


async def test_what_could_not_be_stored_is_stored_in_order_before_the_platform_repeats_it(
    desk: FeishuHarness,
) -> None:
    desk.inbox.failures = 3
    anna = desk.fs.user("Anna")
    chat = desk.fs.private_chat(anna)

    pushes = [(await anna.says(chat, text)).push for text in ("one", "two")]
    await desk.fs.wait_until(lambda: all(push and push.waiting for push in pushes))

    assert [(await desk.inbox.message(number)).text for number in (1, 2)] == ["one", "two"]
    assert [push and push.codes for push in pushes] == [[500], [500]]
    assert [key for key, _ in desk.inbox.alerts] == ["", "store", ""]


async def test_a_message_in_parts_is_put_together(desk: FeishuHarness) -> None:
    desk.fs.long.split_into = 4
    anna = desk.fs.user("Anna")

    await anna.says(desk.fs.private_chat(anna), "大段文字" * 500)

    assert (await desk.inbox.message()).text == "大段文字" * 500


async def test_messages_passed_on_together_are_read_and_are_nobodys_own_words(
    desk: FeishuHarness,
) -> None:
    fs = desk.fs
    anna, ben = fs.user("Anna"), fs.user("Ben")
    there = fs.group("Others")
    said = [await ben.says(there, "我住在北京"), await ben.says(there, "off the record")]

    await anna.forwards(fs.private_chat(anna), *said)

    message = await desk.inbox.message()
    assert message.forwarded
    assert message.text == "我住在北京\noff the record"


@pytest.mark.parametrize(
    ("text", "forwarded"),
    [
        ("Fwd: I live in Bonn", True),
        ("转发：我住在青岛", True),
        ("I forwarded it: no answer", False),
    ],
)
async def test_a_single_forward_is_nobodys_own_words_where_the_person_says_so(
    desk: FeishuHarness, text: str, forwarded: bool
) -> None:
    anna = desk.fs.user("Anna")

    await anna.says(desk.fs.private_chat(anna), text)

    assert (await desk.inbox.message()).forwarded is forwarded


async def test_in_a_group_only_a_mention_of_the_bot_itself_counts(desk: FeishuHarness) -> None:
    fs = desk.fs
    fs.all_group_messages = True
    anna, bob, chat = fs.user("Anna"), fs.user("Bob"), fs.group("team")

    await anna.says(chat, "{0} and {1} hi", mentions=[bob, "bot"])
    await anna.says(chat, "hi", mentions=[bob])
    await anna.says(chat, "hi", mentions=["all"])
    first, second, third = [await desk.inbox.message(n) for n in (1, 2, 3)]

    assert (first.text, first.addressed) == ("@Bob and  hi", True)
    assert (second.text, second.addressed) == ("@Bob hi", False)
    assert (third.text, third.addressed) == ("@all hi", False)
    assert first.place.title == "team"
    assert len(fs.calls("GET", f"/chats/{chat.chat_id}")) == 1


async def test_an_answer_to_the_bot_is_addressed_to_it(desk: FeishuHarness) -> None:
    fs = desk.fs
    fs.all_group_messages = True
    anna, bob, chat = fs.user("Anna"), fs.user("Bob"), fs.group("team")
    await desk.post(chat, plain("Which one?"))
    theirs = await bob.says(chat, "nothing")

    await anna.says(chat, "this one", reply_to=chat.from_bot[0])
    await anna.says(chat, "what?", reply_to=theirs)

    assert (await desk.inbox.message(2)).addressed is True
    assert (await desk.inbox.message(2)).reply_to == chat.from_bot[0].message_id
    assert (await desk.inbox.message(3)).addressed is False


async def test_a_restarted_bot_still_knows_its_own_messages(desk: FeishuHarness) -> None:
    fs = desk.fs
    fs.all_group_messages = True
    chat = fs.group("team")
    await desk.post(chat, plain("Which one?"))
    desk.transport._messages._own_messages.clear()

    await fs.user("Anna").says(chat, "this one", reply_to=chat.from_bot[0])

    assert (await desk.inbox.message()).addressed is True


async def test_a_topic_is_a_thread_named_by_its_first_message(desk: FeishuHarness) -> None:
    fs = desk.fs
    fs.all_group_messages = True
    anna, chat = fs.user("Anna"), fs.group("topics", topics=True)

    first = await anna.says(chat, "one")
    await anna.says(chat, "two", reply_to=first)

    assert (await desk.inbox.message(1)).place.thread == first.message_id
    assert (await desk.inbox.message(2)).place.thread == first.message_id


async def test_pictures_files_and_rich_text_come_with_their_files(desk: FeishuHarness) -> None:
    fs = desk.fs
    anna = fs.user("Anna")
    chat = fs.private_chat(anna)
    image = await anna.sends_image(chat, b"\x89PNG-data")
    key = image.content.split('"')[3]
    await anna.sends_file(chat, "报告?.pdf", b"figures")
    await anna.sends_post(
        chat,
        "Title",
        [
            [
                {"tag": "text", "text": "see "},
                {"tag": "a", "text": "this", "href": "https://x.org"},
            ],
            [{"tag": "img", "image_key": key}],
        ],
    )
    picture, file, post = [await desk.inbox.message(n) for n in (1, 2, 3)]

    into = desk.home / "in"
    paths = [
        await desk.transport.fetch(message.attachments[0], into)
        for message in (picture, file, file)
    ]

    assert picture.attachments[0].kind is AttachmentKind.IMAGE
    assert [path.name for path in paths] == ["image.png", "报告.pdf", "报告-2.pdf"]
    assert paths[1].read_bytes() == b"figures"
    assert post.text == "Title\nsee [this](https://x.org)"
    assert post.attachments[0].reference["key"] == key


async def test_opening_the_chat_is_an_entry_once(desk: FeishuHarness) -> None:
    anna = desk.fs.user("Anna")

    chat = await anna.opens_chat()
    await anna.opens_chat()
    await asyncio.gather(*(push.acked for push in desk.fs.pushes))

    (entry,) = desk.inbox.accepted
    assert isinstance(entry, IncomingChatOpen)
    assert entry.place.chat == chat.chat_id
    assert entry.sender.external_id == anna.open_id


async def test_being_added_to_a_group_is_an_entry(desk: FeishuHarness) -> None:
    chat = desk.fs.group("team", bot_in=False)

    await (await desk.fs.user("Anna").adds_bot(chat)).acked

    assert desk.inbox.accepted[0].place.title == "team"


async def test_a_menu_key_is_a_command_in_the_private_chat(desk: FeishuHarness) -> None:
    fs = desk.fs
    anna, bob = fs.user("Anna"), fs.user("Bob")
    await anna.says(fs.private_chat(anna), "hello")
    await desk.inbox.message()

    await anna.uses_menu("list")
    known = await desk.inbox.message(2)
    await bob.uses_menu("/status")
    unknown = await desk.inbox.message(3)

    assert (known.text, known.place.chat) == ("/list", fs.private_chat(anna).chat_id)
    assert (unknown.text, unknown.place.chat) == ("/status", bob.open_id)
    letter = desk.letter(fs.private_chat(bob), plain("ok"), reply_to=unknown.message_id)
    await desk.show(replace(letter, chat=replace(letter.chat, external_id=bob.open_id)))
    assert fs.private_chat(bob).from_bot[0].text == "ok"


@pytest.mark.parametrize(
    "event_type",
    [
        "im.message.reaction.created_v1",
        "im.message.recalled_v1",
        "im.message.message_read_v1",
        "im.chat.member.bot.deleted_v1",
        "im.unheard_of_v9",
        "im.message.receive_v1",
        "card.action.trigger",
        "application.bot.menu_v6",
    ],
)
async def test_unknown_and_malformed_events_are_acknowledged(
    desk: FeishuHarness, event_type: str
) -> None:
    push = desk.fs.push_event(event_type, {"message": 7})

    await push.acked

    assert push.codes == [200]
    assert desk.inbox.accepted == []


async def test_a_press_is_answered_with_the_toast_of_the_intake(desk: FeishuHarness) -> None:
    message = await card_on_show(desk)

    answer = await desk.fs.user("Anna").presses(message, "Pause")

    (pressed,) = desk.inbox.presses
    assert (answer.toast, answer.kind) == ("Paused", "success")
    assert (pressed.token, pressed.message_id) == (TOKEN, message.message_id)
    assert pressed.place.kind is ChatKind.PRIVATE
    assert pressed.place.chat == message.chat.chat_id


async def test_a_picked_option_and_a_filled_form_arrive_with_what_was_chosen(
    desk: FeishuHarness,
) -> None:
    anna = desk.fs.user("Anna")
    chat = desk.fs.private_chat(anna)
    pick = SelectBlock(
        placeholder="Model",
        action=ChooseModel(),
        options=(
            SelectOption(label="Fast", value="m-1"),
            SelectOption(label="Long", value="v" * 300),
        ),
        token=TOKEN,
    )
    form = FormBlock(
        fields=(FormField(name="text", label="What?"),), submit="Send", action=SubmitTaskForm()
    )
    forms = (replace(form, token="formformform"), replace(form, submit="Too", token="twotwotwotwo"))
    await desk.post(chat, Card(blocks=(pick, *forms)))
    message = chat.from_bot[0]

    await anna.selects(message, "Fast")
    await anna.selects(message, "Long")
    await anna.presses(message, "Send", text="a haiku")
    await anna.presses(message, "Too", **{"text~2": "another"})
    await anna.forges(message, None, name="submit_formformform~2", form_value={"text": "x"})

    assert [(one.token, one.value, dict(one.form)) for one in desk.inbox.presses] == [
        (TOKEN, "m-1", {}),
        (TOKEN, "#1", {}),
        ("formformform", "", {"text": "a haiku"}),
        ("twotwotwotwo", "", {"text": "another"}),
        ("formformform", "", {"text": "x"}),
    ]


async def test_a_press_in_a_topic_names_the_topic(desk: FeishuHarness) -> None:
    fs = desk.fs
    chat, anna = fs.group("topics", topics=True), fs.user("Anna")
    root = await anna.says(chat, "go", mentions=["bot"])
    await desk.post(chat, task(1), thread=root.message_id)
    message = await chat.wait_for(lambda one: one.buttons)

    await anna.presses(message, "Pause")

    assert desk.inbox.presses[0].place.thread == root.message_id
    assert desk.inbox.presses[0].place.kind is ChatKind.GROUP


async def test_a_press_that_takes_long_gets_a_neutral_toast_in_time(
    desk: FeishuHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.transports.feishu.incoming._PRESS_DEADLINE", 0.05)
    desk.inbox.during_press = asyncio.Event().wait
    message = await card_on_show(desk)

    answer = await desk.fs.user("Anna").presses(message, "Pause")

    assert answer.toast.startswith("On it")


async def test_a_press_that_fails_is_answered_too(desk: FeishuHarness) -> None:
    desk.inbox.press_error = OSError("disk full")
    message = await card_on_show(desk)

    answer = await desk.fs.user("Anna").presses(message, "Pause")

    assert answer.kind == "error"
    assert "disk" not in answer.toast


@pytest.mark.parametrize("value", ["junk", None, {}, {"t": 7}, {"t": "x" * 999}, {"other": 1}])
async def test_a_forged_press_goes_to_the_intake_with_what_it_has(
    desk: FeishuHarness, value: object
) -> None:
    message = await card_on_show(desk)

    await desk.fs.user("Eve").forges(message, value)

    assert desk.inbox.presses[0].token in ("", "x" * 64)


async def test_without_a_connection_a_press_fails_on_the_client(fs: FeishuEmulator) -> None:
    anna = fs.user("Anna")
    message = await anna.says(fs.private_chat(anna), "hi")

    with pytest.raises(CallbackFailed):
        await anna.forges(message, {"t": "x"})


async def test_a_recall_waits_for_a_message_that_is_being_stored(desk: FeishuHarness) -> None:
    anna = desk.fs.user("Anna")
    sent = await anna.says(desk.fs.private_chat(anna), "/run it")
    await desk.fs.push(desk.fs.events.recalled(sent)).acked

    assert desk.inbox.accepted_before_recall == 1


@pytest.mark.parametrize(("by", "taken_back"), [("message_owner", True), ("group_manager", False)])
async def test_its_author_takes_a_message_back_and_a_manager_does_not(
    desk: FeishuHarness, by: str, taken_back: bool
) -> None:
    anna = desk.fs.user("Anna")
    sent = await anna.says(desk.fs.private_chat(anna), "/run it")
    await desk.inbox.message()

    event = desk.fs.events.recalled(sent)
    event["event"]["recall_type"] = by
    await desk.fs.push(event).acked

    assert desk.inbox.recalled == ([sent.message_id] if taken_back else [])
