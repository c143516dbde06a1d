"""The Markdown form: a heading for each task, and lines that say who does it and after what."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MOST_LOOPS = 3
"""How often a line under `## Loops` leads back where it does not say."""

_HUMAN_WAITS = "24h"
_NAME, _SECTION, _TASK = 1, 2, 3
_TASKS = r"(?:任务|步骤|tasks?|steps?)"
_LOOPS = r"(?:循环|loops?)"
_BACKGROUND = r"(?:背景|说明|描述|background|description|context)"
_IS_ONE = re.compile(rf"^(?:##[ \t]*{_TASKS}[ \t:：]*$|###[ \t]+\S)", re.MULTILINE | re.IGNORECASE)
_HAS_NODES = re.compile(r"^(?:nodes|steps)\s*:", re.MULTILINE)
_HEADING = re.compile(r"(#{1,6})[ \t]+(\S.*)")
_FENCE = re.compile(r"\s*(`{3,}|~{3,})")
_NUMBERED = re.compile(
    r"(?:(?:任务|步骤|task|step)\s*)?(\d{1,6})\s*[.、:：)）]\s*(.*)", re.IGNORECASE
)
_FIELD = re.compile(r"[-*+]\s+\**([^\W\d][\w -]{0,30}?)\**\s*[:：]\**[ \t]*(.*)")
_ARROW = re.compile(r"→|->|=>")
_RULE = re.compile(r"[（(](.*)[）)]")
_LONGEST_RULE = 500
_LONGEST_FIELD = 2_000
_MOST = re.compile(
    r"[,，;；]?(?<!\s)\s*(?:最多|at most|max(?:imum)?\.?)\s*(\d{1,6})\s*(?:次|轮|times|rounds)?",
    re.IGNORECASE,
)
_WHEN = re.compile(r"^\s*(?:当|如果|when\b|if\b)\s*", re.IGNORECASE)
_NAMES = {
    **dict.fromkeys(("agent", "persona", "执行者", "角色"), "agent"),
    **dict.fromkeys(("type", "类型"), "type"),
    **dict.fromkeys(("depends", "depends on", "dependencies", "after", "依赖"), "after"),
    **dict.fromkeys(("description", "prompt", "detail", "描述", "说明"), "prompt"),
    **dict.fromkeys(("condition", "when", "条件"), "when"),
    **dict.fromkeys(("timeout", "超时"), "timeout"),
    **dict.fromkeys(("retries", "重试"), "retries"),
    **dict.fromkeys(("审批人", "负责人"), "assignee"),
    **{
        name.casefold(): name
        for name in (
            "onError", "autoWait", "repeatable", "autoApprove", "assignee", "mode", "n", "value",
            "unit", "cron", "datetime", "timezone", "expression", "outputVar", "collection",
            "itemVar", "indexVar", "maxParallel", "maxIterations", "bodyNodes", "init", "end",
            "step", "loopVar", "onLimit", "defaultTarget",
        )
    },
}  # fmt: skip
_TYPES = {
    "任务": "task", "人工": "human", "审批": "human", "条件": "condition", "并行": "parallel",
    "汇合": "join", "延时": "delay", "等待": "delay", "定时": "schedule", "循环": "loop",
    "遍历": "foreach", "分支": "switch", "赋值": "assign", "脚本": "script",
}  # fmt: skip
_REFERRING = {"bodyNodes", "defaultTarget"}
_NOTHING = {"", "无", "none", "-", "没有"}


@dataclass(slots=True)
class _Task:
    number: str
    title: str
    fields: dict[str, str] = field(default_factory=dict)
    text: list[str] = field(default_factory=list)
    last: str = ""


@dataclass(slots=True)
class _Page:
    name: str = ""
    section: str = ""
    background: list[str] = field(default_factory=list)
    tasks: list[_Task] = field(default_factory=list)
    loops: list[str] = field(default_factory=list)


def is_markdown(text: str) -> bool:
    """Whether it is written in this form; YAML may begin with the same sign."""
    begins = text.lstrip().startswith("#")
    return begins and bool(_IS_ONE.search(text)) and not _HAS_NODES.search(text)


def data_of(text: str) -> dict[str, Any]:
    """The same as one would write it in JSON."""
    page = _Page()
    fence = ""
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        heading = None if fence or mark else _HEADING.match(line)
        if heading is None or not _headed(page, len(heading[1]), _title(heading[2])):
            _filled(page, line, plain=not fence and not mark)
    return _data(page)


def _headed(page: _Page, depth: int, title: str) -> bool:
    """Whether the heading is part of the form; others are part of a text."""
    if depth == _NAME and not page.name:
        page.name = title
    elif depth == _SECTION:
        page.section = _section(title)
    elif depth == _TASK and page.section in {"", "tasks"}:
        numbered = _NUMBERED.fullmatch(title)
        number, told = (numbered[1], numbered[2]) if numbered else ("", title)
        page.section = "tasks"
        page.tasks.append(_Task(number, told))
    else:
        return False
    return True


def _title(text: str) -> str:
    """Without the signs that may close a heading."""
    text = text.strip()
    open_ = text.rstrip("#")
    return open_.rstrip() if open_.endswith((" ", "\t")) else text


def _section(title: str) -> str:
    known = {"tasks": _TASKS, "loops": _LOOPS, "background": _BACKGROUND}
    title = title.strip(" :：")
    found = (name for name, form in known.items() if re.fullmatch(form, title, re.IGNORECASE))
    return next(found, "more")


def _filled(page: _Page, line: str, *, plain: bool) -> None:
    match page.section:
        case "loops":
            page.loops.append(line)
        case "tasks" if page.tasks:
            _told(page.tasks[-1], line, plain=plain)
        case _:
            page.background.append(line)


def _told(task: _Task, line: str, *, plain: bool) -> None:
    found = _FIELD.fullmatch(line.rstrip()) if plain else None
    name = _NAMES.get(found[1].strip().casefold(), "") if found else ""
    if found and name and name not in task.fields:
        task.fields[name], task.last = found[2].strip(), name
    elif _goes_on(task, line):
        task.fields[task.last] += f" {line.strip()}"
    else:
        task.last = "prompt"
        task.text.append(line)


def _goes_on(task: _Task, line: str) -> bool:
    """Whether a line that is set back belongs to the field above it."""
    set_back = line.startswith((" ", "\t")) and bool(line.strip())
    if not set_back or task.last in {"", "prompt"}:
        return False
    return len(task.fields[task.last]) < _LONGEST_FIELD


def _data(page: _Page) -> dict[str, Any]:
    names = _ids(page.tasks)
    known = _known(page.tasks, names)
    nodes: list[dict[str, Any]] = [{"id": "start", "type": "start"}]
    edges: list[dict[str, Any]] = []
    for task, name in zip(page.tasks, names, strict=True):
        nodes.append(_node(task, name, known))
        edges += _edges(task, name, known)
    edges += _loops(page.loops, known)
    return {
        "name": page.name,
        "description": "\n".join(page.background).strip(),
        "nodes": nodes if page.tasks else [],
        "edges": edges,
    }


def _ids(tasks: Sequence[_Task]) -> list[str]:
    """By the numbers that are written; by their order where those are not all and different."""
    numbers = [task.number.lstrip("0") or "0" for task in tasks]
    own = all(task.number for task in tasks) and len(set(numbers)) == len(numbers)
    return [f"task-{number if own else n}" for n, number in enumerate(numbers, start=1)]


def _known(tasks: Sequence[_Task], names: Iterable[str]) -> Mapping[str, str]:
    """What a task may be called elsewhere: its title, its number, its name."""
    known: dict[str, str] = {}
    for task, name in zip(tasks, names, strict=True):
        for called in (name, name.removeprefix("task-"), task.title.casefold()):
            known.setdefault(called, name)
    return known


def _node(task: _Task, name: str, known: Mapping[str, str]) -> dict[str, Any]:
    told: dict[str, Any] = {"id": name, "name": task.title}
    text = "\n".join([task.fields.get("prompt", ""), *task.text]).strip()
    for key, value in task.fields.items():
        if key in _REFERRING:
            told[key] = [_called(each, known) for each in _listed(value)]
            if key == "defaultTarget":
                told[key] = "".join(told[key][:1])
        elif key not in {"prompt", "after", "when"}:
            told[key] = value
    kind = told.get("type", "").strip()
    told["type"] = _TYPES.get(kind, kind) or "task"
    if told["type"] == "human" and "timeout" not in told:
        told["timeout"] = _HUMAN_WAITS
    return {**told, "prompt": text} if text else told


def _edges(task: _Task, name: str, known: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    before = [_called(each, known) for each in _listed(task.fields.get("after", ""))]
    condition = task.fields.get("when", "")
    for each in before or ["start"]:
        edge = {"from": each, "to": name}
        yield {**edge, "condition": condition} if condition else edge


def _loops(lines: Iterable[str], known: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        arrow = _ARROW.search(line)
        if arrow is None:
            continue
        target, rule = _ruled(line[arrow.end() :])
        most = _MOST.search(rule)
        condition = _WHEN.sub("", _MOST.sub("", rule)).strip(" ,，;；")
        yield {
            "from": _called(line[: arrow.start()].strip().lstrip("-*+ "), known),
            "to": _called(target, known),
            "maxLoops": int(most[1]) if most else MOST_LOOPS,
            "label": "loop",
            **({"condition": condition} if condition else {}),
        }


def _ruled(text: str) -> tuple[str, str]:
    """What is led back to, and what stands in brackets behind it."""
    found = _RULE.search(text)
    if found is None:
        return text, ""
    return text[: found.start()], found[1][:_LONGEST_RULE]


def _listed(text: str) -> list[str]:
    parts = re.split(r"[,，、;；]", text.strip().strip("[]"))
    return [part.strip() for part in parts if part.strip().casefold() not in _NOTHING]


def _called(name: str, known: Mapping[str, str]) -> str:
    """What nobody is called stays as it is: whoever checks the edges will say so."""
    name = name.strip().strip("`\"'“”")
    return known.get(name) or known.get(name.casefold()) or name
