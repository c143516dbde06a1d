"""Answers are typed into their card and end as whole cards."""

from __future__ import annotations

import asyncio

import pytest

from bot.transports.ports import OutboundMessage
from cards.model import Card
from tests.bot.transports.feishu.builders import FeishuHarness, answer, next_revision, plain, task
from tests.emulators.feishu.refusals import ConnectionCut, FeishuApiError, rate_limited
from tests.emulators.feishu.tenant import CardEntity, FeishuChat

CONTENT = "/elements/answer/content$"


@pytest.fixture
def chat(idle: FeishuHarness) -> FeishuChat:
    return idle.fs.private_chat(idle.fs.user("Anna"))


async def typed(desk: FeishuHarness, chat: FeishuChat, letter: OutboundMessage, text: str) -> None:
    """Offer text and wait until a person sees it."""
    await desk.transport.stream(letter, text)
    await chat.wait_for(lambda message: message.text == text)


def entity_of(chat: FeishuChat) -> CardEntity:
    entity = chat.from_bot[-1].entity
    assert entity is not None
    return entity


async def test_an_answer_grows_in_its_card_and_ends_settled(
    idle: FeishuHarness, chat: FeishuChat
) -> None:
    letter, delivery = await idle.post(chat, answer("…"))

    await typed(idle, chat, letter, "Hello")
    assert entity_of(chat).streaming
    assert chat.from_bot[0].summary == "Writing…"
    await typed(idle, chat, letter, "Hello world")
    await idle.show(next_revision(letter, answer("Hello world, done"), delivery.placed))

    assert [message.text for message in chat.from_bot] == ["Hello world, done"]
    assert not entity_of(chat).streaming
    assert chat.from_bot[0].summary == "Hello world, done"


async def test_a_stream_may_come_before_the_first_delivery(
    idle: FeishuHarness, chat: FeishuChat
) -> None:
    letter = idle.letter(chat, answer(""))

    await typed(idle, chat, letter, "Hello")
    final = next_revision(letter, answer("Hello there"), None)
    delivery = await idle.show(final)

    assert [message.text for message in chat.from_bot] == ["Hello there"]
    assert delivery.placed.message_ids == (chat.from_bot[0].message_id,)


async def test_a_plain_card_becomes_an_entity_when_it_streams(
    idle: FeishuHarness, chat: FeishuChat
) -> None:
    letter, delivery = await idle.post(chat, plain("…"))

    await typed(idle, chat, letter, "Hello")
    delivery = await idle.show(next_revision(letter, plain("Hello you"), delivery.placed))
    later = next_revision(letter, plain("Hello again"), delivery.placed)
    await idle.show(later)

    assert [message.text for message in chat.from_bot] == ["Hello again"]


async def test_only_the_newest_text_is_typed(idle: FeishuHarness, chat: FeishuChat) -> None:
    letter, _ = await idle.post(chat, answer("…"))
    gate = asyncio.Event()
    held = idle.fs.inject_fault("PUT", CONTENT, gate=gate)

    await idle.transport.stream(letter, "a")
    await idle.fs.wait_until(lambda: True)
    while not held.hits:
        await asyncio.sleep(0.001)
    for number in range(100):
        await idle.transport.stream(letter, "a" * number)
    gate.set()
    await chat.wait_for(lambda message: message.text == "a" * 99)

    assert len([r for r in idle.fs.requests if r.path.endswith("/content")]) <= 3
    assert 0.25 <= max(idle.quick.pauses) <= 0.3


async def test_streaming_that_closed_by_itself_is_opened_again(
    idle: FeishuHarness, chat: FeishuChat
) -> None:
    letter, delivery = await idle.post(chat, answer("…"))
    await typed(idle, chat, letter, "one")

    idle.fs.cardkit.close_streaming(entity_of(chat).card_id)
    await typed(idle, chat, letter, "one two")
    entity_of(chat).streaming = False
    await typed(idle, chat, letter, "one two three")
    idle.fs.cardkit.close_streaming(entity_of(chat).card_id)
    await idle.show(next_revision(letter, answer("all"), delivery.placed))

    assert [message.text for message in chat.from_bot] == ["all"]
    assert chat.from_bot[0].summary == "all"


async def test_a_rate_limit_slows_typing_and_nothing_else(
    idle: FeishuHarness, chat: FeishuChat
) -> None:
    letter, _ = await idle.post(chat, answer("…"))
    idle.fs.inject_fault("PUT", CONTENT, error=rate_limited(4))

    await typed(idle, chat, letter, "one")

    assert 4.0 in idle.quick.pauses


@pytest.mark.parametrize("path", [CONTENT, "/cardkit/v1/cards/[^/]+$", "/settings$"])
async def test_no_trouble_with_a_stream_reaches_the_final_answer(
    idle: FeishuHarness, chat: FeishuChat, path: str
) -> None:
    letter, delivery = await idle.post(chat, answer("…"))
    fault = idle.fs.inject_fault("*", path, error=FeishuApiError(300310, "no"), times=1)
    cut = idle.fs.inject_fault("PUT", CONTENT, cut=ConnectionCut.BEFORE, times=1)

    await idle.transport.stream(letter, "one")
    while not fault.hits and path != "/settings$":
        await asyncio.sleep(0.001)
    cut.times = 0
    await idle.show(next_revision(letter, answer("whole"), delivery.placed))

    assert [message.text for message in chat.from_bot] == ["whole"]


async def test_very_long_answers_stream_their_beginning(
    idle: FeishuHarness, chat: FeishuChat
) -> None:
    letter, delivery = await idle.post(chat, answer("…"))
    text = "\n".join("字" * 50 for _ in range(600))

    await idle.transport.stream(letter, text)
    await chat.wait_for(lambda message: message.text.endswith(" …"))
    await idle.show(next_revision(letter, answer(text), delivery.placed))

    assert sum(message.text.count("字") for message in chat.from_bot) == 30_000


async def test_an_update_waits_until_a_press_is_answered(desk: FeishuHarness) -> None:
    chat = desk.fs.private_chat(desk.fs.user("Anna"))
    letter, delivery = await desk.post(chat, task(1))
    updating: list[asyncio.Task[object]] = []

    async def update() -> None:
        work = desk.show(next_revision(letter, task(50), delivery.placed))
        updating.append(asyncio.create_task(work))
        await desk.fs.wait_until(lambda: any(r.code == 200810 for r in desk.fs.requests))

    desk.inbox.during_press = update
    shown = await desk.fs.user("Anna").presses(chat.from_bot[0], "Pause")
    await updating[0]

    assert shown.toast == "Paused"
    assert "50%" in chat.from_bot[0].text
    assert 0.3 in desk.quick.pauses


async def test_text_that_comes_after_the_final_answer_is_not_shown(
    idle: FeishuHarness, chat: FeishuChat
) -> None:
    letter, delivery = await idle.post(chat, answer("…"))
    await typed(idle, chat, letter, "one")
    await idle.show(next_revision(letter, answer("final"), delivery.placed))
    requests = len(idle.fs.requests)

    await idle.transport.stream(letter, "late")
    await idle.transport._streams.close()

    assert len(idle.fs.requests) == requests
    assert chat.from_bot[0].text == "final"


async def test_a_shutdown_closes_the_card_that_was_typed_into(
    idle: FeishuHarness, chat: FeishuChat
) -> None:
    letter, _ = await idle.post(chat, answer("…"))
    await typed(idle, chat, letter, "one")

    await idle.transport._streams.close()

    assert not entity_of(chat).streaming
    assert chat.from_bot[0].summary == "one"
    await typed(idle, chat, letter, "two")


async def test_an_empty_card_streams_too(idle: FeishuHarness, chat: FeishuChat) -> None:
    await typed(idle, chat, idle.letter(chat, Card()), "Hello")
