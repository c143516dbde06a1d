"""Read a text file of the workspace, its lines numbered, a page at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bot.engine.agent.policy.closed import Closed
from bot.engine.agent.policy.subjects import within
from bot.engine.llm import workspace as folder
from bot.engine.llm.base import ERROR, Tool
from bot.engine.llm.calls import CallKind

MOST_LINES = 500
MOST_CHARACTERS = 30_000
LONGEST_LINE = 2_000
_CHUNK = 1 << 20
_SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "The file, relative to the workspace."},
        "offset": {
            "type": "integer",
            "minimum": 1,
            "description": "The line to begin at. Default 1, the first.",
        },
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": MOST_LINES,
            "description": f"How many lines. Default and most {MOST_LINES}.",
        },
    },
    "required": ["path"],
    "additionalProperties": False,
}


def read(workspace: Path, closed: Closed | None = None) -> Tool:
    """No link leads to what is `closed`: that is asked for by its own name."""
    hides = (closed or Closed()).hides

    async def run(arguments: Mapping[str, Any]) -> str:
        offset = max(int(arguments.get("offset") or 1), 1)
        limit = min(int(arguments.get("limit") or MOST_LINES), MOST_LINES)
        path = str(arguments["path"])
        if await asyncio.to_thread(_leads_to, workspace, path, hides):
            return (
                f"{ERROR}{path[: folder.MAX_SHOWN]!r} is a link to a file that a rule keeps closed"
            )
        return await asyncio.to_thread(_page, workspace, path, offset, limit)

    return Tool(
        name="read",
        description=(
            f"Read a text file, up to {MOST_LINES} lines at a time. Each line comes with its"
            " number and a tab, which are not part of the file."
        ),
        schema=_SCHEMA,
        run=run,
        kind=CallKind.READ,
    )


def _leads_to(workspace: Path, path: str, hides: Callable[[str], bool]) -> bool:
    """Whether it is another name of such a file. What leads nowhere is told by who opens it."""
    try:
        real = folder.relative(workspace, path).as_posix()
    except folder.PathRefused:
        return False
    return real != within(workspace, path) and hides(real)


def _page(workspace: Path, path: str, offset: int, limit: int) -> str:
    shown: list[str] = []
    room, at, more = MOST_CHARACTERS, 0, False
    try:
        for at, line in enumerate(_lines(workspace, path), 1):
            if at < offset:
                continue
            text = f"{at}\t{_short(line)}"
            if len(shown) == limit or (shown and len(text) >= room):
                more = True
                break
            shown.append(text)
            room -= len(text) + 1
    except folder.PathRefused as error:
        return f"{ERROR}{error}"
    if not at:
        return "[the file is empty]"
    if not shown:
        return f"{ERROR}line {offset} is past the end; the file has {at} lines"
    note = [f"[read on with offset {at}]"] if more else []
    return "\n".join([*shown, *note])


def _lines(workspace: Path, path: str) -> Iterator[str]:
    """Without their ends, be these LF or CRLF; raises PathRefused for what is no UTF-8 text."""
    rest, at, size = b"", 0, 1
    while at < size:
        chunk, size = folder.read_bytes(workspace, path, offset=at, limit=_CHUNK)
        if not chunk:
            break
        if at == 0:
            chunk = chunk.removeprefix(b"\xef\xbb\xbf")
            at = min(size, _CHUNK)
        else:
            at += len(chunk)
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield folder.decoded(line, path).removesuffix("\r")
        if len(rest) > _CHUNK:
            # One endless line: the rest of it is not shown either way.
            yield rest[:_CHUNK].decode("utf-8", "ignore")
            return
    if rest:
        yield folder.decoded(rest, path).removesuffix("\r")


def _short(line: str) -> str:
    if len(line) <= LONGEST_LINE:
        return line
    return f"{line[:LONGEST_LINE]}… [{len(line) - LONGEST_LINE} more characters]"
