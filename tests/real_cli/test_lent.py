"""Opt-in: real coding CLIs look up what is lent to their run, in the sandbox they work in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from bot.app.models import held_in
from bot.engine.agent.mcp.serving.lending import Lender
from bot.engine.agent.sandbox.probe import Machine, SandboxHere
from bot.engine.llm.base import Tool
from tests.bot.engine.llm.acp.world import ALLOW, FakePermit, run_to_end
from tests.emulators.models.emulator import Models
from tests.emulators.models.script import Asked, Call, Reply
from tests.real_cli.world import FOLDER, Real, is_here, makes_a_file, real

pytestmark = pytest.mark.skipif(not FOLDER, reason="SHIFTBOSS_REAL_CLI names no folder")

NAMES = ("claude-code", "opencode", "codebuddy", "gemini", "codex")
"""Those that offer the tools of MCP servers to the model at once, or to its scripts."""

SCRIPTS = "functions::exec"
SCRIPT = 'text(JSON.stringify(await tools.mcp__shiftboss__memory_search({query: "lamp"})))'

FOUND = "The lighthouse lamp is 40 W"


@pytest.fixture(params=NAMES)
async def cli(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Real]:
    if not is_here(request.param):
        pytest.skip(f"{request.param} is not installed there")
    async with Models() as models:
        yield real(request.param, models, tmp_path)


async def test_it_looks_up_what_is_lent_to_it(cli: Real) -> None:
    heard: list[str] = []
    offered: set[str] = set()

    def looks_up(asked: Asked) -> Reply:
        offered.update(asked.tools)
        name = next((each for each in asked.tools if each.endswith("memory_search")), "")
        heard.extend(text for tool, text in asked.results if tool in {name, SCRIPTS})
        if SCRIPTS in asked.tools and not heard:
            return Reply(text="I look it up.", calls=(Call(name=SCRIPTS, raw=SCRIPT),))
        if name and not heard:
            return Reply(
                text="I look it up.", calls=(Call(name=name, arguments={"query": "lamp"}),)
            )
        return makes_a_file(asked)

    async def run(arguments: Mapping[str, Any]) -> str:
        return f"{FOUND} ({arguments['query']})"

    form = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    tool = Tool(name="memory_search", description="Search.", schema=form, run=run)
    cli.models.replies(looks_up)
    # Under these names the house allows it by itself: see test_policy. Of those that tell no name
    # somebody is asked.
    names = ("touch made.txt", "mcp__shiftboss__memory_search", "other")
    permit = FakePermit(dict.fromkeys(names, ALLOW))
    launch = held_in(SandboxHere(Machine(secrets=(cli.root / "lent",))))
    lender = Lender(cli.root / "lent", lambda: "w" * 32)
    async with lender.lent([tool]) as server, asyncio.timeout(150):
        assert server is not None
        step = cli.step("How strong is the lamp?", permit=permit, servers=(server,))
        await run_to_end(cli.backend(launch=launch), step)

    assert any(FOUND in each for each in heard), (sorted(offered), permit.calls)
