"""/inbox: how messages ended."""

from __future__ import annotations

import pytest

from cards.catalog import catalog_for
from handlers.request import Silence
from storage.records.messages import (
    ChatAddress,
    InboxId,
    InboxRow,
    InboxState,
    Incoming,
    IncomingMessage,
    IncomingPress,
    MessageSender,
    OutboxState,
    ReceivedEvent,
)
from storage.records.people import Channel, ChatId, ChatKind, Language
from tests.builders import NOW
from tests.handlers.router_harness import RouterHarness, text_of

_PLACE = ChatAddress(channel=Channel.TELEGRAM, chat="7", kind=ChatKind.GROUP, title="Ops")
_ANN = MessageSender(external_id="1", name="Ann")
_MESSAGE = IncomingMessage(
    place=_PLACE, sender=_ANN, message_id="m", text="please fix *it*", addressed=True, sent_at=NOW
)


def event(
    outcome: str = "",
    state: InboxState = InboxState.HANDLED,
    *,
    answer: OutboxState | None = None,
    attempts: int = 1,
    incoming: Incoming = _MESSAGE,
) -> ReceivedEvent:
    row = InboxRow(
        id=InboxId(4711),
        incoming=incoming,
        chat_id=ChatId("c7"),
        state=state,
        attempts=attempts,
        received_at=NOW,
        outcome=outcome,
    )
    return ReceivedEvent(row=row, answer=answer)


async def shown(*events: ReceivedEvent, text: str = "/inbox") -> str:
    desk = RouterHarness()
    desk.world.inbox_log.events = list(events)
    return text_of(await desk.send_message(text, who="x-olga", chat="c0"))


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (event("card reply:1", answer=OutboxState.SHOWN), "Answered."),
        (event("card reply:1"), "Answered."),
        (event("card reply:1", answer=OutboxState.QUEUED), "hasn't been sent yet"),
        (event("card reply:1", answer=OutboxState.DEAD), "couldn't be delivered"),
        (event("toast"), "at the button"),
        (event("joined 4712"), "together with 4712"),
        (event("dropped"), "ignore late messages"),
        (event("silent bot"), "bots get no answer"),
        (event("silent stranger"), "no access"),
        (event("something newer"), "Handled."),
        (event(), "Handled."),
        (event(state=InboxState.NEW, attempts=0), "Waiting for its turn"),
        (event(state=InboxState.NEW, attempts=2), "attempt 2"),
        (event(state=InboxState.HELD), "/queue handle"),
        (event("card reply:1", InboxState.FAILED, attempts=3), "after 3 failed attempts"),
        (event("dropped", InboxState.FAILED), "restored backup"),
    ],
)
async def test_an_owner_sees_how_a_message_ended(one: ReceivedEvent, expected: str) -> None:
    told = await shown(one)

    assert expected in told
    assert "4711" in told
    assert "Telegram · Ops · Ann: “please fix" in told


async def test_long_messages_are_shortened_and_presses_are_named() -> None:
    long = IncomingMessage(
        place=_PLACE,
        sender=_ANN,
        message_id="m",
        text="word " * 500 + "end",
        addressed=True,
        sent_at=NOW,
    )
    press = IncomingPress(place=_PLACE, sender=_ANN, token="t", message_id="m")

    told = await shown(event("toast", incoming=press), event("toast", incoming=long))

    assert "a button press" in told
    assert "end" not in told
    assert len(told) < 600


async def test_the_newest_come_first_and_their_number_can_be_chosen() -> None:
    events = [event(f"joined {n}") for n in range(1, 61)]

    assert (await shown(*events)).count("together") == 10
    assert (await shown(*events, text="/inbox 2")).index("60") < (
        await shown(*events, text="/inbox 2")
    ).index("59")
    assert (await shown(*events, text="/inbox 99999")).count("together") == 50


@pytest.mark.parametrize("text", ["/inbox 0", "/inbox -1", "/inbox x", "/inbox ２"])
async def test_another_argument_is_refused_with_the_usage(text: str) -> None:
    assert "/inbox [number]" in await shown(event(), text=text)


async def test_it_is_for_owners_in_private_chats_only() -> None:
    desk = RouterHarness()
    desk.world.inbox_log.events = [event("toast")]

    member = text_of(await desk.send_message("/inbox"))
    in_group = text_of(await desk.send_message("/inbox", who="x-olga", chat="g1"))

    assert "Only an owner" in member
    assert "private chat" in in_group
    assert "please fix" not in member + in_group


async def test_it_is_told_in_chinese_too_and_programs_get_the_outcome() -> None:
    desk = RouterHarness()
    olga = await desk.world.people.find_by_account(Channel.TELEGRAM, "x-olga")
    assert olga is not None
    await desk.world.people.set_language(olga, Language.CHINESE)
    desk.world.inbox_log.events = [event("silent stranger")]

    reply = await desk.send_message("/收件箱", who="x-olga", chat="c0")

    assert "未回答" in text_of(reply)
    assert reply.data is not None
    (one,) = reply.data["events"]
    assert (one["id"], one["outcome"], one["answer"]) == (4711, "silent stranger", None)
    assert "please fix" not in str(reply.data)


@pytest.mark.parametrize("language", Language)
@pytest.mark.parametrize("reason", Silence)
async def test_every_reason_for_silence_has_its_own_text(
    reason: Silence, language: Language
) -> None:
    words = catalog_for(language)

    assert words.has(f"inbox.end.{reason}")
    assert words(f"inbox.end.{reason}") != words("inbox.end.handled")
