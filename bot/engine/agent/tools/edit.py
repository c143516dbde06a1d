"""Change a text file of the workspace where it says exactly this."""

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
        "old": {
            "type": "string",
            "description": "The text to replace, exactly as it stands in the file, without line"
            " numbers. It must occur once, unless `all` is set.",
        },
        "new": {"type": "string", "description": "What stands there instead."},
        "all": {"type": "boolean", "description": "Replace every occurrence. Default false."},
    },
    "required": ["path", "old", "new"],
    "additionalProperties": False,
}


class _NoMatch(Exception):
    """The file does not say this, or not once."""


def edit(workspace: Path) -> Tool:
    async def run(arguments: Mapping[str, Any]) -> str:
        return await asyncio.to_thread(_edit, workspace, arguments)

    async def detail(arguments: Mapping[str, Any]) -> str:
        return await asyncio.to_thread(_diff, workspace, arguments)

    return Tool(
        name="edit",
        description="Replace a piece of a text file by another. Read the file first.",
        schema=_SCHEMA,
        run=run,
        kind=CallKind.EDIT,
        detail=detail,
    )


def _edit(workspace: Path, arguments: Mapping[str, Any]) -> str:
    try:
        _, new, times = _changed(workspace, arguments)
        written = folder.write_text(workspace, str(arguments["path"]), new)
    except (folder.PathRefused, _NoMatch) as error:
        return f"{ERROR}{error}"
    return f"Changed {written} in {times} place{'s' if times > 1 else ''}."


def _diff(workspace: Path, arguments: Mapping[str, Any]) -> str:
    try:
        old, new, _ = _changed(workspace, arguments)
    except (folder.PathRefused, _NoMatch) as error:
        return f"{ERROR}{error}"
    return unified(str(arguments["path"]), old, new)


def _changed(workspace: Path, arguments: Mapping[str, Any]) -> tuple[str, str, int]:
    """The file before and after, and how often it was changed."""
    path = str(arguments.get("path", ""))
    old, new = str(arguments.get("old", "")), str(arguments.get("new", ""))
    text = _whole(workspace, path)
    if "\r\n" in text and "\r" not in old:
        # Models say LF: a file of CRLF lines keeps its own ends.
        old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
    times = text.count(old) if old else 0
    _check(path, text, old, times, every=bool(arguments.get("all")))
    if old == new:
        raise _NoMatch(f"{path!r}: `old` and `new` are the same; nothing to change")
    return text, text.replace(old, new), times


def _check(path: str, text: str, old: str, times: int, *, every: bool) -> None:
    if not old:
        raise _NoMatch("`old` is empty; to make a file or replace all of it, use write")
    if times == 0:
        near = " (only with other blanks)" if _bare(old) in _bare(text) else ""
        raise _NoMatch(f"{path!r}: the file does not contain `old`{near}; read it again")
    if times > 1 and not every:
        raise _NoMatch(
            f"{path!r}: `old` occurs {times} times; give more of the text around it, or set `all`"
        )


def _whole(workspace: Path, path: str) -> str:
    """As it is, with its line ends and its byte order mark."""
    data, size = folder.read_bytes(workspace, path, limit=folder.MAX_WRITE)
    if size > folder.MAX_WRITE:
        raise folder.PathRefused(folder.Refusal.TOO_LARGE, path)
    return folder.decoded(data, path)


def _bare(text: str) -> str:
    return "".join(text.split())
