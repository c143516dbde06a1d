"""List a folder of the workspace."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bot.engine.llm import workspace as folder
from bot.engine.llm.base import ERROR, Tool

_SCHEMA = {
    "type": "object",
    "properties": {
        "path": {
            "type": "string",
            "description": "The folder, relative to the workspace. Default: the workspace itself.",
        },
    },
    "additionalProperties": False,
}


def list_files(workspace: Path) -> Tool:
    async def run(arguments: Mapping[str, Any]) -> str:
        path = str(arguments.get("path") or ".")
        return await asyncio.to_thread(_listing, workspace, path)

    return Tool(
        name="list_files",
        description="List the files and folders in a folder, with sizes in bytes.",
        schema=_SCHEMA,
        run=run,
    )


def _listing(workspace: Path, path: str) -> str:
    try:
        entries, total = folder.list_folder(workspace, path)
    except folder.PathRefused as error:
        return f"{ERROR}{error}"
    if not entries:
        return "[the folder is empty]"
    lines = [f"{one.name}/" if one.is_folder else f"{one.name}\t{one.size}" for one in entries]
    if total > len(entries):
        lines.append(f"[{total - len(entries)} more are not shown]")
    return "\n".join(lines)
