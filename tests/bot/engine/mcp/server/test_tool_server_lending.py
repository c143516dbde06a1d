"""A coding CLI reaches what is lent to its run, by the process it starts, and nobody else does."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from bot.engine.llm.acp.idle_process import IdleProcess
from bot.engine.llm.backend import McpServer
from bot.engine.llm.tool_calls import AgentTool, CallDecision, CallVerdict
from bot.engine.mcp.client.server_pool import McpServerPool
from bot.engine.mcp.server import stdio_bridge
from bot.engine.mcp.server.tool_server import (
    AUTHORIZED_TOOLS,
    LENDABLE_TOOLS,
    KeptLoan,
    ToolLender,
)
from bot.engine.sandbox.backends import detect_sandbox
from bot.engine.sandbox.process_runner import CommandHomes
from bot.engine.sandbox.spec import Sandbox
from bot.engine.tools.shell_exec import CommandShell
from bot.engine.web import WebFetcher
from storage.records.tasks import TaskStatus
from tests.agent_builders import make_context_builder
from tests.bot.engine.llm.acp.builders import FakeCallAuthorizer
from tests.emulators.acp.fake_cli import FakeCli, result_reply
from tests.engine_harness import run_engine
from tests.fakes.backends import OnlyBackend
from tests.waiting import WAIT_SECONDS, wait_until

ANY = {"type": "object", "properties": {}}


def tool(name: str, told: str) -> AgentTool:
    async def run(arguments: Mapping[str, Any]) -> str:
        return told

    return AgentTool(name=name, description="", schema=ANY, run=run)


def lender(root: Path) -> ToolLender:
    return ToolLender(root / "lent", lambda: os.urandom(16).hex(), keeps=True)


def call(name: str = "memory_search", id: int = 1) -> bytes:
    params = {"name": name, "arguments": {}}
    message = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
    return json.dumps(message).encode() + b"\n"


async def ask(server: McpServer, sent: bytes, **env: str) -> tuple[list[Any], int]:
    """By the process that a CLI starts."""
    process = await asyncio.create_subprocess_exec(
        *server.command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**server.env, **env},
    )
    told, _ = await process.communicate(sent)
    return [json.loads(line) for line in told.splitlines()], process.returncode or 0


def text(answer: Any) -> str:
    return str(answer["result"]["content"][0]["text"])


async def test_a_cli_gets_the_answers_of_its_own_run(tmp_path: Path) -> None:
    lending = lender(tmp_path)
    async with (
        lending.lend([tool("memory_search", "mine")]) as one,
        lending.lend([tool("memory_search", "the group's")]) as other,
    ):
        assert one is not None
        assert other is not None
        (mine,), _ = await ask(one, call())
        (theirs,), _ = await ask(other, call())

    assert [text(mine), text(theirs)] == ["mine", "the group's"]


async def test_the_word_of_another_run_opens_nothing(tmp_path: Path) -> None:
    lending = lender(tmp_path)
    async with (
        lending.lend([tool("memory_search", "mine")]) as one,
        lending.lend([tool("memory_search", "the group's")]) as other,
    ):
        assert one is not None
        assert other is not None
        told, _ = await ask(
            one, call(), **{stdio_bridge.TOKEN_VARIABLE: other.env[stdio_bridge.TOKEN_VARIABLE]}
        )
        nothing, _ = await ask(one, call(), **{stdio_bridge.TOKEN_VARIABLE: ""})

    assert told == nothing == []


async def test_only_what_looks_is_lent(tmp_path: Path) -> None:
    tools = [tool(name, "x") for name in (*LENDABLE_TOOLS, *AUTHORIZED_TOOLS, "exec", "write")]
    async with lender(tmp_path).lend(tools) as server:
        assert server is not None
        (listed, refused), _ = await ask(
            server, b'{"id": 1, "method": "tools/list"}\n' + call("exec", id=2)
        )

    assert [each["name"] for each in listed["result"]["tools"]] == list(LENDABLE_TOOLS)
    assert "error" in refused


@pytest.mark.parametrize(
    ("decision", "answer", "outcomes"),
    [
        (CallDecision(verdict=CallVerdict.ALLOW), "the text", [(True, "the text")]),
        (CallDecision(verdict=CallVerdict.DENY, text="no"), "Error: no", []),
        (CallDecision(verdict=CallVerdict.ANSWER, text="as before"), "as before", []),
        (CallDecision(verdict=CallVerdict.PENDING), "Error: not made yet", [(False, "Error: not")]),
    ],
)
async def test_a_call_that_needs_permission_is_decided_where_it_is_made(
    tmp_path: Path, decision: CallDecision, answer: str, outcomes: list[tuple[bool, str]]
) -> None:
    permit = FakeCallAuthorizer({"feishu_read": decision})
    async with lender(tmp_path).lend([tool("feishu_read", "the text")], permit=permit) as server:
        assert server is not None
        told, _ = await ask(server, call("feishu_read", id=1) + call("feishu_read", id=2))

    assert [text(each).startswith(answer) for each in told] == [True, True]
    assert len({each.call_id for each in permit.calls}) == 2
    given = [(good, said[:10]) for _, good, said in permit.outcomes]
    assert given == outcomes * 2, "what nobody has decided is withdrawn with the loan"


async def test_who_has_nothing_to_look_up_gets_no_server(tmp_path: Path) -> None:
    async with lender(tmp_path).lend([tool("exec", "x")]) as server:
        assert server is None


async def test_nothing_is_left_after_the_run(tmp_path: Path) -> None:
    async with lender(tmp_path).lend([tool("memory_search", "mine")]) as server:
        assert server is not None

    told, status = await ask(server, call())
    assert told == []
    assert status != 0
    assert list((tmp_path / "lent").iterdir()) == []


KEPT = KeptLoan(work="task 1", session="s1")


async def test_a_kept_server_answers_with_the_tools_of_the_present_run(tmp_path: Path) -> None:
    lending = lender(tmp_path)
    async with lending.lend([tool("memory_search", "first")], keep=KEPT) as one:
        assert one is not None
    (between,), _ = await ask(one, call())
    async with lending.lend([tool("memory_search", "second")], keep=KEPT) as two:
        assert two == one
        (told,), _ = await ask(one, call())

    assert "error" in between
    assert text(told) == "second"
    await lending.end_kept("task 2")
    assert (await ask(one, call()))[0]
    await lending.end_kept("task 1")
    assert (await ask(one, call()))[0] == []
    assert list((tmp_path / "lent").iterdir()) == []


@pytest.mark.parametrize(
    "other",
    [
        KeptLoan(work="task 2", session="s1"),
        KeptLoan(work="task 1", session="s2"),
        None,
    ],
)
async def test_a_kept_server_serves_no_other_work(tmp_path: Path, other: KeptLoan | None) -> None:
    lending = lender(tmp_path)
    async with lending.lend([tool("memory_search", "mine")], keep=KEPT) as one:
        pass

    async with lending.lend([tool("memory_search", "theirs")], keep=other) as two:
        assert one is not None
        assert two is not None
        assert two.env != one.env
        (refused,), _ = await ask(one, call())

    assert "error" in refused
    await lending.aclose()
    assert list((tmp_path / "lent").iterdir()) == []


async def test_other_tools_get_another_server(tmp_path: Path) -> None:
    lending = lender(tmp_path)
    async with lending.lend([tool("memory_search", "mine")], keep=KEPT) as one:
        pass

    more = [tool("memory_search", "mine"), tool("memory_get", "more")]
    async with lending.lend(more, keep=KEPT) as two:
        assert one is not None
        assert two != one
        assert (await ask(one, call()))[0] == []

    await lending.aclose()


async def test_a_tool_that_is_still_at_work_ends_with_its_run(tmp_path: Path) -> None:
    lending, begun = lender(tmp_path), asyncio.Event()

    async def hang(arguments: Mapping[str, Any]) -> str:
        begun.set()
        await asyncio.Event().wait()
        return ""

    slow = AgentTool(name="memory_search", description="", schema=ANY, run=hang)
    async with lending.lend([slow], keep=KEPT) as server:
        assert server is not None
        asking = asyncio.create_task(ask(server, call()))
        await begun.wait()

    assert (await asking)[0] == []
    assert list((tmp_path / "lent").iterdir()) == []


async def test_a_visitor_that_stays_ends_with_the_run(tmp_path: Path) -> None:
    async with lender(tmp_path).lend([tool("memory_search", "mine")]) as server:
        assert server is not None
        process = await asyncio.create_subprocess_exec(
            *server.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=dict(server.env),
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(call())
        await process.stdout.readline()

    async with asyncio.timeout(WAIT_SECONDS):
        assert await process.wait() == 0


async def test_the_word_is_nowhere_but_in_the_environment(tmp_path: Path) -> None:
    async with lender(tmp_path).lend([tool("memory_search", "mine")]) as server:
        assert server is not None
        word = server.env[stdio_bridge.TOKEN_VARIABLE]

        assert word not in " ".join(server.command)
        assert word not in repr(server)
        assert server.secrets == (word,)
        folder = Path(server.command[-1]).parent
        assert folder in server.readable_paths
        assert folder.stat().st_mode & 0o077 == 0
        assert all(word not in path.name for path in folder.iterdir())


async def test_a_long_way_to_the_data_folder_is_no_hindrance(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*(["a" * 60] * 3))
    async with lender(deep).lend([tool("memory_search", "mine")]) as server:
        assert server is not None
        (told,), _ = await ask(server, call())

    assert text(told) == "mine"


async def test_what_a_dead_program_left_is_swept(tmp_path: Path) -> None:
    left = tmp_path / "lent" / "old"
    left.mkdir(parents=True)
    async with lender(tmp_path).lend([tool("memory_search", "mine")]):
        assert not left.exists()


async def test_where_nothing_can_be_written_a_run_goes_on_without(tmp_path: Path) -> None:
    (tmp_path / "lent").write_text("in the way")
    async with lender(tmp_path).lend([tool("memory_search", "mine")]) as server:
        assert server is None


@pytest.mark.parametrize("sent", [b"", b"\n", b"x" * 2_000_000, b"\xff\xfe\n"])
async def test_rubbish_instead_of_the_word_is_shown_the_door(tmp_path: Path, sent: bytes) -> None:
    async with lender(tmp_path).lend([tool("memory_search", "mine")]) as server:
        assert server is not None
        told = await asyncio.to_thread(_spoken_to, Path(server.command[-1]).parent, sent)

    assert told == b""


def _spoken_to(folder: Path, sent: bytes) -> bytes:
    """Without the process."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        held = os.open(folder, os.O_RDONLY)
        try:
            line.connect(f"/proc/self/fd/{held}/{stdio_bridge.SOCKET_NAME}")
        finally:
            os.close(held)
        try:
            line.sendall(sent)
            line.shutdown(socket.SHUT_WR)
            return line.recv(10)
        except OSError:
            return b""


def _servers(root: Path) -> McpServerPool:
    async def found() -> Sandbox:
        return detect_sandbox()

    shell = CommandShell(sandbox=found, homes=CommandHomes(root / "shell"), env=lambda _: {})
    return McpServerPool(shell, str, WebFetcher(), data_dir=root, variables={}, lender=lender(root))


async def test_a_persons_server_of_that_name_gives_way(tmp_path: Path) -> None:
    servers = _servers(tmp_path)
    named = [McpServer(name=name, command=("x",)) for name in ("tracker", "shiftboss")]
    async with servers.resolve_and_lend(named, [tool("memory_search", "mine")]) as brought:
        names = [each.name for each in brought.servers]

        assert names == ["tracker", "shiftboss"]
        assert brought.servers[1].command != ("x",)


async def test_a_step_by_a_coding_cli_looks_up_what_its_job_may(tmp_path: Path) -> None:
    cli = FakeCli(tmp_path)
    plan = result_reply({"plan": "Ship it.", "steps": [{"title": "go live"}]})
    use = {"use": {"tool": "memory_search", "arguments": {}}}
    cli.script([plan], [use, result_reply({"status": "done", "summary": "Shipped."})])
    bench = make_context_builder(
        tool_factories=(lambda job, _: (tool("memory_search", f"for {job.account.chat}"),),)
    )
    servers = _servers(tmp_path)
    chosen = OnlyBackend(cli.backend())
    async with run_engine(
        tmp_path, backends=chosen, context_builder=bench, servers=servers
    ) as world:
        view = await world.until(await world.create_task("Ship it"))
        assert view.task.status is TaskStatus.COMPLETED, view.task.status_reason
        stored = b"".join(path.read_bytes() for path in tmp_path.glob("shiftboss.db*"))

    (resumed,) = cli.received("session/resume", "pragmatist")
    given = resumed["mcpServers"]
    assert b"for c1" in stored, "its session keeps what it was told"
    assert [each["name"] for each in given] == ["shiftboss"]
    word = next(each["value"] for each in given[0]["env"])
    assert word.encode() not in stored
    assert list((tmp_path / "lent").iterdir()) == []


async def test_runs_that_begin_together_do_not_sweep_one_another_away(tmp_path: Path) -> None:
    (tmp_path / "lent" / "old").mkdir(parents=True)
    lending = lender(tmp_path)

    async def asked(told: str) -> str:
        async with lending.lend([tool("memory_search", told)]) as server:
            assert server is not None
            (answer,), _ = await ask(server, call())
            return text(answer)

    wanted = [f"run {n}" for n in range(6)]
    assert await asyncio.gather(*map(asked, wanted)) == wanted


async def test_a_kept_cli_looks_up_what_its_present_step_may(tmp_path: Path) -> None:
    cli = FakeCli(tmp_path)
    steps = [{"title": "one"}, {"title": "two"}]
    plan = result_reply({"plan": "Ship it.", "steps": steps})
    use = {"use": {"tool": "memory_search", "arguments": {}}}
    cli.script([plan], [use, result_reply({"status": "done", "summary": "Shipped."})])
    made, called = count(1), []

    def lookup(_job: object, _context: object) -> tuple[AgentTool]:
        number = next(made)

        async def run(arguments: Mapping[str, Any]) -> str:
            called.append(number)
            return ""

        return (AgentTool(name="memory_search", description="", schema=ANY, run=run),)

    bench = make_context_builder(tool_factories=(lookup,))
    chosen = OnlyBackend(cli.backend(idle=IdleProcess(600)))
    async with run_engine(
        tmp_path, backends=chosen, context_builder=bench, servers=_servers(tmp_path)
    ) as world:
        view = await world.until(await world.create_task("Ship it"))
        assert view.task.status is TaskStatus.COMPLETED, view.task.status_reason
        await wait_until(lambda: list((tmp_path / "lent").iterdir()) == [])

    assert len(called) == len(set(called)) == len(steps), "each step has its own"
    assert len(cli.received("initialize", "pragmatist")) == 1 + 1, "the planner's, and the steps'"
