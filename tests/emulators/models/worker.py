"""A model that is no model: always the same sensible answer to the same request."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tests.emulators.models.script import Asked, Call, Reply

_FILE = re.compile(r"[\w-]+\.(?:md|txt|csv|json|html|py)\b", re.ASCII)
_STEP = re.compile(r"Your step now: (.+)", re.DOTALL)
_JOINT = re.compile(r"(?:,?\s+and\s+|,?\s+then\s+|\n\s*(?:\d+[.)]|-)\s*|，?然后|，?并|。|\.\s+)")
_WORK = re.compile(
    r"\b(?:write|build|make|create|fix|draft|summari[sz]e|translate)\b|写|做|生成|整理|翻译|修复",
    re.IGNORECASE,
)


def work(asked: Asked) -> Reply:
    """Plan, do a step, sort talk from work, or talk: told apart by the forms on offer."""
    forms = {
        form: name
        for name, schema in {**asked.tools, "": asked.schema or {}}.items()
        if (form := _form(schema))
    }
    if "plan" in forms:
        return _fill(forms["plan"], _plan(asked.last))
    if "step" in forms:
        return _step(asked, forms["step"])
    if "intent" in forms:
        return _fill(forms["intent"], _intent(asked.last))
    if "propose_task" in asked.tools:
        return _propose(asked)
    if asked.must_call not in {"", "*"}:
        return Reply(calls=[Call(name=asked.must_call)])
    return Reply(text=_talk(asked))


def _form(schema: Mapping[str, Any]) -> str:
    fields = set(schema.get("properties") or ())
    if {"plan", "steps"} <= fields:
        return "plan"
    if {"status", "summary"} <= fields:
        return "step"
    return "intent" if {"kind", "title"} <= fields else ""


def _fill(tool: str, value: Mapping[str, Any]) -> Reply:
    """The form filled in: by its tool, or as JSON where the answer itself has the form."""
    return (
        Reply(calls=[Call(name=tool, arguments=value)]) if tool else Reply(text=json.dumps(value))
    )


def _plan(prompt: str) -> dict[str, Any]:
    task = prompt.removeprefix("Task: ").split("\n\n")[0]
    parts = [part.strip(" .。\n-") for part in _JOINT.split(task)]
    steps = [
        {"title": part[:80], "detail": part, "repeatable": True} for part in parts if part
    ] or [{"title": "Do it", "detail": task, "repeatable": True}]
    return {"plan": f"{len(steps)} steps, one after the other.", "steps": steps, "answer": ""}


def _step(asked: Asked, tool: str) -> Reply:
    """Write the file that the step names, once, then report."""
    found = _STEP.search(asked.last)
    step = (found[1] if found else asked.last).strip()
    named = _FILE.search(step)
    written = [result for name, result in asked.results if name == "write"]
    if named and "write" in asked.tools and not written:
        content = f"# {named[0]}\n\nWritten for: {step.splitlines()[0]}\n"
        call = Call(name="write", arguments={"path": named[0], "content": content})
        return Reply(text="I will write the file.", calls=[call])
    failed = any(result.startswith("Error") for result in written)
    value = {
        "status": "error" if failed else "done",
        "summary": written[-1] if written else f"Done: {step.splitlines()[0]}",
        "files": [named[0]] if named and written and not failed else [],
        "needs_replan": False,
    }
    return _fill(tool, value)


def _intent(text: str) -> dict[str, Any]:
    is_work = bool(_WORK.search(text)) and not text.rstrip().endswith(("?", "？"))
    title = text.strip().splitlines()[0][:60] if text.strip() else ""
    kind = "task" if is_work else "talk"
    return {"kind": kind, "title": title if is_work else "", "priority": None}


def _propose(asked: Asked) -> Reply:
    if any(name == "propose_task" for name, _ in asked.results):
        return Reply(text="")
    heard = _intent(asked.last)
    if heard["kind"] == "talk":
        return Reply(text=_talk(asked))
    arguments = {"title": heard["title"], "task": asked.last}
    return Reply(calls=[Call(name="propose_task", arguments=arguments)])


def _talk(asked: Asked) -> str:
    earlier = f" We have spoken {len(asked.said) - 1} times before." if len(asked.said) > 1 else ""
    return f"This is {asked.model} speaking. You said: {asked.last[:200]}.{earlier}"
