"""Opt-in: real coding CLIs look up what is lent to their run, in the sandbox they work in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from bot.engine.llm.tool_calls import AgentTool
from bot.engine.mcp.server.tool_server import ToolLender
from bot.engine.sandbox.backends import SandboxDetector, sandboxed_launcher
from tests.bot.engine.llm.acp.builders import ALLOW, FakeCallAuthorizer, collect_run
from tests.emulators.models.emulator import ModelEmulator
from tests.emulators.models.script import ReceivedRequest, ScriptedCall, ScriptedReply
from tests.real_cli.builders import FOLDER, InstalledCli, install_cli, is_installed, make_file_reply

pytestmark = pytest.mark.skipif(not FOLDER, reason="SHIFTBOSS_REAL_CLI names no folder")

NAMES = ("claude-code", "opencode", "codebuddy", "gemini", "codex")
"""Those that offer the tools of MCP servers to the model at once, or to its scripts."""

SCRIPTS = "functions::exec"
SCRIPT = 'text(JSON.stringify(await tools.mcp__shiftboss__memory_search({query: "lamp"})))'

FOUND = "The lighthouse lamp is 40 W"


@pytest.fixture(params=NAMES)
async def cli(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[InstalledCli]:
    if not is_installed(request.param):
        pytest.skip(f"{request.param} is not installed there")
    async with ModelEmulator() as models:
        yield install_cli(request.param, models, tmp_path)


async def test_a_cli_uses_the_tools_lent_to_it(cli: InstalledCli) -> None:
    heard: list[str] = []
    offered: set[str] = set()

    def looks_up(asked: ReceivedRequest) -> ScriptedReply:
        offered.update(asked.tools)
        name = next((each for each in asked.tools if each.endswith("memory_search")), "")
        heard.extend(text for tool, text in asked.tool_results if tool in {name, SCRIPTS})
        if SCRIPTS in asked.tools and not heard:
            return ScriptedReply(
                text="I look it up.", calls=(ScriptedCall(name=SCRIPTS, raw=SCRIPT),)
            )
        if name and not heard:
            return ScriptedReply(
                text="I look it up.", calls=(ScriptedCall(name=name, arguments={"query": "lamp"}),)
            )
        return make_file_reply(asked)

    async def run(arguments: Mapping[str, Any]) -> str:
        return f"{FOUND} ({arguments['query']})"

    form = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    tool = AgentTool(name="memory_search", description="Search.", schema=form, run=run)
    cli.models.replies(looks_up)
    # Under these names the house allows it by itself: see test_policy. Of those that tell no name
    # somebody is asked.
    names = ("touch made.txt", "mcp__shiftboss__memory_search", "other")
    permit = FakeCallAuthorizer(dict.fromkeys(names, ALLOW))
    launch = sandboxed_launcher(SandboxDetector(secrets=(cli.root / "lent",)))
    lender = ToolLender(cli.root / "lent", lambda: "w" * 32, keeps=False)
    async with lender.lend([tool]) as server, asyncio.timeout(150):
        assert server is not None
        step = cli.step("How strong is the lamp?", permit=permit, servers=(server,))
        await collect_run(cli.backend(launch=launch), step)

    assert any(FOUND in each for each in heard), (sorted(offered), permit.calls)
