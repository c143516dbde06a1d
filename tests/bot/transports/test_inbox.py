from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.transports import inbox
from bot.transports.chat_queue import PACE_BURST, PACE_INTERVAL
from bot.transports.ports import (
    DeliveryRateLimited,
    DeliveryUncertain,
    FileTooLarge,
    PlatformUnavailable,
)
from cards.actions import ListTasks, PauseTask
from cards.courier import CardRef
from cards.model import ButtonsBlock, Card, CardButton, TextBlock
from handlers.request import Reply, Silence
from storage.errors import StoreUnavailable
from storage.records.messages import (
    AttachmentKind,
    DeliveryUrgency,
    InboxId,
    IncomingChatOpen,
    MessagePlacement,
    RemoteFile,
)
from storage.records.people import Language
from tests.bot.transports.inbox_builders import FakeRouter, InboxHarness, inbox_harness, name_of
from tests.bot.transports.outbox_builders import FakeClock, text_card
from tests.storage.message_store import START, group, place, sender
from tests.waiting import wait_until


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


LATE = timedelta(hours=12, seconds=1)


async def say_late(desk: InboxHarness, *texts: str) -> list[InboxId]:
    numbers = [await desk.say(text, sent_at=desk.clock.now() - LATE) for text in texts]
    return [number for number in numbers if number is not None]


async def outcomes(desk: InboxHarness) -> dict[int, str]:
    async with desk.post.room.db.read() as view:
        rows = await view.exec_driver_sql("SELECT id, outcome FROM inbox ORDER BY id")
        return {row.id: row.outcome for row in rows}


async def test_messages_from_long_ago_are_offered_on_one_card(desk: InboxHarness) -> None:
    old, older = await say_late(desk, "count the [chairs](x)", "and tables")
    recent = await desk.say("recent", sent_at=desk.clock.now() - timedelta(hours=11))

    assert recent is not None
    await desk.inbox.wait_handled(recent)
    assert desk.router.begun == ["recent"]
    offer = await desk.card(f"held:{old}")
    assert "2 messages are waiting for your decision" in offer
    assert "count the" in offer
    assert "and tables" in offer
    assert await desk.card(f"held:{older}") == ""
    assert await desk.say("count the [chairs](x)", sent_at=START) is None


async def test_offered_messages_are_handled_in_order_over_a_restart(tmp_path: Path) -> None:
    async with inbox_harness(tmp_path) as desk:
        (old, _) = await say_late(desk, "first", "second")

    async with inbox_harness(tmp_path) as desk:
        assert desk.router.begun == []
        row = await desk.post.room.outbox.find_by_key(f"held:{old}")
        assert row is not None
        assert await desk.inbox.held.release(row.chat_id) == 2
        await desk.router.until(lambda: desk.router.done == ["first", "second"])
        assert await desk.inbox.held.release(row.chat_id) == 0


async def test_offered_messages_are_kept_until_somebody_decides(desk: InboxHarness) -> None:
    (old,) = await say_late(desk, "old")
    offer = await desk.post.room.outbox.find_by_key(f"held:{old}")
    assert offer is not None

    later = desk.clock.now() + timedelta(days=400)
    assert await desk.post.room.inbox.prune(now=later) == 0
    assert await desk.inbox.held.drop(offer.chat_id) == 1

    assert await outcomes(desk) == {old: "dropped"}
    assert await desk.post.room.inbox.prune(now=later) == 1
    (new,) = await say_late(desk, "another")
    assert "another" in await desk.card(f"held:{new}")


async def test_a_stranger_who_comes_late_is_offered_nothing(desk: InboxHarness) -> None:
    desk.router.strangers.add("old")
    (old,) = await say_late(desk, "old")

    await desk.inbox.wait_handled(old)
    assert desk.router.begun == ["old"]
    assert await desk.card(f"held:{old}") == ""


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


@pytest.mark.parametrize("is_slow", [False, True])
async def test_a_message_waits_for_the_command_sent_before_it_but_not_for_long(
    desk: InboxHarness, is_slow: bool
) -> None:
    """The command may be `/incognito`, and both may have arrived in one batch."""
    gate = desk.router.gates["/stop"] = asyncio.Event()
    await desk.say("/stop")
    await desk.say("secret")
    await desk.clock.someone_sleeps(5.0)
    assert "secret" not in desk.router.begun

    if is_slow:
        desk.clock.advance(5.0)
    else:
        gate.set()
    await desk.router.until(lambda: "secret" in desk.router.done)


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
            if start > 1:
                # A message that was begun before a second death waits a while first.
                await desk.clock.someone_sleeps(2.0**start)
                assert router.begun == []
                desk.clock.advance(2.0**start)
            await router.until(lambda: router.begun == ["poison"])  # noqa: B023 - awaited at once

    async with inbox_harness(tmp_path) as desk:
        healthy = await desk.say("healthy")
        assert healthy is not None
        await desk.clock.someone_sleeps(60.0)
        assert desk.router.begun == []
        desk.clock.advance(60.0)
        await desk.inbox.wait_handled(healthy)

        assert desk.router.begun == ["healthy"]
        assert "skipped it: “poison”" in await desk.card("reply:1")


async def test_newer_messages_wait_behind_one_that_short_lives_have_cut_off(tmp_path: Path) -> None:
    for start in range(3):
        router = FakeRouter()
        router.gates["slow"] = asyncio.Event()
        async with inbox_harness(tmp_path, router=router) as desk:
            if not start:
                await desk.say("slow")
            elif start > 1:
                await desk.say("newer")
                await desk.clock.someone_sleeps(4.0)
                desk.clock.advance(4.0)
            await router.until(lambda: router.begun == ["slow"])  # noqa: B023 - awaited at once

    async with inbox_harness(tmp_path) as desk:
        newest = await desk.say("newest")
        await desk.say("/stop it")
        await desk.router.until(lambda: desk.router.done == ["/stop it"])
        await desk.clock.someone_sleeps(8.0)
        desk.clock.advance(8.0)
        assert newest is not None
        await desk.inbox.wait_handled(newest)

        assert desk.router.done == ["/stop it", "slow", "newer", "newest"]


async def test_the_reply_and_the_end_of_its_message_are_stored_together(
    desk: InboxHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    troubles: list[Exception] = [StoreUnavailable("disk full")]
    really = desk.post.room.inbox.settle

    async def handled(*facts: Any, **more: Any) -> None:
        if troubles:
            raise troubles.pop()
        await really(*facts, **more)

    monkeypatch.setattr(desk.post.room.inbox, "settle", handled)
    number = await desk.say("hello")
    assert number is not None
    await desk.clock.someone_sleeps(1)
    assert await desk.card(f"reply:{number}") == ""

    desk.clock.advance(1)
    await desk.inbox.wait_handled(number)

    assert await desk.card(f"reply:{number}") == "echo hello"
    assert desk.router.begun == ["hello"]


# --- how fast ---------------------------------------------------------------------------------


async def test_a_backlog_sent_over_hours_is_handled_at_once_and_in_order(
    desk: InboxHarness,
) -> None:
    texts = [f"message {number}" for number in range(500)]
    for number, text in enumerate(texts):
        await desk.say(text, sent_at=desk.clock.now() - timedelta(seconds=60 * (500 - number)))

    await desk.router.until(lambda: len(desk.router.done) == 500)
    assert desk.router.done == texts


async def test_who_sends_too_fast_is_answered_slowly_and_completely(desk: InboxHarness) -> None:
    texts = [f"message {number}" for number in range(200)]
    for text in texts:
        await desk.say(text)
    await desk.router.until(lambda: len(desk.router.done) == PACE_BURST)
    assert "None is lost" in await desk.card(f"paced:{PACE_BURST + 1}")

    for _ in range(200 - PACE_BURST):
        await desk.clock.someone_sleeps(PACE_INTERVAL)
        desk.clock.advance(PACE_INTERVAL)
    await desk.router.until(lambda: len(desk.router.done) == 200)
    await desk.inbox.wait_handled(InboxId(200))

    assert desk.router.done == texts
    assert await desk.count("SELECT count(*) FROM outbox WHERE key LIKE 'paced:%'") == 1
    assert set((await outcomes(desk)).values()) == {
        f"card reply:{number}" for number in range(1, 201)
    }


async def test_haste_is_nobody_elses_and_stops_neither_presses_nor_stop(
    desk: InboxHarness,
) -> None:
    for number in range(PACE_BURST + 5):
        await desk.say(f"message {number}")

    stop = await desk.say("/stop")
    other = await desk.say("from another chat", place=place("c2"))
    assert stop is not None
    assert other is not None
    await desk.inbox.wait_handled(stop)
    await desk.inbox.wait_handled(other)
    assert (await desk.press("button")).text == "✓"


async def test_too_many_to_wait_are_offered(
    desk: InboxHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "MAX_DELAYED", 3)
    for number in range(PACE_BURST + 5):
        await desk.say(f"message {number}")

    offer = await desk.card(f"held:{PACE_BURST + 4}")
    assert "2 messages are waiting for your decision" in offer


# --- what interrupts an answer ----------------------------------------------------------------


def interrupt(desk: InboxHarness, *texts: str) -> None:
    for text in texts:
        desk.router.gates[text] = asyncio.Event()
        desk.router.replies[text] = Reply(silence=Silence.INTERRUPTED)


async def test_an_interrupted_message_is_answered_with_the_next(desk: InboxHarness) -> None:
    interrupt(desk, "first", "second")
    desk.router.replies["third"] = Reply(card=text_card("for all"), joined=("inbox:1", "inbox:2"))
    for text in ("first", "second", "third"):
        await desk.say(text)
    desk.router.gates["first"].set()
    desk.router.gates["second"].set()
    for each in (1, 2, 3):
        await desk.inbox.wait_handled(InboxId(each))

    assert desk.router.interrupted[-1] == ("third", ("first", "second"))
    assert await outcomes(desk) == {1: "joined 3", 2: "joined 3", 3: "card reply:3"}


async def test_what_the_next_did_not_answer_is_answered_by_itself(desk: InboxHarness) -> None:
    interrupt(desk, "question")
    desk.router.gates["/run it"] = asyncio.Event()
    await desk.say("question")
    await desk.say("/run it")
    desk.router.gates["question"].set()
    await desk.router.until(lambda: "/run it" in desk.router.begun)
    del desk.router.replies["question"]
    desk.router.gates["/run it"].set()
    await desk.inbox.wait_handled(InboxId(1))

    assert desk.router.begun == ["question", "/run it", "question"]
    assert await outcomes(desk) == {1: "card reply:1", 2: "card reply:2"}


async def test_an_interrupted_message_is_not_lost_with_the_process(tmp_path: Path) -> None:
    async with inbox_harness(tmp_path) as desk:
        interrupt(desk, "first", "second")
        await desk.say("first")
        await desk.say("second")
        desk.router.gates["first"].set()
        await desk.router.until(lambda: desk.router.begun == ["first", "second"])

    async with inbox_harness(tmp_path) as desk:
        await desk.router.until(lambda: desk.router.done == ["first", "second"])


async def test_a_message_nobody_had_a_reply_for_says_so(
    desk: InboxHarness, caplog: pytest.LogCaptureFixture
) -> None:
    desk.router.replies["hm"] = Reply()
    number = await desk.say("hm")

    assert number is not None
    await desk.inbox.wait_handled(number)
    assert "no reply" in await desk.card(f"reply:{number}")
    assert "handled without a reply" in caplog.text


async def test_a_press_left_by_the_last_process_is_answered_in_the_chat(tmp_path: Path) -> None:
    async with inbox_harness(tmp_path, started=False) as desk:
        await desk.inbox.drain()
        assert "back" in (await desk.press("button")).text

    router = FakeRouter()
    router.replies["button"] = Reply(toast="Paused")
    async with inbox_harness(tmp_path, router=router) as desk:
        await desk.inbox.wait_handled(InboxId(1))
        assert await desk.card("reply:1") == "Paused"


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


async def test_what_the_chat_has_chosen_counts_from_its_next_message_on(desk: InboxHarness) -> None:
    chat = await desk.post.room.chat()
    desk.router.gates["tell me"] = asyncio.Event()
    await desk.say("tell me")
    await desk.router.until(lambda: desk.router.begun == ["tell me"])

    await desk.post.room.people.update_chat_settings(chat, queue="wait")
    await desk.say("and this")

    assert desk.router.modes == ["", "wait"]


async def test_a_chat_with_a_language_of_its_own_is_spoken_to_in_it(desk: InboxHarness) -> None:
    chat = await desk.post.room.chat()
    await desk.post.room.people.update_chat_settings(chat, language=Language.CHINESE)
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


async def test_a_bare_command_in_a_group_is_ours_unless_a_stranger_sends_it(
    desk: InboxHarness,
) -> None:
    desk.router.strangers.add("/start")
    known = await desk.say("/approve ap7x2k", place=group(), addressed=False)
    talk = await desk.say("approve it", place=group(), addressed=False)
    stranger = await desk.say("/start", place=group(), addressed=False)

    assert known is not None
    await desk.inbox.wait_handled(known)
    assert desk.router.begun == ["/approve ap7x2k"]
    assert (talk, stranger) == (None, None)


async def recall(desk: InboxHarness, dedupe: str) -> None:
    await desk.inbox.recall(place().channel, dedupe=dedupe)


async def test_a_recalled_message_that_waits_is_dropped(desk: InboxHarness) -> None:
    desk.router.gates["slow"] = asyncio.Event()
    await desk.say("slow", dedupe="m1")
    await desk.say("waits", dedupe="m2")
    (late,) = await say_late(desk, "late")
    await recall(desk, "m2")
    await recall(desk, "d:late")
    await recall(desk, "unknown")
    desk.router.gates["slow"].set()
    after = await desk.say("after")

    assert after is not None
    await desk.inbox.wait_handled(after)
    assert desk.router.begun == ["slow", "after"]
    assert await outcomes(desk) == {
        1: "card reply:1", 2: "dropped", late: "dropped", after: f"card reply:{after}",
    }  # fmt: skip


async def test_a_recalled_message_does_not_seem_to_wait_for_ever(desk: InboxHarness) -> None:
    desk.router.gates["slow"] = asyncio.Event()
    desk.router.notices["waits"] = "you wait"
    await desk.say("slow", dedupe="m1")
    number = await desk.say("waits", dedupe="m2")
    assert await desk.card(f"reply:{number}") == "you wait"

    await recall(desk, "m2")

    assert "You took this message back" in await desk.card(f"reply:{number}")
    assert [row.id for row in desk.router.withdrawn] == [number]
    desk.router.gates["slow"].set()


async def test_an_interrupted_message_that_is_recalled_is_not_answered_with_the_next(
    desk: InboxHarness,
) -> None:
    interrupt(desk, "question")
    desk.router.gates["more"] = asyncio.Event()
    desk.router.replies["more"] = Reply(silence=Silence.INTERRUPTED)
    for text, dedupe in (("question", "m1"), ("more", "m2"), ("last", "m3")):
        await desk.say(text, dedupe=dedupe)
    desk.router.gates["question"].set()
    await desk.router.until(lambda: "more" in desk.router.begun)
    await recall(desk, "m1")
    desk.router.gates["more"].set()
    await desk.inbox.wait_handled(InboxId(3))

    assert desk.router.interrupted[-1] == ("last", ("more",))
    assert (await outcomes(desk))[1] == "dropped"


@pytest.mark.parametrize("restarts", [True, False])
async def test_a_message_answered_with_another_does_not_seem_to_wait_for_ever(
    tmp_path: Path, restarts: bool
) -> None:
    router = FakeRouter()
    router.gates["slow"] = asyncio.Event()
    router.notices["waits"] = "you wait"
    router.replies["waits"] = Reply(silence=Silence.INTERRUPTED)
    router.replies["newest"] = Reply(card=text_card("for both"), joined=("inbox:2",))
    async with AsyncExitStack() as lives:
        desk = await lives.enter_async_context(inbox_harness(tmp_path, router=router))
        await desk.say("slow")
        await desk.say("waits")
        assert await desk.card("reply:2") == "you wait"
        if restarts:
            await lives.aclose()
            desk = await lives.enter_async_context(inbox_harness(tmp_path, router=router))
        newest = await desk.say("newest")
        router.gates["slow"].set()
        assert newest is not None
        await desk.inbox.wait_handled(newest)

        assert "Answered together with your next message" in await desk.card("reply:2")
        assert (await outcomes(desk))[2] == f"joined {newest}"
        assert await desk.card("reply:1") == "echo slow"


async def test_nobody_is_told_to_wait_for_what_was_answered_meanwhile(
    desk: InboxHarness,
) -> None:
    """The notice and the answer have one place."""
    number = await desk.say("quick")
    assert number is not None
    await desk.inbox.wait_handled(number)
    desk.router.notices["quick"] = "you wait"
    ((row, _),) = desk.router.handled

    await desk.inbox._worker.show_waiting(row)

    assert await desk.card(f"reply:{number}") == "echo quick"


async def test_a_recalled_picture_that_waits_for_its_words_is_dropped(desk: InboxHarness) -> None:
    await desk.say("", dedupe="m1", attachments=picture()["attachments"])
    await desk.clock.someone_sleeps(10)
    await recall(desk, "m1")
    number = await desk.say("what now?")
    assert number is not None
    await desk.inbox.wait_handled(number)

    ((row, files),) = desk.router.handled
    assert (row.id, files) == (number, ())
    assert await outcomes(desk) == {1: "dropped", number: f"card reply:{number}"}


async def test_a_recalled_piece_of_a_long_text_is_left_out(desk: InboxHarness) -> None:
    await desk.say("a" * 4096, dedupe="m1")
    await desk.clock.someone_sleeps(1.5)
    await recall(desk, "m1")
    number = await desk.say("the end of it")
    assert number is not None
    await desk.inbox.wait_handled(number)

    assert desk.router.begun == ["the end of it"]
    assert await outcomes(desk) == {1: "dropped", number: f"card reply:{number}"}


async def test_a_message_is_answered_when_the_one_that_interrupted_it_is_recalled(
    desk: InboxHarness,
) -> None:
    interrupt(desk, "question")
    await desk.say("question", dedupe="m1")
    await desk.router.until(lambda: desk.router.begun == ["question"])
    await desk.say("next", dedupe="m2")
    await recall(desk, "m2")
    desk.router.gates["question"].set()
    await desk.router.until(lambda: len(desk.router.begun) > 1)
    del desk.router.replies["question"]
    await desk.inbox.wait_handled(InboxId(1))

    assert "next" not in desk.router.begun
    assert await outcomes(desk) == {1: "card reply:1", 2: "dropped"}


async def test_what_a_recalled_message_led_to_is_stopped_in_its_senders_name(
    desk: InboxHarness,
) -> None:
    desk.router.gates["slow"] = asyncio.Event()
    desk.router.tasks["/run it"] = "k3m9qa"
    made = await desk.say("/run it", dedupe="m1")
    assert made is not None
    await desk.inbox.wait_handled(made)
    await desk.say("slow", dedupe="m2")
    await desk.router.until(lambda: "slow" in desk.router.begun)
    for each in ("m1", "m2", "m1"):
        await recall(desk, each)
    await desk.router.until(lambda: len(desk.router.begun) == 4)

    assert desk.router.begun == ["/run it", "slow", "/stop k3m9qa", "/stop"]
    stops = [row.incoming for row, _ in desk.router.handled[2:]]
    assert {said.sender for said in stops} == {sender()}


async def test_a_press_on_a_second_copy_of_a_card_says_so(desk: InboxHarness) -> None:
    token = await send_card_with_button(desk)
    desk.post.run()
    await desk.post.settled("one")
    row = await desk.post.room.outbox.find_by_key("one")
    assert row is not None
    assert row.placement is not None

    there = await desk.press(token, message_id=row.placement.message_ids[0], dedupe="p1")
    twin = await desk.press(token, message_id="another", dedupe="p2")
    unknown = await desk.press("unknown", message_id="another", dedupe="p3")

    assert [there.is_twin, twin.is_twin, unknown.is_twin] == [False, True, False]


async def test_a_copy_pressed_before_the_second_is_sent_becomes_the_card(
    desk: InboxHarness,
) -> None:
    token = await send_card_with_button(desk)
    desk.telegram.script.append(DeliveryUncertain("cut"))
    desk.post.run()
    await wait_until(lambda: desk.post.stored_failures(1))

    pressed = await desk.press(token, message_id="7", dedupe="p1")
    desk.clock.advance(60)
    await desk.post.settled("one")

    assert not pressed.is_twin
    assert desk.telegram.letters[-1].placed == MessagePlacement(message_ids=("7",))


async def test_a_copy_pressed_while_the_second_is_sent_is_handed_to_the_next_delivery(
    desk: InboxHarness,
) -> None:
    token = await send_card_with_button(desk)
    desk.telegram.gate = asyncio.Event()
    desk.post.run()
    await desk.telegram.sent(1)
    [first] = desk.telegram.letters

    pressed = await desk.press(token, message_id="7", dedupe="p1")
    desk.telegram.gate.set()
    await desk.telegram.until(
        lambda: (
            desk.telegram.letters[-1].placed
            == MessagePlacement(message_ids=(f"m{first.outbox_id}", "7"))
        )
    )
    await desk.post.settled("one")

    assert not pressed.is_twin


async def send_card_with_button(desk: InboxHarness) -> str:
    """A card under the key `one`, and the token of its button. Nothing is sent yet."""
    number = await desk.say("hi")
    assert number is not None
    await desk.inbox.wait_handled(number)
    async with desk.post.room.db.write() as tx:
        await tx.exec_driver_sql("UPDATE outbox SET state = 'shown'")
    chat = await desk.post.room.chats.find(place())
    assert chat is not None
    card = Card(blocks=(ButtonsBlock((CardButton("Pause", PauseTask(task_id="abc234")),)),))
    await desk.post.courier.send(chat.id, card, key="one", urgency=DeliveryUrgency.ANSWER)
    row = await desk.post.room.outbox.find_by_key("one")
    assert row is not None
    return str(row.card["blocks"][0]["items"][0]["token"])


async def test_a_long_text_in_pieces_counts_as_one_and_waits_as_one(desk: InboxHarness) -> None:
    for number in range(PACE_BURST):
        await desk.say(f"message {number}")
    head = await desk.say("a" * 4096)
    tail = await desk.say("the end of it")
    await desk.router.until(lambda: len(desk.router.done) == PACE_BURST)

    await desk.clock.someone_sleeps(PACE_INTERVAL)
    desk.clock.advance(PACE_INTERVAL)
    assert head is not None
    assert tail is not None
    await desk.inbox.wait_handled(head)

    assert desk.router.begun[-1].endswith("the end of it")
    assert len(desk.router.begun) == PACE_BURST + 1


async def test_a_late_long_text_is_offered_too(desk: InboxHarness) -> None:
    (head, tail) = await say_late(desk, "a" * 4096, "the end of it")

    assert desk.router.begun == []
    assert "2 messages are waiting" in await desk.card(f"held:{head}")
    assert tail


async def test_being_interrupted_is_no_failed_attempt(desk: InboxHarness) -> None:
    interrupt(desk, "question")
    await desk.say("question")
    await desk.say("next")
    desk.router.replies["next"] = Reply(card=text_card("for both"), joined=("inbox:1",))
    desk.router.gates["question"].set()
    await desk.inbox.wait_handled(InboxId(2))

    assert await desk.count("SELECT attempts FROM inbox WHERE id = 1") == 0
