"""Tools that write and edit text files, and the diffs shown for approval."""

from __future__ import annotations

import asyncio
import difflib
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from bot.engine.llm import workspace_files as folder
from bot.engine.llm.file_syntax import find_syntax_fault
from bot.engine.llm.tool_calls import ERROR_PREFIX, AgentTool, CallKind, object_schema

MAX_DIFF_CHARS = 8_000
_MAX_COMPARED_LINES = 4_000
_FEW_LINES = 4
_TRUNCATED_NOTE = "[{} more lines are not shown]"


def unified_diff(path: str, old: str, new: str) -> str:
    """Return a unified diff, truncated with a note; empty without changes."""
    before, after = old.split("\n"), new.split("\n")
    if before == after:
        return ""
    heads = (f"--- {path}", f"+++ {path}")
    if len(before) + len(after) > _MAX_COMPARED_LINES:
        # Comparison time is quadratic, so large changes are shown as one block.
        return _truncate(chain(heads, _replaced_block(before, after)))
    lines = difflib.unified_diff(before, after, *heads, lineterm="")
    return _truncate(chain(heads, list(lines)[2:]))


def _replaced_block(before: list[str], after: list[str]) -> Iterable[str]:
    head, shortest = 0, min(len(before), len(after))
    while head < shortest and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < shortest - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    gone, come = before[head : len(before) - tail], after[head : len(after) - tail]
    yield f"@@ -{head + 1},{len(gone)} +{head + 1},{len(come)} @@"
    yield from (f"-{line}" for line in gone)
    yield from (f"+{line}" for line in come)


def _truncate(lines: Iterable[str]) -> str:
    shown: list[str] = []
    room, left = MAX_DIFF_CHARS, 0
    for line in lines:
        text = line if len(line) <= room or shown else f"{line[:room]}…"
        if left or len(text) > room:
            left += 1
            continue
        shown.append(text)
        room -= len(text) + 1
    return "\n".join([*shown, _TRUNCATED_NOTE.format(left)] if left else shown)


_WRITE_SCHEMA = object_schema(
    "path",
    "content",
    path="Relative to the workspace.",
    content="The whole new content.",
)


def write_tool(workspace: Path) -> AgentTool:
    async def run(arguments: Mapping[str, Any]) -> str:
        path, content = str(arguments["path"]), str(arguments["content"])
        return await asyncio.to_thread(_write, workspace, path, content)

    async def detail(arguments: Mapping[str, Any]) -> str:
        path, content = str(arguments.get("path", "")), str(arguments.get("content", ""))
        return await asyncio.to_thread(_write_diff, workspace, path, content)

    return AgentTool(
        name="write",
        description=(
            "Write a text file, making its folders; an existing file is replaced."
            f" At most {folder.MAX_WRITE // 1_000_000} MB."
        ),
        schema=_WRITE_SCHEMA,
        run=run,
        kind=CallKind.EDIT,
        detail=detail,
    )


class DamagesFile(Exception):
    """The new content would break a file that is valid now; the text is for the model."""


def replace_file(workspace: Path, path: str, content: str) -> str:
    """Write a file; returns what to tell the model. Blocking. Raises PathRefused and DamagesFile,
    and then has changed nothing."""
    old = _read_before(workspace, path)
    if fault := _damage(path, old, content):
        raise DamagesFile(
            f"not written: {path} would be {fault}. It is valid as it is now, and it"
            " stays so. Write it correctly, or change only a part of it with edit."
        )
    written = folder.write_text(workspace, path, content)
    notes = (_loss_note(old, content), _syntax_note(written, old, content))
    return " ".join(filter(None, (f"Wrote {written} ({len(content)} characters).", *notes)))


def _write(workspace: Path, path: str, content: str) -> str:
    try:
        return replace_file(workspace, path, content)
    except (folder.PathRefused, DamagesFile) as error:
        return f"{ERROR_PREFIX}{error}"


def _read_before(workspace: Path, path: str) -> str:
    """The text that is about to be replaced; empty if there is none."""
    try:
        return folder.read_text(workspace, path, limit=folder.MAX_WRITE)
    except folder.PathRefused:
        return ""


def _loss_note(old: str, new: str) -> str:
    """Tell a worker that was to change a part what it may not have meant to do."""
    before = Counter(line.strip() for line in old.splitlines() if line.strip())
    total = before.total()
    if total < _FEW_LINES:
        return ""
    kept = (before & Counter(line.strip() for line in new.splitlines())).total()
    if kept * 2 >= total:
        return ""
    return (
        f"It had {total} lines, and {kept} of them are still there: if you were to change only a"
        " part of it, put the rest back."
    )


def _damage(path: str, old: str, new: str) -> str:
    """Why the new text can't be parsed, if the old one could; else empty."""
    fault = find_syntax_fault(path, new.encode("utf-8", "replace")) if old else ""
    is_sound = bool(fault) and find_syntax_fault(path, old.encode("utf-8", "replace")) == ""
    return fault or "" if is_sound else ""


def _syntax_note(path: str, old: str, new: str) -> str:
    if old:
        fault = _damage(path, old, new)
        return f"But now it is {fault}. Before, it was valid: repair it." if fault else ""
    fault = find_syntax_fault(path, new.encode("utf-8", "replace")) or ""
    # A template may be meant.
    is_template = "{{" in new or "{%" in new
    return f"Note that it is {fault}." if fault and not is_template else ""


def _write_diff(workspace: Path, path: str, content: str) -> str:
    try:
        old = folder.read_text(workspace, path, limit=folder.MAX_WRITE)
    except folder.PathRefused as error:
        if error.refusal is folder.PathRefusal.MISSING:
            old = ""
        elif error.refusal in {folder.PathRefusal.BINARY, folder.PathRefusal.TOO_LARGE}:
            return f"[replaces {path}, which is {error.refusal.text}]\n" + unified_diff(
                path, "", content
            )
        else:
            return f"{ERROR_PREFIX}{error}"
    return unified_diff(path, old, content) or f"[{path} stays as it is]"


_EDIT_SCHEMA = object_schema(
    "path",
    "old",
    "new",
    path="",
    old=(
        "The text to replace, exactly as it stands in the file, without line"
        " numbers. It must occur once, unless `all` is set."
    ),
    new="",
    all={"type": "boolean", "description": "Replace every occurrence. Default false."},
)


class _EditMismatch(Exception):
    """`old` does not occur in the file, or not exactly once."""


def edit_tool(workspace: Path) -> AgentTool:
    async def run(arguments: Mapping[str, Any]) -> str:
        return await asyncio.to_thread(_apply_edit, workspace, arguments)

    async def detail(arguments: Mapping[str, Any]) -> str:
        return await asyncio.to_thread(_edit_diff, workspace, arguments)

    return AgentTool(
        name="edit",
        description="Replace a piece of a text file by another. Read the file first.",
        schema=_EDIT_SCHEMA,
        run=run,
        kind=CallKind.EDIT,
        detail=detail,
    )


def _apply_edit(workspace: Path, arguments: Mapping[str, Any]) -> str:
    try:
        old, new, times = _edited_text(workspace, arguments)
        written = folder.write_text(workspace, str(arguments["path"]), new)
    except (folder.PathRefused, _EditMismatch) as error:
        return f"{ERROR_PREFIX}{error}"
    told = f"Changed {written} in {times} place{'s' if times > 1 else ''}."
    return " ".join(filter(None, (told, _syntax_note(written, old, new))))


def _edit_diff(workspace: Path, arguments: Mapping[str, Any]) -> str:
    try:
        old, new, _ = _edited_text(workspace, arguments)
    except (folder.PathRefused, _EditMismatch) as error:
        return f"{ERROR_PREFIX}{error}"
    return unified_diff(str(arguments["path"]), old, new)


def _edited_text(workspace: Path, arguments: Mapping[str, Any]) -> tuple[str, str, int]:
    """Return the text before and after, and the number of replacements."""
    path = str(arguments.get("path", ""))
    old, new = str(arguments.get("old", "")), str(arguments.get("new", ""))
    text = _read_whole(workspace, path)
    if "\r\n" in text and "\r" not in old:
        # Models write LF; keep the CRLF line ends of the file.
        old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
    times = text.count(old) if old else 0
    _check_match(path, text, old, times, every=bool(arguments.get("all")))
    if old == new:
        raise _EditMismatch(f"{path!r}: `old` and `new` are the same; nothing to change")
    return text, text.replace(old, new), times


def _check_match(path: str, text: str, old: str, times: int, *, every: bool) -> None:
    if not old:
        raise _EditMismatch("`old` is empty; to make a file or replace all of it, use write")
    if times == 0:
        near = " (only with other blanks)" if _without_blanks(old) in _without_blanks(text) else ""
        raise _EditMismatch(f"{path!r}: the file does not contain `old`{near}; read it again")
    if times > 1 and not every:
        raise _EditMismatch(
            f"{path!r}: `old` occurs {times} times; give more of the text around it, or set `all`"
        )


def _read_whole(workspace: Path, path: str) -> str:
    """Read the text with its line ends and byte order mark."""
    data, size = folder.read_bytes(workspace, path, limit=folder.MAX_WRITE)
    if size > folder.MAX_WRITE:
        raise folder.PathRefused(folder.PathRefusal.TOO_LARGE, path)
    return folder.decode_text(data, path)


def _without_blanks(text: str) -> str:
    return "".join(text.split())
