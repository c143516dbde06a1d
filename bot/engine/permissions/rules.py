"""Parses and matches permission rules of the form `tool` or `tool(glob)`, and maps calls to the
tools and values that rules name."""

from __future__ import annotations

import json
import os
import posixpath
import re
import shlex
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import translate
from functools import lru_cache
from pathlib import Path
from typing import Any

from bot.engine.llm.tool_calls import CallKind, ToolCall
from bot.engine.web import WebUrl, parse_url

# --- rules of the form `tool` or `tool(glob)`
# Deny and ask rules match loosely, ignoring case and Unicode variants; allow rules match exactly,
# and only if the glob covers any value of unknown parts.

UNKNOWN_TEXT = "\ue000"
"""Placeholder for text that is only known when the command runs."""

_TOOL_NAME = re.compile(r"[\w.*?\-]+")
_MAX_RULE_CHARS = 500
_MAX_COMPARISONS = 100_000
"""Beyond this many comparisons, globs count as overlapping."""


class PermissionRuleError(ValueError):
    """The text is not of the form `tool` or `tool(glob)`."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text[:80]!r} is not of the form tool or tool(pattern)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionRule:
    """`tool` is a glob of tool names; an empty `pattern` matches every call."""

    tool: str
    pattern: str = ""

    def __str__(self) -> str:
        return f"{self.tool}({self.pattern})" if self.pattern else self.tool

    def applies_to(self, tool: str) -> bool:
        return bool(_glob(normalize_text(self.tool)).fullmatch(normalize_text(tool)))

    def covers(self, text: str) -> bool:
        """Match exactly, for any value of unknown parts; for allow rules."""
        return not self.pattern or bool(_strict_glob(self.pattern).fullmatch(text))

    def matches(self, text: str) -> bool:
        """Match loosely; for deny and ask rules."""
        return not self.pattern or bool(
            _glob(normalize_text(self.pattern)).fullmatch(normalize_text(text))
        )

    def may_match(self, text: str) -> bool:
        """Return whether the pattern matches for some value of unknown parts."""
        if UNKNOWN_TEXT not in text:
            return self.matches(text)
        return not self.pattern or _globs_overlap(
            normalize_text(self.pattern), normalize_text(text).replace(UNKNOWN_TEXT, "*")
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionRules:
    """Deny takes precedence over ask, and ask over allow."""

    deny: tuple[PermissionRule, ...] = ()
    ask: tuple[PermissionRule, ...] = ()
    allow: tuple[PermissionRule, ...] = ()


def parse_rules(text: str) -> tuple[PermissionRule, ...]:
    """Parse rules separated by commas, semicolons or lines outside parentheses. Raises
    PermissionRuleError."""
    return tuple(_parse_rule(piece) for piece in _split_rules(text) if piece)


@lru_cache(maxsize=2048)
def normalize_text(text: str) -> str:
    """Unify text that looks or works alike: case, width and invisible characters."""
    plain = unicodedata.normalize("NFKC", text)
    seen = "".join(one for one in plain if unicodedata.category(one) != "Cf")
    return " ".join(unicodedata.normalize("NFKC", seen.casefold()).split())


def first_match(
    rules: Iterable[PermissionRule], tool: str, texts: Iterable[str]
) -> PermissionRule | None:
    heard = tuple(texts)
    return next(
        (r for r in rules if r.applies_to(tool) and (not r.pattern or any(map(r.matches, heard)))),
        None,
    )


def first_possible_match(
    rules: Iterable[PermissionRule], tool: str, texts: Iterable[str]
) -> PermissionRule | None:
    heard = tuple(texts)
    return next((r for r in rules if r.applies_to(tool) and any(map(r.may_match, heard))), None)


def _parse_rule(piece: str) -> PermissionRule:
    name = _TOOL_NAME.match(piece)
    if name is None or len(piece) > _MAX_RULE_CHARS:
        raise PermissionRuleError(piece)
    rest = piece[name.end() :].strip()
    if not rest:
        return PermissionRule(tool=name[0])
    if not (rest.startswith("(") and rest.endswith(")")) or not rest[1:-1].strip():
        raise PermissionRuleError(piece)
    return PermissionRule(tool=name[0], pattern=rest[1:-1].strip())


def _split_rules(text: str) -> list[str]:
    pieces, depth = [""], 0
    for one in text:
        depth += (one == "(") - (one == ")" and depth > 0)
        if depth == 0 and one in ",;\n":
            pieces.append("")
        else:
            pieces[-1] += one
    return [piece.strip() for piece in pieces]


@lru_cache(maxsize=512)
def _glob(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))


@lru_cache(maxsize=512)
def _strict_glob(pattern: str) -> re.Pattern[str]:
    """Compile a glob in which only `*` matches an unknown part.

    Atomic groups keep matching linear."""
    first, *rest = (_literal_pattern(part) for part in re.split(r"\*+", pattern))
    if not rest:
        return re.compile(first, re.DOTALL)
    between = "".join(f"(?>.*?{part})" for part in rest[:-1])
    return re.compile(f"{first}{between}.*{rest[-1]}", re.DOTALL)


def _literal_pattern(part: str) -> str:
    return re.escape(part).replace(r"\?", f"[^{UNKNOWN_TEXT}]")


def _globs_overlap(one: str, other: str) -> bool:
    """Return whether some text matches both globs; a bracket expression counts as any character."""
    left, right = _glob_units(one), _glob_units(other)
    if len(left) * len(right) > _MAX_COMPARISONS:
        return True
    reach = {(0, 0)}
    todo = [(0, 0)]
    while todo:
        at, to = todo.pop()
        for step in _overlap_steps(left, right, at, to) - reach:
            reach.add(step)
            todo.append(step)
    return (len(left), len(right)) in reach


def _overlap_steps(left: list[str], right: list[str], at: int, to: int) -> set[tuple[int, int]]:
    steps: set[tuple[int, int]] = set()
    mine = left[at] if at < len(left) else ""
    theirs = right[to] if to < len(right) else ""
    if mine == "*":
        steps |= {(at + 1, to)} | ({(at, to + 1)} if theirs else set())
    if theirs == "*":
        steps |= {(at, to + 1)} | ({(at + 1, to)} if mine else set())
    if mine and theirs and "*" not in (mine, theirs) and (mine == theirs or "?" in (mine, theirs)):
        steps.add((at + 1, to + 1))
    return steps


def _glob_units(glob: str) -> list[str]:
    return re.findall(r".", re.sub(r"\[[^\]]*\]", "?", glob), re.DOTALL)


_READING_TOOLS = ("read", "grep")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadProtectedFiles:
    """Files whose contents tools must skip unless they are requested by name; their names stay
    visible.

    `patterns` come from deny and ask rules for reading."""

    patterns: Sequence[str] = ()

    def is_protected(self, path: str) -> bool:
        """`path` is relative to the workspace."""
        rules = (PermissionRule(tool="read", pattern=pattern) for pattern in self.patterns)
        return any(rule.matches(path) or rule.matches(f"./{path}") for rule in rules)


def protected_by(rules: PermissionRules) -> ReadProtectedFiles:
    """Collect the patterns; rules without a pattern concern tools, not files."""
    named = (rule for rule in rules.deny + rules.ask if rule.pattern)
    found = (rule.pattern for rule in named if any(map(rule.applies_to, _READING_TOOLS)))
    return ReadProtectedFiles(patterns=tuple(dict.fromkeys(found)))


# --- which of our tools a call stands for, and its command, paths or URL


class CallEffect(StrEnum):
    """The effect of a call. READ is limited to the workspace and Shiftboss's own data; UNKNOWN is
    undetermined."""

    READ = "look"
    CHANGE = "change"
    RUN = "run"
    FETCH = "fetch"
    SEND = "send"
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
    "http_request": CallEffect.SEND,
    "sessions_spawn": CallEffect.SPAWN,
    "memory_search": CallEffect.READ,
    "memory_get": CallEffect.READ,
    # They change nothing: a person decides about what they propose.
    "memory_propose": CallEffect.READ,
    "page_read": CallEffect.READ,
    "page_edit": CallEffect.READ,
    "skill_load": CallEffect.READ,
    "history_grep": CallEffect.READ,
    "history_describe": CallEffect.READ,
    "history_expand": CallEffect.READ,
    "ask_user": CallEffect.READ,
    "propose_task": CallEffect.READ,
    # What a CLI announces; `feishu_read` itself is authorized by the server that lends it.
    "mcp__shiftboss__feishu_read": CallEffect.READ,
}
OWN_TOOLS = frozenset(_EFFECTS)

# Tools lent to coding CLIs, named after our MCP server.
_LENT_TOOLS = {
    f"mcp__shiftboss__{name}": name
    for name in (
        "memory_search", "memory_get", "history_grep", "history_describe", "history_expand",
        "memory_propose", "page_read", "page_edit",
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
    if tool == "http_request":
        url = parse_url(str(call.arguments.get("url") or ""))
        method = str(call.arguments.get("method") or "")[:20].upper()
        pattern = f"{method} {url}" if url and method else ""
        return CallSubject(tool=tool, effect=does, url=url, pattern=pattern[:_MAX_PATTERN_CHARS])
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
    """Return the path as `relative_path`, and those that links in it lead to, if any."""
    plain = relative_path(workspace, path)
    if plain.startswith("~") or "\0" in plain:
        return (plain,)
    ways = [plain] if _has_link(workspace, plain) else []
    if ".." in Path(path).parts:
        # The folder above a link's target is not the one above the link.
        ways.append(path)
    root = os.path.realpath(workspace)
    targets = (os.path.realpath(workspace / each) for each in ways)
    led = ("." if each == root else each.removeprefix(f"{root.rstrip('/')}/") for each in targets)
    return tuple(dict.fromkeys((plain, *led)))


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
