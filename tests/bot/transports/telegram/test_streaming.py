"""Answers in the making: quick where Telegram allows, never after the final word."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bot.transports.telegram.streaming import TelegramStreamPace
from bot.transports.telegram.transport import TelegramTransport
from cards.model import TextBlock
from tests.bot.transports.telegram.builders import (
    PAUSE,
    FakeSleep,
    later,
    letter,
    make_transport,
    started,
    text_letter,
)
from tests.emulators.telegram.chats import TelegramChat
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.errors import bad_request
from tests.emulators.telegram.faults import (
    DropBeforeFault,
    HoldFault,
    RateLimitFault,
    RefusalFault,
    ServerErrorFault,
)
from tests.fakes.inbox import FakeInbox


class Gate:
    """A sleep that lasts until the test lets time pass."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[float] = asyncio.Queue()
        self.passes = asyncio.Semaphore(0)

    async def __call__(self, seconds: float) -> None:
        await self.asked.put(seconds)
        await self.passes.acquire()


async def test_in_a_private_chat_a_draft_grows_and_the_message_replaces_it(
    sender: TelegramTransport, chat: TelegramChat
) -> None:
    answer = text_letter(chat, "")

    await sender.stream(answer, "Once")
    await chat.wait_until(lambda: len(chat.drafts) == 1)
    await sender.stream(answer, "Once **upon** a")
    await chat.wait_until(lambda: len(chat.drafts) == 2)
    await sender.deliver(text_letter(chat, "Once **upon** a time"))

    assert [draft.text for draft in chat.drafts] == ["Once", "Once upon a"]
    assert len({draft.draft_id for draft in chat.drafts}) == 1
    assert [m.text for m in chat.from_bot] == ["Once upon a time"]


async def test_only_the_newest_text_is_shown_when_the_pace_allows(
    tg: TelegramEmulator, intake: FakeInbox, chat: TelegramChat, tmp_path: Path
) -> None:
    gate = Gate()
    async with started(make_transport(tg, intake, tmp_path, gate)) as transport:
        answer = text_letter(chat, "")
        await transport.stream(answer, "1")
        pace = await gate.asked.get()
        for text in ("12", "123", "1234"):
            await transport.stream(answer, text)
        gate.passes.release()
        await gate.asked.get()

    assert pace == 0.3
    assert [draft.text for draft in chat.drafts] == ["1", "1234"]


async def test_in_a_group_one_message_is_edited_at_the_groups_pace(
    tg: TelegramEmulator, intake: FakeInbox, tmp_path: Path
) -> None:
    group = tg.group("Team")
    gate = Gate()
    async with started(make_transport(tg, intake, tmp_path, gate)) as transport:
        answer = text_letter(group, "")
        await transport.stream(answer, "1")
        pace = await gate.asked.get()
        await transport.stream(answer, "12")
        gate.passes.release()
        await gate.asked.get()
        delivery = await transport.deliver(text_letter(group, "12"))

    [message] = group.from_bot
    assert pace == 3.0
    assert [v.text for v in message.history] == ["1", "12"]
    assert not [call.error for call in tg.world.calls if call.error], "no edit changes nothing"
    assert delivery.placed.message_ids == (str(message.id),)


async def test_a_placed_card_is_edited_and_keeps_its_buttons(
    sender: TelegramTransport, chat: TelegramChat
) -> None:
    first = letter(chat, TextBlock(markdown="🤔"), PAUSE)
    placed = (await sender.deliver(first)).placed
    answer = later(first, placed, TextBlock(markdown="🤔"), PAUSE)

    await sender.stream(answer, "so far")
    await chat.wait_for_text("so far")
    buttons = chat.last.buttons
    await sender.deliver(later(first, placed, TextBlock(markdown="🤔"), PAUSE))

    assert buttons == ["Pause"]
    assert chat.drafts == []
    assert [v.text for v in chat.last.history] == ["🤔", "so far", "🤔"]


async def test_the_final_text_waits_for_the_last_edit_on_its_way(
    tg: TelegramEmulator, sender: TelegramTransport
) -> None:
    group = tg.group("Team")
    hold = HoldFault()
    answer = text_letter(group, "")
    await sender.stream(answer, "half")
    await group.wait_for_text("half")
    tg.inject_fault("editMessageText", hold)
    await sender.stream(answer, "half of")
    await hold.entered.wait()

    final = asyncio.create_task(sender.deliver(text_letter(group, "all of it")))
    await asyncio.sleep(0)
    assert not final.done()
    hold.release()
    await final

    assert [m.text for m in group.from_bot] == ["all of it"]


async def test_a_draft_is_shown_again_before_it_fades(
    tg: TelegramEmulator,
    intake: FakeInbox,
    chat: TelegramChat,
    tmp_path: Path,
    sleep: FakeSleep,
) -> None:
    pace = TelegramStreamPace(keepalive=0.05)
    transport = make_transport(tg, intake, tmp_path, sleep, stream_pace=pace)
    async with started(transport):
        await transport.stream(text_letter(chat, ""), "thinking")
        await chat.wait_until(lambda: len(chat.drafts) >= 3)

    assert {draft.text for draft in chat.drafts} == {"thinking"}
    assert TelegramStreamPace().keepalive < 25


async def test_a_rate_limit_pauses_the_stream_and_nobody_else(
    tg: TelegramEmulator, sender: TelegramTransport, chat: TelegramChat, sleep: FakeSleep
) -> None:
    other = tg.group("Other")
    tg.inject_fault("sendMessageDraft", RateLimitFault(retry_after=1))
    await sender.stream(text_letter(chat, ""), "so far")
    await tg.wait_for_call("sendMessageDraft")

    await sender.deliver(text_letter(other, "hello", outbox_id=2))

    assert other.last.text == "hello"
    await chat.wait_until(lambda: 1.0 in sleep.slept)


@pytest.mark.parametrize(
    "trouble",
    [DropBeforeFault(), ServerErrorFault(), RefusalFault(error=bad_request("whatever"))],
    ids=str,
)
async def test_a_stream_that_fails_fails_alone(
    tg: TelegramEmulator, sender: TelegramTransport, chat: TelegramChat, trouble: Any
) -> None:
    tg.inject_fault("sendMessageDraft", trouble)
    answer = text_letter(chat, "")

    await sender.stream(answer, "so far")
    await tg.wait_for_call("sendMessageDraft")
    await sender.stream(answer, "so far and on")
    await sender.deliver(text_letter(chat, "all of it"))

    assert [m.text for m in chat.from_bot] == ["all of it"]


async def test_where_drafts_are_refused_a_message_takes_their_place(
    tg: TelegramEmulator, sender: TelegramTransport, chat: TelegramChat
) -> None:
    tg.inject_fault("sendMessageDraft", RefusalFault(error=bad_request("TEXTDRAFT_PEER_INVALID")))

    await sender.stream(text_letter(chat, ""), "so far")
    await chat.wait_for_text("so far")
    await sender.deliver(text_letter(chat, "all of it"))

    assert [m.text for m in chat.from_bot] == ["all of it"]


async def test_a_long_answer_shows_its_newest_part(
    sender: TelegramTransport, chat: TelegramChat
) -> None:
    await sender.stream(text_letter(chat, ""), "old\n" * 3000 + "newest")

    await chat.wait_until(lambda: bool(chat.drafts))
    assert chat.drafts[0].text.endswith("newest")


async def test_closing_ends_open_streams(
    tg: TelegramEmulator,
    intake: FakeInbox,
    chat: TelegramChat,
    tmp_path: Path,
    sleep: FakeSleep,
) -> None:
    async with started(make_transport(tg, intake, tmp_path, sleep)) as transport:
        await transport.stream(text_letter(chat, ""), "so far")
        await chat.wait_until(lambda: bool(chat.drafts))

    assert not [t for t in asyncio.all_tasks() if t.get_name().startswith("telegram stream")]
