"""Every failure of a send has one name, and no retry shows anything twice unmarked."""

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
from cards.model import Checklist, Text
from tests.bot.transports.telegram.fakes import (
    FakeIntake,
    FakeSleep,
    later,
    letter,
    make_transport,
    started,
    text_letter,
)
from tests.emulators.telegram.chats import Chat
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.mischief import (
    DropAfter,
    Garbage,
    Hold,
    RateLimit,
    Refuse,
    ServerError,
)
from tests.emulators.telegram.refusals import bad_request

LONG = "\n".join(f"line {i} {'x' * 60}" for i in range(130))


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
