"""A client for the protocol's conformance suite: Shiftboss's own sessions, run as a program.

Its last argument is the server's URL. It lists the tools and calls each once. A person who is asked
for input takes the defaults. With the argument `sign-in` somebody signs in before, and once more
where rights were missing."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2

from bot.engine.llm.backend import McpServer
from bot.engine.mcp.client.server_config import McpError
from bot.engine.mcp.client.session import open_http_session
from bot.engine.mcp.client.sign_in import McpSignIns
from bot.engine.web import WebFetcher, parse_private_hosts

ARGUMENTS: dict[str, Any] = {"add_numbers": {"a": 2, "b": 3}}


CLIENT_URL = "https://conformance-test.local/client-metadata.json"
"""The address that the suite expects."""


MAX_SIGN_INS = 2
missing: list[str] = []


async def note_missing_scope(server: str, scope: str, sign_in: str) -> None:
    missing.append(scope)


async def accept(request: Mapping[str, Any]) -> dict[str, Any]:
    fields = request.get("requestedSchema", {}).get("properties", {})
    content = {name: each["default"] for name, each in fields.items() if "default" in each}
    return {"action": "accept", "content": content}


async def sign_in(server: McpServer, sign_ins: McpSignIns) -> httpx2.Auth | None:
    """Sign in as a person whose page agrees at once."""
    async with httpx2.AsyncClient() as browser:
        page = await browser.get(await sign_ins.start(server))
    await sign_ins.finish(page.headers["location"])
    return await sign_ins.create_auth(server)


async def main(url: str) -> None:
    fetcher = WebFetcher(private_hosts=parse_private_hosts(["localhost", "127.0.0.1"]))
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    known = {key: context[key] for key in ("client_id", "client_secret") if key in context}
    server = McpServer(name="suite", url=url, oauth=known)
    with tempfile.TemporaryDirectory() as folder:
        sign_ins = McpSignIns(
            fetcher=fetcher,
            folder=Path(folder),
            redirect_uri="http://127.0.0.1:8321/mcp/callback",
            on_missing_scope=note_missing_scope,
            client_id=CLIENT_URL,
        )
        for _ in range(MAX_SIGN_INS):
            missing.clear()
            auth = await sign_in(server, sign_ins) if "sign-in" in sys.argv else None
            await call_tools(server, fetcher, auth)
            if not missing:
                return


async def call_tools(server: McpServer, fetcher: WebFetcher, auth: httpx2.Auth | None) -> None:
    async with open_http_session(server, fetcher, accept, auth) as (session, _):
        await session.initialize()
        for tool in await session.list_tools():
            try:
                told = await session.call_tool(tool.name, ARGUMENTS.get(tool.name, {}))
            except McpError:
                if not missing:
                    raise
            else:
                print(tool.name, told)  # noqa: T201 - read with the suite's report


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
