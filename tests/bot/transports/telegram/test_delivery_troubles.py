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
from cards.model import Checklist, File, Text
from storage.records.messages import Placed
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


class Killed(BaseException):
    """The process dies here."""


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
    impatient = make_transport(tg, intake, tmp_path, sleep, request_seconds=1.5)

    async with started(impatient) as transport:
        with pytest.raises(Ambiguous):
            await transport.deliver(text_letter(chat, "x"))

    await hold.entered.wait()
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


async def test_a_letter_of_several_parts_goes_on_after_a_crash_where_it_was(
    tg: TelegramEmulator, intake: FakeIntake, chat: Chat, tmp_path: Path, sleep: FakeSleep
) -> None:
    """Each part is noted as it is out; the one that may be out is sent again and says so."""
    (tmp_path / "a.md").write_text("the file")
    out: list[Placed] = []

    async def on_part(placed: Placed) -> None:
        if len(placed.message_ids) > 1:
            raise Killed
        out.append(placed)

    whole = letter(
        chat, Text(markdown=LONG), File(path="a.md", name="a.md", size=8), on_part=on_part
    )
    async with started(make_transport(tg, intake, tmp_path, sleep)) as transport:
        with pytest.raises(Killed):
            await transport.deliver(whole)
    first, lost = chat.from_bot
    again = replace(whole, placed=out[-1], repeat=True, on_part=None)
    async with started(make_transport(tg, intake, tmp_path, sleep)) as transport:
        delivery = await transport.deliver(again)

    _, _, repeated, *rest, document = chat.from_bot
    assert repeated.text == f"♻️ Sent again: the first try may have arrived.\n\n{lost.text}"
    assert "\n".join(m.text for m in (first, lost, *rest)) == LONG
    assert document.upload
    assert document.upload.content == b"the file"
    assert len(delivery.placed.message_ids) == len(rest) + 3


async def test_a_letter_of_one_message_is_noted_once_it_is_shown_only(
    sender: TelegramTransport, chat: Chat
) -> None:
    async def on_part(_placed: Placed) -> None:
        pytest.fail("it would cost a write for each message")

    await sender.deliver(text_letter(chat, "short", on_part=on_part))
