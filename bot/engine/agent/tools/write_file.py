"""Write a whole text file in the workspace, all of it or nothing."""

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
        "path": {"type": "string", "description": "The file, relative to the workspace."},
        "content": {"type": "string", "description": "The whole new content of the file."},
    },
    "required": ["path", "content"],
    "additionalProperties": False,
}


def write_file(workspace: Path) -> Tool:
    async def run(arguments: Mapping[str, Any]) -> str:
        path, content = str(arguments["path"]), str(arguments["content"])
        try:
            written = await asyncio.to_thread(folder.write_text, workspace, path, content)
        except folder.PathRefused as error:
            return f"{ERROR}{error}"
        return f"Wrote {written} ({len(content)} characters)."

    return Tool(
        name="write_file",
        description=(
            "Write a text file, making its folders; an existing file is replaced."
            f" At most {folder.MAX_WRITE // 1_000_000} MB."
        ),
        schema=_SCHEMA,
        run=run,
    )
