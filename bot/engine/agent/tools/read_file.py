"""Read a text file of the workspace, a page at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bot.engine.llm import workspace as folder
from bot.engine.llm.base import ERROR, Tool

PAGE = 64 * 1024
_SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "The file, relative to the workspace."},
        "offset": {
            "type": "integer",
            "minimum": 0,
            "description": "The byte to begin at, as told by the page before. Default 0.",
        },
    },
    "required": ["path"],
    "additionalProperties": False,
}


def read_file(workspace: Path) -> Tool:
    async def run(arguments: Mapping[str, Any]) -> str:
        offset = int(arguments.get("offset", 0))
        return await asyncio.to_thread(_page, workspace, str(arguments["path"]), offset)

    return Tool(
        name="read_file",
        description=f"Read a text file, up to {PAGE // 1024} KB at a time.",
        schema=_SCHEMA,
        run=run,
    )


def _page(workspace: Path, path: str, offset: int) -> str:
    try:
        data, size = folder.read_bytes(workspace, path, offset=offset, limit=PAGE)
    except folder.PathRefused as error:
        return f"{ERROR}{error}"
    if offset and offset >= size:
        return f"{ERROR}offset {offset} is past the end; the file has {size} bytes"
    data = _up_to_a_line(data) if offset + len(data) < size else data
    if _is_binary(data, offset):
        return f"{ERROR}{folder.PathRefused(folder.Refusal.BINARY, path)}"
    text = data.decode("utf-8-sig" if offset == 0 else "utf-8", "replace")
    end = offset + len(data)
    if end < size:
        return f"{text}\n[bytes {offset} to {end} of {size}; read on with offset {end}]"
    return text or "[the file is empty]"


def _up_to_a_line(data: bytes) -> bytes:
    """Cut after the last whole line, or else after the last whole character."""
    line = data.rfind(b"\n") + 1
    if line:
        return data[:line]
    start = len(data) - 1
    while start > len(data) - 4 and data[start] & 0xC0 == 0x80:  # noqa: PLR2004 - UTF-8's longest
        start -= 1
    return data[:start] if start > 0 and data[start] >= 0xC0 else data  # noqa: PLR2004 - lead byte


def _is_binary(data: bytes, offset: int) -> bool:
    """A page asked for from the middle of a character is still text."""
    if offset == 0:
        return folder.is_binary(data)
    return all(folder.is_binary(data[skip:]) for skip in range(4))
