"""MCP servers from outside: kept running from one message to the next, and started again when they
are killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio

from tests.emulators.models.script import ReceivedRequest, ScriptedCall, ScriptedReply
from tests.journeys.model_world import ModelWorld, ask, model_world, wait_for_message

pytestmark = pytest.mark.asyncio(loop_scope="module")

SERVER = Path(__file__).parents[1] / "emulators" / "mcp_server.py"
TOKEN = f"journey-{os.getpid()}"
PERSONA = f"""
traits: {{comments: few}}
servers:
  tiny: {{command: ["{sys.executable}", "{SERVER}", stateful, {TOKEN}]}}
"""
COUNT = "mcp__tiny__count"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ModelWorld, None]:
    home = tmp_path_factory.mktemp("home")
    async with model_world(
        home, "anthropic", SHIFTBOSS_LANGUAGE="en", SHIFTBOSS_TOOLS_ALLOW="mcp__tiny__*"
    ) as made:
        folder = made.program.home / "personas"
        folder.mkdir(exist_ok=True)
        (folder / "tracker.yaml").write_text(PERSONA)
        yield made
    assert processes() == []


def processes() -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if f"\0{TOKEN}\0".encode() in entry.read_bytes():
                found.append(int(entry.parent.name))
    return found


def counts(cue: str) -> Callable[[ReceivedRequest], ScriptedReply]:
    """Call the server's tool, and repeat what it said."""

    def reply(asked: ReceivedRequest) -> ScriptedReply:
        if asked.tool_results:
            return ScriptedReply(text=f"{cue}: {asked.tool_results[-1][1]}")
        return ScriptedReply(calls=[ScriptedCall(name=COUNT, arguments={})])

    return reply


async def test_the_next_message_finds_the_server_running_and_a_killed_one_is_started_again(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    for cue in ("cue-one", "cue-two", "cue-three"):
        world.script.script(cue, "talk", counts(cue), counts(cue))
    await ask(boss, chat, "/persona tracker", "tracker")

    await boss.says(chat, "cue-one")
    first = await wait_for_message(chat, "cue-one:")
    await boss.says(chat, "cue-two")
    second = await wait_for_message(chat, "cue-two:")
    before = processes()
    for each in before:
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    while processes():
        await asyncio.sleep(0.01)
    await boss.says(chat, "cue-three")
    third = await wait_for_message(chat, "cue-three:")

    assert "call 1" in first.text
    assert "call 2" in second.text
    assert before
    assert "call 1" in third.text
    assert "what it held in memory is gone" in third.text
    assert "MCP server tiny stopped" in third.text
    assert "was restarted" in third.text
    assert "stopped" not in first.text + second.text
