"""Tests that later conversations know earlier ones, and only those that may be seen."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from tests.emulators.embeddings import KEY, embedding_service
from tests.emulators.models.script import ReceivedRequest, ScriptedReply
from tests.emulators.telegram.chats import TelegramChat
from tests.emulators.telegram.users import TelegramUser
from tests.journeys.model_world import (
    ModelWorld,
    model_world,
    start_new_conversation,
    wait_for_message,
)
from tests.journeys.program_store import open_store
from tests.waiting import wait_until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ModelWorld, None]:
    async with model_world(tmp_path_factory.mktemp("home"), "anthropic") as made:
        yield made


async def say_and_wait(
    world: ModelWorld,
    boss: TelegramUser,
    chat: TelegramChat,
    text: str,
    answer: str,
    *,
    cue: str = "",
) -> ReceivedRequest:
    """The request that the answer was given to."""
    world.script.script(cue or text, "talk", ScriptedReply(text=answer))
    await boss.says(chat, text, mention=chat.kind != "private")
    await wait_for_message(chat, answer)
    await wait_until_saved(world, text)
    return world.script.requests_for(cue or text, "talk")[-1]


async def wait_until_saved(world: ModelWorld, text: str) -> None:
    """Until the turn is kept: the answer is seen while it grows."""
    await wait_for_row(world, "select 1 from memories where text like ?", f"%{text}%")


async def wait_for_row(world: ModelWorld, query: str, *values: str) -> None:
    """Until the store has what is asked for."""

    def is_kept() -> bool:
        with open_store(world.program.home) as store:
            return store.execute(query, values).fetchone() is not None

    await wait_until(lambda: asyncio.to_thread(is_kept))


def body_text(asked: ReceivedRequest) -> str:
    return json.dumps(asked.body, ensure_ascii=False)


async def test_a_preference_from_one_conversation_is_used_in_the_next_and_explained_by_why(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    wish = "My weekly harbour reports go out as PDF files, not as Word documents"
    await say_and_wait(world, boss, chat, wish, "Noted for the reports of the harbour.")
    await start_new_conversation(boss, chat)

    asked = await say_and_wait(
        world,
        boss,
        chat,
        "In which format do my harbour reports go out?",
        "They go out as PDF files, Boss.",
    )
    await boss.says(chat, "/memory why")
    shown = await wait_for_message(chat, "Memories used")

    assert wish in body_text(asked)
    assert not any(wish in said for said in asked.user_texts), "it is told as a memory"
    assert "harbour reports" in shown.text
    assert "✓" in shown.text, "the answer used it"


async def test_memories_from_a_private_chat_stay_out_of_groups(world: ModelWorld) -> None:
    boss, chat = world.new_owner()
    team = world.telegram.group("Team")
    secret = "The gate of the harbour warehouse opens with 4711-9923"
    await say_and_wait(world, boss, chat, secret, "I keep that between us.")

    asked = await say_and_wait(
        world,
        boss,
        team,
        "How does the gate of the harbour warehouse open?",
        "I cannot tell you here.",
        cue="gate of the harbour warehouse open?",
    )

    assert "4711-9923" not in body_text(asked)


async def test_with_embeddings_a_memory_is_found_by_meaning(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    home = tmp_path_factory.mktemp("meanings")
    async with (
        embedding_service() as service,
        model_world(
            home,
            "anthropic",
            EMBEDDING_BASE_URL=f"{service.url}/v1",
            EMBEDDING_MODEL="small",
            EMBEDDING_API_KEY=KEY,
        ) as world,
    ):
        boss, chat = world.new_owner()
        told_it = "The automobile of my aunt is parked in Potsdam"
        await say_and_wait(world, boss, chat, told_it, "A fine city.")
        await wait_for_row(world, "select 1 from memory_vectors")
        await boss.says(chat, "/memory search vehicle")

        await wait_for_message(chat, "Potsdam")
