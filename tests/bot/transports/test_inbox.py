from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.transports.ports import DeliveryRateLimited, FileTooLarge, PlatformUnavailable
from cards.actions import ListTasks, PauseTask
from cards.courier import CardRef
from cards.model import ButtonsBlock, Card, CardButton, TextBlock
from handlers.request import Reply
from storage.errors import StoreUnavailable
from storage.records.messages import AttachmentKind, DeliveryUrgency, IncomingChatOpen, RemoteFile
from storage.records.people import ChatSettings, Language
from tests.bot.transports.inbox_builders import FakeRouter, InboxHarness, inbox_harness, name_of
from tests.bot.transports.outbox_builders import FakeClock, text_card
from tests.storage.message_store import START, group, place, sender


def picture(name: str = "a.png") -> dict[str, Any]:
    file = RemoteFile(kind=AttachmentKind.IMAGE, reference={"id": name}, name=name)
    return {"attachments": (file,), "dedupe": f"file:{name}"}


# --- what is taken in -------------------------------------------------------------------------


async def test_a_message_is_answered_under_its_own_name(desk: InboxHarness) -> None:
    number = await desk.say("hello")

    assert number is not None
    await desk.inbox.wait_handled(number)
    assert await desk.card(f"reply:{number}") == "echo hello"
    assert await desk.post.room.inbox.list_unfinished() == ()


async def test_the_same_message_is_handled_once(desk: InboxHarness) -> None:
    first = await desk.say("hello", dedupe="m1")
    assert first is not None
    await desk.inbox.wait_handled(first)

    assert await desk.say("hello", dedupe="m1") is None
    assert desk.router.begun == ["hello"]


async def test_the_same_message_is_handled_once_over_a_restart(tmp_path: Path) -> None:
    async with inbox_harness(tmp_path) as desk:
        number = await desk.say("hello", dedupe="m1")
        assert number is not None
        await desk.inbox.wait_handled(number)

    async with inbox_harness(tmp_path) as desk:
        assert await desk.say("hello", dedupe="m1") is None
        assert desk.router.begun == []


async def test_a_very_long_name_of_a_message_still_tells_repeats(desk: InboxHarness) -> None:
    assert await desk.say("one", dedupe="x" * 500 + "1") is not None
    assert await desk.say("two", dedupe="x" * 500 + "2") is not None
    assert await desk.say("one", dedupe="x" * 500 + "1") is None


async def test_talk_in_a_group_that_is_not_meant_for_us_leaves_no_trace(desk: InboxHarness) -> None:
    assert await desk.say("gossip", place=group(), addressed=False) is None
    assert await desk.say("beep", sender=sender(is_bot=True)) is None

    assert await desk.count("SELECT count(*) FROM inbox") == 0
    assert await desk.count("SELECT count(*) FROM chats") == 0


async def test_what_is_addressed_to_us_in_a_group_is_answered_there_as_a_reply(
    desk: InboxHarness,
) -> None:
    number = await desk.say("@bot hi", place=group(thread="7"), message_id="55")

    assert number is not None
    await desk.inbox.wait_handled(number)
    row = await desk.post.room.outbox.find_by_key(f"reply:{number}")
    chat = await desk.post.room.chats.find(group(thread="7"))
    assert row is not None
    assert chat is not None
    assert (row.reply_to, row.chat_id) == ("55", chat.id)


async def test_in_private_answers_are_no_replies(desk: InboxHarness) -> None:
    number = await desk.say("hi", message_id="55")

    assert number is not None
    await desk.inbox.wait_handled(number)
    row = await desk.post.room.outbox.find_by_key(f"reply:{number}")
    assert row is not None
    assert row.reply_to == ""


async def test_a_message_from_long_ago_is_kept_but_not_acted_on(desk: InboxHarness) -> None:
    old = await desk.say("old", sent_at=START - timedelta(hours=12, seconds=1))
    recent = await desk.say("recent", sent_at=START - timedelta(hours=11))

    assert old is not None
    assert recent is not None
    await desk.inbox.wait_handled(old)
    await desk.inbox.wait_handled(recent)
    assert desk.router.begun == ["recent"]
    assert await desk.say("old", sent_at=START) is None


async def test_dirt_is_gone_before_anybody_sees_it(desk: InboxHarness) -> None:
    number = await desk.say("a\x00b\ud800", dedupe="dirt", sender=sender(name="x\u202ey"))

    assert number is not None
    await desk.inbox.wait_handled(number)
    (row, _) = desk.router.handled[0]
    assert row.incoming.sender.name == "xy"
    assert desk.router.begun == ["ab\ufffd"]


async def test_an_entry_is_handled_like_a_message(desk: InboxHarness) -> None:
    number = await desk.inbox.accept(IncomingChatOpen(place=place(), sender=sender()), dedupe="e1")

    assert number is not None
    await desk.inbox.wait_handled(number)
    assert desk.router.begun == ["entry"]


async def test_what_cannot_be_stored_is_not_acknowledged(
    desk: InboxHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object, **__: object) -> None:
        raise StoreUnavailable("disk full")

    monkeypatch.setattr(desk.post.room.inbox, "accept", full)
    with pytest.raises(StoreUnavailable):
        await desk.say("hello")

    assert desk.router.arrived == []


# --- order ------------------------------------------------------------------------------------


async def test_a_chat_is_served_in_order_and_others_meanwhile(desk: InboxHarness) -> None:
    desk.router.gates["slow"] = asyncio.Event()
    await desk.say("slow")
    await desk.say("next")
    await desk.say("elsewhere", place=place("43"), sender=sender("43"))

    await desk.router.until(lambda: "elsewhere" in desk.router.done)
    assert desk.router.begun == ["slow", "elsewhere"]
    desk.router.gates["slow"].set()
    await desk.router.until(lambda: "next" in desk.router.done)

    assert desk.router.done == ["elsewhere", "slow", "next"]


async def test_control_words_and_presses_do_not_wait_for_their_turn(desk: InboxHarness) -> None:
    desk.router.gates["slow"] = asyncio.Event()
    await desk.say("slow")
    await desk.router.until(lambda: "slow" in desk.router.begun)

    await desk.say("/stop")
    await desk.press("token")
    await desk.router.until(lambda: {"/stop", "token"} <= set(desk.router.done))

    assert "slow" not in desk.router.done


async def test_every_new_message_is_announced_before_its_turn(desk: InboxHarness) -> None:
    desk.router.gates["slow"] = asyncio.Event()
    await desk.say("slow")
    await desk.say("next")

    assert [name_of(row) for row in desk.router.arrived] == ["slow", "next"]


# --- failures and restarts --------------------------------------------------------------------


async def test_a_failure_is_tried_again_and_then_forgotten(desk: InboxHarness) -> None:
    desk.router.failures["shaky"] = [ZeroDivisionError("oops")]

    number = await desk.say("shaky")
    assert number is not None
    await desk.clock.someone_sleeps(1)
    desk.clock.advance(1)
    await desk.inbox.wait_handled(number)

    assert await desk.card(f"reply:{number}") == "echo shaky"


@pytest.mark.parametrize(
    ("text", "told"), [("please break now", "skipped it"), ("请坏掉", "已跳过")]
)
async def test_after_three_failures_it_is_put_aside_with_an_apology_and_the_next_gets_its_turn(
    desk: InboxHarness, text: str, told: str
) -> None:
    desk.router.failures[text] = [ZeroDivisionError("oops") for _ in range(9)]
    number = await desk.say(text)
    following = await desk.say("next")
    assert number is not None
    assert following is not None

    for pause in (1, 5):
        await desk.clock.someone_sleeps(pause)
        desk.clock.advance(pause)
    await desk.inbox.wait_handled(following)

    assert desk.router.begun == [text] * 3 + ["next"]
    apology = await desk.card(f"reply:{number}")
    assert told in apology
    assert str(number) in apology
    assert await desk.count("SELECT count(*) FROM inbox WHERE state = 'failed'") == 1


async def test_what_was_stored_but_not_handled_before_a_kill_is_handled_after_it(
    tmp_path: Path,
) -> None:
    async with inbox_harness(tmp_path, started=False) as desk:
        for text in ("one", "two", "three"):
            await desk.say(text)
        assert desk.router.begun == []

    async with inbox_harness(tmp_path) as desk:
        await desk.router.until(lambda: len(desk.router.done) == 3)

        assert desk.router.done == ["one", "two", "three"]
        assert desk.router.arrived == []


async def test_a_kill_while_handling_handles_again_and_answers_once(tmp_path: Path) -> None:
    async with inbox_harness(tmp_path) as desk:
        desk.router.gates["work"] = asyncio.Event()
        number = await desk.say("work")
        await desk.router.until(lambda: desk.router.begun == ["work"])

    async with inbox_harness(tmp_path) as desk:
        assert number is not None
        await desk.inbox.wait_handled(number)
        assert await desk.card(f"reply:{number}") == "echo work"

    async with inbox_harness(tmp_path) as desk:
        after = await desk.say("after")
        assert after is not None
        await desk.inbox.wait_handled(after)
        assert desk.router.begun == ["after"]
        assert await desk.count("SELECT count(*) FROM outbox WHERE key LIKE 'reply:%'") == 2


async def test_a_message_that_kills_the_program_is_put_aside_at_the_seventh_start(
    tmp_path: Path,
) -> None:
    for start in range(6):
        router = FakeRouter()
        router.gates["poison"] = asyncio.Event()
        async with inbox_harness(tmp_path, router=router) as desk:
            if not start:
                await desk.say("poison")
            await router.until(lambda: router.begun == ["poison"])  # noqa: B023 - awaited at once

    async with inbox_harness(tmp_path) as desk:
        await desk.say("healthy")
        await desk.router.until(lambda: "healthy" in desk.router.done)

        assert desk.router.begun == ["healthy"]
        assert "skipped it" in await desk.card("reply:1")


async def test_the_reply_and_the_end_of_its_message_are_stored_together(
    desk: InboxHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    troubles: list[Exception] = [StoreUnavailable("disk full")]
    really = desk.post.room.inbox.mark_handled

    async def handled(*facts: Any, **more: Any) -> None:
        if troubles:
            raise troubles.pop()
        await really(*facts, **more)

    monkeypatch.setattr(desk.post.room.inbox, "mark_handled", handled)
    number = await desk.say("hello")
    assert number is not None
    await desk.clock.someone_sleeps(1)
    assert await desk.card(f"reply:{number}") == ""

    desk.clock.advance(1)
    await desk.inbox.wait_handled(number)

    assert await desk.card(f"reply:{number}") == "echo hello"
    assert desk.router.begun == ["hello"]


# --- files ------------------------------------------------------------------------------------


async def test_a_picture_waits_ten_seconds_for_the_words_that_belong_to_it(
    desk: InboxHarness,
) -> None:
    await desk.say("", **picture())
    await desk.clock.someone_sleeps(10)
    desk.clock.advance(9)

    number = await desk.say("what is this?")
    assert number is not None
    await desk.inbox.wait_handled(number)

    ((row, files),) = desk.router.handled
    assert row.id == number
    assert files == ("files/inbox/1/a.png",)
    assert (desk.home / files[0]).read_text() == "bytes of a.png"
    assert await desk.post.room.inbox.list_unfinished() == ()


async def test_a_picture_without_words_is_handled_alone_after_ten_seconds(
    desk: InboxHarness,
) -> None:
    number = await desk.say("", **picture())
    assert number is not None
    await desk.clock.someone_sleeps(10)

    desk.clock.advance(10)
    await desk.inbox.wait_handled(number)

    assert [files for _, files in desk.router.handled] == [("files/inbox/1/a.png",)]


async def test_a_picture_does_not_wait_for_a_clock_that_was_set_back(tmp_path: Path) -> None:
    clock = FakeClock()
    async with inbox_harness(tmp_path, clock=clock) as desk:
        number = await desk.say("", **picture())
        await clock.someone_sleeps(10)
    clock.advance(-3600)

    async with inbox_harness(tmp_path, clock=clock) as desk:
        assert number is not None
        await desk.inbox.wait_handled(number)

        assert [row.id for row, _ in desk.router.handled] == [number]


async def test_several_pictures_go_with_the_words_after_them(desk: InboxHarness) -> None:
    await desk.say("", **picture("a.png"))
    await desk.say("", **picture("b.png"))
    number = await desk.say("compare", attachments=picture("c.png")["attachments"])

    assert number is not None
    await desk.inbox.wait_handled(number)
    ((_, files),) = desk.router.handled
    assert files == ("files/inbox/1/a.png", "files/inbox/2/b.png", "files/inbox/3/c.png")


async def test_somebody_elses_words_do_not_take_the_picture(desk: InboxHarness) -> None:
    await desk.say("", place=group(), **picture())
    number = await desk.say("mine", place=group(), sender=sender("43"))

    assert number is not None
    await desk.inbox.wait_handled(number)
    assert [(row.id, bool(files)) for row, files in desk.router.handled] == [(1, True), (2, False)]


async def test_after_a_restart_a_picture_still_belongs_to_its_words(tmp_path: Path) -> None:
    clock = FakeClock()
    async with inbox_harness(tmp_path, clock=clock, started=False) as desk:
        await desk.say("", **picture())
        clock.advance(5)
        await desk.say("what is this?")
        clock.advance(3600)

    async with inbox_harness(tmp_path, clock=clock) as desk:
        await desk.router.until(lambda: len(desk.router.done) == 1)

        ((row, files),) = desk.router.handled
        assert (row.id, files) == (2, ("files/inbox/1/a.png",))


async def test_two_files_of_one_name_stay_two_files(desk: InboxHarness) -> None:
    twins = picture()["attachments"] * 2

    number = await desk.say("both", attachments=twins)
    assert number is not None
    await desk.inbox.wait_handled(number)

    ((_, files),) = desk.router.handled
    assert files == ("files/inbox/1/a.png", "files/inbox/1/2/a.png")


async def test_nothing_of_a_strangers_is_fetched(desk: InboxHarness) -> None:
    desk.router.strangers.add("look at this")

    number = await desk.say("look at this", attachments=picture()["attachments"])
    assert number is not None
    await desk.inbox.wait_handled(number)

    ((_, files),) = desk.router.handled
    assert files == ()
    assert not (desk.home / "files").exists()


async def test_a_reply_introduces_a_card_of_somebody_elses_and_never_overwrites_it(
    desk: InboxHarness,
) -> None:
    chat = await desk.post.room.chat()
    await desk.post.courier.send(
        chat.id, text_card("newer"), key="task:k", urgency=DeliveryUrgency.PROGRESS
    )
    desk.router.replies["hi"] = Reply(card=text_card("older"), key="task:k")
    desk.router.replies["ho"] = Reply(card=text_card("first"), key="task:m")

    for text in ("hi", "ho"):
        number = await desk.say(text)
        assert number is not None
        await desk.inbox.wait_handled(number)

    assert (await desk.card("task:k"), await desk.card("task:m")) == ("newer", "first")


async def test_a_file_that_is_too_large_is_named_and_the_rest_goes_on(desk: InboxHarness) -> None:
    desk.telegram.files["big.zip"] = FileTooLarge("21 MB")
    both = picture("big.zip")["attachments"] + picture()["attachments"]

    number = await desk.say("look at these two files", attachments=both)
    assert number is not None
    await desk.inbox.wait_handled(number)

    ((_, files),) = desk.router.handled
    assert files == ("files/inbox/1/2/a.png",)
    assert "big.zip is too large" in await desk.card(f"files:{number}")


async def test_a_lone_file_that_cannot_be_had_is_not_handled_as_nothing(desk: InboxHarness) -> None:
    desk.telegram.files["a.png"] = FileTooLarge("21 MB")
    number = await desk.say("", **picture())
    assert number is not None
    await desk.clock.someone_sleeps(10)
    desk.clock.advance(10)
    await desk.inbox.wait_handled(number)

    assert desk.router.handled == []
    assert "a.png is too large" in await desk.card(f"files:{number}")
    assert await desk.post.room.inbox.list_unfinished() == ()


async def test_a_flaky_download_is_tried_again(desk: InboxHarness) -> None:
    desk.telegram.files["a.png"] = PlatformUnavailable("503")
    number = await desk.say("look", attachments=picture()["attachments"])
    assert number is not None
    await desk.clock.someone_sleeps(2)
    desk.telegram.files.clear()
    desk.clock.advance(2)
    await desk.inbox.wait_handled(number)

    assert [files for _, files in desk.router.handled] == [("files/inbox/1/a.png",)]


async def test_a_transport_cannot_smuggle_a_file_from_elsewhere(
    desk: InboxHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fetch(_: RemoteFile, into: Path) -> Path:
        return into / ".." / ".." / "secret"

    monkeypatch.setattr(desk.telegram, "fetch", fetch)
    number = await desk.say("look at this file", attachments=picture()["attachments"])
    assert number is not None
    await desk.inbox.wait_handled(number)

    assert [files for _, files in desk.router.handled] == [()]
    assert "couldn't download a.png" in await desk.card(f"files:{number}")


# --- presses ----------------------------------------------------------------------------------


async def test_a_press_gets_the_toast_of_its_reply(desk: InboxHarness) -> None:
    desk.router.replies["t"] = Reply(toast="Paused.", good=False)

    toast = await desk.press("t")

    assert (toast.text, toast.good) == ("Paused.", False)


async def test_a_press_without_a_toast_still_gets_an_answer(desk: InboxHarness) -> None:
    assert (await desk.press("t")).text == "✓"


async def test_a_slow_press_is_told_that_work_goes_on_and_gets_its_card_later(
    desk: InboxHarness,
) -> None:
    desk.router.gates["t"] = asyncio.Event()
    pressed = asyncio.create_task(desk.press("t", wait_seconds=2))
    await desk.clock.someone_sleeps(2)
    desk.clock.advance(2)
    toast = await pressed

    assert (toast.text, toast.good) == ("On it…", True)
    desk.router.gates["t"].set()
    await desk.inbox.wait_handled((await desk.post.room.inbox.list_unfinished())[0].id)
    assert await desk.card("reply:1") == "echo t"


async def test_a_toast_that_comes_too_late_comes_as_a_message(desk: InboxHarness) -> None:
    desk.router.gates["t"] = asyncio.Event()
    desk.router.replies["t"] = Reply(toast="Already used by Lin.", good=False)
    desk.post.run()
    pressed = asyncio.create_task(desk.press("t", wait_seconds=2))
    await desk.clock.someone_sleeps(2)
    desk.clock.advance(2)
    await pressed

    desk.router.gates["t"].set()
    await desk.telegram.sent(1)

    assert desk.telegram.texts == ["Already used by Lin."]


async def test_the_same_press_delivered_again_does_nothing(desk: InboxHarness) -> None:
    await desk.press("t", dedupe="p1")

    toast = await desk.press("t", dedupe="p1")

    assert "Already" in toast.text
    assert desk.router.begun == ["t"]


async def test_a_card_turned_in_place_is_an_edit_of_the_card_that_was_pressed(
    desk: InboxHarness,
) -> None:
    chat = await desk.post.room.chat()
    desk.post.run()
    page = Card(
        blocks=(
            TextBlock(markdown="page 1"),
            ButtonsBlock(items=(CardButton(label="2", action=ListTasks(page=2)),)),
        )
    )
    await desk.post.courier.send(chat.id, page, key="list", urgency=DeliveryUrgency.ANSWER)
    await desk.post.settled("list")
    desk.router.replies["t"] = Reply(card=text_card("page 2"), key="list", in_place=True)

    await desk.press("t")
    await desk.telegram.sent(2)

    assert desk.telegram.texts == ["page 1", "page 2"]
    assert desk.telegram.letters[1].placed is not None


async def test_a_press_belongs_to_the_thread_in_which_its_card_stands(desk: InboxHarness) -> None:
    chat = await desk.post.room.chat(group(thread="7"))
    desk.post.run()
    card = Card(
        blocks=(ButtonsBlock(items=(CardButton(label="x", action=PauseTask(task_id="a")),)),)
    )
    await desk.post.courier.send(chat.id, card, key="k", urgency=DeliveryUrgency.ANSWER)
    await desk.post.settled("k")

    await desk.press("t", place=group(), message_id="m1")

    assert desk.router.handled[0][0].chat_id == chat.id


async def test_a_press_not_handled_before_a_kill_is_handled_after_it(tmp_path: Path) -> None:
    async with inbox_harness(tmp_path) as desk:
        desk.router.gates["t"] = asyncio.Event()
        pressed = asyncio.create_task(desk.press("t"))
        await desk.router.until(lambda: desk.router.begun == ["t"])
        pressed.cancel()
        await asyncio.gather(pressed, return_exceptions=True)

    async with inbox_harness(tmp_path) as desk:
        await desk.router.until(lambda: desk.router.done == ["t"])
        await desk.inbox.wait_handled(desk.router.handled[0][0].id)

        assert await desk.card("reply:1") == "echo t"


async def test_a_press_that_fails_three_times_says_so(desk: InboxHarness) -> None:
    desk.router.failures["t"] = [ZeroDivisionError("oops") for _ in range(3)]
    pressed = asyncio.create_task(desk.press("t", wait_seconds=60))
    for pause in (1, 5):
        await desk.clock.someone_sleeps(pause)
        desk.clock.advance(pause)

    toast = await pressed

    assert (toast.good, "didn't work" in toast.text) == (False, True)
    assert "skipped it" in await desk.card("reply:1")


# --- signs of life ----------------------------------------------------------------------------


async def test_typing_is_shown_after_a_second_and_kept_up(desk: InboxHarness) -> None:
    desk.router.gates["slow"] = asyncio.Event()
    number = await desk.say("slow")
    assert number is not None
    await desk.clock.someone_sleeps(1)
    assert desk.telegram.typed == []

    desk.clock.advance(1)
    await desk.telegram.until(lambda: len(desk.telegram.typed) == 1)
    await desk.clock.someone_sleeps(4)
    desk.clock.advance(4)
    await desk.telegram.until(lambda: len(desk.telegram.typed) == 2)
    desk.router.gates["slow"].set()
    await desk.inbox.wait_handled(number)
    desk.clock.advance(60)

    assert len(desk.telegram.typed) == 2


async def test_a_chat_that_rests_after_a_429_sees_no_typing(desk: InboxHarness) -> None:
    chat = await desk.post.room.chat()
    desk.telegram.script.append(DeliveryRateLimited(30))
    desk.post.run()
    await desk.post.say(chat, "x")
    await desk.telegram.sent(1)
    await desk.clock.someone_sleeps(30)
    desk.router.gates["slow"] = asyncio.Event()
    await desk.say("slow")
    await desk.clock.someone_sleeps(1)

    desk.clock.advance(1)
    await desk.clock.someone_sleeps(4)

    assert desk.telegram.typed == []


async def test_an_answer_can_be_streamed_under_the_name_of_its_reply(desk: InboxHarness) -> None:
    desk.post.run()
    desk.router.gates["talk"] = asyncio.Event()
    number = await desk.say("talk")
    await desk.router.until(lambda: desk.router.begun == ["talk"])

    await desk.post.courier.stream(CardRef(key=f"reply:{number}", revision=0), "so far")
    await desk.telegram.until(lambda: desk.telegram.streamed == ["so far"])
    desk.router.gates["talk"].set()
    await desk.telegram.sent(1)

    assert desk.telegram.texts == ["echo talk"]


async def test_a_chat_with_a_language_of_its_own_is_spoken_to_in_it(desk: InboxHarness) -> None:
    chat = await desk.post.room.chat()
    await desk.post.room.people.update_chat_settings(chat, ChatSettings(language=Language.CHINESE))
    desk.router.gates["t"] = asyncio.Event()
    pressed = asyncio.create_task(desk.press("t"))
    await desk.clock.someone_sleeps(2)
    desk.clock.advance(2)

    assert (await pressed).text == "正在处理…"


async def test_what_is_long_done_is_forgotten_once_a_day(desk: InboxHarness) -> None:
    number = await desk.say("hello")
    assert number is not None
    await desk.inbox.wait_handled(number)
    housekeeping = asyncio.create_task(desk.inbox.run())
    await desk.clock.someone_sleeps(24 * 3600)
    assert await desk.count("SELECT count(*) FROM inbox") == 1

    for _ in range(8):
        await desk.clock.someone_sleeps(24 * 3600)
        desk.clock.advance(24 * 3600)
    await desk.clock.someone_sleeps(24 * 3600)
    housekeeping.cancel()
    await asyncio.gather(housekeeping, return_exceptions=True)

    assert await desk.count("SELECT count(*) FROM inbox") == 0


async def test_what_was_sent_away_is_not_answered_by_the_next_life(tmp_path: Path) -> None:
    async with inbox_harness(tmp_path) as desk:
        desk.router.gates["slow"] = asyncio.Event()
        desk.router.refusals["too many"] = Reply(card=Card(blocks=(TextBlock(markdown="not now"),)))
        await desk.say("slow")
        await desk.router.until(lambda: desk.router.begun == ["slow"])
        refused = await desk.say("too many")

        assert await desk.card(f"reply:{refused}") == "not now"

    async with inbox_harness(tmp_path) as desk:
        await desk.router.until(lambda: "slow" in desk.router.done)

        assert "too many" not in desk.router.begun
        assert await desk.card(f"reply:{refused}") == "not now"


async def test_what_is_typed_in_a_shell_does_not_wait_for_the_chats_answer(
    desk: InboxHarness,
) -> None:
    """Nor does the chat wait for it; those of a shell wait for each other."""
    for slow in ("slow", "slow command"):
        desk.router.gates[slow] = asyncio.Event()
    await desk.say("slow")
    await desk.router.until(lambda: desk.router.begun == ["slow"])

    await desk.say("slow command", quiet=True)
    second = await desk.say("second command", quiet=True)
    await desk.router.until(lambda: desk.router.begun == ["slow", "slow command"])
    desk.router.gates["slow command"].set()
    assert second is not None
    await desk.inbox.wait_handled(second)

    assert desk.router.done == ["slow command", "second command"]
    desk.router.gates["slow"].set()
