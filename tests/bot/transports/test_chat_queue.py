"""A text that a client cut in pieces is one message again."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.transports.sanitize import MAX_CHARACTERS
from storage.records.messages import AttachmentKind, IncomingMessage, RemoteFile
from storage.records.people import Channel
from tests.bot.transports.inbox_builders import InboxHarness, inbox_harness, name_of
from tests.bot.transports.outbox_builders import FakeClock
from tests.storage.message_store import START, group, place, sender

PICTURE = RemoteFile(kind=AttachmentKind.IMAGE, reference={"id": "a.png"}, name="a.png")


def piece(mark: str, size: int = 4096) -> str:
    return mark * size


async def test_the_pieces_of_a_long_text_are_one_message_under_the_name_of_the_first(
    desk: InboxHarness,
) -> None:
    texts = ["/run " + piece("a", 4091), piece("b"), piece("c"), "the end"]
    numbers = [
        await desk.say(text, dedupe=f"m{n}", message_id=f"{n}") for n, text in enumerate(texts)
    ]
    for number in numbers:
        assert number is not None
        await desk.inbox.wait_handled(number)

    ((row, _),) = desk.router.handled
    assert isinstance(row.incoming, IncomingMessage)
    assert row.incoming.text == "".join(texts)
    assert (row.id, row.incoming.message_id) == (numbers[0], "0")
    assert await desk.card(f"reply:{numbers[0]}")
    assert await desk.count("SELECT count(*) FROM inbox WHERE state = 'handled'") == 4
    assert await desk.count("SELECT count(*) FROM outbox WHERE key LIKE 'reply:%'") == 1
    assert await desk.say(texts[1], dedupe="m1") is None, "each piece is still known"


async def test_what_comes_while_a_piece_waits_goes_on_with_it_and_then_nothing_waits(
    desk: InboxHarness,
) -> None:
    await desk.say(piece("a"))
    await desk.clock.someone_sleeps(1.5)
    desk.clock.advance(1.4)
    number = await desk.say("end")
    assert number is not None
    await desk.inbox.wait_handled(number)

    assert desk.router.begun == [piece("a") + "end"]


async def test_a_long_text_that_nothing_follows_waits_no_longer_than_a_second_and_a_half(
    desk: InboxHarness,
) -> None:
    number = await desk.say(piece("a", 4000))
    assert number is not None
    await desk.clock.someone_sleeps(1.5)
    assert desk.router.begun == []
    desk.clock.advance(1.5)
    await desk.inbox.wait_handled(number)
    later = await desk.say("later")
    assert later is not None
    await desk.inbox.wait_handled(later)

    assert desk.router.begun == [piece("a", 4000), "later"]


@pytest.mark.parametrize("size", [3999, 20])
async def test_a_shorter_text_waits_for_nothing(desk: InboxHarness, size: int) -> None:
    number = await desk.say(piece("a", size))
    assert number is not None
    await desk.inbox.wait_handled(number)

    assert desk.router.begun == [piece("a", size)]


async def test_a_piece_is_measured_as_its_platform_does(desk: InboxHarness) -> None:
    await desk.say("🚀" * 2048)
    number = await desk.say("end")
    assert number is not None
    await desk.inbox.wait_handled(number)

    assert desk.router.begun == ["🚀" * 2048 + "end"]


async def test_the_line_end_at_which_a_text_was_cut_is_put_back(desk: InboxHarness) -> None:
    await desk.say(piece("a", 4050))
    number = await desk.say("- end")
    assert number is not None
    await desk.inbox.wait_handled(number)

    assert desk.router.begun == [piece("a", 4050) + "\n- end"]


@pytest.mark.parametrize(
    "next_one",
    [
        {"text": "/run something else"},
        {"text": "／状态"},
        {"text": "a correction", "edited": True},
        {"text": "mine", "sender": sender("43")},
    ],
)
async def test_what_is_no_piece_of_it_is_a_message_of_its_own(
    desk: InboxHarness, next_one: dict[str, Any]
) -> None:
    first = await desk.say(piece("a"), place=group())
    second = await desk.say(place=group(), **next_one)
    await desk.clock.someone_sleeps(1.5) if "sender" in next_one else None
    desk.clock.advance(1.5)
    for number in (first, second):
        assert number is not None
        await desk.inbox.wait_handled(number)

    assert desk.router.begun == [piece("a"), next_one["text"]]


async def test_a_path_at_the_start_of_a_piece_is_no_order(desk: InboxHarness) -> None:
    await desk.say(piece("a"))
    number = await desk.say("/etc/hosts has the names")
    assert number is not None
    await desk.inbox.wait_handled(number)

    assert desk.router.begun == [piece("a") + "/etc/hosts has the names"]


async def test_stop_is_obeyed_while_a_piece_waits(desk: InboxHarness) -> None:
    await desk.say(piece("a"))
    number = await desk.say("/stop")
    assert number is not None
    await desk.inbox.wait_handled(number)

    assert desk.router.begun == ["/stop"]


async def test_in_a_group_the_pieces_that_do_not_name_us_come_along_between_others_talk(
    desk: InboxHarness,
) -> None:
    await desk.say(piece("a"), place=group(), message_id="1")
    assert await desk.say("gossip", place=group(), addressed=False, sender=sender("43")) is None
    other = await desk.say("me too", place=group(), sender=sender("44"))
    last = await desk.say("end", place=group(), addressed=False, message_id="2")
    assert other is not None
    assert last is not None
    await desk.inbox.wait_handled(last)
    await desk.inbox.wait_handled(other)

    assert desk.router.begun == [piece("a") + "end", "me too"]
    row = await desk.post.room.outbox.find_by_key("reply:1")
    assert row is not None
    assert row.reply_to == "1"
    assert await desk.say("gossip", place=group(), addressed=False) is None


async def test_in_a_group_nothing_is_taken_along_when_it_comes_too_late(desk: InboxHarness) -> None:
    number = await desk.say(piece("a"), place=group())
    assert number is not None
    await desk.clock.someone_sleeps(1.5)
    desk.clock.advance(1.6)
    await desk.inbox.wait_handled(number)

    assert await desk.say("gossip", place=group(), addressed=False) is None


async def test_threads_of_one_group_do_not_mix_their_pieces(desk: InboxHarness) -> None:
    await desk.say(piece("a"), place=group(thread="7"))
    number = await desk.say("elsewhere", place=group(thread="8"))
    assert number is not None
    await desk.inbox.wait_handled(number)

    assert desk.router.begun == ["elsewhere"]


async def test_pieces_are_one_message_over_a_restart(tmp_path: Path) -> None:
    clock = FakeClock()
    async with inbox_harness(tmp_path, clock=clock, started=False) as desk:
        for text in (piece("a"), piece("b")):
            await desk.say(text)
    clock.advance(1)

    async with inbox_harness(tmp_path, clock=clock) as desk:
        await clock.someone_sleeps(1.5)
        clock.advance(1)
        # Sent at once, but the platform kept it until the program was back.
        number = await desk.say("end", sent_at=START)
        assert number is not None
        await desk.inbox.wait_handled(number)

        assert desk.router.begun == [piece("a") + piece("b") + "end"]
        assert await desk.post.room.inbox.list_unfinished() == ()


async def test_pieces_that_were_being_handled_at_a_kill_are_handled_under_the_same_name(
    tmp_path: Path,
) -> None:
    whole = piece("a") + "end"
    async with inbox_harness(tmp_path) as desk:
        desk.router.gates[whole] = asyncio.Event()
        await desk.say(piece("a"))
        await desk.say("end")
        await desk.router.until(lambda: desk.router.begun == [whole])

    async with inbox_harness(tmp_path) as desk:
        await desk.router.until(lambda: desk.router.done == [whole])
        await desk.inbox.wait_handled(desk.router.handled[0][0].id)

        assert desk.router.handled[0][0].id == 1
        assert await desk.card("reply:1")
        assert await desk.post.room.inbox.list_unfinished() == ()


async def test_pieces_that_fail_are_put_aside_together(desk: InboxHarness) -> None:
    whole = piece("a") + "end"
    desk.router.failures[whole] = [ZeroDivisionError("oops") for _ in range(3)]
    await desk.say(piece("a"))
    number = await desk.say("end")
    assert number is not None
    for pause in (1, 5):
        await desk.clock.someone_sleeps(pause)
        desk.clock.advance(pause)
    await desk.inbox.wait_handled(number)

    assert desk.router.begun == [whole] * 3
    assert await desk.count("SELECT count(*) FROM inbox WHERE state = 'failed'") == 2


async def test_a_picture_goes_with_the_whole_of_a_long_text(desk: InboxHarness) -> None:
    await desk.say("", attachments=(PICTURE,))
    await desk.say(piece("a"))
    number = await desk.say("end")
    assert number is not None
    await desk.inbox.wait_handled(number)

    ((row, files),) = desk.router.handled
    assert (row.id, name_of(row)) == (2, piece("a") + "end")
    assert files == ("files/inbox/1/a.png",)


async def test_pieces_without_end_are_cut_with_a_word(desk: InboxHarness) -> None:
    for n in range(60):
        await desk.say(piece("a"), dedupe=f"m{n}")
    number = await desk.say("end")
    assert number is not None
    await desk.inbox.wait_handled(number)

    (text,) = desk.router.begun
    assert len(text) < MAX_CHARACTERS + 300
    assert str(MAX_CHARACTERS) in text.replace(",", "")[-300:]


async def test_a_channel_whose_clients_send_all_at_once_waits_for_nothing(
    desk: InboxHarness,
) -> None:
    web = replace(place(), channel=Channel.WEB)
    number = await desk.say(piece("a", 9000), place=web)
    assert number is not None
    await desk.inbox.wait_handled(number)

    assert desk.router.begun == [piece("a", 9000)]
