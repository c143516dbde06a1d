"""What a CLI is told: the system's words first, what it has missed, and what people decided."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bot.engine.llm.acp.memory import Wish, told_again
from bot.engine.llm.acp.said import contract
from bot.engine.llm.base import Mode, Picture, RunRequest
from bot.engine.llm.calls import Leave, Permission, ToolCall

_MAX_PICTURE = 5_000_000
_DETAIL = 4_000
_LOOK = {
    Mode.PLAN: "Only plan: look at what you need, and change nothing.",
    Mode.REVIEW: "Only review: look at what you need, and change nothing.",
}


def system_hash(request: RunRequest) -> str:
    return hashlib.sha256(request.system.encode("utf-8", "replace")).hexdigest()[:16]


def first_prompt(
    request: RunRequest,
    mode: Mode,
    *,
    gone_on: bool,
    decided: Sequence[tuple[Wish | None, str, Permission]],
) -> str:
    """The system's words are said once a session, and again when they are others."""
    heard = gone_on and _system_of(request.history) == system_hash(request)
    parts = [
        "" if heard else request.system,
        "" if gone_on else told_again(request.history),
        _LOOK.get(mode, ""),
        *(_decision(*each) for each in decided),
        request.prompt,
        contract.asked_for(request.result) if request.result is not None else "",
    ]
    return _clean("\n\n".join(part for part in parts if part.strip()))


def after_refusal(denied: Sequence[tuple[ToolCall, str]], *, form: bool) -> str:
    """Some end their turn when something is refused: the work goes on without it."""
    told = [f"Not allowed: {call.title}. {why}".rstrip() for call, why in denied]
    end = (
        "Do not try it another way. Go on with what can be done without it, and end with the"
        " ```json block that was asked for."
        if form
        else "Go on without it."
    )
    return _clean("\n".join([*told, end]))


async def blocks(text: str, pictures: Sequence[Picture], *, able: bool) -> list[dict[str, Any]]:
    """The prompt on the wire; a CLI that takes no pictures is told that there is one."""
    found: list[dict[str, Any]] = [{"type": "text", "text": text}]
    for picture in pictures:
        data = await asyncio.to_thread(_bytes, picture.path) if able else b""
        if data:
            encoded = base64.b64encode(data).decode()
            found.append({"type": "image", "mimeType": picture.mime, "data": encoded})
        else:
            found[0]["text"] += f"\n\n[a picture, {picture.path.name}, cannot be shown to you]"
    return found


def _decision(wish: Wish | None, call_id: str, said: Permission) -> str:
    title = wish.title if wish else f"the call {call_id} that you wanted to make"
    detail = f"\n```\n{wish.detail[:_DETAIL]}\n```" if wish and wish.detail else ""
    if said.leave is Leave.ALLOW:
        return (
            f"Approved: {title}{detail}\nMake exactly this call now, unchanged: only so is it"
            " allowed. Then go on with your work."
        )
    if said.leave is Leave.ANSWER:
        return f"The answer to {title}: {said.text}\nGo on with your work."
    return (
        f"Not approved: {title}{detail}\n{said.text}\nDo not try it again, nor in another way. Go"
        " on with what can be done without it."
    )


def _system_of(history: Sequence[Any]) -> str:
    for entry in reversed(history):
        if isinstance(entry, dict) and isinstance(said := entry.get("cli"), dict):
            return str(said.get("system", ""))
    return ""


def _bytes(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except OSError:
        return b""
    return data if len(data) <= _MAX_PICTURE else b""


def _clean(text: str) -> str:
    """Without lone surrogates, which no wire can carry."""
    return text.encode("utf-8", "replace").decode()
