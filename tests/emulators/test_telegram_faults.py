"""The Telegram emulator misbehaves on demand."""

from __future__ import annotations

import json

import pytest
from telegram import Bot
from telegram.error import NetworkError, RetryAfter, TimedOut

from tests.emulators.telegram.chats import TelegramChat
from tests.emulators.telegram.client import keyboard
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.faults import (
    DropAfterFault,
    DropBeforeFault,
    GarbageFault,
    HoldFault,
    RateLimitFault,
    ServerErrorFault,
    SlowFault,
)
from tests.emulators.telegram.users import TelegramUser


async def test_a_rate_limit_lasts_and_counts_calls_that_ignore_it(
    tg: TelegramEmulator, bot: Bot, chat: TelegramChat
) -> None:
    tg.inject_fault("sendMessage", RateLimitFault(retry_after=60))

    for _ in range(3):
        with pytest.raises(RetryAfter):
            await bot.send_message(chat.id, "x")

    assert tg.violations == 2
    assert chat.from_bot == []


async def test_server_errors_and_garbage_are_network_errors(
    tg: TelegramEmulator, bot: Bot, chat: TelegramChat
) -> None:
    tg.inject_fault("sendMessage", ServerErrorFault(code=502))
    tg.inject_fault("sendMessage", GarbageFault())

    for _ in range(2):
        with pytest.raises(NetworkError):
            await bot.send_message(chat.id, "x")

    assert chat.from_bot == []


async def test_a_connection_dropped_before_handling_stores_nothing_and_after_it_the_message(
    tg: TelegramEmulator, bot: Bot, chat: TelegramChat
) -> None:
    tg.inject_fault("sendMessage", DropBeforeFault())
    tg.inject_fault("sendMessage", DropAfterFault())

    with pytest.raises(NetworkError):
        await bot.send_message(chat.id, "before")
    with pytest.raises(NetworkError):
        await bot.send_message(chat.id, "after")

    assert [message.text for message in chat.from_bot] == ["after"]
    assert [call.status for call in tg.calls_of("sendMessage")] == [0, 0]


async def test_a_held_answer_times_out_after_taking_effect(
    tg: TelegramEmulator, bot: Bot, chat: TelegramChat
) -> None:
    hold = HoldFault()
    tg.inject_fault("sendMessage", hold)

    with pytest.raises(TimedOut):
        await bot.send_message(chat.id, "x", read_timeout=0.2)

    await hold.entered.wait()
    hold.release()
    assert [message.text for message in chat.from_bot] == ["x"]


async def test_a_slow_answer_arrives_in_the_end(
    tg: TelegramEmulator, bot: Bot, chat: TelegramChat
) -> None:
    tg.inject_fault("sendMessage", SlowFault(seconds=0.05))

    sent = await bot.send_message(chat.id, "x")

    assert sent.text == "x"


async def test_confirmed_updates_can_be_redelivered(
    tg: TelegramEmulator, bot: Bot, ada: TelegramUser, chat: TelegramChat
) -> None:
    await ada.says(chat, "hello")
    [first] = await bot.get_updates()
    await bot.get_updates(offset=first.update_id + 1)

    assert tg.redeliver() == 1

    again = await bot.get_updates(offset=first.update_id + 1)
    assert [update.update_id for update in again] == [first.update_id]
    assert await bot.get_updates(offset=first.update_id + 1) == ()


async def test_every_request_is_recorded(
    tg: TelegramEmulator, bot: Bot, chat: TelegramChat
) -> None:
    await bot.send_message(chat.id, "x", reply_markup=keyboard("a"))

    call = tg.calls[-1]
    assert (call.method, call.chat_id, call.text, call.status) == ("sendMessage", 7, "x", 200)
    assert json.loads(call.form.text("reply_markup"))["inline_keyboard"]
