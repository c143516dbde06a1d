from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cards.actions import ChooseModel, ListTasks, PauseTask, StopTask, SubmitTaskForm
from cards.card_json import load_action, load_card
from cards.courier import CardRef
from cards.model import (
    ButtonsBlock,
    Card,
    CardButton,
    CollapsibleBlock,
    FormBlock,
    FormField,
    FormFieldKind,
    SelectBlock,
    SelectOption,
    TextBlock,
)
from storage.errors import StoreUnavailable
from storage.records.messages import DeliveryUrgency
from storage.records.people import Channel
from tests.bot.transports.outbox_builders import OutboxHarness, outbox_harness, text_card, text_of
from tests.storage.message_store import group


def rich(percent: int = 0) -> Card:
    return Card(
        title="Task",
        blocks=(
            TextBlock(markdown=f"{percent} %"),
            ButtonsBlock(
                items=(
                    CardButton(label="Pause", action=PauseTask(task_id="a")),
                    CardButton(label="Stop", action=StopTask(task_id="a")),
                )
            ),
            SelectBlock(
                placeholder="Model",
                action=ChooseModel(),
                options=(SelectOption(label="A", value="a"),),
            ),
            FormBlock(
                fields=(FormField(name="text", label="What", field=FormFieldKind.PARAGRAPH),),
                submit="Go",
                action=SubmitTaskForm(),
            ),
            CollapsibleBlock(title="More", blocks=(TextBlock(markdown="detail"),)),
        ),
    )


async def stored(post: OutboxHarness, key: str = "k") -> Card:
    row = await post.room.outbox.find_by_key(key)
    assert row is not None
    return load_card(row.card)


def tokens(card: Card) -> list[str]:
    found: list[str] = []
    for block in card.blocks:
        if isinstance(block, ButtonsBlock):
            found += [button.token for button in block.items]
        elif isinstance(block, SelectBlock | FormBlock):
            found.append(block.token)
    return found


async def test_every_button_goes_out_with_a_token_that_leads_to_its_action(
    post: OutboxHarness,
) -> None:
    chat = await post.room.chat()

    await post.courier.send(chat.id, rich(), key="k", urgency=DeliveryUrgency.NOTICE)

    card = await stored(post)
    rows = [await post.room.actions.get_action(token) for token in tokens(card)]
    assert [load_action(row.action) for row in rows if row is not None] == [
        PauseTask(task_id="a"),
        StopTask(task_id="a"),
        ChooseModel(),
        SubmitTaskForm(),
    ]
    assert {row.card_key for row in rows if row is not None} == {"k"}


async def test_the_same_card_again_changes_nothing(post: OutboxHarness) -> None:
    chat = await post.room.chat()

    first = await post.courier.send(chat.id, rich(), key="k", urgency=DeliveryUrgency.NOTICE)
    again = await post.courier.send(chat.id, rich(), key="k", urgency=DeliveryUrgency.NOTICE)

    assert first == again == CardRef(key="k", revision=1)


async def test_buttons_that_stay_keep_their_tokens_when_the_card_changes(
    post: OutboxHarness,
) -> None:
    chat = await post.room.chat()
    await post.courier.send(chat.id, rich(10), key="k", urgency=DeliveryUrgency.NOTICE)
    before = tokens(await stored(post))

    ref = await post.courier.send(chat.id, rich(20), key="k", urgency=DeliveryUrgency.NOTICE)

    assert ref.revision == 2
    assert tokens(await stored(post)) == before


async def test_a_card_without_plain_text_gets_one(post: OutboxHarness) -> None:
    chat = await post.room.chat()

    await post.courier.send(chat.id, rich(), key="k", urgency=DeliveryUrgency.NOTICE)
    own = Card(blocks=(TextBlock(markdown="x"),), fallback="as I say")
    await post.courier.send(chat.id, own, key="own", urgency=DeliveryUrgency.NOTICE)

    assert "Pause: /pause a" in (await stored(post)).fallback
    assert (await stored(post, "own")).fallback == "as I say"


async def test_a_huge_card_is_taken_whole(post: OutboxHarness) -> None:
    chat = await post.room.chat()
    text = "好" * 100_000

    await post.courier.send(chat.id, text_card(text), key="k", urgency=DeliveryUrgency.NOTICE)

    assert text_of(await stored(post)) == text


async def test_a_card_that_cannot_be_stored_leaves_no_buttons_behind(post: OutboxHarness) -> None:
    chat = await post.room.chat()
    button = ButtonsBlock(items=(CardButton(label="x", action=ListTasks(page=2)),))
    huge = Card(blocks=(TextBlock(markdown="x" * 1_000_000), button), fallback="x")
    async with post.room.db.write() as tx:
        pages = (await tx.exec_driver_sql("PRAGMA page_count")).scalar_one()
        await tx.exec_driver_sql(f"PRAGMA max_page_count={pages + 2}")

    with pytest.raises(StoreUnavailable, match="full"):
        await post.courier.send(chat.id, huge, key="k", urgency=DeliveryUrgency.NOTICE)

    async with post.room.db.read() as view:
        count = (await view.exec_driver_sql("SELECT count(*) FROM actions")).scalar()
    assert count == 0


async def test_what_was_sent_before_a_kill_is_delivered_after_it(tmp_path: Path) -> None:
    async with outbox_harness(tmp_path) as post:
        chat = await post.room.chat()
        await post.say(chat, "survives")

    async with outbox_harness(tmp_path) as post:
        post.run()
        await post.telegram.sent(1)

        assert post.telegram.texts == ["survives"]


async def test_an_answer_in_the_making_is_a_draft_in_a_private_telegram_chat(
    post: OutboxHarness,
) -> None:
    chat = await post.room.chat()
    post.run()
    post.courier.expect_answer("reply:1", chat.id)
    ref = CardRef(key="reply:1", revision=0)

    await post.courier.stream(ref, "so")
    await post.telegram.until(lambda: "so" in post.telegram.streamed)
    await post.courier.stream(ref, "so far")
    await post.telegram.until(lambda: "so far" in post.telegram.streamed)
    assert post.telegram.letters == []
    await post.say(chat, "so far, so good", key="reply:1")
    await post.telegram.sent(1)

    assert post.telegram.texts == ["so far, so good"]
    assert post.telegram.letters[0].placed is None


async def test_elsewhere_it_takes_a_message_that_the_answer_then_replaces(
    tmp_path: Path,
) -> None:
    async with outbox_harness(tmp_path, Channel.TELEGRAM) as post:
        chat = await post.room.chat(group())
        post.run()
        post.courier.expect_answer("reply:1", chat.id, reply_to="77")
        ref = CardRef(key="reply:1", revision=0)

        await post.courier.stream(ref, "so")
        await post.settled("reply:1")
        await post.courier.stream(ref, "so far")
        await post.telegram.until(lambda: post.telegram.streamed == ["so far"])
        await post.say(chat, "so far, so good", key="reply:1")
        await post.telegram.sent(2)

        assert post.telegram.texts == ["so", "so far, so good"]
        placeholder, answer = post.telegram.letters
        assert placeholder.reply_to == "77"
        assert answer.placed is not None


async def test_text_that_comes_before_its_message_is_placed_is_shown_when_it_is(
    post: OutboxHarness,
) -> None:
    chat = await post.room.chat(group())
    post.telegram.gate = asyncio.Event()
    post.run()
    post.courier.expect_answer("reply:1", chat.id)
    ref = CardRef(key="reply:1", revision=0)
    await post.courier.stream(ref, "one")
    await post.telegram.sent(1)

    await post.courier.stream(ref, "two")
    await post.courier.stream(ref, "three")
    post.telegram.gate.set()

    await post.telegram.until(lambda: post.telegram.streamed == ["three"])


async def test_after_the_answer_nothing_of_its_making_is_shown(post: OutboxHarness) -> None:
    chat = await post.room.chat()
    post.run()
    post.courier.expect_answer("reply:1", chat.id)
    await post.say(chat, "done", key="reply:1")
    await post.settled("reply:1")

    await post.courier.stream(CardRef(key="reply:1", revision=0), "do")
    await post.courier.stream(CardRef(key="reply:9", revision=0), "nobody expects this")
    await post.say(chat, "next", key="reply:2")
    await post.settled("reply:2")

    assert post.telegram.streamed == []
