"""Reads structured answers that models give as text: JSON anywhere in it, and lists of steps.

All functions take any text, raise nothing and look at a bounded part of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from bot.engine.llm.answer_schemas import PlanAnswer, find_string_end, read_steps, repair_json

MAX_READ = 200_000
"""Characters of an answer that are looked at."""
_MAX_CANDIDATES = 50
_FENCED = re.compile(
    r"^[ \t]*+```[ \t]*+\w*+[ \t]*+\r?\n(.*?)^[ \t]*+```", re.DOTALL | re.MULTILINE
)
_THOUGHT = re.compile(r"<(think|thinking|thought|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL)
_THOUGHT_END = re.compile(r"\A.*</(?:think|thinking|thought|reasoning)>", re.DOTALL)
_WRAPPER_KEYS = ("arguments", "parameters", "args", "input", "result", "answer", "output", "plan")


def without_thoughts(text: str) -> str:
    """Remove reasoning, also where its opening tag is missing or its closing one."""
    return _THOUGHT_END.sub("", _THOUGHT.sub("", text), count=1).strip()


def read_form(text: str, form: type[BaseModel]) -> BaseModel | None:
    """Return the answer that the text contains; None if there is none."""
    text = without_thoughts(text[:MAX_READ])
    for found in json_objects(text):
        for value in _unwrapped(found, form):
            try:
                return form.model_validate(value)
            except ValidationError:
                continue
    if issubclass(form, PlanAnswer) and (plan := read_steps(text)) is not None:
        try:
            return form.model_validate({"plan": plan.intro, "steps": list(plan.steps)})
        except ValidationError:
            return None
    return None


def json_objects(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON objects in a text, repaired where needed: the last fenced one first, then the
    longest. A list counts as an object with `steps`."""
    fenced = [mark[1].strip() for mark in _FENCED.finditer(text)]
    for inside in reversed(fenced[-_MAX_CANDIDATES:]):
        if inside.startswith(("{", "[")) and (value := _parse(inside)) is not None:
            yield value
    places = sorted(brace_spans(text), key=lambda place: place[0] - place[1])
    for start, end in places[:_MAX_CANDIDATES]:
        if (value := _parse(text[start:end])) is not None:
            yield value
    start, end = text.find("["), text.rfind("]")
    if 0 <= start < end and (value := _parse(text[start : end + 1])) is not None:
        yield value


def brace_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of outermost braces; braces inside strings do not count."""
    depth = start = at = 0
    while at < len(text):
        char = text[at]
        if char == '"' and depth:
            at = find_string_end(text, at + 1, '"')
        elif char == "{":
            start = at if not depth else start
            depth += 1
        elif char == "}" and depth:
            depth -= 1
            if not depth:
                yield start, at + 1
        at += 1


def parse_repaired_json(text: str) -> Any:
    """Raises ValueError."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except ValueError:
        pass
    try:
        return json.loads(repair_json(text))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _parse(text: str) -> Mapping[str, Any] | None:
    try:
        value = parse_repaired_json(text)
    except ValueError:
        return None
    if isinstance(value, list) and value and all(isinstance(each, dict | str) for each in value):
        return {"steps": value}
    return value if isinstance(value, dict) and value else None


def _unwrapped(found: Mapping[str, Any], form: type[BaseModel]) -> Iterator[Mapping[str, Any]]:
    """Yield the object, and the one in it where it is written like a call or an envelope."""
    inner = [found[key] for key in _WRAPPER_KEYS if isinstance(found.get(key), dict)]
    known = set(form.model_fields)
    if issubclass(form, PlanAnswer) or known & set(found):
        yield found
    yield from (each for each in inner if issubclass(form, PlanAnswer) or known & set(each))
