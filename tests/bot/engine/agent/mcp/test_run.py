"""A persona's servers bring their tools to the run of a model API, asked about like all others."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.engine.agent.mcp.servers import McpServers
from bot.engine.agent.personas.builtin import BUILT_IN
from bot.engine.agent.personas.persona import Persona
from bot.engine.agent.policy.policy import Policy
from bot.engine.agent.sandbox.base import Sandbox
from bot.engine.agent.sandbox.homes import Homes
from bot.engine.agent.sandbox.probe import Machine, probe
from bot.engine.agent.tools.exec import Shell
from bot.engine.agent.web.fetching import Fetcher
from bot.engine.agent.workbench import Workbench
from bot.engine.llm.base import Caps, McpServer, Mode, Purpose
from bot.engine.llm.calls import CallKind, ToolCall
from tests.engine_world import FakeBackend, engine

SERVER = str(Path(__file__).parents[4] / "emulators" / "mcp_server.py")
CLI = Caps(durable=False, tools=False, resume=True, money=False)
TRACKER = replace(
    BUILT_IN["pragmatist"],
    servers=(
        McpServer(name="tiny", command=(sys.executable, SERVER)),
        McpServer(name="gone", command=("no-such-program",)),
    ),
)


class OnlyTracker:
    async def get(self, name: str) -> Persona:
        return TRACKER

    async def known(self) -> Mapping[str, Persona]:
        return {TRACKER.name: TRACKER}


def servers(tmp_path: Path, **variables: str) -> McpServers:
    async def found() -> Sandbox:
        return probe(Machine())

    shell = Shell(
        sandbox=found, homes=Homes(tmp_path / "shell"), env=lambda _: {"PATH": "/usr/bin:/bin"}
    )
    return McpServers(shell, str, Fetcher(), variables=variables)


@pytest.mark.parametrize(("caps", "there"), [(Caps(), True), (CLI, False)])
async def test_a_step_gets_its_personas_tools_and_a_coding_cli_its_servers(
    tmp_path: Path, caps: Caps, there: bool
) -> None:
    backend = FakeBackend(steps=("one",), caps=caps)
    bench = Workbench(personas=OnlyTracker())
    async with engine(tmp_path, backend, bench=bench, servers=servers(tmp_path)) as made:
        view = await made.until(await made.add())

    assert view.task.status == "completed"
    (step,) = (each for each in backend.asked if each.purpose is Purpose.STEP)
    assert ("mcp__tiny__echo" in {tool.name for tool in step.tools}) is there
    assert [server.name for server in step.servers] == ["tiny", "gone"]


@pytest.mark.parametrize("mode", [Mode.PLAN, Mode.REVIEW])
def test_who_only_looks_does_not_use_them_unasked(tmp_path: Path, mode: Mode) -> None:
    assert judged(tmp_path, mode=mode) != "allow"


def test_nobody_uses_them_unasked(tmp_path: Path) -> None:
    assert judged(tmp_path) == "ask"


def test_a_profile_may_take_one_away(tmp_path: Path) -> None:
    assert judged(tmp_path, persona=replace(TRACKER, denied=("mcp__tiny__*",))) == "deny"


def judged(tmp_path: Path, **how: Any) -> str:
    call = ToolCall(
        call_id="1",
        name="mcp__tiny__echo",
        arguments={"text": "hi"},
        kind=CallKind.OTHER,
        title="mcp__tiny__echo hi",
    )
    return str(Policy().judge(call, workspace=tmp_path, **how).verdict)
