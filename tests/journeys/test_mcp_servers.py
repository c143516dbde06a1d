"""MCP servers from outside: kept running from one message to the next, and started again when they
are killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
import pytest_asyncio

from bot.engine.redaction import MASK
from tests.emulators.mcp_http import mcp_http_server
from tests.emulators.models.script import ReceivedRequest, ScriptedCall, ScriptedReply
from tests.journeys.model_world import (
    ModelWorld,
    ask,
    label_with,
    model_world,
    script_task,
    wait_for_message,
)
from tests.waiting import WAIT_SECONDS

pytestmark = pytest.mark.asyncio(loop_scope="module")

SERVER = Path(__file__).parents[1] / "emulators" / "mcp_server.py"
TOKEN, SHOP_TOKEN = f"journey-{os.getpid()}", f"shop-{os.getpid()}"
PERSONA = f"""
traits: {{comments: few}}
servers:
  tiny: {{command: ["{sys.executable}", "{SERVER}", stateful, {TOKEN}]}}
"""
COUNT = "mcp__tiny__count"
LIST_FILES = ScriptedCall(name="list", arguments={})


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ModelWorld, None]:
    home = tmp_path_factory.mktemp("home")
    async with model_world(
        home,
        "anthropic",
        SHIFTBOSS_LANGUAGE="en",
        SHIFTBOSS_TOOLS_ALLOW="mcp__tiny__*; mcp__mail__*",
        SHIFTBOSS_FETCH_PRIVATE="127.0.0.1",
    ) as made:
        folder = made.program.home / "personas"
        folder.mkdir(exist_ok=True)
        (folder / "tracker.yaml").write_text(PERSONA)
        yield made
    assert processes() + processes(SHOP_TOKEN) == []


def processes(token: str = TOKEN) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if f"\0{token}\0".encode() in entry.read_bytes():
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


async def test_what_a_server_asks_is_a_question_in_the_chat_and_never_a_secret(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()

    def asks(cue: str, **fields: Any) -> None:
        params = {
            "message": "About the order",
            "requestedSchema": {"type": "object", "properties": fields},
        }
        call = ScriptedCall(name="mcp__tiny__elicit", arguments={"params": params})
        end = ScriptedReply(text=f"{cue} is over")
        world.script.script(cue, "talk", ScriptedReply(calls=[call]), end)

    def answer_to(cue: str) -> str:
        return str(world.script.requests_for(cue, "talk")[-1].tool_results[-1][1])

    await ask(boss, chat, "/persona tracker", "tracker")
    asks("cue-size", size={"type": "string", "enum": ["Small", "Large"]}, count={"type": "integer"})
    await boss.says(chat, "cue-size")
    first = await wait_for_message(chat, "MCP server tiny asks: About the order", "(1/2)")
    await boss.presses(first, label_with(first.buttons, "Large"))
    second = await wait_for_message(chat, "(2/2)", "a number")
    await boss.says(chat, second.text.split("Or type ")[1].replace("answer.", "7"))
    await wait_for_message(chat, "cue-size is over")
    answered = answer_to("cue-size")
    asks("cue-secret", password={"type": "string"})
    await boss.says(chat, "cue-secret")
    declined = await wait_for_message(chat, "cue-secret is over")

    assert '{"action": "accept", "content": {"size": "Large", "count": 7}}' in answered
    assert '{"action": "decline"}' in answer_to("cue-secret")
    assert "asked for a secret in chat, which was declined" in declined.text


async def test_an_owner_signs_in_to_a_server_and_out_again(world: ModelWorld) -> None:
    boss, chat = world.new_owner()
    config = world.program.home / "mcp.json"

    async def use(cue: str) -> str:
        call = ScriptedCall(name="mcp__mail__echo", arguments={"text": "hi"})
        end = ScriptedReply(text=f"{cue} is over")
        world.script.script(cue, "talk", ScriptedReply(calls=[call]), end)
        await boss.says(chat, cue)
        shown = await wait_for_message(chat, f"{cue} is over")
        return f"{shown.text} {world.script.requests_for(cue, 'talk')[-1].tool_results[-1]}"

    async with mcp_http_server("private") as site:
        config.write_text(json.dumps({"mcpServers": {"mail": {"url": site.url}}}))
        before = await use("cue-before")
        shown = await ask(boss, chat, "/mcp login mail", "Sign in to MCP server mail")
        query = parse_qs(urlsplit(shown.text.split("\n\n")[2]).query)
        back = {"code": "good", "state": query["state"][0]}
        async with httpx2.AsyncClient(timeout=WAIT_SECONDS) as browser:
            address = f"{world.program.address.partition('?')[0].rstrip('/')}/mcp/callback"
            wrong = await browser.get(address, params={"code": "good", "state": "guessed"})
            page = await browser.get(address, params=back)
        during = await use("cue-during")
        site.call_scope = "mail:send"
        refused = await use("cue-more")
        wanted = await wait_for_message(chat, "wants more rights", "mail:send")
        await boss.presses(wanted, label_with(wanted.buttons, "Sign in"))
        wider = await wait_for_message(chat, "Sign in to MCP server mail", "mail%3Asend")
        await ask(boss, chat, "/mcp logout mail", "Signed out")
        after = await use("cue-after")
    config.unlink()

    assert "an owner can sign in with /mcp login NAME" in before
    assert wrong.status_code == 400
    assert (page.status_code, "mail: signed in" in page.text) == (200, True)
    assert "unavailable" not in during + refused
    assert "scope=mail%3Asend" in wider.text
    assert f"as Bearer {MASK}" in during
    assert "unavailable" in after


async def test_a_projects_servers_start_only_after_an_owner_allowed_them_as_they_are(
    world: ModelWorld, tmp_path: Path
) -> None:
    boss, chat = world.new_owner()
    project = tmp_path / "shop"
    project.mkdir()

    def write_file(*more: str) -> None:
        words = [str(SERVER), "stateful", SHOP_TOKEN, *more]
        repo = {"command": sys.executable, "args": words, "env": {"SHOP_KEY": "hidden-value"}}
        (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"tiny": repo}}))

    async def run(cue: str) -> list[str]:
        """The tools that the worker of a task had."""
        command = script_task(world.script, cue, ScriptedReply(calls=[LIST_FILES]))
        await boss.says(chat, command.replace("/run", f"/run -d {project}"))
        await wait_for_message(chat, "Task finished", f"It is done: {cue}.")
        return list(world.script.requests_for(f"step-{cue}", "step")[-1].tools)

    write_file()
    without = await run("first")
    asked = await wait_for_message(chat, "Use this project's MCP servers?", "shop/.mcp.json")
    assert f"{sys.executable} {SERVER} stateful {SHOP_TOKEN}" in asked.text
    assert "SHOP_KEY" in asked.text
    assert "hidden-value" not in asked.text
    assert COUNT not in without
    assert "continues without them" in asked.text
    assert COUNT not in await run("second")
    assert processes(SHOP_TOKEN) == []
    assert len([each for each in chat.from_bot if "Use this project's" in each.text]) == 1

    await boss.presses(asked, label_with(asked.buttons, "Allow"))
    assert COUNT in await run("third")
    assert len(processes(SHOP_TOKEN)) > 0
    listed = await ask(boss, chat, "/mcp", "Servers of projects", "shop", "allowed")
    consent = listed.text.rsplit("allowed", 1)[1].split("\n")[0].strip(" ·`")

    write_file("changed")
    assert COUNT not in await run("fourth")
    again = await chat.wait_for(
        lambda m: m.from_bot and "Use this project's" in m.text and m.id != asked.id
    )
    await boss.presses(again, label_with(again.buttons, "Don't"))
    assert COUNT not in await run("fifth")
    write_file()
    await ask(boss, chat, f"/mcp revoke {consent}", "is forgotten")
    await world.wait_until(lambda: not processes(SHOP_TOKEN))
    assert COUNT not in await run("sixth")
