"""Translates a CLI's updates into events, and counts the tokens and money of a run; unknown updates
are skipped because CLIs differ."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from math import ceil
from pathlib import PurePath
from typing import Any, Literal

from bot.engine.llm.backend import (
    AgentEvent,
    PlanEntry,
    PlanUpdated,
    TextDelta,
    ThoughtDelta,
    TokenUsage,
    ToolFinished,
    ToolStarted,
    ToolUpdated,
)
from bot.engine.llm.tool_calls import ERROR_PREFIX, CallKind, ToolCall

# --- usage and money
# What a CLI does not report is estimated.

_MOST_REQUESTS = 10_000
_MOST_TOKENS = 1_000_000_000
"""A report of more would not fit into the store."""
_MAX_DEPTH = 20
_ASCII_PER_TOKEN = 4
_TOKENS_PER_OTHER = 1.5
_MODEL_OUTPUT = ("agent_message_chunk", "agent_thought_chunk", "tool_call")


@dataclass(slots=True)
class _Turn:
    """The model requests of one prompt, as far as they can be seen; none between prompts.

    `context` is the session's length after the current request, `earlier` the sum of it over the
    requests before, and `output` what the model wrote. `results` are of tools that no request has
    sent yet. `unseen_requests` ended before the CLI told the length, `told` if it did."""

    context: int = 0
    earlier: int = 0
    output: int = 0
    results: int = 0
    requests: int = 0
    unseen_requests: int = 0
    tools_ended: bool = False
    told: int = 0
    reported: dict[str, TokenUsage] = field(default_factory=dict)

    def next_turn(self) -> _Turn:
        return _Turn(context=self.context + self.results)

    def begin_request(self) -> None:
        self.earlier += self.context
        self.context += self.results
        self.results, self.tools_ended = 0, False
        self.requests += 1
        self.unseen_requests += 1

    def correct(self, context: int) -> None:
        """Set the length of the session. Its beginning, which was not reported, was part of each
        request."""
        self.earlier += max(0, context - self.context) * self.unseen_requests
        self.context = self.told = context
        self.unseen_requests = 0

    def usage(self, report: TokenUsage | None = None) -> TokenUsage:
        """`report` is what the CLI says of the turn: of all its requests, or of the last only."""
        if report is None and self.reported:
            return sum(self.reported.values(), TokenUsage())
        total = self.earlier + self.context
        if report is None and not self.requests:
            return TokenUsage()
        if report is None:
            read = max(0, total - self.output)
            return TokenUsage(
                input_tokens=read,
                output_tokens=self.output,
                estimated_input=read,
                estimated_output=self.output,
            )
        # All requests together read more than the last one alone.
        if self.requests <= 1 or report.input_tokens > self.told:
            return report
        missing = max(0, total - report.input_tokens - report.output_tokens)
        return report + TokenUsage(input_tokens=missing, estimated_input=missing)


class AcpUsageMeter:
    """Tokens that the CLI reports for neither requests nor turns are estimated from the texts that
    were sent and received; its own instructions and tools are invisible."""

    def __init__(self) -> None:
        self._ended = TokenUsage()
        self._turn = _Turn()
        self._cost_before: Decimal | None = None
        self._cost: Decimal | None = None
        self.context_tokens = 0

    @property
    def usage(self) -> TokenUsage:
        used = self._ended + self._turn.usage()
        if self._cost is None:
            return used
        return replace(used, cost=max(self._cost - (self._cost_before or 0), Decimal(0)))

    def continue_from(self, earlier: AcpUsageMeter) -> None:
        """Know what the process told in its earlier runs."""
        self._cost, self._turn = earlier._cost, earlier._turn.next_turn()
        self.context_tokens = earlier.context_tokens

    def start_run(self) -> None:
        """Count cost from here; the amount so far belongs to earlier runs."""
        self._cost_before, self._cost = self._cost, None
        self._turn = self._turn.next_turn()

    def count_prompt(self, text: str) -> None:
        self._end_turn(None)
        self._turn.context += _estimate(text)
        self._turn.requests = 1
        self._ended += TokenUsage(requests=1)

    def record_content(self, update: Mapping[str, Any]) -> None:
        """Record what the model wrote or a tool returned during a turn."""
        turn, kind = self._turn, update.get("sessionUpdate")
        if kind in _MODEL_OUTPUT:
            if turn.tools_ended:
                turn.begin_request()
            wrote = _estimate(update.get("rawInput" if kind == "tool_call" else "content"))
            turn.output += wrote
            turn.context += wrote
        # A tuple: what comes may not be hashable.
        if update.get("status") in ("completed", "failed"):
            shown, raw = _estimate(update.get("content")), _estimate(update.get("rawOutput"))
            turn.results += max(shown, raw)  # most CLIs send the same result in both
            turn.tools_ended = True

    def record_update(self, update: Mapping[str, Any]) -> None:
        """Record the session's cost, context length and, if present, the tokens of one model
        request.

        CLIs may report the same request several times."""
        if used := _count(update.get("used")):
            self.context_tokens = used
            self._turn.correct(used)
        cost = update.get("cost")
        if isinstance(cost, dict) and cost.get("currency") in {"USD", None}:
            amount = _money(cost.get("amount"))
            self._cost = self._cost if amount is None else amount
        self._record_request(update.get("_meta"))

    def record_turn(self, usage: object) -> None:
        """End the turn; `usage` is the CLI's report, if it gives one."""
        self._end_turn(_turn_report(usage) if isinstance(usage, dict) else None)

    def _end_turn(self, report: TokenUsage | None) -> None:
        self._ended += self._turn.usage(report)
        self._turn = self._turn.next_turn()

    def _record_request(self, meta: object) -> None:
        usage = meta.get("usage") if isinstance(meta, dict) else None
        if not isinstance(meta, dict) or not isinstance(usage, dict):
            return
        number = next((str(meta[key]) for key in meta if str(key).endswith("messageId")), "")
        details = usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, dict) else 0
        plain, out = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
        if number and plain and len(self._turn.reported) < _MOST_REQUESTS:
            self._turn.reported[number] = TokenUsage(
                input_tokens=plain, output_tokens=out, cache_read_tokens=min(plain, _count(cached))
            )


def _turn_report(usage: Mapping[str, Any]) -> TokenUsage | None:
    plain, out = _count(usage.get("inputTokens")), _count(usage.get("outputTokens"))
    read, wrote = _count(usage.get("cachedReadTokens")), _count(usage.get("cachedWriteTokens"))
    if not plain + out + read + wrote:
        return None
    # Some CLIs include cached tokens in the input, as we do; others add them.
    beside = _count(usage.get("totalTokens")) >= plain + out + read + wrote
    return TokenUsage(
        input_tokens=plain + (read + wrote if beside else 0),
        output_tokens=out,
        cache_read_tokens=read,
        cache_write_tokens=wrote,
    )


def _estimate(data: object, depth: int = 0) -> int:
    """Tokens of the texts in some JSON."""
    if isinstance(data, str):
        plain = len(data) if data.isascii() else len(data.encode("ascii", "ignore"))
        return ceil(plain / _ASCII_PER_TOKEN + (len(data) - plain) * _TOKENS_PER_OTHER)
    if isinstance(data, dict):
        data = [each for name, each in data.items() if name not in {"data", "type"}]
    if not isinstance(data, list) or depth >= _MAX_DEPTH:
        return 0
    return sum(_estimate(each, depth + 1) for each in data)


def _count(data: object) -> int:
    if isinstance(data, bool) or not isinstance(data, int) or data <= 0:
        return 0
    return min(data, _MOST_TOKENS)


def _money(data: object) -> Decimal | None:
    if isinstance(data, bool) or not isinstance(data, int | float | str):
        return None
    try:
        amount = Decimal(str(data))
    except InvalidOperation:
        return None
    return amount if amount.is_finite() and amount >= 0 else None


# --- updates as events
# Unknown updates are skipped because CLIs differ.

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
