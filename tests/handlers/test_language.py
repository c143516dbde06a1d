"""Which language a card is in that nobody asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from handlers.language import ChatLanguageResolver, TaskLanguageResolver
from storage.records.people import ChatSettings, Language
from tests.builders import make_chat, make_person
from tests.fakes.services import FakePeople

EN, ZH = Language.ENGLISH, Language.CHINESE


@pytest.mark.parametrize(
    ("chosen", "own", "app", "unasked", "asked"),
    [
        (None, None, ZH, ZH, EN),
        (None, None, None, EN, EN),
        (None, EN, ZH, EN, EN),
        (EN, None, ZH, EN, EN),
        (ZH, None, EN, ZH, ZH),
    ],
)
async def test_the_readers_app_decides_if_neither_a_choice_nor_words_do(
    chosen: Language | None,
    own: Language | None,
    app: Language | None,
    unasked: Language,
    asked: Language,
) -> None:
    people = FakePeople()
    ann = make_person(language=own)
    settings = ChatSettings(language=chosen, client_language=app)
    chat = replace(make_chat(person=ann), settings=settings)
    people.add(ann, chat)

    tasks = TaskLanguageResolver(people, None)

    assert await ChatLanguageResolver(people, None)(chat) is unasked
    assert await tasks.resolve(chat.id, ann.id, "") is unasked
    assert await tasks.resolve(chat.id, ann.id, "count the chairs") is asked
