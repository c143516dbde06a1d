"""Search the text of the workspace's files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bot.engine.agent.searching import MOST_HITS, Search, search
from bot.engine.llm.base import ERROR, Tool
from bot.engine.llm.calls import CallKind

_SCHEMA = {
    "type": "object",
    "properties": {
        "pattern": {
            "type": "string",
            "maxLength": 500,
            "description": "A regular expression as Python has them, searched line by line.",
        },
        "path": {
            "type": "string",
            "description": "A folder or file, relative to the workspace. Default: all of it.",
        },
        "glob": {
            "type": "string",
            "maxLength": 200,
            "description": "Only files that fit, by name (*.py) or by path (src/*.md).",
        },
    },
    "required": ["pattern"],
    "additionalProperties": False,
}


def grep(workspace: Path) -> Tool:
    async def run(arguments: Mapping[str, Any]) -> str:
        found = await search(
            Search(
                workspace=str(workspace),
                pattern=str(arguments["pattern"]),
                path=str(arguments.get("path") or "."),
                glob=str(arguments.get("glob") or ""),
            )
        )
        if found.problem:
            return f"{ERROR}{found.problem}"
        lines = [*found.lines, *([found.cut] if found.cut else [])]
        return "\n".join(lines) or "[no line fits]"

    return Tool(
        name="grep",
        description=(
            "Find lines in text files by a regular expression, as path:line: text."
            f" At most {MOST_HITS} lines and 10 seconds."
        ),
        schema=_SCHEMA,
        run=run,
        kind=CallKind.SEARCH,
    )
