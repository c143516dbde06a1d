"""Maps a tool call to our equivalent tool and extracts its command, paths or URL."""

from __future__ import annotations

import json
import os
import posixpath
import shlex
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from bot.engine.llm.tool_calls import CallKind, ToolCall
from bot.engine.permissions.rules import normalize_text
from bot.engine.web.urls import WebUrl, parse_url


class CallEffect(StrEnum):
    """The effect of a call. READ is limited to the workspace and Shiftboss's own data; UNKNOWN is
    undetermined."""

    READ = "look"
    CHANGE = "change"
    RUN = "run"
    FETCH = "fetch"
    SPAWN = "spawn"
    UNKNOWN = "else"


_EFFECTS = {
    "read": CallEffect.READ,
    "list": CallEffect.READ,
    "grep": CallEffect.READ,
    "write": CallEffect.CHANGE,
    "edit": CallEffect.CHANGE,
    "exec": CallEffect.RUN,
    "web_fetch": CallEffect.FETCH,
    "sessions_spawn": CallEffect.SPAWN,
    "memory_search": CallEffect.READ,
    "memory_get": CallEffect.READ,
    "skill_load": CallEffect.READ,
    "history_grep": CallEffect.READ,
    "history_describe": CallEffect.READ,
    "history_expand": CallEffect.READ,
    "ask_user": CallEffect.READ,
    "propose_task": CallEffect.READ,
}
OWN_TOOLS = frozenset(_EFFECTS)

# Tools lent to coding CLIs, named after our MCP server.
_LENT_TOOLS = {
    f"mcp__shiftboss__{name}": name
    for name in (
        "memory_search", "memory_get", "history_grep", "history_describe", "history_expand",
    )
}  # fmt: skip

# Names that coding agents use for equivalent tools, and kinds of the Agent Client Protocol.
_ALIASES = {
    "bash": "exec", "shell": "exec", "terminal": "exec", "execute": "exec", "local_shell": "exec",
    "run_shell_command": "exec", "run_command": "exec", "execute_command": "exec",
    "exec_command": "exec", "read_file": "read", "view": "read", "read_many_files": "read",
    "notebookread": "read", "write_file": "write", "create": "write", "create_file": "write",
    "edit_file": "edit", "replace": "edit", "str_replace": "edit", "multiedit": "edit",
    "notebookedit": "edit", "apply_patch": "edit", "patch": "edit", "delete": "edit",
    "move": "edit", "ls": "list", "list_files": "list", "list_directory": "list", "glob": "list",
    "search": "grep", "search_file_content": "grep", "grep_search": "grep", "ripgrep": "grep",
    "webfetch": "web_fetch", "fetch": "web_fetch",
}  # fmt: skip
_TOOL_BY_KIND = {
    CallKind.EXECUTE: "exec",
    CallKind.EDIT: "edit",
    CallKind.DELETE: "edit",
    CallKind.MOVE: "edit",
}
_PATH_ARGUMENTS = (
    "path", "file", "file_path", "filePath", "filename", "notebook_path", "abs_path",
    "absolute_path", "paths", "files", "old_path", "new_path", "source", "destination",
    "directory", "dir_path", "dir",
)  # fmt: skip
_MAX_PATTERN_CHARS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSubject:
    """The subject of a call.

    `paths` are relative within the workspace, else absolute, with those that links lead to;
    `pattern` is what a permission beyond this call would cover."""

    tool: str
    effect: CallEffect
    command: str = ""
    paths: tuple[str, ...] = ()
    url: WebUrl | None = None
    pattern: str = ""


def classify_call(call: ToolCall, workspace: Path) -> CallSubject:
    tool = canonical_tool(call)
    does = _EFFECTS.get(tool, CallEffect.UNKNOWN)
    if tool == "exec":
        command = _command_text(call)
        pattern = command.strip()
        return CallSubject(tool=tool, effect=does, command=command, pattern=pattern)
    if tool == "web_fetch":
        url = parse_url(str(call.arguments.get("url") or ""))
        return CallSubject(tool=tool, effect=does, url=url, pattern=url.site if url else "")
    if does in {CallEffect.READ, CallEffect.CHANGE} and tool in {
        "read",
        "list",
        "grep",
        "write",
        "edit",
    }:
        paths = tuple(
            dict.fromkeys(
                each
                for path in _path_arguments(tool, call.arguments)
                for each in named_paths(workspace, path)
            )
        )
        return CallSubject(tool=tool, effect=does, paths=paths, pattern="\n".join(paths))
    exact = json.dumps(call.arguments, ensure_ascii=False, sort_keys=True, default=str)
    return CallSubject(
        tool=tool, effect=does, pattern=exact if len(exact) <= _MAX_PATTERN_CHARS else ""
    )


def canonical_tool(call: ToolCall) -> str:
    """Return our name for the call's tool, else its own."""
    name = normalize_text(call.name).replace("-", "_")
    name = _ALIASES.get(name, _LENT_TOOLS.get(name, name))
    return name if name in OWN_TOOLS else _TOOL_BY_KIND.get(call.kind, name)


def relative_path(workspace: Path, path: str) -> str:
    """Return the path relative to the workspace, or an absolute path if it is outside.

    Links are not resolved: see `named_paths`."""
    text = unicodedata.normalize("NFC", path) or "."
    root = workspace.as_posix()
    if text.startswith("~"):
        return text
    plain = "/" + posixpath.normpath(posixpath.join(root, text)).lstrip("/")
    if plain == root:
        return "."
    return plain.removeprefix(f"{root}/")


def named_paths(workspace: Path, path: str) -> tuple[str, ...]:
    """Return the path as `relative_path`, and the one that links in it lead to, if any."""
    plain = relative_path(workspace, path)
    if plain.startswith("~") or "\0" in plain:
        return (plain,)
    root = os.path.realpath(workspace)
    target = os.path.realpath(workspace / plain)
    led = "." if target == root else target.removeprefix(f"{root.rstrip('/')}/")
    return (plain,) if led == plain or not _has_link(workspace, plain) else (plain, led)


def _has_link(workspace: Path, plain: str) -> bool:
    """Whether a part of the path below the workspace is a link."""
    at = workspace
    for part in Path(plain).parts:
        at = at / part
        if at.is_symlink():
            return True
    return False


def is_outside(path: str) -> bool:
    return path.startswith(("/", "~"))


def _command_text(call: ToolCall) -> str:
    """Return the command argument, else the detail shown to people."""
    for key in ("command", "cmd"):
        value = call.arguments.get(key)
        if isinstance(value, str):
            return value
        if isinstance(value, list):
            return shlex.join(map(str, value))
    return call.detail


def _path_arguments(tool: str, arguments: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    for key in _PATH_ARGUMENTS:
        value = arguments.get(key)
        found += [value] if isinstance(value, str) else []
        found += map(str, value) if isinstance(value, list) else []
    if not found and tool in {"list", "grep"}:
        return ["."]
    return found


SESSIONS_SPAWN = "sessions_spawn"
