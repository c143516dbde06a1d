"""Opt-in: the protocol's own conformance suite, against our client and our memory server.

SHIFTBOSS_MCP_CONFORMANCE=1 runs it; it needs npx and downloads the suite and its Node.js."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.journeys.program import ShiftbossProcess

pytestmark = pytest.mark.skipif(
    not os.environ.get("SHIFTBOSS_MCP_CONFORMANCE"), reason="SHIFTBOSS_MCP_CONFORMANCE is not set"
)

SUITE = ("npx", "-y", "-p", "node@22", "-p", "@modelcontextprotocol/conformance@0.1.16")
CLIENT = Path(__file__).with_name("mcp_conformance_client.py")
ROOT = Path(__file__).parents[2]


async def conformance(folder: Path, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *SUITE,
        "conformance",
        *arguments,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    text = said.decode("utf-8", "replace")
    assert process.returncode == 0, text[-4000:]
    return text


async def client_conformance(folder: Path, command: str, scenario: str) -> str:
    asked = ("client", "--command", command, "--scenario", scenario, "--timeout", "120000")
    return await conformance(folder, *asked)


@pytest.mark.parametrize(
    "scenario", ["initialize", "tools_call", "sse-retry", "elicitation-sep1034-client-defaults"]
)
async def test_the_client_conforms(scenario: str, tmp_path: Path) -> None:
    command = f"{sys.executable} {CLIENT}"

    said = await client_conformance(tmp_path, command, scenario)

    assert "OVERALL: PASSED" in said


@pytest.mark.parametrize(
    "scenario",
    [
        "metadata-default",
        "metadata-var1",
        "metadata-var2",
        "metadata-var3",
        "basic-cimd",
        "pre-registration",
        "scope-from-www-authenticate",
        "scope-from-scopes-supported",
        "scope-omitted-when-undefined",
        "scope-step-up",
        "scope-retry-limit",
        "token-endpoint-auth-basic",
        "token-endpoint-auth-post",
        "token-endpoint-auth-none",
        "2025-03-26-oauth-endpoint-fallback",
        "resource-mismatch",
        "offline-access-scope",
        "offline-access-not-supported",
    ],
)
async def test_signing_in_conforms(scenario: str, tmp_path: Path) -> None:
    command = f"{sys.executable} {CLIENT} sign-in"

    said = await client_conformance(tmp_path, command, f"auth/{scenario}")

    assert "OVERALL: PASSED" in said


@pytest.mark.parametrize(
    "scenario", ["server-initialize", "ping", "tools-list", "dns-rebinding-protection"]
)
async def test_the_memory_server_conforms_in_what_it_offers(scenario: str, tmp_path: Path) -> None:
    program = ShiftbossProcess(home=tmp_path / "home", settings={"SHIFTBOSS_LANGUAGE": "en"})
    program.home.mkdir()
    await program.start()
    try:
        async with with_token(program.address) as url:
            said = await conformance(tmp_path, "server", "--url", url, "--scenario", scenario)
    finally:
        await program.kill_if_running()

    assert re.search(r"\b0 failed", said)


@asynccontextmanager
async def with_token(address: str) -> AsyncGenerator[str, None]:
    """A proxy that adds the token, which the suite cannot send."""
    target = urlsplit(address)
    token = address.rpartition("token=")[2]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            first, _, rest = head.partition(b"\r\n")
            lines = [each for each in rest.split(b"\r\n") if not each.lower().startswith(b"conn")]
            added = f"Authorization: Bearer {token}\r\nConnection: close\r\n".encode()
            there, back = await asyncio.open_connection(target.hostname, target.port)
            back.write(first + b"\r\n" + added + b"\r\n".join(lines))
            sending = asyncio.create_task(_copy(reader, back))
            await _copy(there, writer)
            sending.cancel()
            back.close()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1")
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
