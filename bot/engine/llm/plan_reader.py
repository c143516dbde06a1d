"""Reads plans as models write them: steps as Markdown lists, headings or tags, and objects with
other field names than asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_MAX_LINES = 4_000
_MAX_STEPS = 200
_MAX_TITLE = 200
_MAX_TAGGED = 5_000
_MAX_PATH = 500
_NUMBER = r"(?:\d{1,3}|[一二三四五六七八九十]{1,3}|[①②③④⑤⑥⑦⑧⑨⑩])"
_NUMBERED = re.compile(
    rf"(?P<indent>[ \t]*)(?:\#{{1,6}}[ \t]*)?(?:\*\*|__)?[(（]?"
    rf"(?:(?:(?:step|task|步骤|步驟|任务)[ \t]*{_NUMBER}|第{_NUMBER}步)"
    r"(?:\*\*|__)?[ \t]*[.)、．）:：\-–—]?"
    rf"|{_NUMBER}[.)、．）:：](?:\*\*|__)?|[①②③④⑤⑥⑦⑧⑨⑩])(?!\d)(?P<text>.*)",
    re.IGNORECASE,
)
_BULLET = re.compile(r"(?P<indent>[ \t]*)[-*+•‣▪][ \t]+(?P<text>\S.*)")
_CHECKBOX = re.compile(r"\[[ xX]?\][ \t]*")
_HEAD = re.compile(r"(?P<title>.{2,100}?)(?:[ \t]+[-–—][ \t]+|[:：][ \t]*|——)(?P<detail>\S.*)")
_BOLD_HEAD = re.compile(
    r"(?:\*\*|__)(?P<title>[^*_]{2,150})(?:\*\*|__)[ \t]*+[:：.\-–—]*+[ \t]*+(?P<detail>.*)"
)
_MARKUP = re.compile(r"\*\*|__|^\#+[ \t]*")
_STEP_OPEN = re.compile(r"<step(?:[ \t][^<>]{0,200})?>", re.IGNORECASE)
_INNER = {
    name: re.compile(rf"<{tags}>(.*?)</", re.IGNORECASE | re.DOTALL)
    for name, tags in (
        ("title", "(?:title|name)"),
        ("detail", "(?:detail|details|description|instructions)"),
        ("persona", "(?:persona)"),
    )
}
_TAG = re.compile(r"<[^<>]{1,100}>")


@dataclass(frozen=True, slots=True)
class StepList:
    """Steps as fields of `answer_schemas.PlanStep`, and the text before them."""

    intro: str
    steps: Sequence[Mapping[str, str]]


@dataclass(slots=True)
class _Item:
    indent: int
    text: str
    more: list[str] = field(default_factory=list)


def read_steps(text: str) -> StepList | None:
    """Return the steps of a plan in words; None if it has none, or too many to be one."""
    tagged = list(_tagged_steps(text))
    found = StepList("", tagged) if tagged else _listed_steps(text)
    return found if found is not None and len(found.steps) <= _MAX_STEPS else None


def _tagged_steps(text: str) -> Iterator[Mapping[str, str]]:
    """Steps written as `<step>…</step>`."""
    at, lower = 0, text.casefold()
    lower = lower if len(lower) == len(text) else text
    while (opened := _STEP_OPEN.search(text, at)) is not None:
        end = lower.find("</step>", opened.end())
        if end < 0:
            return
        inside = text[opened.end() : min(end, opened.end() + _MAX_TAGGED)]
        # Without what no tag closes, which each opening tag would search to its end.
        closed = inside[: inside.rfind("</") + 2]
        fields = {
            name: mark[1].strip() for name, form in _INNER.items() if (mark := form.search(closed))
        }
        words = " ".join(_TAG.sub(" ", inside).split())
        if fields.get("title") or words:
            yield fields if fields.get("title") else _as_step(words, [])
        at = end


def _listed_steps(text: str) -> StepList | None:
    lines = [line.rstrip() for line in text.splitlines()[:_MAX_LINES] if not _is_fence(line)]
    for form, least in ((_NUMBERED, 1), (_BULLET, 2)):
        intro, items = _items(lines, form)
        if len(items) >= least:
            steps = [_as_step(item.text, item.more) for item in items]
            return StepList(intro, steps)
    return None


def _is_fence(line: str) -> bool:
    return line.lstrip().startswith("```")


def _items(lines: Sequence[str], form: re.Pattern[str]) -> tuple[str, Sequence[_Item]]:
    """The text before the list and its outermost items, with the lines that belong to each."""
    intro: list[str] = []
    items: list[_Item] = []
    is_after_blank = False
    for line in lines:
        found = form.match(line)
        indent = len(line) - len(line.lstrip())
        if found and (not items or indent <= items[0].indent):
            items.append(_Item(indent, found["text"].strip()))
        elif not items:
            intro.append(line)
        elif line and (indent > items[0].indent or not is_after_blank or _BULLET.match(line)):
            items[-1].more.append(line.strip())
        is_after_blank = not line
    kept = [item for item in items if item.text.strip("*_ ") or item.more]
    return " ".join(" ".join(intro).split())[:1_000], kept


def _as_step(text: str, more: Sequence[str]) -> Mapping[str, str]:
    text, more = _CHECKBOX.sub("", text, count=1).strip(), list(more)
    if more and not text.strip("*_ "):
        text = more.pop(0)
    head = _BOLD_HEAD.fullmatch(text) or _HEAD.fullmatch(text)
    title, detail = (head["title"], head["detail"]) if head else (text, "")
    title = _MARKUP.sub("", title).strip()
    if len(title) > _MAX_TITLE:
        title, detail = title[: _MAX_TITLE - 1] + "…", text
    return {"title": title or text[:_MAX_TITLE], "detail": "\n".join(filter(None, [detail, *more]))}


_STEP_NAMES = {
    "title": ("name", "step", "task", "action", "goal", "summary"),
    "detail": ("description", "details", "instructions", "instruction", "prompt", "content"),
    "persona": ("agent", "worker", "role", "assignee"),
    "deliverables": ("files", "outputs", "output_files"),
}
_PLAN_NAMES = {
    "steps": ("tasks", "plan_steps", "step_list", "todo", "todos", "actions", "步骤"),
    "answer": ("final_answer", "response"),
}
_FALSE_WORDS = {"false", "no", "0", "否"}
_TRUE_WORDS = {"true", "yes", "1", "是"}


def normalize_step(value: Any) -> Any:
    """Return a step's fields under the names asked for, each shortened to what may be."""
    if isinstance(value, str):
        return _as_step(value, []) if value.strip() else value
    if not isinstance(value, Mapping):
        return value
    fields = _renamed(value, _STEP_NAMES)
    title, detail = _text(fields.get("title")), _text(fields.get("detail"))
    if detail and not title:
        title = detail.splitlines()[0]
    if len(title) > _MAX_TITLE:
        title, detail = title[: _MAX_TITLE - 1] + "…", detail or title
    fields |= {"title": title, "detail": detail}
    if isinstance(fields.get("persona"), str):
        fields["persona"] = fields["persona"].strip().casefold()
    if isinstance(fields.get("repeatable"), str | int):
        word = str(fields["repeatable"]).strip().casefold()
        fields["repeatable"] = word not in _FALSE_WORDS
        if word not in _FALSE_WORDS | _TRUE_WORDS:
            del fields["repeatable"]
    files = fields.get("deliverables", [])
    files = [files] if isinstance(files, str) else files
    if isinstance(files, list):
        kept = [
            each for each in files if isinstance(each, str) and 0 < len(each.strip()) <= _MAX_PATH
        ]
        fields["deliverables"] = kept
    return fields


def normalize_plan(value: Any) -> Any:
    """Return a plan's fields under the names asked for; steps that are none are dropped."""
    if not isinstance(value, Mapping):
        return value
    fields = _renamed(value, _PLAN_NAMES)
    if isinstance(fields.get("nodes"), list | dict) and not fields.get("workflow"):
        return {"workflow": dict(value)}
    if isinstance(fields.get("plan"), list) and not fields.get("steps"):
        fields["steps"], fields["plan"] = fields["plan"], ""
    if not isinstance(fields.get("plan", ""), str):
        del fields["plan"]
    steps = fields.get("steps")
    if isinstance(steps, str):
        steps = _steps_in_text(steps)
    elif isinstance(steps, Mapping):
        steps = list(steps.values())
    if isinstance(steps, list):
        steps = [each for each in map(normalize_step, steps) if _has_title(each)]
    fields["steps"] = [] if steps is None else steps
    return fields


def _steps_in_text(text: str) -> list[Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        found = read_steps(text)
        return list(found.steps) if found else []
    return value if isinstance(value, list) else []


def _renamed(value: Mapping[str, Any], names: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    fields = dict(value)
    for name, others in names.items():
        known = next((each for each in (name, *others) if fields.get(each)), name)
        if known != name:
            fields[name] = fields.pop(known)
    return fields


def _has_title(step: Any) -> bool:
    return not isinstance(step, Mapping) or bool(_text(step.get("title")).strip())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
