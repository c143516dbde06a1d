"""A run's tool server is reachable from every sandbox, and those of other runs are not."""

from __future__ import annotations

import json
import shlex
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from bot.engine.llm.backend import McpServer
from bot.engine.mcp.server import stdio_bridge
from bot.engine.mcp.server.tool_server import ToolLender
from bot.engine.sandbox.process_runner import run_process
from bot.engine.sandbox.spec import SandboxedCommand, SandboxKind, command_environment
from tests.bot.engine.mcp.server.test_tool_server_lending import call, lender, tool
from tests.bot.engine.sandbox.conftest import SandboxCell, build_cell
from tests.waiting import WAIT_SECONDS


def lent(
    cell: SandboxCell, told: str, lending: ToolLender | None = None
) -> AbstractAsyncContextManager[McpServer | None]:
    by_port = cell.sandbox.kind is SandboxKind.LANDLOCK
    lending = lending or lender(cell.house)
    return lending.lend([tool("memory_search", told)], by_port=by_port)


async def within(cell: SandboxCell, server: McpServer, command: str) -> str:
    """The output of a command in the sandbox of a CLI that has this server."""
    env = {**command_environment(cell.around, view=cell.sandbox.view), **server.env}
    launch = cell.sandbox.wrap(
        SandboxedCommand(
            argv=("bash", "-c", command),
            workspace=cell.workspace,
            network=True,
            env=env,
            home=cell.home,
            readable=server.readable_paths,
        )
    )
    ended = await run_process(
        launch, seconds=WAIT_SECONDS, max_processes=1000, max_output=1_000_000
    )
    return ended.head.decode("utf-8", "replace")


def asking(server: McpServer) -> str:
    # From a file: a pipe would complain if nobody reads to its end.
    sent = shlex.quote(call().decode().strip())
    return f"{shlex.join(server.command)} 2>&1 <<< {sent}"


@pytest.mark.parametrize("kind", list(SandboxKind))
async def test_its_own_is_reached(kind: SandboxKind, tmp_path: Path) -> None:
    cell = build_cell(kind, tmp_path)
    async with lent(cell, "mine") as server:
        assert server is not None
        told = await within(cell, server, asking(server))

    assert json.loads(told)["result"]["content"][0]["text"] == "mine"


@pytest.mark.parametrize("kind", [SandboxKind.BUBBLEWRAP, SandboxKind.LANDLOCK])
async def test_anothers_is_not_seen(kind: SandboxKind, tmp_path: Path) -> None:
    cell = build_cell(kind, tmp_path)
    lending = lender(cell.house)
    async with (
        lent(cell, "mine", lending) as one,
        lent(cell, "the group's", lending) as other,
    ):
        assert one is not None
        assert other is not None
        told = await within(cell, one, f"{asking(other)}; ls {cell.house}/lent 2>/dev/null")

    theirs = Path(other.command[-1]).parent.name
    assert "the group's" not in told
    assert theirs not in told.replace(str(Path(other.command[-1])), "")


@pytest.mark.parametrize("kind", list(SandboxKind))
async def test_who_sees_the_socket_and_has_not_the_word_gets_nothing(
    kind: SandboxKind, tmp_path: Path
) -> None:
    cell = build_cell(kind, tmp_path)
    async with lent(cell, "mine") as server:
        assert server is not None
        told = await within(
            cell, server, f"export {stdio_bridge.TOKEN_VARIABLE}=guess; {asking(server)}"
        )

    assert told == ""
