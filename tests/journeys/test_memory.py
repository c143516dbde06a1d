"""What was told in one conversation is known in the next, and never to who may not hear it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing

import pytest
import pytest_asyncio

from tests.emulators.embeddings import KEY, embedding_service
from tests.emulators.models.script import Asked, Reply
from tests.emulators.telegram.chats import Chat
from tests.emulators.telegram.people import User
from tests.journeys.model_world import PATIENCE, World, told, world

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World, None]:
    async with world(tmp_path_factory.mktemp("home"), "anthropic") as made:
        yield made


async def said_and_answered(
    place: World, boss: User, chat: Chat, text: str, answer: str, *, cue: str = ""
) -> Asked:
    """The request that the answer was given to."""
    place.stage.on(cue or text, "talk", Reply(text=answer))
    await boss.says(chat, text, mention=chat.kind != "private")
    await told(chat, answer)
    await remembered(place, text)
    return place.stage.heard(cue or text, "talk")[-1]


async def remembered(place: World, text: str) -> None:
    """Until the turn is kept: the answer is seen while it grows."""
    await kept(place, "select 1 from memories where instr(text, ?)", text)


async def kept(place: World, query: str, *values: str) -> None:
    """Until the store has what is asked for."""

    def is_kept() -> bool:
        with closing(sqlite3.connect(place.shiftboss.home / "shiftboss.db")) as store:
            return store.execute(query, values).fetchone() is not None

    async with asyncio.timeout(PATIENCE):
        while not await asyncio.to_thread(is_kept):
            await asyncio.sleep(0.05)


def all_of(asked: Asked) -> str:
    return json.dumps(asked.body, ensure_ascii=False)


async def begun_anew(boss: User, chat: Chat) -> None:
    await boss.says(chat, "/reset")
    await told(chat, "A new conversation has begun")


async def test_a_wish_told_in_one_conversation_is_known_in_the_next_and_why_shows_it(
    place: World,
) -> None:
    boss, chat = place.boss()
    wish = "My weekly harbour reports go out as PDF files, not as Word documents"
    await said_and_answered(place, boss, chat, wish, "Noted for the reports of the harbour.")
    await begun_anew(boss, chat)

    asked = await said_and_answered(
        place,
        boss,
        chat,
        "In which format do my harbour reports go out?",
        "They go out as PDF files, Boss.",
    )
    await boss.says(chat, "/memory why")
    shown = await told(chat, "Behind the answer")

    assert wish in all_of(asked)
    assert not any(wish in said for said in asked.said), "it is told as a memory"
    assert "harbour reports" in shown.text
    assert "✓" in shown.text, "the answer used it"


async def test_what_was_told_in_private_stays_out_of_a_group(place: World) -> None:
    boss, chat = place.boss()
    team = place.telegram.group("Team")
    secret = "The gate of the harbour warehouse opens with 4711-9923"
    await said_and_answered(place, boss, chat, secret, "I keep that between us.")

    asked = await said_and_answered(
        place,
        boss,
        team,
        "How does the gate of the harbour warehouse open?",
        "I cannot tell you here.",
        cue="gate of the harbour warehouse open?",
    )

    assert "4711-9923" not in all_of(asked)


async def test_with_a_service_for_meanings_it_is_found_without_its_words(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    home = tmp_path_factory.mktemp("meanings")
    async with (
        embedding_service() as service,
        world(
            home,
            "anthropic",
            EMBEDDING_BASE_URL=f"{service.url}/v1",
            EMBEDDING_MODEL="small",
            EMBEDDING_API_KEY=KEY,
        ) as place,
    ):
        boss, chat = place.boss()
        told_it = "The automobile of my aunt is parked in Potsdam"
        await said_and_answered(place, boss, chat, told_it, "A fine city.")
        await kept(place, "select 1 from memory_vectors")
        await boss.says(chat, "/memory search vehicle")

        await told(chat, "Potsdam")
