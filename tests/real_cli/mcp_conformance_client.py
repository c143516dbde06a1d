"""A client for the protocol's conformance suite: Shiftboss's own sessions, run as a program.

Its last argument is the server's URL. It lists the tools and calls each once. A person who is asked
for input takes the defaults. With the argument `sign-in` somebody signs in before."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2

from bot.engine.llm.backend import McpServer
from bot.engine.mcp.client.session import open_http_session
from bot.engine.mcp.client.sign_in import McpSignIns
from bot.engine.web import WebFetcher, parse_private_hosts

ARGUMENTS: dict[str, Any] = {"add_numbers": {"a": 2, "b": 3}}


async def accept(request: Mapping[str, Any]) -> dict[str, Any]:
    fields = request.get("requestedSchema", {}).get("properties", {})
    content = {name: each["default"] for name, each in fields.items() if "default" in each}
    return {"action": "accept", "content": content}


async def sign_in(server: McpServer, fetcher: WebFetcher) -> httpx2.Auth | None:
    """Sign in as a person whose page agrees at once."""
    folder = Path(tempfile.mkdtemp())
    back = "http://127.0.0.1:8321/mcp/callback"
    sign_ins = McpSignIns(fetcher=fetcher, folder=folder, redirect_uri=back)
    async with httpx2.AsyncClient() as browser:
        page = await browser.get(await sign_ins.start(server))
    await sign_ins.finish(page.headers["location"])
    return await sign_ins.create_auth(server)


async def main(url: str) -> None:
    fetcher = WebFetcher(private_hosts=parse_private_hosts(["localhost", "127.0.0.1"]))
    server, auth = McpServer(name="suite", url=url), None
    if "sign-in" in sys.argv:
        auth = await sign_in(server, fetcher)
    async with open_http_session(server, fetcher, accept, auth) as (session, _):
        await session.initialize()
        for tool in await session.list_tools():
            print(tool.name, await session.call_tool(tool.name, ARGUMENTS.get(tool.name, {})))  # noqa: T201 - read with the suite's report


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
