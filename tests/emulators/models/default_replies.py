"""A model that is no model: always the same sensible answer to the same request."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tests.emulators.models.script import ReceivedRequest, ScriptedCall, ScriptedReply

_FILE = re.compile(r"[\w-]+\.(?:md|txt|csv|json|html|py)\b", re.ASCII)
_STEP = re.compile(r"Your step now: (.+)", re.DOTALL)
_STEP_SEPARATOR = re.compile(
    r"(?:,?\s+and\s+|,?\s+then\s+|\n\s*(?:\d+[.)]|-)\s*|，?然后|，?并|。|\.\s+)"
)
_WORK = re.compile(
    r"\b(?:write|build|make|create|fix|draft|summari[sz]e|translate)\b|写|做|生成|整理|翻译|修复",
    re.IGNORECASE,
)


def default_reply(asked: ReceivedRequest) -> ScriptedReply:
    """Plan, do a step, sort talk from work, or talk: told apart by the forms on offer."""
    forms = {
        form: name
        for name, schema in {**asked.tools, "": asked.schema or {}}.items()
        if (form := _form_kind(schema))
    }
    if "plan" in forms:
        return _filled_form(forms["plan"], _plan(asked.last_text))
    if "step" in forms:
        return _step(asked, forms["step"])
    if "intent" in forms:
        return _filled_form(forms["intent"], _intent(asked.last_text))
    if "propose_task" in asked.tools:
        return _propose(asked)
    if asked.must_call not in {"", "*"}:
        return ScriptedReply(calls=[ScriptedCall(name=asked.must_call)])
    return ScriptedReply(text=_chat_text(asked))


def _form_kind(schema: Mapping[str, Any]) -> str:
    fields = set(schema.get("properties") or ())
    if {"plan", "steps"} <= fields:
        return "plan"
    if {"status", "summary"} <= fields:
        return "step"
    return "intent" if {"kind", "title"} <= fields else ""


def _filled_form(tool: str, value: Mapping[str, Any]) -> ScriptedReply:
    """The form filled in: by its tool, or as JSON where the answer itself has the form."""
    return (
        ScriptedReply(calls=[ScriptedCall(name=tool, arguments=value)])
        if tool
        else ScriptedReply(text=json.dumps(value))
    )


def _plan(prompt: str) -> dict[str, Any]:
    task = prompt.removeprefix("Task: ").split("\n\n")[0]
    parts = [part.strip(" .。\n-") for part in _STEP_SEPARATOR.split(task)]
    steps = [
        {"title": part[:80], "detail": part, "repeatable": True} for part in parts if part
    ] or [{"title": "Do it", "detail": task, "repeatable": True}]
    return {"plan": f"{len(steps)} steps, one after the other.", "steps": steps, "answer": ""}


def _step(asked: ReceivedRequest, tool: str) -> ScriptedReply:
    """Write the file that the step names, once, then report."""
    found = _STEP.search(asked.last_text)
    step = (found[1] if found else asked.last_text).strip()
    named = _FILE.search(step)
    written = [result for name, result in asked.tool_results if name == "write"]
    if named and "write" in asked.tools and not written:
        content = f"# {named[0]}\n\nWritten for: {step.splitlines()[0]}\n"
        call = ScriptedCall(name="write", arguments={"path": named[0], "content": content})
        return ScriptedReply(text="I will write the file.", calls=[call])
    failed = any(result.startswith("Error") for result in written)
    value = {
        "status": "error" if failed else "done",
        "summary": written[-1] if written else f"Done: {step.splitlines()[0]}",
        "files": [named[0]] if named and written and not failed else [],
        "needs_replan": False,
    }
    return _filled_form(tool, value)


def _intent(text: str) -> dict[str, Any]:
    is_work = bool(_WORK.search(text)) and not text.rstrip().endswith(("?", "？"))
    title = text.strip().splitlines()[0][:60] if text.strip() else ""
    kind = "task" if is_work else "talk"
    return {"kind": kind, "title": title if is_work else "", "priority": None}


def _propose(asked: ReceivedRequest) -> ScriptedReply:
    if any(name == "propose_task" for name, _ in asked.tool_results):
        return ScriptedReply(text="")
    heard = _intent(asked.last_text)
    if heard["kind"] == "talk":
        return ScriptedReply(text=_chat_text(asked))
    arguments = {"title": heard["title"], "task": asked.last_text}
    return ScriptedReply(calls=[ScriptedCall(name="propose_task", arguments=arguments)])


def _chat_text(asked: ReceivedRequest) -> str:
    earlier = (
        f" We have spoken {len(asked.user_texts) - 1} times before."
        if len(asked.user_texts) > 1
        else ""
    )
    return f"This is {asked.model} speaking. You said: {asked.last_text[:200]}.{earlier}"
