"""The MCP server over standard input and output: a message a line, answered in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, BinaryIO

from bot.engine.agent.mcp.serving import rpc

_CHUNK = 65_536


def serve(answer: Callable[[Any], Any], came: BinaryIO, goes: BinaryIO) -> None:
    """Until one of them is closed. Blocking."""
    try:
        while line := came.readline(rpc.LONGEST):
            told = _answer(answer, line, came)
            if told is not rpc.NONE:
                goes.write(rpc.written(told) + b"\n")
                goes.flush()
    except (BrokenPipeError, ConnectionError):
        return  # whoever started us has gone


def _answer(answer: Callable[[Any], Any], line: bytes, came: BinaryIO) -> Any:
    if len(line) == rpc.LONGEST and not line.endswith(b"\n"):
        while (rest := came.readline(_CHUNK)) and not rest.endswith(b"\n"):
            pass
        return rpc.error(None, rpc.INVALID, f"no more than {rpc.LONGEST} bytes a message")
    try:
        message = rpc.parsed(line)
    except ValueError:
        return rpc.error(None, rpc.PARSE_ERROR, "not one JSON message a line")
    return message if message is rpc.NONE else answer(message)
