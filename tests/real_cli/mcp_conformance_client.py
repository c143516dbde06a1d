"""A client for the protocol's conformance suite: Shiftboss's own sessions, run as a program.

Its last argument is the server's URL. It lists the tools and calls each once. A person who is asked
for input takes the defaults."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

from bot.engine.llm.backend import McpServer
from bot.engine.mcp.client.session import open_http_session
from bot.engine.web.fetcher import WebFetcher, parse_private_hosts

ARGUMENTS: dict[str, Any] = {"add_numbers": {"a": 2, "b": 3}}


async def accept(request: Mapping[str, Any]) -> dict[str, Any]:
    fields = request.get("requestedSchema", {}).get("properties", {})
    content = {name: each["default"] for name, each in fields.items() if "default" in each}
    return {"action": "accept", "content": content}


async def main(url: str) -> None:
    fetcher = WebFetcher(private_hosts=parse_private_hosts(["localhost", "127.0.0.1"]))
    async with open_http_session(McpServer(name="suite", url=url), fetcher, accept) as (session, _):
        await session.initialize()
        for tool in await session.list_tools():
            print(tool.name, await session.call_tool(tool.name, ARGUMENTS.get(tool.name, {})))  # noqa: T201 - read with the suite's report


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
