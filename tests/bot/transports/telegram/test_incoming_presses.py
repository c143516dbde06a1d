"""Every press is handed in once and answered always."""

from __future__ import annotations

import pytest

from bot.transports.ports import PressToast
from bot.transports.telegram import messages
from bot.transports.telegram.transport import TelegramTransport
from cards.actions import ListTasks, StopTask
from cards.model import (
    ButtonsBlock,
    CardButton,
    ConfirmDialog,
    SelectBlock,
    SelectOption,
    TextBlock,
)
from tests.bot.transports.telegram.builders import PAUSE, TOKEN, later, letter
from tests.emulators.telegram.chats import TelegramChat
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.faults import (
    DropBeforeFault,
    HoldFault,
    RateLimitFault,
    ServerErrorFault,
    TelegramFault,
)
from tests.emulators.telegram.users import TelegramUser
from tests.fakes.inbox import FakeInbox

STOP = ButtonsBlock(
    items=(
        CardButton(
            label="Stop",
            action=StopTask(task_id="k3m9qa"),
            confirm=ConfirmDialog(title="Stop?", text="Its work so far is kept."),
            token=TOKEN,
        ),
        *PAUSE.items,
    )
)


async def test_a_press_carries_its_token_and_shows_the_answer(
    live: TelegramTransport, intake: FakeInbox, ada: TelegramUser, chat: TelegramChat
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
    live: TelegramTransport, intake: FakeInbox, ada: TelegramUser, chat: TelegramChat
) -> None:
    options = (SelectOption(label="One", value="1"), SelectOption(label="Two", value="2"))
    select = SelectBlock(placeholder="Which?", action=ListTasks(), options=options, token=TOKEN)
    await live.deliver(letter(chat, select))

    await ada.presses(chat.last, "Two")

    assert (intake.presses[0].token, intake.presses[0].value) == (TOKEN, "#1")


async def test_a_press_in_a_topic_knows_its_thread(
    tg: TelegramEmulator, live: TelegramTransport, intake: FakeInbox, ada: TelegramUser
) -> None:
    forum = tg.group("Team", forum=True)
    topic = tg.topic(forum, "Deploy")
    await live.deliver(letter(forum, PAUSE, thread=topic))

    await ada.presses(forum.last, "Pause")

    assert intake.presses[0].place.thread == str(topic)


async def test_a_refusal_is_shown_as_an_alert_and_cut_to_the_limit(
    live: TelegramTransport, intake: FakeInbox, ada: TelegramUser, chat: TelegramChat
) -> None:
    intake.toast = PressToast(text="no " * 100, good=False)
    await live.deliver(letter(chat, PAUSE))

    answer = await ada.presses(chat.last, "Pause")

    assert (len(answer.text), answer.alert) == (200, True)


async def test_a_press_is_answered_even_when_handling_it_fails(
    live: TelegramTransport, intake: FakeInbox, ada: TelegramUser, chat: TelegramChat
) -> None:
    intake.press_error = OSError(28, "No space left on device")
    await live.deliver(letter(chat, PAUSE))

    answer = await ada.presses(chat.last, "Pause")

    assert answer.alert
    assert "Press again" in answer.text


async def test_answering_survives_a_broken_connection(
    tg: TelegramEmulator, live: TelegramTransport, ada: TelegramUser, chat: TelegramChat
) -> None:
    tg.inject_fault("answerCallbackQuery", DropBeforeFault(), times=2)
    await live.deliver(letter(chat, PAUSE))

    assert (await ada.presses(chat.last, "Pause")).text == "done"


async def test_a_slow_answer_holds_nobody_up(
    tg: TelegramEmulator,
    live: TelegramTransport,
    intake: FakeInbox,
    ada: TelegramUser,
    chat: TelegramChat,
) -> None:
    hold = HoldFault()
    tg.inject_fault("answerCallbackQuery", hold)
    await live.deliver(letter(chat, PAUSE))

    ada.press(chat.last, "Pause")
    await hold.entered.wait()
    await ada.says(chat, "go on")

    assert (await intake.message()).text == "go on"
    hold.release()


async def test_a_press_that_is_too_old_to_answer_still_counts(
    tg: TelegramEmulator,
    live: TelegramTransport,
    intake: FakeInbox,
    ada: TelegramUser,
    chat: TelegramChat,
) -> None:
    await live.deliver(letter(chat, PAUSE))
    tg.world.query_lifetime = -1

    ada.press(chat.last, "Pause")
    await intake.wait(lambda: bool(intake.presses))
    await ada.says(chat, "go on")

    assert (await intake.message()).text == "go on"


@pytest.mark.parametrize("data", ["", "x", ":", "?", "::::", "v1:foreign:payload", "\u0000"])
async def test_a_forged_press_is_handed_in_as_it_is_or_refused_but_answered(
    live: TelegramTransport, ada: TelegramUser, chat: TelegramChat, data: str
) -> None:
    await live.deliver(letter(chat, PAUSE))

    answer = await ada.presses(chat.last, "Pause", data=data)

    assert answer.text


async def test_a_risky_button_acts_only_at_the_second_press(
    live: TelegramTransport, intake: FakeInbox, ada: TelegramUser, chat: TelegramChat
) -> None:
    await live.deliver(letter(chat, STOP))

    first = await ada.presses(chat.last, "Stop")

    assert intake.presses == []
    assert first.text == "Press again to confirm: Stop"
    assert chat.last.buttons == ["⚠️ Sure? Stop", "Pause"]

    second = await ada.presses(chat.last, "⚠️ Sure? Stop")

    assert second.text == "done"
    assert [press.token for press in intake.presses] == [TOKEN]


async def test_a_button_that_asks_goes_on_asking_when_its_card_is_drawn_anew(
    live: TelegramTransport,
    ada: TelegramUser,
    chat: TelegramChat,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = letter(chat, STOP)
    placed = (await live.deliver(first)).placed
    await ada.presses(chat.last, "Stop")

    second = later(first, placed, TextBlock(markdown="one more second"), STOP)
    placed = (await live.deliver(second)).placed

    assert chat.last.buttons == ["⚠️ Sure? Stop", "Pause"]
    await ada.presses(chat.last, "⚠️ Sure? Stop")
    placed = (await live.deliver(later(second, placed, TextBlock(markdown="end"), STOP))).placed
    assert chat.last.buttons == ["Stop", "Pause"]

    monkeypatch.setattr(messages, "CONFIRM_SECONDS", -1.0)
    await ada.presses(chat.last, "Stop")
    await live.deliver(later(second, placed, TextBlock(markdown="much later"), STOP))
    assert chat.last.buttons == ["Stop", "Pause"]


async def test_the_question_is_asked_in_the_language_of_who_presses(
    tg: TelegramEmulator, live: TelegramTransport
) -> None:
    wei = tg.user(9, "伟", "zh-hans")
    chat = tg.private_chat(wei)
    await live.deliver(letter(chat, STOP))

    answer = await wei.presses(chat.last, "Stop")

    assert answer.text == "再按一次确认：Stop"


async def test_two_quick_presses_of_a_risky_button_only_ask(
    live: TelegramTransport, intake: FakeInbox, ada: TelegramUser, chat: TelegramChat
) -> None:
    await live.deliver(letter(chat, STOP))
    card = chat.last

    presses = [ada.press(card, "Stop") for _ in range(2)]

    assert [(await press.answer()).alert for press in presses] == [False, False]
    assert intake.presses == []


@pytest.mark.parametrize(
    "trouble", [DropBeforeFault(), ServerErrorFault(), RateLimitFault()], ids=str
)
async def test_a_question_that_cannot_be_asked_is_answered_and_acts_on_nothing(
    tg: TelegramEmulator,
    live: TelegramTransport,
    intake: FakeInbox,
    chat: TelegramChat,
    trouble: TelegramFault,
) -> None:
    await live.deliver(letter(chat, STOP))
    tg.inject_fault("editMessageReplyMarkup", trouble)

    answer = await tg.user(7, "Ada").presses(chat.last, "Stop")

    assert answer.alert
    assert intake.presses == []


async def test_the_second_copy_of_a_card_is_removed_once_somebody_presses_it(
    live: TelegramTransport, intake: FakeInbox, ada: TelegramUser, chat: TelegramChat
) -> None:
    await live.deliver(letter(chat, PAUSE))
    twin = chat.last
    await live.deliver(letter(chat, PAUSE))
    kept = chat.last

    intake.toast = PressToast(text="Paused", is_twin=True)
    answer = await ada.presses(twin, "Pause")
    await chat.wait_until(lambda: twin.deleted)

    assert answer.text == "Paused"
    assert not kept.deleted
