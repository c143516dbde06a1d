"""Translates a CLI's updates into events; unknown updates are skipped because CLIs differ."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, Literal

from bot.engine.llm.backend import (
    AgentEvent,
    PlanEntry,
    PlanUpdated,
    TextDelta,
    ThoughtDelta,
    ToolFinished,
    ToolStarted,
    ToolUpdated,
)
from bot.engine.llm.tool_calls import ERROR_PREFIX, CallKind, ToolCall

_MAX_TITLE = 200
_MAX_OUTPUT = 2_000
_MAX_DIFF = 20_000
_MAX_LINES = 4_000
_MAX_ENTRIES = 50
_MAX_SUMMARY = 200
_MAX_CALLS = 500
_MAX_CHUNK = 20_000

# Mapped to our own tools' names, which rules and permissions refer to.
_TOOL_NAMES = {
    CallKind.READ: "read",
    CallKind.EDIT: "edit",
    CallKind.SEARCH: "grep",
    CallKind.EXECUTE: "exec",
    CallKind.FETCH: "web_fetch",
    CallKind.DELETE: "delete",
    CallKind.MOVE: "move",
}
_WORKING_FOLDER = re.compile(r"\[(?:in|current working directory) ([^\]]+)\]")
_SHELLS = {"sh", "bash", "dash", "zsh"}
_PATH_KEYS = ("path", "file_path", "filePath", "absolute_path", "filepath", "file")


@dataclass(frozen=True, slots=True, kw_only=True)
class _TrackedCall:
    """The merged state of a call, because updates contain only changes.

    `has_arguments` is True if the arguments were sent."""

    call: ToolCall
    has_arguments: bool = False
    announced: bool = False
    finished: bool = False
    diff: str = ""
    output: str = ""


class AcpCallTracker:
    """Merges the updates of a run's calls; for `command_in_title` see AcpAgentConfig."""

    def __init__(self, *, command_in_title: bool = False) -> None:
        self._command_in_title = command_in_title
        self._tracked: dict[str, _TrackedCall] = {}

    def events(self, update: Mapping[str, Any]) -> Iterator[AgentEvent]:
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                yield from (TextDelta(text=text) for text in _texts(update.get("content")))
            case "agent_thought_chunk":
                yield from (ThoughtDelta(text=text) for text in _texts(update.get("content")))
            case "plan":
                yield _plan(update.get("entries"))
            case "tool_call" | "tool_call_update":
                yield from self._call_events(update)
            case _:
                pass

    def requested_call(self, tool_call: Mapping[str, Any]) -> ToolCall:
        """Return the call of a permission request, merged with earlier updates."""
        known = self._merge_update(tool_call)
        return (
            known.call
            if known.has_arguments
            else _identify_by_content(known.call, tool_call, self._command_in_title)
        )

    def announce(self, call: ToolCall) -> Iterator[AgentEvent]:
        """Emit the start of a call that the CLI requests before announcing it."""
        known = self._tracked.get(call.call_id, _TrackedCall(call=call))
        if not known.announced:
            self._tracked[call.call_id] = replace(known, announced=True)
            yield _started_event(call)

    def _call_events(self, update: Mapping[str, Any]) -> Iterator[AgentEvent]:
        before = self._tracked.get(str(update.get("toolCallId", "")))
        known = self._merge_update(update)
        if known.finished:
            return
        # Many CLIs announce a command before they say which one.
        renamed = (
            known.call.kind is CallKind.EXECUTE
            and before is not None
            and _shown_title(before.call) != _shown_title(known.call)
        )
        if renamed or not known.announced:
            yield _started_event(known.call)
            known = replace(known, announced=True)
        diff = known.diff if before is None or known.diff != before.diff else ""
        output = known.output if before is None or known.output != before.output else ""
        if diff or output:
            yield ToolUpdated(call_id=known.call.call_id, diff=diff, output=output)
        if (status := update.get("status")) in {"completed", "failed"}:
            good = status == "completed"
            summary = known.output.strip().split("\n", 1)[0][:_MAX_SUMMARY]
            yield ToolFinished(call_id=known.call.call_id, succeeded=good, summary=summary)
            known = replace(known, finished=True)
        self._tracked[known.call.call_id] = known

    def _merge_update(self, data: Mapping[str, Any]) -> _TrackedCall:
        call_id = str(data.get("toolCallId") or f"call-{len(self._tracked) + 1}")
        before = self._tracked.get(call_id)
        diff, output = _diff_and_text(data.get("content"))
        output = output if _has_started(data) else ""
        call = _call(call_id, data, before.call if before else None, diff)
        known = _TrackedCall(
            call=call,
            has_arguments=bool(data.get("rawInput")) or bool(before and before.has_arguments),
            announced=bool(before and before.announced),
            finished=bool(before and before.finished),
            diff=diff or (before.diff if before else ""),
            output=(output or _output(data.get("rawOutput")) or (before.output if before else "")),
        )
        if len(self._tracked) > _MAX_CALLS:
            self._tracked.pop(next(iter(self._tracked)))
        self._tracked[call_id] = known
        return known


def _call(call_id: str, data: Mapping[str, Any], before: ToolCall | None, diff: str) -> ToolCall:
    kind = _kind(data.get("kind")) or (before.kind if before else CallKind.OTHER)
    raw = data.get("rawInput")
    arguments = _arguments(raw, data.get("locations"), kind) or (before.arguments if before else {})
    title = _line(data.get("title")) or (before.title if before else "")
    name = (
        _TOOL_NAMES.get(kind)
        or _agent_tool_name(data)
        or (before.name if before else "")
        or kind.value
    )
    return ToolCall(
        call_id=call_id,
        name=name,
        arguments=arguments,
        kind=kind,
        title=title or _default_title(name, arguments),
        detail=_detail(kind, arguments, diff) or (before.detail if before else ""),
    )


def _identify_by_content(call: ToolCall, data: Mapping[str, Any], titled: bool) -> ToolCall:
    """Identify a call without arguments by its visible content, so that an approval covers only
    that."""
    title = _text(data.get("title"))
    if titled and call.kind is CallKind.EXECUTE and title:
        words = _diff_and_text(data.get("content"))[1]
        where = {"where": place[1]} if (place := _WORKING_FOLDER.match(words)) else {}
        return replace(call, arguments={"command": title, **where}, detail=title)
    content = json.dumps(data.get("content"), sort_keys=True, default=str)
    shown = hashlib.sha256(content.encode("utf-8", "replace")).hexdigest()
    arguments = {**call.arguments, "title": title, "shown": shown}
    return replace(call, arguments=arguments, detail=call.detail or title)


def _has_started(data: Mapping[str, Any]) -> bool:
    """Before the start, shown content is only the arguments or parts of them."""
    status = data.get("status")
    return status != "pending" and not (status is None and "rawInput" in data)


def _arguments(raw: object, locations: object, kind: CallKind) -> dict[str, Any]:
    """Rename arguments to those of our own tools."""
    found: dict[str, Any] = dict(raw) if isinstance(raw, dict) else {}
    if isinstance(command := found.get("command"), list):
        found["command"] = _command(command)
    if kind is CallKind.EXECUTE and "command" not in found and isinstance(found.get("cmd"), str):
        found["command"] = found.pop("cmd")
    if kind is CallKind.EXECUTE:
        # The description varies between requests for the same command.
        found.pop("description", None)
    places = {found[key] for key in _PATH_KEYS if isinstance(found.get(key), str)}
    if not places and kind is not CallKind.EXECUTE:
        data = [each.get("path") for each in _list(locations) if isinstance(each, dict)]
        places = {path for path in data if isinstance(path, str)}
    # If the paths differ, only the CLI knows which one it uses.
    found.pop("path", None)
    if len(places) == 1:
        found["path"] = places.pop()
    return found


def _command(words: list[object]) -> str:
    """Convert `["bash", "-lc", "make"]` to `make`, the command that the shell executes."""
    texts = [str(word) for word in words]
    if len(texts) == 3 and PurePath(texts[0]).name in _SHELLS and texts[1] in {"-c", "-lc"}:  # noqa: PLR2004 - shell, flag, script
        return texts[2]
    return shlex.join(texts)


def _detail(kind: CallKind, arguments: Mapping[str, Any], diff: str) -> str:
    if kind is CallKind.EXECUTE and isinstance(arguments.get("command"), str):
        return str(arguments["command"])
    if diff:
        return diff
    old, new = arguments.get("old_string"), arguments.get("new_string", arguments.get("content"))
    if isinstance(new, str) and kind is CallKind.EDIT:
        return _unified(str(arguments.get("path", "")), old if isinstance(old, str) else "", new)
    if not arguments:
        return ""
    return json.dumps(arguments, ensure_ascii=False, indent=1, default=str)[:_MAX_DIFF]


def _diff_and_text(content: object) -> tuple[str, str]:
    """Return the diffs and texts that a call shows."""
    diffs: list[str] = []
    words: list[str] = []
    for part in _list(content):
        if not isinstance(part, dict):
            continue
        if part.get("type") == "diff":
            old, new = part.get("oldText"), part.get("newText")
            diffs.append(_unified(str(part.get("path", "")), _text(old), _text(new)))
        elif part.get("type") == "content":
            words += _texts(part.get("content"))
    return "".join(diffs)[:_MAX_DIFF], "\n".join(words)[-_MAX_OUTPUT:]


def _unified(path: str, old: str, new: str) -> str:
    before, after = old.splitlines()[:_MAX_LINES], new.splitlines()[:_MAX_LINES]
    lines = difflib.unified_diff(before, after, f"a/{path}", f"b/{path}", lineterm="")
    data = "\n".join(lines)
    return f"{data}\n"[:_MAX_DIFF] if data else ""


def _output(raw: object) -> str:
    if isinstance(raw, str):
        return raw[-_MAX_OUTPUT:]
    if not isinstance(raw, dict):
        return ""
    for key in ("output", "stdout", "formatted_output", "aggregated_output", "text", "error"):
        if isinstance(text := raw.get(key), str) and text:
            return (f"{ERROR_PREFIX}{text}" if key == "error" else text)[-_MAX_OUTPUT:]
    return ""


def _plan(entries: object) -> PlanUpdated:
    data = [each for each in _list(entries) if isinstance(each, dict)]
    lines = [
        PlanEntry(text=text, status=_status(each.get("status")))
        for each in data[:_MAX_ENTRIES]
        if (text := _line(each.get("content")))
    ]
    return PlanUpdated(entries=tuple(lines))


def _status(data: object) -> Literal["pending", "in_progress", "completed"]:
    if data == "completed":
        return "completed"
    return "in_progress" if data == "in_progress" else "pending"


def _texts(content: object) -> Iterator[str]:
    if isinstance(content, dict) and content.get("type") == "text":
        text = _text(content.get("text"))
        for start in range(0, len(text), _MAX_CHUNK):
            yield text[start : start + _MAX_CHUNK]


def _kind(data: object) -> CallKind | None:
    try:
        return CallKind(str(data)) if data else None
    except ValueError:
        return CallKind.OTHER


def _agent_tool_name(data: Mapping[str, Any]) -> str:
    for meta in (data.get("_meta"), data):
        if not isinstance(meta, dict):
            continue
        for holder in (meta.get("claudeCode"), meta):
            if isinstance(holder, dict) and isinstance(name := holder.get("toolName"), str):
                return name[:100]
    return ""


def _default_title(name: str, arguments: Mapping[str, Any]) -> str:
    first = next((value for value in arguments.values() if isinstance(value, str)), "")
    return _line(f"{name} {first}")


def _started_event(call: ToolCall) -> ToolStarted:
    return ToolStarted(call_id=call.call_id, name=call.name, title=_shown_title(call))


def _shown_title(call: ToolCall) -> str:
    """The command itself: many CLIs call it only `Terminal`."""
    command = _line(call.arguments.get("command")) if call.kind is CallKind.EXECUTE else ""
    return command or call.title


def _list(data: object) -> list[Any]:
    return data if isinstance(data, list) else []


def _line(data: object) -> str:
    return " ".join(data.split())[:_MAX_TITLE] if isinstance(data, str) else ""


def _text(data: object) -> str:
    return data if isinstance(data, str) else ""
