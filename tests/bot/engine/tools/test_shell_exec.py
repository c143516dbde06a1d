"""A command's outcome as a model reads it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from bot.engine.llm.backend import WorkerMode
from bot.engine.llm.tool_calls import ERROR_PREFIX, AgentTool, CallKind
from bot.engine.sandbox.backends import SupervisedSandbox
from bot.engine.sandbox.process_runner import CommandHomes
from bot.engine.sandbox.spec import (
    Sandbox,
    SandboxKind,
    build_view,
    command_environment,
    default_limits,
)
from bot.engine.tools.shell_exec import CommandShell, exec_tool


@pytest.fixture
def tool(tmp_path: Path) -> AgentTool:
    sandbox = SupervisedSandbox(kind=SandboxKind.NONE, view=build_view(), limits=default_limits())

    async def here() -> Sandbox:
        return sandbox

    shell = CommandShell(
        sandbox=here,
        homes=CommandHomes(tmp_path / "homes"),
        env=lambda _: command_environment({"PATH": os.defpath}),
    )
    workspace = tmp_path / "work"
    workspace.mkdir()
    return exec_tool(workspace, shell, WorkerMode.EXECUTE)


async def test_a_person_decides_about_the_exact_command(tool: AgentTool) -> None:
    assert tool.kind is CallKind.EXECUTE
    assert tool.detail is not None
    assert await tool.detail({"command": "rm -rf  'a b'"}) == "rm -rf  'a b'"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("echo hi", "hi\n"),
        ("true", "[it printed nothing; exit code 0]"),
        ("false", f"{ERROR_PREFIX}exit code 1"),
        ("echo why >&2; exit 3", f"{ERROR_PREFIX}exit code 3\nwhy\n"),
        ("kill -9 $$", f"{ERROR_PREFIX}exit code 137"),
        ("printf '\\033[1;31mred\\033[0m \\033]0;title\\007x\\033(B'", "red x"),
        ("printf '10%%\\r50%%\\r100%%\\r\\nnext\\r\\n'", "100%\nnext\n"),
        ("printf 'a\\000b\\377\\007c'", "ab\ufffdc"),
        ("[[ 1 -lt 2 ]] && echo $BASH_VERSION | grep -c .", "1\n"),
    ],
)
async def test_what_it_says_is_what_a_person_would_see(
    tool: AgentTool, command: str, told: str
) -> None:
    assert await tool.run({"command": command}) == told


async def test_what_takes_too_long_says_so_with_what_it_printed(tool: AgentTool) -> None:
    told = await tool.run({"command": "echo begun; sleep 60", "seconds": 1})

    assert told == f"{ERROR_PREFIX}stopped: it took longer than 1 s\nbegun\n"


async def test_a_command_with_a_nul_is_refused(tool: AgentTool) -> None:
    assert (await tool.run({"command": "echo \0"})).startswith(ERROR_PREFIX)


async def test_commands_in_one_workspace_take_turns(tool: AgentTool) -> None:
    """So that none can change what the next is about to be started on."""
    command = "[ -e busy ] && echo clash; touch busy; sleep 0.1; rm busy; echo done"

    async def call() -> str:
        assert tool.lock is not None
        async with tool.lock:
            return await tool.run({"command": command})

    told = await asyncio.gather(*(call() for _ in range(3)))

    assert told == ["done\n"] * 3


async def test_home_is_kept_from_one_command_to_the_next(tool: AgentTool) -> None:
    await tool.run({"command": "echo kept > ~/note; echo t > $TMPDIR/t"})

    assert await tool.run({"command": "cat ~/note $TMPDIR/t"}) == "kept\nt\n"
