"""Builds prompts for coding CLIs and parses the structured results they return."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from bot.engine.llm.acp.permission_requests import AcpPermissionRequest
from bot.engine.llm.answer_schemas import find_faults, repair_json
from bot.engine.llm.backend import ImageInput, RunRequest, WorkerMode
from bot.engine.llm.tool_calls import CallDecision, CallVerdict, ToolCall
from bot.engine.llm.written_forms import read_form
from cards.formats import drop_surrogates

RESULT_FILE = ".shiftboss/result.json"
_FENCED = re.compile(r"```(?:json|JSON)?[ \t]*\r?\n(.*?)\r?\n?[ \t]*```", re.DOTALL)
_MAX_FILE_BYTES = 500_000


class MissingResult(Exception):
    """No usable result; the message explains it to the model. `faults` are what is wrong with the
    object that it gave, empty if it gave none."""

    def __init__(self, why: str, faults: str = "") -> None:
        self.faults = faults
        super().__init__(why)


def result_instructions(result_type: type[BaseModel]) -> str:
    """Return the prompt text that requests the result."""
    schema = json.dumps(result_type.model_json_schema(), ensure_ascii=False)
    return (
        "When you are finished, end your last message with exactly one fenced block that begins"
        " with ```json and holds one JSON object that follows this JSON schema:\n"
        f"{schema}\n"
        f"(Instead of the block you may write the same object to the file {RESULT_FILE}.)"
        " Only this object counts as your result. Say honestly in it what you did not do."
    )


def result_retry_prompt(problem: str) -> str:
    return (
        f"Your result could not be read: {problem}. Do no further work and use no tools: answer "
        "with"
        " only the ```json block that was asked for."
    )


def delete_result_file(workspace: Path | None) -> None:
    """Delete the result file of an earlier run. Blocking."""
    if workspace is None:
        return
    path = workspace / RESULT_FILE
    if path.parent.resolve().is_relative_to(workspace.resolve()):
        path.unlink(missing_ok=True)


def parse_result(text: str, workspace: Path | None, result_type: type[BaseModel]) -> BaseModel:
    """Parse the last fenced block with a result, or the result file, or without these what else in
    the text is one. Raises MissingResult. Blocking."""
    faults = ""
    for found in (*_result_blocks(text), *_result_file_text(workspace)):
        try:
            return result_type.model_validate_json(found)
        except ValidationError as error:
            faults = find_faults(error)
        with suppress(ValueError):
            return result_type.model_validate_json(repair_json(found))
    if faults:
        raise MissingResult(faults, faults)
    if (value := read_form(text, result_type)) is not None:
        return value
    raise MissingResult("there was no ```json block")


def strip_result(text: str) -> str:
    """Remove the result block at the end of the text."""
    found = list(_FENCED.finditer(text))
    if found and not text[found[-1].end() :].strip():
        return text[: found[-1].start()].rstrip()
    return text


def _result_blocks(text: str) -> Iterator[str]:
    fenced = [match.group(1) for match in _FENCED.finditer(text)]
    # A nested block ends the outer match early, so fall back to braces.
    start, end = text.rfind("```json"), text.rfind("}")
    outer = text[text.find("{", start) : end + 1] if 0 <= start < end else ""
    bare = text.strip()
    yield from [found for found in reversed(fenced) if found.lstrip().startswith("{")][:1]
    yield from [outer] if outer else []
    yield from [bare] if bare.startswith("{") and bare.endswith("}") else []


def _result_file_text(workspace: Path | None) -> Iterator[str]:
    if workspace is None:
        return
    path = workspace / RESULT_FILE
    # Don't follow links: the CLI must not hand in files from outside.
    if path.is_file() and path.resolve().is_relative_to(workspace.resolve()):
        with path.open("rb") as file:
            yield file.read(_MAX_FILE_BYTES).decode("utf-8", "replace")


_MAX_IMAGE_BYTES = 5_000_000
_MAX_DETAIL = 4_000
_READ_ONLY_NOTES = {
    WorkerMode.PLAN: "Only plan: look at what you need, and change nothing.",
    WorkerMode.REVIEW: "Only review: look at what you need, and change nothing.",
}


def system_hash(request: RunRequest) -> str:
    return hashlib.sha256(request.system.encode("utf-8", "replace")).hexdigest()[:16]


def first_prompt(
    request: RunRequest,
    mode: WorkerMode,
    *,
    resumed: bool,
    decided: Sequence[tuple[AcpPermissionRequest | None, str, CallDecision]],
) -> str:
    """Build the first prompt; the system text is included once per session and whenever it
    changes."""
    is_known = resumed and _last_system_hash(request.history) == system_hash(request)
    parts = [
        "" if is_known else request.system,
        "" if resumed else render_history(request.history),
        _READ_ONLY_NOTES.get(mode, ""),
        *(_decision_text(*each) for each in decided),
        request.prompt,
        result_instructions(request.result) if request.result is not None else "",
    ]
    return drop_surrogates("\n\n".join(part for part in parts if part.strip()))


def denial_prompt(denied: Sequence[tuple[ToolCall, str]], *, wants_result: bool) -> str:
    """Ask a CLI that ended its turn after a denial to continue without the call."""
    lines = [f"Not allowed: {call.title}. {why}".rstrip() for call, why in denied]
    end = (
        "Do not try it another way. Continue with what can be done without it, and end with the"
        " ```json block that was asked for."
        if wants_result
        else "Continue without it."
    )
    return drop_surrogates("\n".join([*lines, end]))


async def content_blocks(
    text: str, images: Sequence[ImageInput], *, images_accepted: bool
) -> list[dict[str, Any]]:
    """Build the protocol's content blocks; pictures that a CLI doesn't accept are named in the
    text."""
    found: list[dict[str, Any]] = [{"type": "text", "text": text}]
    for picture in images:
        data = await asyncio.to_thread(picture.read, _MAX_IMAGE_BYTES) if images_accepted else b""
        if data:
            encoded = base64.b64encode(data).decode()
            found.append({"type": "image", "mimeType": picture.mime, "data": encoded})
        else:
            found[0]["text"] += f"\n\n[a picture, {picture.path.name}, cannot be shown to you]"
    return found


def _decision_text(
    stored: AcpPermissionRequest | None, call_id: str, decision: CallDecision
) -> str:
    title = stored.title if stored else f"the call {call_id} that you wanted to make"
    detail = f"\n```\n{stored.detail[:_MAX_DETAIL]}\n```" if stored and stored.detail else ""
    if decision.verdict is CallVerdict.ALLOW:
        return (
            f"Approved: {title}{detail}\nMake exactly this call now, unchanged: nothing else"
            " is approved. Then continue your work."
        )
    if decision.verdict is CallVerdict.ANSWER:
        return f"The answer to {title}: {decision.text}\nContinue your work."
    return (
        f"Not approved: {title}{detail}\n{decision.text}\nDo not try it again, nor in another way."
        " Continue with what can be done without it."
    )


def _last_system_hash(history: Sequence[Any]) -> str:
    for entry in reversed(history):
        if isinstance(entry, dict) and isinstance(exchange := entry.get("cli"), dict):
            return str(exchange.get("system", ""))
    return ""


_MAX_TURN = 6_000


_MAX_HISTORY = 24_000


def history_entry(*, prompt: str, answer: str, system: str) -> Mapping[str, Any]:
    """Build a history entry; `system` is the hash of the system text."""
    return {
        "cli": {"prompt": _shorten_turn(prompt), "answer": _shorten_turn(answer), "system": system}
    }


def render_history(history: Sequence[Any]) -> str:
    """Render the history for a session that can't be resumed; oldest entries are omitted."""
    texts: list[str] = []
    for entry in reversed(history):
        exchange = entry.get("cli") if isinstance(entry, dict) else None
        if not isinstance(exchange, dict):
            continue
        texts.append(
            f"You were asked:\n{exchange.get('prompt')}\n\nYou answered:\n{exchange.get('answer')}"
        )
        if sum(map(len, texts)) > _MAX_HISTORY:
            break
    if not texts:
        return ""
    return "Earlier in this session:\n\n" + "\n\n---\n\n".join(reversed(texts))


def _shorten_turn(text: str) -> str:
    if len(text) <= _MAX_TURN:
        return text
    half = _MAX_TURN // 2
    return f"{text[:half]}\n[…]\n{text[-half:]}"
