"""A persona's servers bring their tools to the run of a model API, asked about like all others."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.engine.agent.worker_context import choose_servers
from bot.engine.llm.backend import McpServer, RunPurpose, WorkerMode
from bot.engine.llm.tool_calls import CallKind, ToolCall
from bot.engine.mcp.client.server_pool import McpServerPool
from bot.engine.permissions.policy import PolicyLevels, RulePolicy
from bot.engine.permissions.rules import PermissionRules
from bot.engine.sandbox.backends import detect_sandbox
from bot.engine.sandbox.process_runner import CommandHomes
from bot.engine.sandbox.spec import Sandbox
from bot.engine.tools.shell_exec import CommandShell
from bot.engine.web import WebFetcher
from bot.engine.workers.personas import BUILT_IN_PERSONAS, Persona
from tests.agent_builders import make_context_builder
from tests.engine_harness import FakeBackend, run_engine

SERVER = str(Path(__file__).parents[4] / "emulators" / "mcp_server.py")
TRACKER = replace(
    BUILT_IN_PERSONAS["pragmatist"],
    servers=(
        McpServer(name="tiny", command=(sys.executable, SERVER)),
        McpServer(name="gone", command=("no-such-program",)),
    ),
)


class OnlyTracker:
    async def get(self, name: str) -> Persona:
        return TRACKER

    async def get_all(self) -> Mapping[str, Persona]:
        return {TRACKER.name: TRACKER}


def servers(tmp_path: Path, **variables: str) -> McpServerPool:
    async def found() -> Sandbox:
        return detect_sandbox()

    shell = CommandShell(
        sandbox=found,
        homes=CommandHomes(tmp_path / "shell"),
        env=lambda _: {"PATH": "/usr/bin:/bin"},
    )
    return McpServerPool(shell, str, WebFetcher(), data_dir=tmp_path, variables=variables)


@pytest.mark.parametrize("accepts_tools", [True, False])
async def test_a_step_gets_its_personas_tools_and_a_coding_cli_its_servers(
    tmp_path: Path, accepts_tools: bool
) -> None:
    backend = FakeBackend(steps=("one",), accepts_tools=accepts_tools)
    bench = make_context_builder(personas=OnlyTracker())
    async with run_engine(
        tmp_path, backend, context_builder=bench, servers=servers(tmp_path)
    ) as made:
        view = await made.until(await made.create_task())

    assert view.task.status == "completed"
    (step,) = (each for each in backend.requests if each.purpose is RunPurpose.STEP)
    assert ("mcp__tiny__echo" in {tool.name for tool in step.tools}) is accepts_tools
    assert [server.name for server in step.servers] == ["tiny", "gone"]


def test_servers_of_all_personas_reach_those_who_may_use_them() -> None:
    shared = (
        McpServer(name="tiny", command=("another-of-that-name",)),
        McpServer(name="wide", command=(sys.executable, SERVER)),
    )
    reviewer = BUILT_IN_PERSONAS["reviewer"]
    mixed = replace(reviewer, tools=(*reviewer.tools, "mcp__wide__echo"))

    chosen = [
        [each.command[0] for each in choose_servers(persona, shared)]
        for persona in (TRACKER, reviewer, mixed)
    ]

    assert chosen == [[sys.executable, "no-such-program", sys.executable], [], [sys.executable]]


@pytest.mark.parametrize("mode", [WorkerMode.PLAN, WorkerMode.REVIEW])
def test_who_only_looks_does_not_use_them_unasked(tmp_path: Path, mode: WorkerMode) -> None:
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
    return str(
        RulePolicy(rules=PermissionRules(), levels=PolicyLevels())
        .evaluate(call, workspace=tmp_path, **how)
        .verdict
    )
