"""The answer of a heartbeat run, and whether what it claims is backed by what it did."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from storage.records.heartbeat import HeartbeatClaim, HeartbeatTask
from storage.records.tools import ToolCallRecord, ToolCallState

HEARTBEAT_OK = "HEARTBEAT_OK"
MAX_MESSAGE = 4_000
_MAX_ACTIONS = 50
_TOKEN = re.compile(rf"[\s*_`~\"'#>]*\b{HEARTBEAT_OK}\b[\s*_`~\"'.!。！]*", re.IGNORECASE)
_MARKUP = re.compile(r"</?[a-z]+[^>]*>|&nbsp;|[\s*_`~\"'#>.!。！\-]+", re.IGNORECASE)
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

    Claims on lines that are not pending are dropped. `is_told` says whether the message is sent,
    `is_file` whether a file is in the workspace."""
    by_line = {each.line: each for each in pending}
    unused = [call for call in calls if call.state is ToolCallState.DONE]
    claims = dict[int, HeartbeatClaim]()
    for action in actions:
        task = by_line.get(action.line)
        if task is None or action.line in claims:
            continue
        call = next((each for each in unused if _is_evidence(each, action)), None)
        if action.evidence == "told":
            is_backed, shown = is_told, "told"
        else:
            is_backed = call is not None and (
                action.evidence == "tool" or is_file(action.reference)
            )
            shown = action.reference if call is None else call.title
        if is_backed and call is not None:
            unused.remove(call)
        claims[action.line] = HeartbeatClaim(
            line=action.line, text=task.text, did=action.did, evidence=shown, is_backed=is_backed
        )
    return tuple(claims.values())


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
