"""The Markdown format of workflows: a heading for each task, with lines for its fields."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bot.engine.workflow.field_reader import ValidationIssue, similar_name
from bot.engine.workflow.nodes.registry import NodeType, spec_of

DEFAULT_MAX_LOOPS = 3
"""Loop limit of a line under `## Loops` that gives none."""

_NAME_DEPTH, _SECTION_DEPTH, _TASK_DEPTH = 1, 2, 3
_TASKS = r"(?:任务|步骤|tasks?|steps?)"
_LOOPS = r"(?:循环|loops?)"
_BACKGROUND = r"(?:背景|说明|描述|background|description|context)"
_IS_MARKDOWN_WORKFLOW = re.compile(
    rf"^(?:##[ \t]*{_TASKS}[ \t:：]*$|###[ \t]+\S)", re.MULTILINE | re.IGNORECASE
)
_HAS_NODES = re.compile(r"^(?:nodes|steps)\s*:", re.MULTILINE)
_HEADING = re.compile(r"(#{1,6})[ \t]+(\S.*)")
_FENCE = re.compile(r"\s*(`{3,}|~{3,})")
_NUMBERED = re.compile(
    r"(?:(?:任务|步骤|task|step)\s*)?(\d{1,6})\s*[.、:：)）]\s*(.*)", re.IGNORECASE
)
_FIELD = re.compile(r"[-*+]\s+\**([^\W\d][\w -]{0,30}?)\**\s*[:：]\**[ \t]*(.*)")
_ITEM = re.compile(r"\s*[-*+]\s+\S")
_SIMILARITY_CUTOFF = 0.8
_ARROW = re.compile(r"→|->|=>")
_RULE = re.compile(r"[（(](.*)[）)]")
_MAX_RULE = 500
_MAX_FIELD = 2_000
_MAX_LOOPS_TEXT = re.compile(
    r"[,，;；]?(?<!\s)\s*(?:最多|at most|max(?:imum)?\.?)\s*(\d{1,6})\s*(?:次|轮|times|rounds)?",
    re.IGNORECASE,
)
_CONDITION_WORD = re.compile(r"^\s*(?:当|如果|when\b|if\b)\s*", re.IGNORECASE)
_FIELD_NAMES = {
    **dict.fromkeys(("agent", "persona", "执行者", "角色"), "agent"),
    **dict.fromkeys(("type", "类型"), "type"),
    **dict.fromkeys(("depends", "depends on", "dependencies", "after", "依赖"), "after"),
    **dict.fromkeys(("description", "prompt", "detail", "描述", "说明"), "prompt"),
    **dict.fromkeys(("condition", "when", "条件"), "when"),
    **dict.fromkeys(("timeout", "超时"), "timeout"),
    **dict.fromkeys(("retries", "重试"), "retries"),
    **dict.fromkeys(("output", "输出"), "output"),
    **dict.fromkeys(("deliverables", "files", "交付物", "交付文件"), "deliverables"),
    **dict.fromkeys(("审批人", "负责人"), "assignee"),
    **dict.fromkeys(("on cancel", "undone by", "撤销", "补偿"), "onCancel"),
    **{
        name.casefold(): name
        for name in (
            "onCancel",
            "onError",
            "autoWait",
            "repeatable",
            *(name for kind in NodeType for name in kind.spec.fields),
        )
    },
}
_TYPE_NAMES = {name: kind.value for kind in NodeType for name in kind.spec.markdown_names}
_NODE_FIELDS = {"onCancel", *(name for kind in NodeType for name in kind.spec.node_fields)}
_BODY_FIELDS = {name for kind in NodeType for name in kind.spec.body_fields}
_EMPTY_WORDS = {"", "无", "none", "-", "没有"}


@dataclass(frozen=True, slots=True)
class MarkdownPlace:
    """Where a value begins in the text: its name as the author wrote it, and the value."""

    line: int
    column: int
    name: str
    value: str


@dataclass(slots=True)
class _MarkdownTask:
    number: str
    title: str
    line: int
    fields: dict[str, str] = field(default_factory=dict)
    places: dict[str, MarkdownPlace] = field(default_factory=dict)
    text: list[tuple[int, str]] = field(default_factory=list)
    last: str = ""


@dataclass(slots=True)
class _MarkdownPage:
    name: str = ""
    line: int = 0
    section: str = ""
    background: list[str] = field(default_factory=list)
    tasks: list[_MarkdownTask] = field(default_factory=list)
    loops: list[str] = field(default_factory=list)
    loop_lines: list[int] = field(default_factory=list)


def is_markdown(text: str) -> bool:
    """Whether the text is in this format; YAML may start with `#` too."""
    begins = text.lstrip().startswith("#")
    return begins and bool(_IS_MARKDOWN_WORKFLOW.search(text)) and not _HAS_NODES.search(text)


def parse_markdown(text: str) -> dict[str, Any]:
    """Convert to the structure of the JSON format."""
    return _page_data(_read_page(text))


def find_unread_lines(text: str) -> Iterator[ValidationIssue]:
    """Lines that count as plain text although their author surely meant a field or a loop."""
    page = _read_page(text)
    for task in page.tasks:
        for number, line in task.text:
            if (found := _FIELD.fullmatch(line.rstrip())) is None:
                continue
            free = [name for name, field in _FIELD_NAMES.items() if field not in task.fields]
            if alike := similar_name(found[1], free, cutoff=_SIMILARITY_CUTOFF):
                facts = {"line": number, "column": found.start(1) + 1}
                yield ValidationIssue(
                    key="unread_field", facts=facts, written=found[1].strip(), suggestion=alike
                )
    for number, line in zip(page.loop_lines, page.loops, strict=True):
        if _ITEM.match(line) and not _ARROW.search(line):
            yield ValidationIssue(key="unread_loop", facts={"line": number}, written=line.strip())


def find_markdown_places(text: str) -> dict[str, dict[str, MarkdownPlace]]:
    """The places of each task's fields, by the id that the task gets, and of each line under
    `Loops`, by the edge that it makes. The empty field is the heading, or the line itself.
    """
    page = _read_page(text)
    ids = _task_ids(page.tasks)
    found = {
        name: {"": MarkdownPlace(task.line, 1, "", task.title), **task.places}
        for name, task in zip(ids, page.tasks, strict=True)
    }
    known = _task_names(page.tasks, ids)
    for line, number in zip(page.loops, page.loop_lines, strict=True):
        for edge in _loop_edges([line], known):
            at = len(line) - len(line.lstrip("-*+ \t")) + 1
            place = MarkdownPlace(number, at, "", line.strip().lstrip("-*+ "))
            found.setdefault(f"{edge['from']}→{edge['to']}", {})[""] = place
    return found


def _read_page(text: str) -> _MarkdownPage:
    page = _MarkdownPage()
    fence = ""
    for page.line, line in enumerate(text.splitlines(), 1):
        mark = _FENCE.match(line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        heading = None if fence or mark else _HEADING.match(line)
        if heading is None or not _take_heading(page, len(heading[1]), _heading_text(heading[2])):
            _take_line(page, line, plain=not fence and not mark)
    return page


def _take_heading(page: _MarkdownPage, depth: int, title: str) -> bool:
    """Whether the heading belongs to the format; others are plain text."""
    if depth == _NAME_DEPTH and not page.name:
        page.name = title
    elif depth == _SECTION_DEPTH:
        page.section = _section(title)
    elif depth == _TASK_DEPTH and page.section in {"", "tasks"}:
        numbered = _NUMBERED.fullmatch(title)
        number, name = (numbered[1], numbered[2]) if numbered else ("", title)
        page.section = "tasks"
        page.tasks.append(_MarkdownTask(number, name, page.line))
    else:
        return False
    return True


def _heading_text(text: str) -> str:
    """The heading without closing `#` characters."""
    text = text.strip()
    open_ = text.rstrip("#")
    return open_.rstrip() if open_.endswith((" ", "\t")) else text


def _section(title: str) -> str:
    known = {"tasks": _TASKS, "loops": _LOOPS, "background": _BACKGROUND}
    title = title.strip(" :：")
    found = (name for name, form in known.items() if re.fullmatch(form, title, re.IGNORECASE))
    return next(found, "more")


def _take_line(page: _MarkdownPage, line: str, *, plain: bool) -> None:
    match page.section:
        case "loops":
            page.loops.append(line)
            page.loop_lines.append(page.line)
        case "tasks" if page.tasks:
            _take_task_line(page.tasks[-1], line, page.line, plain=plain)
        case _:
            page.background.append(line)


def _take_task_line(task: _MarkdownTask, line: str, number: int, *, plain: bool) -> None:
    found = _FIELD.fullmatch(line.rstrip()) if plain else None
    name = _FIELD_NAMES.get(found[1].strip().casefold(), "") if found else ""
    if found and name and name not in task.fields:
        task.fields[name], task.last = found[2].strip(), name
        task.places[name] = MarkdownPlace(
            number, found.start(2) + 1, found[1].strip(), found[2].strip()
        )
    elif _continues_field(task, line):
        task.fields[task.last] += f" {line.strip()}"
    else:
        task.last = "prompt"
        task.text.append((number, line))


def _continues_field(task: _MarkdownTask, line: str) -> bool:
    """Whether an indented line continues the field above it."""
    set_back = line.startswith((" ", "\t")) and bool(line.strip())
    if not set_back or task.last in {"", "prompt"}:
        return False
    return len(task.fields[task.last]) < _MAX_FIELD


def _page_data(page: _MarkdownPage) -> dict[str, Any]:
    names = _task_ids(page.tasks)
    known = _task_names(page.tasks, names)
    nodes: list[dict[str, Any]] = [{"id": "start", "type": "start"}]
    edges: list[dict[str, Any]] = []
    undoing = {_resolve_name(task.fields.get("onCancel", ""), known) for task in page.tasks}
    for task, name in zip(page.tasks, names, strict=True):
        nodes.append(_node_data(task, name, known))
        edges += _edge_data(task, name, known, is_first=name not in undoing)
    edges += _loop_edges(page.loops, known)
    return {
        "name": page.name,
        "description": "\n".join(page.background).strip(),
        "nodes": nodes if page.tasks else [],
        "edges": edges,
    }


def _task_ids(tasks: Sequence[_MarkdownTask]) -> list[str]:
    """The ids of tasks: the written numbers if they are complete and unique, otherwise the
    positions.
    """
    numbers = [task.number.lstrip("0") or "0" for task in tasks]
    own = all(task.number for task in tasks) and len(set(numbers)) == len(numbers)
    return [f"task-{number if own else n}" for n, number in enumerate(numbers, start=1)]


def _task_names(tasks: Sequence[_MarkdownTask], names: Iterable[str]) -> Mapping[str, str]:
    """Alternative names of tasks: title, number and id."""
    known: dict[str, str] = {}
    for task, name in zip(tasks, names, strict=True):
        for called in (name, name.removeprefix("task-"), task.title.casefold()):
            known.setdefault(called, name)
    return known


def _node_data(task: _MarkdownTask, name: str, known: Mapping[str, str]) -> dict[str, Any]:
    data: dict[str, Any] = {"id": name, "name": task.title}
    text = "\n".join([task.fields.get("prompt", ""), *(line for _, line in task.text)]).strip()
    for key, value in task.fields.items():
        if key in _BODY_FIELDS | _NODE_FIELDS:
            names = [_resolve_name(each, known) for each in _split_list(value)]
            data[key] = names if key in _BODY_FIELDS else "".join(names[:1])
        elif key not in {"prompt", "after", "when"}:
            data[key] = value
    kind = data.get("type", "").strip()
    data["type"] = _TYPE_NAMES.get(kind, kind) or "task"
    timeout = spec_of(data["type"]).markdown_timeout
    if timeout:
        data.setdefault("timeout", timeout)
    return {**data, "prompt": text} if text else data


def _edge_data(
    task: _MarkdownTask, name: str, known: Mapping[str, str], *, is_first: bool
) -> Iterator[dict[str, Any]]:
    """The edges to this task from the tasks that it names; `is_first` if it starts without any."""
    before = [_resolve_name(each, known) for each in _split_list(task.fields.get("after", ""))]
    condition = task.fields.get("when", "")
    for each in before or ["start"] * is_first:
        edge = {"from": each, "to": name}
        yield {**edge, "condition": condition} if condition else edge


def _loop_edges(lines: Iterable[str], known: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        arrow = _ARROW.search(line)
        if arrow is None:
            continue
        target = line[arrow.end() :]
        brackets = _RULE.search(target)
        rule = brackets[1][:_MAX_RULE] if brackets else ""
        target = target[: brackets.start()] if brackets else target
        most = _MAX_LOOPS_TEXT.search(rule)
        condition = _CONDITION_WORD.sub("", _MAX_LOOPS_TEXT.sub("", rule)).strip(" ,，;；")
        yield {
            "from": _resolve_name(line[: arrow.start()].strip().lstrip("-*+ "), known),
            "to": _resolve_name(target, known),
            "maxLoops": int(most[1]) if most else DEFAULT_MAX_LOOPS,
            "label": "loop",
            **({"condition": condition} if condition else {}),
        }


def _split_list(text: str) -> list[str]:
    parts = re.split(r"[,，、;；]", text.strip().strip("[]"))
    return [part.strip() for part in parts if part.strip().casefold() not in _EMPTY_WORDS]


def _resolve_name(name: str, known: Mapping[str, str]) -> str:
    """The id of a task by any of its names; unknown names stay as they are and are reported when
    the edges are validated.
    """
    name = name.strip().strip("`\"'“”")
    return known.get(name) or known.get(name.casefold()) or name
