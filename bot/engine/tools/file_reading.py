"""Tools that read, list and search files in the workspace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from bot.engine.llm import workspace_files as folder
from bot.engine.llm.tool_calls import ERROR_PREFIX, AgentTool, CallKind, int_field, object_schema
from bot.engine.permissions.rules import ReadProtectedFiles, relative_path
from bot.engine.tools.text_search import (
    MAX_HITS,
    SKIPPED_FOLDERS,
    TextSearch,
    matches_glob,
    search_files,
)

MAX_READ_LINES = 500
MAX_READ_CHARS = 30_000
MAX_LINE_CHARS = 2_000
_CHUNK_BYTES = 1 << 20
_READ_SCHEMA = object_schema(
    "path",
    path="Relative to the workspace.",
    offset=int_field("The first line to read. Default 1.", minimum=1),
    limit=int_field(f"Default {MAX_READ_LINES}.", minimum=1, maximum=MAX_READ_LINES),
)


def read_tool(workspace: Path, protected: ReadProtectedFiles | None = None) -> AgentTool:
    """Build the tool; links to `protected` files are refused."""
    hides = (protected or ReadProtectedFiles()).is_protected

    async def run(arguments: Mapping[str, Any]) -> str:
        offset = max(int(arguments.get("offset") or 1), 1)
        limit = min(int(arguments.get("limit") or MAX_READ_LINES), MAX_READ_LINES)
        path = str(arguments["path"])
        if await asyncio.to_thread(is_link_to_protected, workspace, path, hides):
            shown = path[: folder.MAX_SHOWN]
            return f"{ERROR_PREFIX}{shown!r} is a link to a file that a rule protects"
        return await asyncio.to_thread(_read_page, workspace, path, offset, limit)

    return AgentTool(
        name="read",
        description=(
            f"Read a text file, up to {MAX_READ_LINES} lines at a time. Each line comes with its"
            " number and a tab, which are not part of the file."
        ),
        schema=_READ_SCHEMA,
        run=run,
        kind=CallKind.READ,
    )


def is_link_to_protected(workspace: Path, path: str, hides: Callable[[str], bool]) -> bool:
    """Return True if the path resolves to a protected file under another name."""
    try:
        real = folder.resolve_path(workspace, path).as_posix()
    except folder.PathRefused:
        return False
    return real != relative_path(workspace, path) and hides(real)


def _read_page(workspace: Path, path: str, offset: int, limit: int) -> str:
    shown: list[str] = []
    room, at, more = MAX_READ_CHARS, 0, False
    try:
        for at, line in enumerate(_read_lines(workspace, path), 1):
            if at < offset:
                continue
            text = f"{at}\t{_shorten_line(line)}"
            if len(shown) == limit or (shown and len(text) >= room):
                more = True
                break
            shown.append(text)
            room -= len(text) + 1
    except folder.PathRefused as error:
        return f"{ERROR_PREFIX}{error}"
    if not at:
        return "[the file is empty]"
    if not shown:
        return f"{ERROR_PREFIX}line {offset} is past the end; the file has {at} lines"
    note = [f"[read on with offset {at}]"] if more else []
    return "\n".join([*shown, *note])


def _read_lines(workspace: Path, path: str) -> Iterator[str]:
    """Yield lines without LF or CRLF. Raises PathRefused for binary files."""
    rest, at, size = b"", 0, 1
    while at < size:
        chunk, size = folder.read_bytes(workspace, path, offset=at, limit=_CHUNK_BYTES)
        if not chunk:
            break
        if at == 0:
            chunk = chunk.removeprefix(b"\xef\xbb\xbf")
            at = min(size, _CHUNK_BYTES)
        else:
            at += len(chunk)
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield folder.decode_text(line, path).removesuffix("\r")
        if len(rest) > _CHUNK_BYTES:
            # The rest of an overlong line is not shown anyway.
            yield rest[:_CHUNK_BYTES].decode("utf-8", "ignore")
            return
    if rest:
        yield folder.decode_text(rest, path).removesuffix("\r")


def _shorten_line(line: str) -> str:
    if len(line) <= MAX_LINE_CHARS:
        return line
    return f"{line[:MAX_LINE_CHARS]}… [{len(line) - MAX_LINE_CHARS} more characters]"


MAX_LISTED = 100
MAX_WALKED = 50_000
_LIST_SCHEMA = object_schema(
    path="The folder. Default: the workspace.",
    pattern={
        "type": "string",
        "maxLength": 200,
        "description": "By name (*.py), at any depth, or by path (src/*/test_*.py).",
    },
)


def list_tool(workspace: Path) -> AgentTool:
    async def run(arguments: Mapping[str, Any]) -> str:
        path, pattern = str(arguments.get("path") or "."), str(arguments.get("pattern") or "")
        try:
            if pattern:
                return await asyncio.to_thread(_find_files, workspace, path, pattern)
            return await asyncio.to_thread(_list_folder, workspace, path)
        except folder.PathRefused as error:
            return f"{ERROR_PREFIX}{error}"

    return AgentTool(
        name="list",
        description=(
            "List a folder, with sizes in bytes; or find files below it by a pattern. At most"
            f" {MAX_LISTED} are shown."
        ),
        schema=_LIST_SCHEMA,
        run=run,
        kind=CallKind.SEARCH,
    )


def _list_folder(workspace: Path, path: str) -> str:
    entries, total = folder.list_folder(workspace, path)
    if not entries:
        return "[the folder is empty]"
    shown = entries[:MAX_LISTED]
    more = [f"[{total - len(shown)} more are not shown]"] if total > len(shown) else []
    return "\n".join([*map(_entry_line, shown), *more])


def _find_files(workspace: Path, path: str, pattern: str) -> str:
    walked = islice(folder.walk(workspace, path, skip=SKIPPED_FOLDERS), MAX_WALKED)
    found = (one for one in walked if not one.is_folder and matches_glob(one.name, pattern))
    shown = list(islice(found, MAX_LISTED + 1))
    if not shown:
        return "[no file fits]"
    more = (
        [f"[more than {MAX_LISTED} fit; the others are not shown]"]
        if len(shown) > MAX_LISTED
        else []
    )
    return "\n".join([*map(_entry_line, shown[:MAX_LISTED]), *more])


def _entry_line(one: folder.FolderEntry) -> str:
    return f"{one.name}/" if one.is_folder else f"{one.name}\t{one.size}"


_GREP_SCHEMA = object_schema(
    "pattern",
    pattern={"type": "string", "maxLength": 500},
    path="A folder or file. Default: the workspace.",
    glob={
        "type": "string",
        "maxLength": 200,
        "description": "By name (*.py) or by path (src/*.md).",
    },
)


def grep_tool(workspace: Path, protected: ReadProtectedFiles | None = None) -> AgentTool:
    """Build the tool; `protected` files are skipped and counted."""
    patterns = protected.patterns if protected else ()

    async def run(arguments: Mapping[str, Any]) -> str:
        path = str(arguments.get("path") or ".")
        found = await search_files(
            TextSearch(
                workspace=str(workspace),
                pattern=str(arguments["pattern"]),
                path=path,
                named=relative_path(workspace, path),
                glob=str(arguments.get("glob") or ""),
                closed=patterns,
            )
        )
        if found.problem:
            return f"{ERROR_PREFIX}{found.problem}"
        passed = f"[{found.protected_count} files were not searched: a rule protects them]"
        notes = [found.truncation_note, passed if found.protected_count else ""]
        lines = [*found.lines, *filter(None, notes)]
        return "\n".join(lines) or "[no line fits]"

    return AgentTool(
        name="grep",
        description=(
            "Find lines in text files by a Python regular expression, as path:line: text."
            f" At most {MAX_HITS} lines and 10 seconds."
        ),
        schema=_GREP_SCHEMA,
        run=run,
        kind=CallKind.SEARCH,
    )
