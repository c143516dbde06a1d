"""Workers look things up by themselves, and propose what to remember: what their chat may know, and
what a person agrees to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from tests.emulators.models.script import ScriptedCall, ScriptedReply
from tests.journeys.coding_cli_scenarios import agent_entry, write_agents_file
from tests.journeys.model_world import (
    ModelWorld,
    label_with,
    model_world,
    script_task,
    wait_for_message,
)
from tests.journeys.program_store import open_store
from tests.waiting import wait_until

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRET = "The lighthouse gate opens with 4711-9923"
LOOKED_UP = {"tool": "memory_search", "arguments": {"query": "lighthouse gate"}}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ModelWorld, None]:
    agents: dict[str, Any] = {
        "looker": agent_entry([{"use": LOOKED_UP}, {"say": "\n\nThat is all."}]),
    }
    home = write_agents_file(tmp_path_factory.mktemp("home"), **agents)
    settings = {"SHIFTBOSS_LANGUAGE": "en", "SHIFTBOSS_FALLBACK": "offline"}
    async with model_world(home, "anthropic", **settings) as made:
        yield made
        assert "Traceback" not in made.program.printed


async def until_kept(world: ModelWorld, text: str) -> None:
    def is_kept() -> bool:
        with open_store(world.program.home) as store:
            found = store.execute("select 1 from memories where text like ?", (f"%{text}%",))
            return found.fetchone() is not None

    await wait_until(lambda: asyncio.to_thread(is_kept))


async def test_a_cli_finds_private_memories_in_a_private_chat_and_none_in_a_group(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    team = world.telegram.group("Keepers")
    world.script.script(SECRET, "talk", ScriptedReply(text="I keep that between us."))
    await boss.says(chat, SECRET)
    await wait_for_message(chat, "I keep that between us.")
    await until_kept(world, SECRET)

    await boss.says(chat, "@looker what do you know?")
    await wait_for_message(chat, "4711-9923")
    await boss.says(team, "@looker what do you know?", mention=True)
    answer = await wait_for_message(team, "That is all.")

    assert "Nothing that you may see is remembered about this." in answer.text
    assert "4711-9923" not in answer.text
    assert "4711-9923" not in "".join(message.text for message in team.messages)


async def test_no_lent_file_remains_after_the_run(world: ModelWorld) -> None:
    boss, chat = world.new_owner()
    await boss.says(chat, "@looker and now?")
    await wait_for_message(chat, "That is all.")

    lent = world.program.home / "lent"
    await world.wait_until(lambda: not any(lent.iterdir()))
    words = "".join(path.read_text() for path in world.program.home.glob("agents/*/*.log"))
    assert "SHIFTBOSS_MCP_TOKEN" not in words


async def test_a_worker_changes_the_handbook_only_by_the_yes_of_an_owner(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    page, handbook = "BOSS.md", world.program.home / "BOSS.md"
    rule = "Reports go to the lighthouse keeper first."
    edit = {"page": page, "section": "Quality", "text": rule, "reason": "it was asked for"}
    wish = script_task(
        world.script,
        "handbook",
        ScriptedReply(calls=[ScriptedCall(name="page_read", arguments={"page": page})]),
        ScriptedReply(calls=[ScriptedCall(name="page_edit", arguments=edit)]),
    )

    await boss.says(chat, wish)
    await wait_for_message(chat, "It is done: handbook.")
    asked = await chat.wait_for(lambda m: m.from_bot and f"+{rule}" in m.text)
    shown, before = asked.text, await asyncio.to_thread(handbook.read_text)
    await boss.presses(asked, label_with(asked.buttons, "Change it"))
    await wait_until(lambda: asyncio.to_thread(lambda: rule in handbook.read_text()))

    results = dict(world.script.requests_for("step-handbook", "step")[-1].tool_results)
    assert "## Quality" in results["page_read"]
    assert results["page_edit"].startswith("Proposed as ")
    assert "it was asked for" in shown
    assert rule not in before
