"""Whether a newer message cuts an answer short or waits, and what those who wait are shown."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from cards.model import Card
from cards.render.text import render
from handlers.chat import MAX_SHOWN
from handlers.ports import ChatAnswer
from handlers.request import Silence
from storage.records.messages import InboxRow
from tests.handlers.router_harness import RouterHarness


def text_of(card: Card) -> str:
    return render(card).text


def busy() -> RouterHarness:
    desk = RouterHarness()
    desk.world.talk.busy = True
    return desk


async def arrives(desk: RouterHarness, text: str, mode: str = "wait") -> InboxRow:
    row = desk.row(desk.message(text))
    desk.router.on_message_waiting(row, mode)
    return row


def shown(desk: RouterHarness, row: InboxRow) -> str:
    return text_of(desk.world.post.cards[f"reply:{row.id}"])


async def test_where_messages_wait_nothing_is_cut_and_each_is_told_its_place() -> None:
    desk = busy()

    first, second = await arrives(desk, "and this"), await arrives(desk, "and that")

    assert desk.world.talk.interrupted == []
    notice = desk.router.waiting_notice
    assert "Queued until the current answer is done" in await notice(first)
    assert "Number 2" in await notice(second)
    desk.router.on_message_withdrawn(first)
    assert not await notice(first)
    assert "Queued until the current answer is done" in await notice(second)


async def test_whose_turn_has_come_counts_no_more() -> None:
    desk = busy()
    first = await arrives(desk, "and this")

    await desk.deliver(first)
    later = await arrives(desk, "and that")

    assert shown(desk, first) == "Fine."
    assert "Queued until the current answer is done" in await desk.router.waiting_notice(later)


async def test_what_waited_and_has_no_answer_of_its_own_does_not_seem_to_wait_for_ever() -> None:
    desk = busy()
    row = await arrives(desk, "tell me")
    desk.world.talk.answers = [ChatAnswer(text="", interrupted=True)]

    await desk.deliver(row)

    assert "Stopped before I answered: tell me" in shown(desk, row)


async def test_beyond_those_shown_messages_wait_without_a_word_and_are_answered_too() -> None:
    desk = busy()
    for number in range(MAX_SHOWN):
        await arrives(desk, f"message {number}")

    row = await arrives(desk, "one more")

    assert not await desk.router.waiting_notice(row)
    await desk.deliver(row)
    assert shown(desk, row) == "Fine."


async def test_a_stranger_is_not_told_about_the_line() -> None:
    desk = busy()
    row = desk.row(desk.message("hello", who="x-nobody"))
    desk.router.on_message_waiting(row, "")

    assert not await desk.router.waiting_notice(row)


@pytest.mark.parametrize(("word", "told"), [("wait", "waits until"), ("打断", "interrupts that")])
async def test_the_chat_chooses_by_a_word(word: str, told: str) -> None:
    desk = RouterHarness()

    reply = await desk.send_message(f"/queue {word}")

    assert reply.card is not None
    assert told in text_of(reply.card)


async def test_an_unknown_word_is_answered_with_those_there_are() -> None:
    desk = RouterHarness()

    reply = await desk.send_message("/queue sometimes")

    assert reply.card is not None
    assert "/queue wait" in text_of(reply.card)


async def test_a_message_cut_short_before_any_answer_was_shown_waits_for_the_next() -> None:
    desk = RouterHarness()
    desk.world.talk.answers = [ChatAnswer(text=" ", interrupted=True, superseded=True)]

    reply = await desk.send_message("tell me")

    assert reply.card is None
    assert reply.silence is Silence.INTERRUPTED


async def test_a_message_that_was_stopped_is_quoted() -> None:
    desk = RouterHarness()
    desk.world.talk.answers = [ChatAnswer(text=" ", interrupted=True)]

    reply = await desk.send_message("tell *me*")

    assert reply.card is not None
    assert "Stopped before I answered: tell *me*" in text_of(reply.card)


async def test_a_command_typed_in_a_shell_cuts_nothing_short_and_stands_in_no_line() -> None:
    desk = busy()
    await arrives(desk, "and this")

    typed = desk.row(replace(desk.message("/run count the chairs"), quiet=True))
    desk.router.on_message_waiting(typed, "cut")
    await desk.deliver(typed)

    assert desk.world.talk.interrupted == []
    assert "Number 2" in await desk.router.waiting_notice(await arrives(desk, "and that"))


@pytest.mark.parametrize(
    ("text", "age", "interrupts"),
    [("and this?", 0, True), ("and this?", 60, False)],
)
async def test_only_talk_that_was_just_sent_interrupts_an_answer(
    text: str, age: int, interrupts: bool
) -> None:
    desk = RouterHarness()
    desk.world.talk.busy = True
    message = desk.message(text)
    row = desk.row(replace(message, sent_at=message.sent_at - timedelta(seconds=age)))

    desk.router.on_message_waiting(row, "")
    assert bool(desk.world.talk.interrupted) is interrupts
    assert bool(await desk.router.waiting_notice(row)) is not interrupts


@pytest.mark.parametrize(("who", "done"), [("x-ann", False), ("x-olga", True)])
async def test_in_a_group_owners_decide_about_held_messages(who: str, done: bool) -> None:
    desk = RouterHarness()

    await desk.send_message("/queue handle", who=who, chat="g1")

    assert (desk.world.held.released != []) is done
