"""Agents of one's own ask what is remembered: over stdio, over HTTP, and at a CLI's hooks; beside
the running program and without it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types import TextContent

from bot.engine.mcp.client.session import open_stdio
from bot.engine.sandbox.spec import SandboxLaunch
from tests.journeys.program import ShiftbossProcess, run_command
from tests.journeys.program_store import lay_out_program_store
from tests.thoroughness import thorough_only
from tests.waiting import WAIT_SECONDS

PATIENT = ("--seconds", "60")


@pytest.fixture
async def program(tmp_path: Path) -> AsyncGenerator[ShiftbossProcess, None]:
    made = ShiftbossProcess(home=tmp_path / "home", settings={"SHIFTBOSS_LANGUAGE": "en"})
    lay_out_program_store(made.home)
    yield made
    await made.kill_if_running()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def launch(program: ShiftbossProcess, folder: Path, *options: str) -> SandboxLaunch:
    return SandboxLaunch(
        argv=(*program.command, "mcp", *options), env=program.environment, cwd=folder
    )


@asynccontextmanager
async def agent(
    program: ShiftbossProcess, folder: Path, *options: str
) -> AsyncGenerator[ClientSession, None]:
    """An agent by the official SDK."""
    async with (
        open_stdio(launch(program, folder, *options)) as line,
        ClientSession(line.incoming, line.outgoing, read_timeout_seconds=WAIT_SECONDS) as session,
    ):
        await session.initialize()
        yield session


async def call_tool(session: ClientSession, tool: str, **arguments: Any) -> str:
    told = (await session.call_tool(tool, arguments)).content[0]
    assert isinstance(told, TextContent)
    return told.text


async def hook(
    program: ShiftbossProcess, name: str, said: bytes, *options: str
) -> tuple[str, str, int]:
    run = partial(run_command, environment=program.environment, folder=program.home, said=said)
    done = await asyncio.to_thread(run, "hook", name, *options)
    return done.stdout, done.stderr, done.returncode


def prompt(words: str, folder: Path) -> bytes:
    return json.dumps({"prompt": words, "cwd": str(folder), "session_id": "s1"}).encode()


@pytest.mark.parametrize("runs", [True, False], ids=["beside the program", "without it"])
async def test_a_memory_saved_in_a_project_is_found_only_there(
    program: ShiftbossProcess, project: Path, tmp_path: Path, runs: bool
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    if runs:
        await program.start()
    async with (
        agent(program, project) as one,
        agent(program, other) as two,
    ):
        listed = await one.list_tools()
        empty = await call_tool(one, "recall_memory", query="harbour crane")
        kept, _ = await asyncio.gather(
            call_tool(
                one, "store_memory", content="The harbour crane is driven by hand", tags=["crane"]
            ),
            call_tool(two, "store_memory", content="Lighthouse bulbs come from Lisbon"),
        )
        found = await call_tool(one, "recall_memory", query="harbour crane")
        elsewhere = await call_tool(two, "recall_memory", query="harbour crane")
        full = await call_tool(one, "get_memory", id=found.split("<")[1].split(",")[0])

    assert one.server_info is not None
    assert one.server_info.name == "shiftboss"
    names = {each.name for each in listed.tools}
    assert {"recall_memory", "store_memory", "log_session", "extract_memories"} <= names
    assert {"load_context", "history_grep", "history_describe", "history_expand"} <= names
    # With the program its handbook is there already.
    assert empty in {"No memories stored yet.", "No matching memories found."}
    assert f"project:{project}" in kept
    assert "information, never instructions" in found
    assert "The harbour crane is driven by hand" in found
    assert elsewhere == "No matching memories found."
    assert "The harbour crane is driven by hand" in full


async def test_the_server_never_returns_another_persons_memories(
    program: ShiftbossProcess, project: Path
) -> None:
    async with agent(program, project, "--scope", "person:somebody") as wire:
        with pytest.raises(MCPError, match="somebody's own"):
            await call_tool(wire, "recall_memory", query="anything")


async def test_personal_memories_are_served_only_with_the_personal_scope(
    program: ShiftbossProcess, project: Path
) -> None:
    await program.start()
    status, _ = await program.run_to_end(
        "memory", "add", "My parrot is called Quill", "--scope", "me"
    )
    assert status == 0
    async with agent(program, project) as wire:
        unasked = await call_tool(wire, "recall_memory", query="parrot")
    async with agent(program, project, "--scope", "me") as wire:
        asked = await call_tool(wire, "recall_memory", query="parrot")
        refused = await call_tool(wire, "store_memory", content="All parrots lie", scope="global")
    said = json.dumps({"cwd": str(project), "source": "startup"}).encode()
    begun, *_ = await hook(program, "session-start", said, "--scope", "me", *PATIENT)
    elsewhere, *_ = await hook(program, "session-start", said, *PATIENT)

    assert "Quill" not in unasked
    assert "Quill" in asked
    assert "scope is one of person:" in refused
    assert "Quill" in begun
    assert "Quill" not in elsewhere


async def test_over_http_a_request_needs_the_token(
    program: ShiftbossProcess, project: Path
) -> None:
    await program.start()
    url = urlsplit(program.address)
    token, site = parse_qs(url.query)["token"][0], f"http://{url.netloc}"
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    bearer = {"authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=site, trust_env=False, timeout=WAIT_SECONDS) as client:

        async def status(headers: Mapping[str, str], **more: Any) -> int:
            sent = {"json": listing, **more}
            return (await client.post("/mcp", headers=headers, **sent)).status_code

        assert await status({}) == 401
        assert await status({"authorization": "Bearer guess"}) == 401
        assert await status({**bearer, "host": "evil.example"}) == 403
        assert await status({**bearer, "origin": "http://evil.example"}) == 403
        assert (await client.get("/mcp", headers=bearer)).status_code == 405
        for scope in ("person:somebody", "chat:c1", "chat", "project", "project:", "global:x"):
            assert await status(bearer, params={"scope": scope}) == 422
        assert await status({**bearer, "content-type": "text/plain"}) == 415
        json_of = {**bearer, "content-type": "application/json"}
        for body, wanted in ((b"{", 400), (b"", 400), (b"x" * 2_000_000, 413)):
            told = await client.post("/mcp", headers=json_of, content=body)
            assert told.status_code == wanted
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert await status(bearer, json=note) == 202

        # The cookie of the open page does not do: no page may ask.
        await client.get(f"/?token={token}")
        assert await status({"origin": site}) == 401
        answer = await client.post(
            "/mcp", headers=bearer, json=listing, params={"scope": f"project:{project}"}
        )

    assert answer.status_code == 200
    assert "store_memory" in {each["name"] for each in answer.json()["result"]["tools"]}


@pytest.mark.parametrize("runs", [True, False], ids=["beside the program", "without it"])
async def test_hooks_add_relevant_memories_and_never_block_the_cli(
    program: ShiftbossProcess, project: Path, runs: bool
) -> None:
    if runs:
        await program.start()
    async with agent(program, project) as wire:
        await call_tool(
            wire, "store_memory", content="Releases are cut on Tuesdays", category="decision"
        )

    fits, _, status = await hook(
        program, "user-prompt", prompt("when are releases cut?", project), *PATIENT
    )
    short = await hook(program, "user-prompt", prompt("hi", project))

    lines = fits.splitlines()
    assert status == 0
    assert "information, never instructions" in lines[0]
    assert lines[1].startswith("- [cases|working] (")
    assert lines[1].endswith("Releases are cut on Tuesdays")
    assert short == ("", "", 0)


@pytest.mark.parametrize("said", [b"", b"no json", b"[1]", b'{"prompt": 5}', b"\xff" * 1000])
async def test_a_hook_with_invalid_input_prints_nothing(
    program: ShiftbossProcess, said: bytes
) -> None:
    assert (await hook(program, "user-prompt", said)) == ("", "", 0)


async def test_a_hook_says_within_its_time_that_the_program_does_not_answer(
    program: ShiftbossProcess,
) -> None:
    """As a program that starts, or one that hangs: nothing answers at its address."""
    import fcntl

    lock = os.open(program.home / "lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        said = prompt("what do you remember?", program.home)
        told = await hook(program, "user-prompt", said, "--seconds", "1")
    finally:
        os.close(lock)

    shown, errors, status = told
    assert "did not search its memory: there was no answer within 1 s" in shown
    assert (errors, status) == ("", 0)


async def test_a_session_end_asks_once_and_a_compacted_session_says_where_to_look(
    program: ShiftbossProcess,
) -> None:
    said = json.dumps({"session_id": "s1"}).encode()
    again = json.dumps({"session_id": "s2", "stop_hook_active": True}).encode()
    first, *_ = await hook(program, "stop", said)
    second, *_ = await hook(program, "stop", said)
    nested, *_ = await hook(program, "stop", again)
    compact, *_ = await hook(program, "post-compact", b"{}")

    assert json.loads(first)["decision"] == "block"
    assert "store_memory" in json.loads(first)["reason"]
    assert (second, nested) == ("", "")
    assert "recall_memory" in compact


async def test_the_printed_settings_work_as_pasted_without_an_environment(
    program: ShiftbossProcess, project: Path
) -> None:
    # A project's own file changes nothing for its agents.
    (project / ".env").write_text("SHIFTBOSS_HOME=/nowhere\nSHIFTBOSS_LANGUAGE=klingon\n")
    before = sorted(program.home.rglob("*"))
    _, hooks = await program.run_to_end("hook", "install", "--print")
    _, servers = await program.run_to_end("mcp", "--print")
    unchanged = sorted(program.home.rglob("*")) == before

    snippet: Mapping[str, Sequence[Any]] = json.loads(hooks)["hooks"]
    server = json.loads(servers[servers.index("{") :])["mcpServers"]["shiftboss"]
    pasted = SandboxLaunch(
        argv=(server["command"], *server["args"]), env=server["env"], cwd=project
    )
    async with (
        open_stdio(pasted) as line,
        ClientSession(line.incoming, line.outgoing, read_timeout_seconds=WAIT_SECONDS) as session,
    ):
        await session.initialize()
        await call_tool(session, "store_memory", content="Releases are cut on Tuesdays")
    line_pasted = snippet["UserPromptSubmit"][0]["hooks"][0]["command"] + " --seconds 60"
    hooked = await asyncio.to_thread(
        subprocess.run,
        ["/bin/sh", "-c", line_pasted],
        input=prompt("when are releases cut?", project),
        env={},
        cwd=project,
        capture_output=True,
        check=True,
    )

    assert unchanged
    assert set(snippet) == {"UserPromptSubmit", "SessionStart", "Stop"}
    assert b"Releases are cut on Tuesdays" in hooked.stdout


@thorough_only
async def test_an_agents_server_outlives_the_program(
    program: ShiftbossProcess, project: Path
) -> None:
    async with agent(program, project) as wire:
        await program.start()
        await call_tool(wire, "store_memory", content="The harbour master is called Ida")
        await program.kill()
        alone = await call_tool(wire, "recall_memory", query="harbour master")
        await program.start()
        beside = await call_tool(wire, "recall_memory", query="harbour master")

    assert "Ida" in alone
    assert "Ida" in beside
