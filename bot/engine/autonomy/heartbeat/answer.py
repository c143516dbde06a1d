"""The answer of a heartbeat run, and whether what it claims is backed by what it did."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from storage.records.approvals import ToolCallRecord, ToolCallState
from storage.records.autonomy import HeartbeatClaim, HeartbeatTask

HEARTBEAT_OK = "HEARTBEAT_OK"
MAX_MESSAGE = 4_000
_MAX_ACTIONS = 50
_TOKEN = re.compile(rf"[\s*_`~\"'#>]*\b{HEARTBEAT_OK}\b[\s*_`~\"'.!。！]*", re.IGNORECASE)
_MARKUP = re.compile(r"</?[a-z]+[^>]*>|&nbsp;|[\s*_`~\"'#>.!。！\-]+", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://([^\s/:?#)>\]\"'，。]+)[^\s)>\]\"'，。]*", re.IGNORECASE)
_NAME = re.compile(
    r"(?<![\w@])(?:[\w-]+/)*[\w-]+(?:\.[\w-]+)*\.[a-z][a-z0-9]{0,7}(?![\w@])"
    r"|(?<![\w@])[\w-]+/(?:[\w.-]+/?)+|(?<!\w)[a-z]+_[a-z_]+(?!\w)",
    re.IGNORECASE | re.ASCII,
)
_NUMBER = re.compile(r"[0-9./]+|e\.g|i\.e|a\.m|p\.m|and/or", re.IGNORECASE)
_EDITING_TOOLS = {"write", "edit"}

_Line = Annotated[str, StringConstraints(strip_whitespace=True, max_length=500)]


class HeartbeatAction(BaseModel):
    """One line of the list on which you acted."""

    model_config = ConfigDict(strict=True, defer_build=True)

    line: int = Field(description="The line's number.")
    did: _Line = Field(description="What you did, in one sentence, in the Boss's language.")
    evidence: Literal["tool", "file", "told"] = Field(
        description=(
            "tool: a tool call of yours did it; file: you wrote a file; told: your message tells"
            " the Boss."
        )
    )
    reference: _Line = Field(
        default="",
        description="tool: the tool's name and its main argument; file: the path; told: empty.",
    )


class HeartbeatAnswer(BaseModel):
    """The result of looking through the list."""

    model_config = ConfigDict(strict=True, defer_build=True)

    message: Annotated[str, StringConstraints(strip_whitespace=True, max_length=MAX_MESSAGE)] = (
        Field(
            default="",
            description="What the Boss should read now, in Markdown. Mostly empty.",
        )
    )
    actions: list[HeartbeatAction] = Field(
        default_factory=list,
        max_length=_MAX_ACTIONS,
        description="The lines on which you acted. Lines that are not due are left out.",
    )


def clean_message(text: str) -> str:
    """The text without HEARTBEAT_OK and the markup around it; empty if nothing else is left."""
    if HEARTBEAT_OK.casefold() not in text.casefold():
        return text.strip()
    rest = _TOKEN.sub("\n", text).strip()
    return rest if _MARKUP.sub("", rest) else ""


def check_claims(
    actions: Sequence[HeartbeatAction],
    pending: Sequence[HeartbeatTask],
    calls: Sequence[ToolCallRecord],
    *,
    is_told: bool,
    is_file: Callable[[str], bool],
) -> tuple[HeartbeatClaim, ...]:
    """Check what is claimed against the calls of the run; each call stands for one line only.

    Where a line names a file, an address or a tool, a call is evidence only if one of the run has
    to do with it. A claim is verified only if the line names something and a call fits it; what is
    told needs no call if the line names nothing. Claims on lines that are not pending are dropped.
    `is_told` says whether the message is sent, `is_file` whether a file is in the workspace."""
    by_line = {each.line: each for each in pending}
    done = [call for call in calls if call.state is ToolCallState.DONE]
    unused = [*done]
    claims = dict[int, HeartbeatClaim]()
    for action in actions:
        task = by_line.get(action.line)
        if task is None or action.line in claims:
            continue
        call = next((each for each in unused if _is_evidence(each, action)), None)
        named = find_named(task.text)
        fits = any(_touches(each, named) for each in done)
        if action.evidence == "told":
            is_backed, shown, is_verified = is_told, "told", fits or not named
        else:
            is_there = action.evidence == "tool" or is_file(action.reference)
            is_backed = call is not None and is_there and (fits or not named)
            shown = action.reference if call is None else call.title
            is_verified = bool(named) and fits
        if is_backed and call is not None:
            unused.remove(call)
        claims[action.line] = HeartbeatClaim(
            line=action.line,
            text=task.text,
            did=action.did,
            evidence=shown,
            is_backed=is_backed,
            is_verified=is_verified,
        )
    return tuple(claims.values())


def find_named(line: str) -> frozenset[str]:
    """The files, addresses and tools that a line names, in lower case; an address by its host."""
    hosts = {match[1].casefold() for match in _ADDRESS.finditer(line)}
    rest = _ADDRESS.sub(" ", line)
    names = {match[0].strip("./").casefold() for match in _NAME.finditer(rest)}
    return frozenset(hosts | {each for each in names if each and not _NUMBER.fullmatch(each)})


def _touches(call: ToolCallRecord, named: Collection[str]) -> bool:
    if call.tool in named:
        return True
    values = [str(each).casefold() for each in call.arguments.values()]
    return any(name in value for name in named for value in values)


def _is_evidence(call: ToolCallRecord, action: HeartbeatAction) -> bool:
    """A file is evidence by its path; a call by its tool's name, with or without an argument."""
    match action.evidence:
        case "file":
            return call.tool in _EDITING_TOOLS and call.arguments.get("path") == action.reference
        case "tool":
            tool, _, argument = action.reference.partition(" ")
            values = [str(each) for each in call.arguments.values()]
            return call.tool == tool and any(argument in value for value in values or [""])
        case _:
            return False
