"""A coding CLI that Shiftboss starts looks things up by itself: what its chat may know, no more."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing
from typing import Any

import pytest
import pytest_asyncio

from tests.emulators.models.script import Reply
from tests.journeys.coding import agent, furnished
from tests.journeys.model_world import PATIENCE, World, told, world

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRET = "The lighthouse gate opens with 4711-9923"
LOOKED_UP = {"tool": "memory_search", "arguments": {"query": "lighthouse gate"}}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World, None]:
    agents: dict[str, Any] = {
        "looker": agent([{"use": LOOKED_UP}, {"say": "\n\nThat is all."}]),
    }
    home = furnished(tmp_path_factory.mktemp("home"), **agents)
    settings = {"SHIFTBOSS_LANGUAGE": "en", "SHIFTBOSS_FALLBACK": "offline"}
    async with world(home, "anthropic", **settings) as made:
        yield made
        assert "Traceback" not in made.shiftboss.text


async def until_kept(place: World, text: str) -> None:
    def is_kept() -> bool:
        with closing(sqlite3.connect(place.shiftboss.home / "shiftboss.db")) as store:
            found = store.execute("select 1 from memories where instr(text, ?)", (text,))
            return found.fetchone() is not None

    async with asyncio.timeout(PATIENCE):
        while not await asyncio.to_thread(is_kept):
            await asyncio.sleep(0.05)


async def test_it_finds_in_private_what_was_said_there_and_in_a_group_nothing_of_it(
    place: World,
) -> None:
    boss, chat = place.boss()
    team = place.telegram.group("Keepers")
    place.stage.on(SECRET, "talk", Reply(text="I keep that between us."))
    await boss.says(chat, SECRET)
    await told(chat, "I keep that between us.")
    await until_kept(place, SECRET)

    await boss.says(chat, "@looker what do you know?")
    await told(chat, "4711-9923")
    await boss.says(team, "@looker what do you know?", mention=True)
    answer = await told(team, "That is all.")

    assert "Nothing that you may see is remembered about this." in answer.text
    assert "4711-9923" not in answer.text
    assert "4711-9923" not in "".join(message.text for message in team.messages)


async def test_nothing_of_it_is_left_when_the_run_is_over(place: World) -> None:
    boss, chat = place.boss()
    await boss.says(chat, "@looker and now?")
    await told(chat, "That is all.")

    lent = place.shiftboss.home / "lent"
    await place.until(lambda: not any(lent.iterdir()))
    words = "".join(path.read_text() for path in place.shiftboss.home.glob("agents/*/*.log"))
    assert "SHIFTBOSS_MCP_TOKEN" not in words
