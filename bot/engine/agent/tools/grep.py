"""Search the text of the workspace's files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bot.engine.agent.policy.closed import Closed
from bot.engine.agent.policy.subjects import within
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


def grep(workspace: Path, closed: Closed | None = None) -> Tool:
    """Files that are `closed` are passed over, and said to be."""
    patterns = closed.patterns if closed else ()

    async def run(arguments: Mapping[str, Any]) -> str:
        path = str(arguments.get("path") or ".")
        found = await search(
            Search(
                workspace=str(workspace),
                pattern=str(arguments["pattern"]),
                path=path,
                named=within(workspace, path),
                glob=str(arguments.get("glob") or ""),
                closed=patterns,
            )
        )
        if found.problem:
            return f"{ERROR}{found.problem}"
        passed = f"[{found.closed} files were not searched: a rule keeps them closed]"
        notes = [found.cut, passed if found.closed else ""]
        lines = [*found.lines, *filter(None, notes)]
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
