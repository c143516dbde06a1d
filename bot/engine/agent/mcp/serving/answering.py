"""Answers what MCP clients ask of a set of tools."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from bot.engine.agent.mcp.serving import rpc
from bot.engine.llm.arguments import problem
from bot.engine.llm.base import ERROR, Tool
from bot.engine.llm.calls import CallKind
from storage.errors import StorageError

MOST = 40_000
"""Characters of one result."""

_SECONDS = 60.0
_SHOWN = 80
_LOOKS = frozenset({CallKind.READ, CallKind.SEARCH})


async def answer(tools: Sequence[Tool], message: Any) -> Any:
    """As `rpc.known`, and never None. What a tool gets wrong is told to the model as its result;
    raises what is broken."""
    told = rpc.known(message)
    if told is not None:
        return told
    number, params = message["id"], message.get("params") or {}
    match message["method"]:
        case "tools/list":
            return rpc.result(number, {"tools": [_offered(tool) for tool in tools]})
        case "tools/call":
            return await _called(number, tools, params)
        case method:
            return rpc.not_offered(number, method)


async def _called(id: Any, tools: Sequence[Tool], params: Mapping[str, Any]) -> Any:
    name, arguments = params.get("name"), params.get("arguments") or {}
    tool = next((each for each in tools if each.name == name), None)
    if tool is None:
        there = ", ".join(each.name for each in tools)
        return rpc.error(
            id, rpc.BAD_PARAMS, f"no tool {str(name)[:_SHOWN]!r}; there are {there or 'none'}"
        )
    wrong = problem(tool.schema, arguments)
    if wrong:
        return rpc.result(id, _content(f"{ERROR}{wrong}"))
    return rpc.result(id, _content(await _run(tool, arguments)))


async def _run(tool: Tool, arguments: Mapping[str, Any]) -> str:
    try:
        async with asyncio.timeout(_SECONDS):
            return await tool.run(arguments)
    except TimeoutError:
        return f"{ERROR}it took longer than {_SECONDS:g} s"
    except StorageError:
        return f"{ERROR}what is remembered cannot be read or written now"


def _content(text: str) -> dict[str, Any]:
    shown = text if len(text) <= MOST else f"{text[:MOST]}\n[cut: ask for less at once]"
    return {
        "content": [{"type": "text", "text": shown}],
        "isError": text.startswith(ERROR),
    }


def _offered(tool: Tool) -> dict[str, Any]:
    looks = tool.kind in _LOOKS
    return {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": dict(tool.schema),
        "annotations": {
            "readOnlyHint": looks,
            "destructiveHint": False,
            "openWorldHint": False,
        },
    }
