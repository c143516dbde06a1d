"""What a call is about: which of our tools it amounts to, and its command, paths or URL."""

from __future__ import annotations

import json
import posixpath
import shlex
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from bot.engine.agent.policy.rules import folded
from bot.engine.agent.web.urls import Url, url_of
from bot.engine.llm.calls import CallKind, ToolCall


class Does(StrEnum):
    """LOOK: within the workspace, or at what the house remembers. ELSE: nobody can tell."""

    LOOK = "look"
    CHANGE = "change"
    RUN = "run"
    FETCH = "fetch"
    SPAWN = "spawn"
    ELSE = "else"


_DOES = {
    "read": Does.LOOK, "list": Does.LOOK, "grep": Does.LOOK, "write": Does.CHANGE,
    "edit": Does.CHANGE, "exec": Does.RUN, "web_fetch": Does.FETCH, "sessions_spawn": Does.SPAWN,
    "memory_search": Does.LOOK, "memory_get": Does.LOOK, "skill_load": Does.LOOK,
    "history_grep": Does.LOOK, "history_describe": Does.LOOK, "history_expand": Does.LOOK,
    "ask_user": Does.LOOK, "propose_task": Does.LOOK,
}  # fmt: skip
OWN = frozenset(_DOES)

# Those that a coding CLI has from us, under the name of our server.
_LENT = {
    f"mcp__shiftboss__{name}": name
    for name in (
        "memory_search", "memory_get", "history_grep", "history_describe", "history_expand",
    )
}  # fmt: skip

# What coding agents call the same things, and the kinds of the Agent Client Protocol.
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
_BY_KIND = {
    CallKind.EXECUTE: "exec",
    CallKind.EDIT: "edit",
    CallKind.DELETE: "edit",
    CallKind.MOVE: "edit",
}
_PATHS = (
    "path", "file", "file_path", "filePath", "filename", "notebook_path", "abs_path",
    "absolute_path", "paths", "files", "old_path", "new_path", "source", "destination",
    "directory", "dir_path", "dir",
)  # fmt: skip
_LONGEST = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """`paths` are relative to the workspace where they lie within it, absolute elsewhere;
    `pattern` is what leave for more than one call would cover."""

    tool: str
    does: Does
    command: str = ""
    paths: tuple[str, ...] = ()
    url: Url | None = None
    pattern: str = ""


def subject_of(call: ToolCall, workspace: Path) -> Subject:
    tool = tool_of(call)
    does = _DOES.get(tool, Does.ELSE)
    if tool == "exec":
        command = _command(call)
        pattern = command.strip()
        return Subject(tool=tool, does=does, command=command, pattern=pattern)
    if tool == "web_fetch":
        url = url_of(str(call.arguments.get("url") or ""))
        return Subject(tool=tool, does=does, url=url, pattern=url.site if url else "")
    if does in {Does.LOOK, Does.CHANGE} and tool in {"read", "list", "grep", "write", "edit"}:
        paths = tuple(within(workspace, path) for path in _paths(tool, call.arguments))
        return Subject(tool=tool, does=does, paths=paths, pattern="\n".join(paths))
    exact = json.dumps(call.arguments, ensure_ascii=False, sort_keys=True, default=str)
    return Subject(tool=tool, does=does, pattern=exact if len(exact) <= _LONGEST else "")


def tool_of(call: ToolCall) -> str:
    """Our name for what the call's tool does, or else its own."""
    name = folded(call.name).replace("-", "_")
    name = _ALIASES.get(name, _LENT.get(name, name))
    return name if name in OWN else _BY_KIND.get(call.kind, name)


def within(workspace: Path, path: str) -> str:
    """A path relative to the workspace, or an absolute one if it leads outside. By its letters
    alone: where links lead is for those who open it."""
    text = unicodedata.normalize("NFC", path) or "."
    root = workspace.as_posix()
    if text.startswith("~"):
        return text
    plain = "/" + posixpath.normpath(posixpath.join(root, text)).lstrip("/")
    if plain == root:
        return "."
    return plain.removeprefix(f"{root}/")


def is_outside(path: str) -> bool:
    return path.startswith(("/", "~"))


def _command(call: ToolCall) -> str:
    """As a string, or as the words of a coding agent; failing these, what it shows to people."""
    for key in ("command", "cmd"):
        value = call.arguments.get(key)
        if isinstance(value, str):
            return value
        if isinstance(value, list):
            return shlex.join(map(str, value))
    return call.detail


def _paths(tool: str, arguments: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    for key in _PATHS:
        value = arguments.get(key)
        found += [value] if isinstance(value, str) else []
        found += map(str, value) if isinstance(value, list) else []
    if not found and tool in {"list", "grep"}:
        return ["."]
    return found
