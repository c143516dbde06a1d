"""Every press is handed in once and answered always."""

from __future__ import annotations

import pytest

from bot.transports.base import Toast
from bot.transports.telegram.transport import TelegramTransport
from cards.actions import ListTasks, StopTask
from cards.model import Button, Buttons, Confirm, Option, Select
from tests.bot.transports.telegram.fakes import PAUSE, TOKEN, FakeIntake, letter
from tests.emulators.telegram.chats import Chat
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.mischief import DropBefore, Hold, Mischief, RateLimit, ServerError
from tests.emulators.telegram.people import User

STOP = Buttons(
    items=(
        Button(
            label="Stop",
            action=StopTask(task_id="k3m9qa"),
            confirm=Confirm(title="Stop?", text="Its work so far is kept."),
            token=TOKEN,
        ),
        *PAUSE.items,
    )
)


async def test_a_press_carries_its_token_and_shows_the_answer(
    live: TelegramTransport, intake: FakeIntake, ada: User, chat: Chat
) -> None:
    await live.deliver(letter(chat, PAUSE))

    pressed = ada.press(chat.last, "Pause")
    answer = await pressed.answer()

    [press] = intake.presses
    assert intake.keys == [pressed.query.id]
    assert (press.token, press.value, press.message_id) == (TOKEN, "", str(chat.last.id))
    assert (press.place.chat, press.sender.external_id) == ("7", "7")
    assert (answer.text, answer.alert) == ("done", False)


async def test_a_picked_option_carries_its_number(
    live: TelegramTransport, intake: FakeIntake, ada: User, chat: Chat
) -> None:
    options = (Option(label="One", value="1"), Option(label="Two", value="2"))
    select = Select(placeholder="Which?", action=ListTasks(), options=options, token=TOKEN)
    await live.deliver(letter(chat, select))

    await ada.presses(chat.last, "Two")

    assert (intake.presses[0].token, intake.presses[0].value) == (TOKEN, "#1")


async def test_a_press_in_a_topic_knows_its_thread(
    tg: TelegramEmulator, live: TelegramTransport, intake: FakeIntake, ada: User
) -> None:
    forum = tg.group("Team", forum=True)
    topic = tg.topic(forum, "Deploy")
    await live.deliver(letter(forum, PAUSE, thread=topic))

    await ada.presses(forum.last, "Pause")

    assert intake.presses[0].place.thread == str(topic)


async def test_a_refusal_is_shown_as_an_alert_and_cut_to_the_limit(
    live: TelegramTransport, intake: FakeIntake, ada: User, chat: Chat
) -> None:
    intake.toast = Toast(text="no " * 100, good=False)
    await live.deliver(letter(chat, PAUSE))

    answer = await ada.presses(chat.last, "Pause")

    assert (len(answer.text), answer.alert) == (200, True)


async def test_a_press_is_answered_even_when_handling_it_fails(
    live: TelegramTransport, intake: FakeIntake, ada: User, chat: Chat
) -> None:
    intake.press_error = OSError(28, "No space left on device")
    await live.deliver(letter(chat, PAUSE))

    answer = await ada.presses(chat.last, "Pause")

    assert answer.alert
    assert "press again" in answer.text


async def test_answering_survives_a_broken_connection(
    tg: TelegramEmulator, live: TelegramTransport, ada: User, chat: Chat
) -> None:
    tg.misbehave("answerCallbackQuery", DropBefore(), times=2)
    await live.deliver(letter(chat, PAUSE))

    assert (await ada.presses(chat.last, "Pause")).text == "done"


async def test_a_slow_answer_holds_nobody_up(
    tg: TelegramEmulator, live: TelegramTransport, intake: FakeIntake, ada: User, chat: Chat
) -> None:
    hold = Hold()
    tg.misbehave("answerCallbackQuery", hold)
    await live.deliver(letter(chat, PAUSE))

    ada.press(chat.last, "Pause")
    await hold.entered.wait()
    await ada.says(chat, "go on")

    assert (await intake.message()).text == "go on"
    hold.release()


async def test_a_press_that_is_too_old_to_answer_still_counts(
    tg: TelegramEmulator, live: TelegramTransport, intake: FakeIntake, ada: User, chat: Chat
) -> None:
    await live.deliver(letter(chat, PAUSE))
    tg.world.query_lifetime = -1

    ada.press(chat.last, "Pause")
    await intake.wait(lambda: bool(intake.presses))
    await ada.says(chat, "go on")

    assert (await intake.message()).text == "go on"


@pytest.mark.parametrize("data", ["", "x", ":", "?", "::::", "v1:foreign:payload", "\u0000"])
async def test_a_forged_press_is_handed_in_as_it_is_or_refused_but_answered(
    live: TelegramTransport, ada: User, chat: Chat, data: str
) -> None:
    await live.deliver(letter(chat, PAUSE))

    answer = await ada.presses(chat.last, "Pause", data=data)

    assert answer.text


async def test_a_risky_button_acts_only_at_the_second_press(
    live: TelegramTransport, intake: FakeIntake, ada: User, chat: Chat
) -> None:
    await live.deliver(letter(chat, STOP))

    first = await ada.presses(chat.last, "Stop")

    assert intake.presses == []
    assert first.text == "Press again if you are sure: Stop"
    assert chat.last.buttons == ["⚠️ Sure? Stop", "Pause"]

    second = await ada.presses(chat.last, "⚠️ Sure? Stop")

    assert second.text == "done"
    assert [press.token for press in intake.presses] == [TOKEN]


async def test_the_question_is_asked_in_the_language_of_who_presses(
    tg: TelegramEmulator, live: TelegramTransport
) -> None:
    wei = tg.user(9, "伟", "zh-hans")
    chat = tg.private_chat(wei)
    await live.deliver(letter(chat, STOP))

    answer = await wei.presses(chat.last, "Stop")

    assert answer.text == "如果确定，请再按一次：Stop"


async def test_two_quick_presses_of_a_risky_button_only_ask(
    live: TelegramTransport, intake: FakeIntake, ada: User, chat: Chat
) -> None:
    await live.deliver(letter(chat, STOP))
    card = chat.last

    presses = [ada.press(card, "Stop") for _ in range(2)]

    assert [(await press.answer()).alert for press in presses] == [False, False]
    assert intake.presses == []


@pytest.mark.parametrize("trouble", [DropBefore(), ServerError(), RateLimit()], ids=str)
async def test_a_question_that_cannot_be_asked_is_answered_and_acts_on_nothing(
    tg: TelegramEmulator, live: TelegramTransport, intake: FakeIntake, chat: Chat, trouble: Mischief
) -> None:
    await live.deliver(letter(chat, STOP))
    tg.misbehave("editMessageReplyMarkup", trouble)

    answer = await tg.user(7, "Ada").presses(chat.last, "Stop")

    assert answer.alert
    assert intake.presses == []
