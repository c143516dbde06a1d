"""List a folder of the workspace, or find files below it by name."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from bot.engine.agent.searching import SKIPPED, fits
from bot.engine.llm import workspace as folder
from bot.engine.llm.base import ERROR, Tool
from bot.engine.llm.calls import CallKind

MOST = 100
MOST_WALKED = 50_000
_SCHEMA = {
    "type": "object",
    "properties": {
        "path": {
            "type": "string",
            "description": "The folder, relative to the workspace. Default: the workspace itself.",
        },
        "pattern": {
            "type": "string",
            "maxLength": 200,
            "description": "Find files below the folder, at any depth, by name (*.py) or by path"
            " (src/*/test_*.py). Without it the folder itself is listed.",
        },
    },
    "additionalProperties": False,
}


def list_files(workspace: Path) -> Tool:
    async def run(arguments: Mapping[str, Any]) -> str:
        path, pattern = str(arguments.get("path") or "."), str(arguments.get("pattern") or "")
        try:
            if pattern:
                return await asyncio.to_thread(_found, workspace, path, pattern)
            return await asyncio.to_thread(_listing, workspace, path)
        except folder.PathRefused as error:
            return f"{ERROR}{error}"

    return Tool(
        name="list",
        description=(
            "List the files and folders in a folder, with sizes in bytes; or find files below it"
            f" by a pattern. At most {MOST} are shown."
        ),
        schema=_SCHEMA,
        run=run,
        kind=CallKind.SEARCH,
    )


def _listing(workspace: Path, path: str) -> str:
    entries, total = folder.list_folder(workspace, path)
    if not entries:
        return "[the folder is empty]"
    shown = entries[:MOST]
    more = [f"[{total - len(shown)} more are not shown]"] if total > len(shown) else []
    return "\n".join([*map(_line, shown), *more])


def _found(workspace: Path, path: str, pattern: str) -> str:
    walked = islice(folder.walk(workspace, path, skip=SKIPPED), MOST_WALKED)
    found = (one for one in walked if not one.is_folder and fits(one.name, pattern))
    shown = list(islice(found, MOST + 1))
    if not shown:
        return "[no file fits]"
    more = [f"[more than {MOST} fit; the others are not shown]"] if len(shown) > MOST else []
    return "\n".join([*map(_line, shown[:MOST]), *more])


def _line(one: folder.Entry) -> str:
    return f"{one.name}/" if one.is_folder else f"{one.name}\t{one.size}"
