"""In which language a letter is written where its transport adds words of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from cards.actions import ListTasks
from cards.courier import CardRef
from cards.model import ButtonsBlock, Card, CardButton, TextBlock
from handlers.language import CardLanguageResolver
from storage.errors import StoreUnavailable
from storage.records.messages import DeliveryUrgency
from storage.records.people import Chat, Language
from tests.bot.transports.outbox_builders import OutboxHarness, outbox_harness, text_card
from tests.storage.message_store import group


async def private_chat_of(post: OutboxHarness, language: Language | None) -> Chat:
    person = await post.room.person("42")
    if language is not None:
        await post.room.people.set_language(person, language)
    return await post.room.chat()


async def told(post: OutboxHarness, chat: Chat, card: Card) -> Language:
    post.run()
    await post.courier.send(chat.id, card, key="k", urgency=DeliveryUrgency.ANSWER)
    await post.settled()
    return post.telegram.letters[-1].language


async def test_a_letter_speaks_its_readers_language_whatever_the_card_says(
    post: OutboxHarness,
) -> None:
    chat = await private_chat_of(post, Language.CHINESE)

    assert await told(post, chat, text_card("hello to all of you")) is Language.CHINESE


async def test_a_program_of_one_language_writes_every_letter_in_it(tmp_path: Path) -> None:
    async with outbox_harness(tmp_path, fixed=Language.CHINESE) as post:
        chat = await private_chat_of(post, Language.ENGLISH)

        assert await told(post, chat, text_card("hello to all of you")) is Language.CHINESE


async def test_a_chat_with_a_language_of_its_own_is_written_to_in_it(post: OutboxHarness) -> None:
    chat = await post.room.chat(group())
    chat = await post.room.people.update_chat_settings(chat, language=Language.CHINESE)

    assert await told(post, chat, text_card("hello to all of you")) is Language.CHINESE


@pytest.mark.parametrize(
    ("title", "label", "language"),
    [
        ("任务", "", Language.CHINESE),
        ("The task is done", "", Language.ENGLISH),
        ("修好登录页面", "Show all tasks", Language.ENGLISH),
        ("Fix the login page", "查看任务", Language.CHINESE),
        ("✅", "", Language.ENGLISH),
    ],
)
async def test_in_a_group_whose_language_nobody_knows_the_card_tells_it(
    post: OutboxHarness, title: str, label: str, language: Language
) -> None:
    buttons = ButtonsBlock(items=(CardButton(label=label, action=ListTasks()),))
    card = Card(title=title, blocks=(buttons,) if label else (TextBlock(markdown="✅"),))

    assert await told(post, await post.room.chat(group()), card) is language


async def test_an_answer_in_the_making_speaks_its_readers_language(post: OutboxHarness) -> None:
    chat = await private_chat_of(post, Language.CHINESE)
    post.run()
    post.courier.expect_answer("k", chat.id)
    await post.courier.stream(CardRef(key="k", revision=0), "hello to all of you")

    await post.telegram.until(lambda: bool(post.telegram.streamed))
    assert post.telegram.streamed_in == [Language.CHINESE]


async def test_a_store_that_fails_for_a_moment_holds_up_no_letter(post: OutboxHarness) -> None:
    chat = await private_chat_of(post, Language.CHINESE)

    class Broken:
        async def get(self, person_id: object) -> object:
            raise StoreUnavailable

    language_of = CardLanguageResolver(Broken(), None)  # type: ignore[arg-type]  # only `get` is asked

    assert await language_of(chat, Card(title="你好")) is Language.CHINESE
