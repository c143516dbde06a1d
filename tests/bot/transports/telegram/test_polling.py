"""Receiving loses nothing, confirms nothing too early, and never falls silent."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from telegram import Bot

from bot.config.logs import NOISY_LOGGERS
from bot.transports.telegram.polling import TelegramPollPace
from bot.transports.telegram.transport import TelegramTransport
from storage.records.people import Channel
from tests.bot.transports.telegram.builders import (
    FakeSleep,
    make_transport,
    running,
    started,
    text_letter,
)
from tests.emulators.telegram.chats import TelegramChat
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.faults import (
    DropBeforeFault,
    GarbageFault,
    HoldFault,
    RateLimitFault,
    ServerErrorFault,
    TelegramFault,
)
from tests.emulators.telegram.users import TelegramUser
from tests.fakes.inbox import FakeInbox


async def confirmed(tg: TelegramEmulator) -> None:
    await tg.wait_until(lambda: not tg.unconfirmed, what="everything confirmed")


async def test_the_return_of_the_connection_is_reported(
    tg: TelegramEmulator, intake: FakeInbox, tmp_path: Path
) -> None:
    tg.inject_fault("getUpdates", DropBeforeFault(), times=2)

    async with running(make_transport(tg, intake, tmp_path, FakeSleep())):
        await tg.wait_until(lambda: len(tg.calls_of("getUpdates")) >= 4)

    assert intake.connections == [Channel.TELEGRAM]


async def test_an_update_is_confirmed_only_once_it_is_stored(
    tg: TelegramEmulator,
    live: TelegramTransport,
    intake: FakeInbox,
    ada: TelegramUser,
    chat: TelegramChat,
) -> None:
    intake.gate.clear()
    await ada.says(chat, "important")
    await intake.entered.wait()
    polls = len(tg.calls_of("getUpdates"))

    # Whatever wanted to confirm now would have done so before these answers are back.
    await live.deliver(text_letter(chat, "one"))
    await live.deliver(text_letter(chat, "two", outbox_id=2))

    assert len(tg.unconfirmed) == 1
    assert len(tg.calls_of("getUpdates")) == polls
    intake.gate.set()
    await confirmed(tg)
    assert intake.messages[0].text == "important"


async def test_what_was_not_stored_before_a_crash_comes_again_and_in_order(
    tg: TelegramEmulator, intake: FakeInbox, tmp_path: Path, sleep: FakeSleep
) -> None:
    ada = tg.user(7, "Ada")
    chat = tg.private_chat(ada)
    await ada.says(chat, "one")
    await ada.says(chat, "two")
    intake.gate.clear()
    async with running(make_transport(tg, intake, tmp_path, sleep)) as crashing:
        await intake.entered.wait()
        await crashing.deliver(text_letter(chat, "before the crash"))
    await ada.says(chat, "three")
    intake.gate.set()

    async with running(make_transport(tg, intake, tmp_path, sleep)):
        await intake.message(3)

    assert [m.text for m in intake.messages] == ["one", "two", "three"]


@pytest.mark.usefixtures("live")
async def test_a_redelivered_update_keeps_its_key(
    tg: TelegramEmulator, intake: FakeInbox, ada: TelegramUser, chat: TelegramChat
) -> None:
    await ada.says(chat, "once")
    await intake.message()
    await confirmed(tg)

    assert tg.redeliver() == 1
    await ada.says(chat, "next")

    await intake.message(2)
    assert [m.text for m in intake.messages] == ["once", "next"]


@pytest.mark.usefixtures("live")
async def test_a_full_disk_holds_the_message_until_it_can_be_stored(
    tg: TelegramEmulator, intake: FakeInbox, ada: TelegramUser, chat: TelegramChat
) -> None:
    intake.failures = 3

    await ada.says(chat, "keep me")

    assert (await intake.message()).text == "keep me"
    await intake.wait(lambda: intake.alert_keys == ["store", ""])
    await confirmed(tg)


async def test_a_wrong_token_is_one_alert_and_is_tried_again(
    tg: TelegramEmulator, intake: FakeInbox, tmp_path: Path, sleep: FakeSleep
) -> None:
    tg.revoke_token()

    async with running(make_transport(tg, intake, tmp_path, sleep)):
        await tg.wait_until(lambda: len(tg.calls_of("getMe")) > 3)
        tg.restore_token()
        await intake.wait(lambda: intake.alert_keys == ["token", ""])

    assert intake.alerts[0] == ("token", {"seconds": 30})
    assert sleep.slept[:3] == [30.0, 60.0, 120.0]


@pytest.mark.usefixtures("live")
async def test_a_token_revoked_while_running_is_noticed_and_its_return_too(
    tg: TelegramEmulator, intake: FakeInbox, ada: TelegramUser, chat: TelegramChat
) -> None:
    await tg.wait_for_call("getUpdates")

    tg.revoke_token()
    await intake.wait(lambda: intake.alert_keys == ["token"])
    tg.restore_token()
    await ada.says(chat, "are you back?")

    assert (await intake.message()).text == "are you back?"
    await intake.wait(lambda: intake.alert_keys == ["token", ""])


@pytest.mark.parametrize("token", ["", "nonsense", "1:a\nb", "123456:wrong"])
async def test_no_token_breaks_the_start(
    tg: TelegramEmulator, intake: FakeInbox, tmp_path: Path, sleep: FakeSleep, token: str
) -> None:
    async with running(make_transport(tg, intake, tmp_path, sleep, token=token)):
        await intake.wait(lambda: bool(intake.alerts))


@pytest.mark.usefixtures("live")
async def test_a_second_poller_is_one_alert_and_the_fight_ends(
    tg: TelegramEmulator,
    intake: FakeInbox,
    ada: TelegramUser,
    chat: TelegramChat,
    sleep: FakeSleep,
) -> None:
    await tg.wait_for_call("getUpdates")
    async with Bot(tg.token, base_url=f"{tg.base_url}/bot") as other:
        await other.get_updates(timeout=0)
        await intake.wait(lambda: intake.alert_keys[:1] == ["conflict"])

    await ada.says(chat, "hello")

    assert (await intake.message()).text == "hello"
    await intake.wait(lambda: intake.alert_keys == ["conflict", ""])
    assert 5.0 in sleep.slept


async def test_a_webhook_left_behind_is_removed(
    tg: TelegramEmulator, intake: FakeInbox, tmp_path: Path, sleep: FakeSleep
) -> None:
    tg.world.updates.webhook = "https://old.example.org/hook"
    ada = tg.user(7, "Ada")

    async with running(make_transport(tg, intake, tmp_path, sleep)):
        await ada.says(tg.private_chat(ada), "hello")
        await intake.message()
        tg.world.updates.webhook = "https://new.example.org/hook"
        await ada.says(tg.private_chat(ada), "again")
        await intake.message(2)

    assert tg.world.updates.webhook == ""


async def test_no_network_at_the_start_is_an_alert_that_names_the_address(
    tg: TelegramEmulator, intake: FakeInbox, tmp_path: Path, sleep: FakeSleep
) -> None:
    async with TelegramEmulator() as gone:
        nowhere = gone.base_url

    async with running(make_transport(tg, intake, tmp_path, sleep, base_url=nowhere)):
        await intake.wait(lambda: bool(intake.alerts))

    assert intake.alerts[0] == ("network", {"address": nowhere, "reason": "ConnectError"})


@pytest.mark.usefixtures("live")
@pytest.mark.parametrize(
    "troubles",
    [
        (ServerErrorFault(code=502), DropBeforeFault()),
        (GarbageFault(), RateLimitFault(retry_after=7)),
        (ServerErrorFault(code=500), GarbageFault()),
    ],
    ids=str,
)
async def test_short_troubles_are_ridden_out_in_silence(
    tg: TelegramEmulator,
    intake: FakeInbox,
    ada: TelegramUser,
    troubles: tuple[TelegramFault, ...],
) -> None:
    await tg.wait_for_call("getUpdates")
    for trouble in troubles:
        tg.inject_fault("getUpdates", trouble)

    await ada.says(tg.private_chat(ada), "one")
    await ada.says(tg.private_chat(ada), "two")

    await intake.message(2)
    await confirmed(tg)
    assert intake.alerts == []


@pytest.mark.usefixtures("live")
async def test_long_troubles_are_one_alert_with_growing_waits(
    tg: TelegramEmulator,
    intake: FakeInbox,
    ada: TelegramUser,
    chat: TelegramChat,
    sleep: FakeSleep,
) -> None:
    await tg.wait_for_call("getUpdates")
    tg.inject_fault("getUpdates", ServerErrorFault(code=502), times=7)

    await ada.says(chat, "one")
    await ada.says(chat, "two")

    await intake.wait(lambda: intake.alert_keys == ["network", ""])
    assert sleep.slept[:7] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


async def test_silence_is_noticed_and_the_connection_opened_anew(
    tg: TelegramEmulator, intake: FakeInbox, tmp_path: Path, sleep: FakeSleep
) -> None:
    ada = tg.user(7, "Ada")
    hold = HoldFault()
    tg.inject_fault("getUpdates", hold)
    pace = TelegramPollPace(poll=0.1, stall=0.2)

    async with running(make_transport(tg, intake, tmp_path, sleep, pace=pace)):
        await hold.entered.wait()
        await intake.wait(lambda: intake.alert_keys[:1] == ["stalled"])
        await ada.says(tg.private_chat(ada), "hello")
        await intake.message()
        # A machine that stands still for as long is told again.
        await intake.wait(lambda: intake.alert_keys[:2] == ["stalled", ""])

    hold.release()


async def test_an_old_offset_never_hides_updates_when_telegrams_numbers_start_anew(
    tg: TelegramEmulator, intake: FakeInbox, tmp_path: Path, sleep: FakeSleep
) -> None:
    ada = tg.user(7, "Ada")
    chat = tg.private_chat(ada)

    async def numbers_start_anew() -> None:
        tg.world.updates._next_id = 5
        await ada.says(chat, "after")

    async with running(
        make_transport(tg, intake, tmp_path, sleep, pace=TelegramPollPace(poll=0.0))
    ):
        await ada.says(chat, "before")
        await intake.message()
        await confirmed(tg)
        polls = len(tg.calls_of("getUpdates"))
        await tg.wait_until(lambda: len(tg.calls_of("getUpdates")) > polls + 2)
        sleep.before[TelegramPollPace().network[0]] = numbers_start_anew
        tg.inject_fault("getUpdates", ServerErrorFault())
        await intake.message(2)

    assert [m.text for m in intake.messages] == ["before", "after"]


async def test_sending_works_while_receiving_waits(
    tg: TelegramEmulator, intake: FakeInbox, tmp_path: Path, sleep: FakeSleep
) -> None:
    ada = tg.user(7, "Ada")
    chat = tg.private_chat(ada)
    async with running(make_transport(tg, intake, tmp_path, sleep)) as transport:
        await tg.wait_for_call("getUpdates")
        await asyncio.gather(
            *(transport.deliver(text_letter(chat, f"n{i}", outbox_id=i)) for i in range(20))
        )

    assert len(chat.from_bot) == 20


@pytest.mark.usefixtures("live")
async def test_the_menu_is_set_in_both_languages(tg: TelegramEmulator, intake: FakeInbox) -> None:
    await tg.wait_for_call("getUpdates")

    assert tg.commands() == {"help": "What you can type", "run": "Start a task"}
    assert tg.commands("zh") == {"help": "帮助"}
    assert tg.world.menu_button == {"type": "commands"}


async def test_a_refused_menu_does_not_stop_the_channel(
    tg: TelegramEmulator, intake: FakeInbox, tmp_path: Path, sleep: FakeSleep
) -> None:
    tg.inject_fault("setMyCommands", ServerErrorFault(code=500, description="Internal"))
    ada = tg.user(7, "Ada")

    async with running(make_transport(tg, intake, tmp_path, sleep)):
        await ada.says(tg.private_chat(ada), "hello")
        await intake.message()


async def test_the_token_reaches_no_log(
    tg: TelegramEmulator,
    intake: FakeInbox,
    tmp_path: Path,
    sleep: FakeSleep,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    for name in NOISY_LOGGERS:
        caplog.set_level(logging.DEBUG, logger=name)
    tg.inject_fault("getUpdates", ServerErrorFault(code=502))
    tg.inject_fault("getUpdates", DropBeforeFault())
    ada = tg.user(7, "Ada")

    async with running(make_transport(tg, intake, tmp_path, sleep)):
        await ada.says(tg.private_chat(ada), "hello")
        await intake.message()

    ours = "\n".join(
        record.getMessage() for record in caplog.records if not record.name.startswith("uvicorn")
    )
    assert "HTTP Request" in ours
    assert tg.token.partition(":")[2] not in ours


async def test_nothing_is_left_running_after_the_channel_closes(
    tg: TelegramEmulator, intake: FakeInbox, tmp_path: Path, sleep: FakeSleep
) -> None:
    before = asyncio.all_tasks()

    async with started(make_transport(tg, intake, tmp_path, sleep)):
        pass
    async with running(make_transport(tg, intake, tmp_path, sleep)):
        await tg.wait_for_call("getUpdates")

    ours = [t for t in asyncio.all_tasks() - before if t.get_name().startswith("telegram")]
    assert ours == []
