"""A tiny MCP server over stdio, hand-written, with the manners that its first argument names."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

TOOLS: list[Any] = [
    {
        "name": "echo",
        "description": "Say it again.",
        "inputSchema": {
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
        },
    },
    {"name": "fail", "description": "Always fails.", "inputSchema": {"type": "object"}},
    {"name": "die", "description": "Ends the server.", "inputSchema": {"type": "object"}},
    {"name": "hang", "description": "Never answers.", "inputSchema": {"type": "object"}},
    {"name": "long", "description": "Says much.", "inputSchema": {"type": "object"}},
    {"name": "env", "description": "Says what it has.", "inputSchema": {"type": "object"}},
]


def write_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def answer(number: object, result: object) -> None:
    write_line(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}))


def text(words: str, *, error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}], "isError": error}


def call(number: object, name: str, arguments: dict[str, Any]) -> None:
    match name:
        case "echo":
            answer(number, text(f"you said {arguments['text']}"))
        case "fail":
            answer(number, text("no such ticket", error=True))
        case "die":
            sys.exit(3)
        case "hang":
            time.sleep(600)
        case "long":
            answer(number, text("x" * 200_000))
        case "env":
            answer(number, text(json.dumps({"KEY": os.environ.get("KEY"), "cwd": str(Path.cwd())})))


def main(manners: str) -> None:
    if manners == "silent":
        time.sleep(600)
    if manners == "flood":
        while True:
            sys.stdout.write("y" * 1_000_000)
    if manners == "gone":
        sys.exit(1)
    for line in sys.stdin:
        told = json.loads(line)
        method, number = told.get("method"), told.get("id")
        if method == "initialize":
            write_line("a banner that is no JSON")
            write_line(json.dumps({"jsonrpc": "2.0", "id": 99, "method": "ping"}))
            hello = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
            answer(number, {**hello, "serverInfo": {"name": "tiny", "version": "1"}})
        elif method == "tools/list" and manners == "liar":
            odd = {"name": "odd\nname", "inputSchema": {"type": 5, "properties": [], "required": 7}}
            answer(number, {"tools": [None, {}, {"name": 3}, odd, "x"], "nextCursor": 4})
        elif method == "tools/list":
            at = int(told["params"].get("cursor", 0))
            page: dict[str, Any] = {"tools": TOOLS[at : at + 4]}
            if at + 4 < len(TOOLS):
                page["nextCursor"] = str(at + 4)
            answer(number, page)
        elif method == "tools/call":
            call(number, told["params"]["name"], told["params"]["arguments"])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
