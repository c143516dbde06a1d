"""Write a whole text file in the workspace, all of it or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bot.engine.agent.diffs import unified
from bot.engine.llm import workspace as folder
from bot.engine.llm.base import ERROR, Tool
from bot.engine.llm.calls import CallKind

_SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "The file, relative to the workspace."},
        "content": {"type": "string", "description": "The whole new content of the file."},
    },
    "required": ["path", "content"],
    "additionalProperties": False,
}


def write(workspace: Path) -> Tool:
    async def run(arguments: Mapping[str, Any]) -> str:
        path, content = str(arguments["path"]), str(arguments["content"])
        try:
            written = await asyncio.to_thread(folder.write_text, workspace, path, content)
        except folder.PathRefused as error:
            return f"{ERROR}{error}"
        return f"Wrote {written} ({len(content)} characters)."

    async def detail(arguments: Mapping[str, Any]) -> str:
        path, content = str(arguments.get("path", "")), str(arguments.get("content", ""))
        return await asyncio.to_thread(_change, workspace, path, content)

    return Tool(
        name="write",
        description=(
            "Write a text file, making its folders; an existing file is replaced."
            f" At most {folder.MAX_WRITE // 1_000_000} MB."
        ),
        schema=_SCHEMA,
        run=run,
        kind=CallKind.EDIT,
        detail=detail,
    )


def _change(workspace: Path, path: str, content: str) -> str:
    try:
        old = folder.read_text(workspace, path, limit=folder.MAX_WRITE)
    except folder.PathRefused as error:
        if error.refusal is folder.Refusal.MISSING:
            old = ""
        elif error.refusal in {folder.Refusal.BINARY, folder.Refusal.TOO_LARGE}:
            return f"[replaces {path}, which is {error.refusal.text}]\n" + unified(
                path, "", content
            )
        else:
            return f"{ERROR}{error}"
    return unified(path, old, content) or f"[{path} stays as it is]"
