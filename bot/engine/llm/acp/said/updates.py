"""A CLI's updates as our own events. What is not understood is passed over: they differ."""

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

from bot.engine.llm.base import ERROR
from bot.engine.llm.calls import CallKind, ToolCall
from bot.engine.llm.events import (
    AgentEvent,
    PlanEntry,
    PlanShown,
    TextDelta,
    ThoughtDelta,
    ToolFinished,
    ToolStarted,
    ToolUpdated,
)

_TITLE = 200
_OUTPUT = 2_000
_DIFF = 20_000
_LINES = 4_000
_ENTRIES = 50
_SUMMARY = 200
_KEPT = 500
_CHUNK = 20_000

# Its kinds by the names that our own tools have: rules and grants speak of those.
_NAMES = {
    CallKind.READ: "read",
    CallKind.EDIT: "edit",
    CallKind.SEARCH: "grep",
    CallKind.EXECUTE: "exec",
    CallKind.FETCH: "web_fetch",
    CallKind.DELETE: "delete",
    CallKind.MOVE: "move",
}
_PLACE = re.compile(r"\[(?:in|current working directory) ([^\]]+)\]")
_SHELLS = {"sh", "bash", "dash", "zsh"}
_PATHS = ("path", "file_path", "filePath", "absolute_path", "filepath", "file")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What has been told of one call so far: an update holds only what is new. `plain`: so were
    its arguments."""

    call: ToolCall
    plain: bool = False
    told: bool = False
    over: bool = False
    diff: str = ""
    output: str = ""


class Calls:
    """The calls of one run, put together from their pieces. `titled` is the quirk of that name in
    the table."""

    def __init__(self, *, titled: bool = False) -> None:
        self._titled = titled
        self._known: dict[str, _Known] = {}

    def events(self, update: Mapping[str, Any]) -> Iterator[AgentEvent]:
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                yield from (TextDelta(text=text) for text in _texts(update.get("content")))
            case "agent_thought_chunk":
                yield from (ThoughtDelta(text=text) for text in _texts(update.get("content")))
            case "plan":
                yield _plan(update.get("entries"))
            case "tool_call" | "tool_call_update":
                yield from self._of_call(update)
            case _:
                pass

    def wish(self, told: Mapping[str, Any]) -> ToolCall:
        """The call that it asks about, with all that was told of it before."""
        known = self._learned(told)
        return known.call if known.plain else _by_what_is_shown(known.call, told, self._titled)

    def started(self, call: ToolCall) -> Iterator[AgentEvent]:
        """Some ask before they tell of the call."""
        known = self._known.get(call.call_id, _Known(call=call))
        if not known.told:
            self._known[call.call_id] = replace(known, told=True)
            yield _started(call)

    def _of_call(self, update: Mapping[str, Any]) -> Iterator[AgentEvent]:
        before = self._known.get(str(update.get("toolCallId", "")))
        known = self._learned(update)
        if known.over:
            return
        if not known.told:
            yield _started(known.call)
            known = replace(known, told=True)
        diff = known.diff if before is None or known.diff != before.diff else ""
        output = known.output if before is None or known.output != before.output else ""
        if diff or output:
            yield ToolUpdated(call_id=known.call.call_id, diff=diff, output=output)
        if (status := update.get("status")) in {"completed", "failed"}:
            good = status == "completed"
            summary = known.output.strip().split("\n", 1)[0][:_SUMMARY]
            yield ToolFinished(call_id=known.call.call_id, good=good, summary=summary)
            known = replace(known, over=True)
        self._known[known.call.call_id] = known

    def _learned(self, told: Mapping[str, Any]) -> _Known:
        call_id = str(told.get("toolCallId") or f"call-{len(self._known) + 1}")
        before = self._known.get(call_id)
        diff, output = _shown(told.get("content"))
        output = output if _has_run(told) else ""
        call = _call(call_id, told, before.call if before else None, diff)
        known = _Known(
            call=call,
            plain=bool(told.get("rawInput")) or bool(before and before.plain),
            told=bool(before and before.told),
            over=bool(before and before.over),
            diff=diff or (before.diff if before else ""),
            output=(output or _output(told.get("rawOutput")) or (before.output if before else "")),
        )
        if len(self._known) > _KEPT:
            self._known.pop(next(iter(self._known)))
        self._known[call_id] = known
        return known


def _call(call_id: str, told: Mapping[str, Any], before: ToolCall | None, diff: str) -> ToolCall:
    kind = _kind(told.get("kind")) or (before.kind if before else CallKind.OTHER)
    raw = told.get("rawInput")
    arguments = _arguments(raw, told.get("locations"), kind) or (before.arguments if before else {})
    title = _line(told.get("title")) or (before.title if before else "")
    name = _NAMES.get(kind) or _own_name(told) or (before.name if before else "") or kind.value
    return ToolCall(
        call_id=call_id,
        name=name,
        arguments=arguments,
        kind=kind,
        title=title or _titled(name, arguments),
        detail=_detail(kind, arguments, diff) or (before.detail if before else ""),
    )


def _by_what_is_shown(call: ToolCall, told: Mapping[str, Any], titled: bool) -> ToolCall:
    """Some tell no arguments when they ask: then the call is what is shown of it, so that leave
    for it is leave for nothing else."""
    title = _text(told.get("title"))
    if titled and call.kind is CallKind.EXECUTE and title:
        words = _shown(told.get("content"))[1]
        where = {"where": place[1]} if (place := _PLACE.match(words)) else {}
        return replace(call, arguments={"command": title, **where}, detail=title)
    content = json.dumps(told.get("content"), sort_keys=True, default=str)
    shown = hashlib.sha256(content.encode("utf-8", "replace")).hexdigest()
    arguments = {**call.arguments, "title": title, "shown": shown}
    return replace(call, arguments=arguments, detail=call.detail or title)


def _has_run(told: Mapping[str, Any]) -> bool:
    """What is shown before is about the arguments: the model's words, or pieces of them."""
    status = told.get("status")
    return status != "pending" and not (status is None and "rawInput" in told)


def _arguments(raw: object, locations: object, kind: CallKind) -> dict[str, Any]:
    """Under the names that our own tools use, where they mean the same."""
    found: dict[str, Any] = dict(raw) if isinstance(raw, dict) else {}
    if isinstance(command := found.get("command"), list):
        found["command"] = _command(command)
    if kind is CallKind.EXECUTE and "command" not in found and isinstance(found.get("cmd"), str):
        found["command"] = found.pop("cmd")
    if kind is CallKind.EXECUTE:
        # The model's own words about it, other ones at each asking: what it does stays the same.
        found.pop("description", None)
    places = {found[key] for key in _PATHS if isinstance(found.get(key), str)}
    if not places and kind is not CallKind.EXECUTE:
        told = [each.get("path") for each in _list(locations) if isinstance(each, dict)]
        places = {path for path in told if isinstance(path, str)}
    # Two that differ: nobody but the CLI knows which of them it means.
    found.pop("path", None)
    if len(places) == 1:
        found["path"] = places.pop()
    return found


def _command(words: list[object]) -> str:
    """`["bash", "-lc", "make"]` is `make`: what is judged is what the shell gets."""
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
    return json.dumps(arguments, ensure_ascii=False, indent=1, default=str)[:_DIFF]


def _shown(content: object) -> tuple[str, str]:
    """The changes and the words that a call shows."""
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
    return "".join(diffs)[:_DIFF], "\n".join(words)[-_OUTPUT:]


def _unified(path: str, old: str, new: str) -> str:
    before, after = old.splitlines()[:_LINES], new.splitlines()[:_LINES]
    lines = difflib.unified_diff(before, after, f"a/{path}", f"b/{path}", lineterm="")
    told = "\n".join(lines)
    return f"{told}\n"[:_DIFF] if told else ""


def _output(raw: object) -> str:
    if isinstance(raw, str):
        return raw[-_OUTPUT:]
    if not isinstance(raw, dict):
        return ""
    for key in ("output", "stdout", "formatted_output", "aggregated_output", "text", "error"):
        if isinstance(text := raw.get(key), str) and text:
            return (f"{ERROR}{text}" if key == "error" else text)[-_OUTPUT:]
    return ""


def _plan(entries: object) -> PlanShown:
    told = [each for each in _list(entries) if isinstance(each, dict)]
    lines = [
        PlanEntry(text=text, status=_status(each.get("status")))
        for each in told[:_ENTRIES]
        if (text := _line(each.get("content")))
    ]
    return PlanShown(entries=tuple(lines))


def _status(told: object) -> Literal["pending", "in_progress", "completed"]:
    if told == "completed":
        return "completed"
    return "in_progress" if told == "in_progress" else "pending"


def _texts(content: object) -> Iterator[str]:
    if isinstance(content, dict) and content.get("type") == "text":
        text = _text(content.get("text"))
        for start in range(0, len(text), _CHUNK):
            yield text[start : start + _CHUNK]


def _kind(told: object) -> CallKind | None:
    try:
        return CallKind(str(told)) if told else None
    except ValueError:
        return CallKind.OTHER


def _own_name(told: Mapping[str, Any]) -> str:
    for meta in (told.get("_meta"), told):
        if not isinstance(meta, dict):
            continue
        for holder in (meta.get("claudeCode"), meta):
            if isinstance(holder, dict) and isinstance(name := holder.get("toolName"), str):
                return name[:100]
    return ""


def _titled(name: str, arguments: Mapping[str, Any]) -> str:
    first = next((value for value in arguments.values() if isinstance(value, str)), "")
    return _line(f"{name} {first}")


def _started(call: ToolCall) -> ToolStarted:
    return ToolStarted(call_id=call.call_id, name=call.name, title=call.title, does=call.kind)


def _list(told: object) -> list[Any]:
    return told if isinstance(told, list) else []


def _line(told: object) -> str:
    return " ".join(told.split())[:_TITLE] if isinstance(told, str) else ""


def _text(told: object) -> str:
    return told if isinstance(told, str) else ""
