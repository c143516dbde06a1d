"""Every failure of a send has one name, and no retry shows anything twice unmarked."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bot.transports.ports import (
    ChatUnreachable,
    ContentRefused,
    DeliveryRateLimited,
    DeliveryUncertain,
    PlatformUnavailable,
)
from bot.transports.telegram.transport import TelegramTransport
from cards.model import ChecklistBlock, FileBlock, TextBlock
from storage.records.messages import MessagePlacement
from tests.bot.transports.telegram.builders import (
    FakeSleep,
    deliver_whole,
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
    DropAfterFault,
    GarbageFault,
    HoldFault,
    RateLimitFault,
    RefusalFault,
    ServerErrorFault,
)
from tests.fakes.inbox import FakeInbox
from tests.waiting import WAIT_SECONDS, let_time_pass


class Killed(BaseException):
    """The process dies here."""


LONG = "\n".join(f"line {i} {'x' * 60}" for i in range(130))


async def test_a_rate_limit_says_how_long_and_is_obeyed(
    tg: TelegramEmulator, sender: TelegramTransport, chat: TelegramChat
) -> None:
    tg.inject_fault("sendMessage", RateLimitFault(retry_after=17))

    with pytest.raises(DeliveryRateLimited) as limited:
        await sender.deliver(text_letter(chat, "x"))

    assert limited.value.retry_after == 17
    assert tg.violations == 0


async def test_a_letter_stopped_half_way_goes_on_where_it_stopped(
    tg: TelegramEmulator, sender: TelegramTransport, chat: TelegramChat
) -> None:
    tg.world.clock = time.time
    whole = text_letter(chat, LONG)
    await sender.deliver(text_letter(chat, "warm-up", outbox_id=9))
    hold = HoldFault()
    hold.release()
    tg.inject_fault("sendMessage", hold)
    tg.inject_fault("sendMessage", ServerErrorFault(code=502))

    with pytest.raises(PlatformUnavailable):
        await sender.deliver(whole)
    delivery = await sender.deliver(whole)

    sent = chat.from_bot[1:]
    assert "\n".join(m.text for m in sent) == LONG
    assert delivery.placed.message_ids == tuple(str(m.id) for m in sent)


async def test_a_lost_answer_is_ambiguous_and_the_repetition_says_so_once(
    tg: TelegramEmulator, sender: TelegramTransport, chat: TelegramChat
) -> None:
    whole = text_letter(chat, f"**start**\n{LONG}")
    tg.inject_fault("sendMessage", DropAfterFault())

    with pytest.raises(DeliveryUncertain):
        await sender.deliver(whole)
    await sender.deliver(replace(whole, repeat=True))

    doubled, repeated, *rest = chat.from_bot
    assert doubled.text.startswith("start")
    assert repeated.text.startswith("♻️ Sent again: the first attempt may have arrived.\n\nstart")
    assert repeated.texts_of_entity("bold") == ["start"]
    assert len(rest) == 2
    assert not any("♻️" in m.text for m in rest)


async def test_an_edit_keeps_the_note_that_a_message_may_be_there_twice(
    sender: TelegramTransport, chat: TelegramChat
) -> None:
    first = replace(text_letter(chat, "**start**"), repeat=True)
    placed = (await sender.deliver(first)).placed

    again = text_letter(chat, "the **end**", revision=2, placed=placed)
    placed = (await sender.deliver(again)).placed
    await sender.deliver(text_letter(chat, "the **very** end", revision=3, placed=placed))

    (shown,) = chat.from_bot
    assert shown.text == "♻️ Sent again: the first attempt may have arrived.\n\nthe very end"
    assert shown.texts_of_entity("bold") == ["very"]


async def test_a_time_out_is_ambiguous(
    tg: TelegramEmulator,
    intake: FakeInbox,
    chat: TelegramChat,
    tmp_path: Path,
    sleep: FakeSleep,
) -> None:
    hold = HoldFault()
    tg.inject_fault("sendMessage", hold)
    patient = make_transport(tg, intake, tmp_path, sleep, request_seconds=WAIT_SECONDS)

    async with started(patient) as transport:
        sending = asyncio.create_task(transport.deliver(text_letter(chat, "x")))
        await hold.entered.wait()
        await let_time_pass(WAIT_SECONDS)
        with pytest.raises(DeliveryUncertain):
            await sending

    hold.release()
    assert len(chat.from_bot) == 1


async def test_a_lost_answer_to_an_edit_is_simply_tried_again(
    tg: TelegramEmulator, sender: TelegramTransport, chat: TelegramChat
) -> None:
    first = text_letter(chat, "one")
    placed = (await sender.deliver(first)).placed
    second = later(first, placed, TextBlock(markdown="two"))
    tg.inject_fault("editMessageText", DropAfterFault())

    with pytest.raises(PlatformUnavailable):
        await sender.deliver(second)
    await sender.deliver(replace(second, repeat=True))

    assert [m.text for m in chat.from_bot] == ["two"]


async def test_no_connection_and_server_errors_are_unavailable(
    tg: TelegramEmulator,
    sender: TelegramTransport,
    chat: TelegramChat,
    intake: FakeInbox,
    tmp_path: Path,
) -> None:
    for trouble in (ServerErrorFault(code=500), ServerErrorFault(code=502), GarbageFault()):
        tg.inject_fault("sendMessage", trouble)
        with pytest.raises(PlatformUnavailable):
            await sender.deliver(text_letter(chat, "x"))

    async with TelegramEmulator() as gone:
        nowhere = gone.base_url
    lost = make_transport(tg, intake, tmp_path, FakeSleep(), base_url=nowhere)
    async with started(lost) as transport:
        with pytest.raises(PlatformUnavailable):
            await transport.deliver(text_letter(chat, "x"))

    assert chat.from_bot == []


async def test_a_wrong_token_is_unavailable_and_names_no_secret(
    tg: TelegramEmulator, sender: TelegramTransport, chat: TelegramChat
) -> None:
    tg.revoke_token()

    with pytest.raises(PlatformUnavailable) as failed:
        await sender.deliver(text_letter(chat, "x"))

    assert tg.token not in str(failed.value)


async def test_a_blocked_or_unknown_chat_is_unreachable(
    tg: TelegramEmulator, sender: TelegramTransport, chat: TelegramChat
) -> None:
    group = tg.group("Team")
    group.block()
    del tg.world.chats[chat.id]
    del tg.world.users[chat.id]

    for closed in (chat, group):
        with pytest.raises(ChatUnreachable):
            await sender.deliver(text_letter(closed, "x"))


async def test_content_telegram_will_not_take_is_refused(
    tg: TelegramEmulator, sender: TelegramTransport, chat: TelegramChat
) -> None:
    tg.inject_fault("sendMessage", RefusalFault(error=bad_request("something new")))

    with pytest.raises(ContentRefused, match="Something new"):
        await sender.deliver(text_letter(chat, "x"))


async def test_before_its_start_the_channel_is_unavailable(
    tg: TelegramEmulator, chat: TelegramChat, intake: FakeInbox, tmp_path: Path
) -> None:
    transport = make_transport(tg, intake, tmp_path, FakeSleep())

    with pytest.raises(PlatformUnavailable):
        await transport.deliver(letter(chat, ChecklistBlock(items=())))


async def test_a_letter_of_several_parts_goes_on_after_a_crash_where_it_was(
    tg: TelegramEmulator,
    intake: FakeInbox,
    chat: TelegramChat,
    tmp_path: Path,
    sleep: FakeSleep,
) -> None:
    """Each part is noted as it is out; the one that may be out is sent again and says so."""
    (tmp_path / "a.md").write_text("the file")
    out: list[MessagePlacement] = []

    async def on_part(placed: MessagePlacement) -> None:
        if len(placed.message_ids) > 1:
            raise Killed
        out.append(placed)

    whole = letter(
        chat, TextBlock(markdown=LONG), FileBlock(path="a.md", name="a.md", size=8), on_part=on_part
    )
    async with started(make_transport(tg, intake, tmp_path, sleep)) as transport:
        with pytest.raises(Killed):
            await transport.deliver(whole)
    first, lost = chat.from_bot
    again = replace(whole, placed=out[-1], repeat=True, on_part=None)
    async with started(make_transport(tg, intake, tmp_path, sleep)) as transport:
        delivery = await deliver_whole(transport, again)

    _, _, repeated, *rest, document = chat.from_bot
    assert repeated.text == f"♻️ Sent again: the first attempt may have arrived.\n\n{lost.text}"
    assert "\n".join(m.text for m in (first, lost, *rest)) == LONG
    assert document.upload
    assert document.upload.content == b"the file"
    assert len(delivery.placed.message_ids) == len(rest) + 3


async def test_a_letter_of_one_message_is_noted_once_it_is_shown_only(
    sender: TelegramTransport, chat: TelegramChat
) -> None:
    async def on_part(_placed: MessagePlacement) -> None:
        pytest.fail("it would cost a write for each message")

    await sender.deliver(text_letter(chat, "short", on_part=on_part))
